"""Pinned memory for CPU tensors: registering a device without an allocator for it breaks pinning for all.

Where CUDA is available its users get CUDA's pinned memory, as without lazytpu. Elsewhere ``pin_memory``
returns the tensor itself: XLA copies a batch out of ordinary memory while the host goes on.
"""

from __future__ import annotations

from typing import Any

import torch

_COMPOSITE = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse2)


def _pinning_device(device: Any) -> torch.device | None:
    """The device whose allocator pins, or None where pinning means nothing."""
    if device is not None and torch.device(device).type not in ("cpu", "tpu"):
        return torch.device(device)
    return torch.device("cuda") if torch.cuda.is_available() else None


def _pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    target = _pinning_device(device)
    return self if target is None else torch.ops.aten._pin_memory.default.redispatch(_COMPOSITE, self, target)


def _is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    target = _pinning_device(device)
    return target is not None and torch.ops.aten.is_pinned.default.redispatch(_COMPOSITE, self, target)


def _record_stream(self: torch.Tensor, s: Any) -> None:
    """Nothing to do: memory is given back when the last program that uses it has finished."""


def register(library: torch.library.Library) -> None:
    """Register the kernels on an ``aten`` library."""
    library.impl("_pin_memory", _pin_memory, "CPU")
    library.impl("is_pinned", _is_pinned, "CPU")
    library.impl("record_stream", _record_stream, "PrivateUse1")
