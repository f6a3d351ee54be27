"""``LazyTensor``: the type of every tensor on ``tpu``."""

from __future__ import annotations

from typing import Any

import torch


class _LazyTensorMeta(type(torch.Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.device.type == "tpu"


class LazyTensor(torch.Tensor, metaclass=_LazyTensorMeta):
    """A tensor on ``tpu``.

    Every tensor on the device is one to ``isinstance``, parameters, gradients and views included.
    Its Python class stays ``torch.Tensor`` (or ``nn.Parameter``): optimizers, ``torch.compile`` and
    user code that look at exact types see what they expect, and all lazy state is on the storage.
    """
