"""Reading without stalling: a handle on a tensor's value that is fetched when asked."""

from __future__ import annotations

from typing import Any

import torch

from lazytpu import recorder
from lazytpu.dispatch import cells, host
from lazytpu.ir import Value


class Later:
    """The value a tensor had when ``later`` was called."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def done(self) -> bool:
        """Whether ``result()`` would return without running or waiting for anything."""
        value = self._value
        return value.host is not None or (value.buffer is not None and bool(value.buffer.array.is_ready()))

    def result(self) -> Any:
        """The Python number of a one-element tensor, else a CPU tensor; waits for it."""
        tensor = host.tensor_of(self._value)
        return tensor.item() if tensor.numel() == 1 else tensor.clone()


def later(tensor: torch.Tensor) -> Later:
    """A handle to read ``tensor`` with in a later step, without stalling this one.

    Later writes to the tensor do not change what the handle reads. Typical use: keep the handle of a
    loss and log it a step later, when ``done()``.
    """
    if not cells.is_lazy(tensor):
        raise TypeError(f"lazytpu.later takes a tensor on 'tpu', not one on '{tensor.device}'")
    with recorder.lock:
        return Later(cells.read(tensor))
