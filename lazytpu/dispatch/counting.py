"""Kernels of counts whose length is the largest value counted: that one number is read on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.dispatch import cells
from lazytpu.ir import Signature, Slot, tensor_type

_SIGNATURES: dict[tuple[Any, ...], Signature] = {}


def _bincount(self: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if self.is_floating_point() or self.is_complex() or self.dtype is torch.bool:
        raise NotImplementedError(f'"bincount" not implemented for {self.dtype}')
    if self.dim() != 1 and self.numel():
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and (weights.dim() != 1 or weights.shape != self.shape):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if self.numel() == 0:
        return torch.zeros(minlength, dtype=torch.int64, device=self.device)
    least, greatest = torch.aminmax(self)
    length = max(int(greatest.item()) + 1, minlength)
    if int(least.item()) < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    dtype = torch.int64 if weights is None else weights.dtype if weights.dtype is torch.float32 else torch.float64
    with recorder.lock:
        inputs = [cells.read(self)] if weights is None else [cells.read(self), cells.read(weights)]
        types = tuple(value.type for value in inputs)
        signature = _SIGNATURES.get((types, length))
        if signature is None:
            template = (Slot(0), None if weights is None else Slot(1))
            outputs = (tensor_type((length,), dtype),)
            signature = Signature("lazytpu::bincount", types, template, outputs, ("tensor",) * len(types))
            _SIGNATURES[types, length] = signature
        return cells.new(recorder.record(signature, tuple(inputs))[0])


KERNELS: dict[str, Callable[..., Any]] = {"bincount": _bincount}
"""Kernels by overload name, for registration."""
