"""``torch.tpu``: what ``torch.cuda`` has that makes sense for chips behind one asynchronous runtime."""

from __future__ import annotations

import types
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.device import random


class TpuModule(types.ModuleType):
    """The module object behind ``torch.tpu``."""


def is_available() -> bool:
    """Whether the device can be used: always, since emulated chips stand in where no TPU is attached."""
    return True


def device_count() -> int:
    """1: to PyTorch all chips of the mesh are one device."""
    return 1


def current_device() -> int:
    """The index of the current device: 0."""
    return 0


def synchronize(device: Any = None) -> None:
    """Run everything recorded so far and wait until the device has finished."""
    recorder.sync(wait=True)


def manual_seed_all(seed: int) -> None:
    """Seed the device's random numbers; ``torch.manual_seed`` calls this."""
    random.default.reseed(seed)


manual_seed = manual_seed_all


def _is_in_bad_fork() -> bool:
    return recorder.forked


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("tpu")`` accepts."""
    return [torch.bfloat16, torch.float16]


def make() -> TpuModule:
    """The module object, with every public name of this file."""
    module = TpuModule("torch.tpu", __doc__)
    for name, value in globals().items():
        if callable(value) and name not in ("TpuModule", "make", "Any") and getattr(value, "__module__", "") == __name__:
            setattr(module, name, value)
    return module
