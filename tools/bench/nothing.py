"""A device whose kernels do nothing: what PyTorch's own dispatch of single ops costs, the floor for any Python device.

``tools.bench.floor`` does the same for whole training steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_KEPT: list[Any] = []


class _Module:
    """The least that PyTorch asks of a device module."""

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        return None


def register() -> None:
    """Register the device ``tpu`` with kernels that make empty results and return."""
    make = torch._C._acc.create_empty_tensor
    meta = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
    as_strided = torch.ops.aten.as_strided.default
    _setup_privateuseone_for_python_backend("tpu", _Module())
    library = torch.library.Library("aten", "IMPL")
    _KEPT.append(library)

    def empty(size: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> torch.Tensor:
        return make(size, dtype or torch.float32)

    kernels = {
        "empty.memory_format": empty,
        "empty_strided": lambda size, stride, dtype=None, *a, **k: make(size, dtype or torch.float32),
        "add.Tensor": lambda x, y, alpha=1: make((8, 8), torch.float32),
        "add_.Tensor": lambda x, y, alpha=1: x,
        "fill_.Scalar": lambda x, value: x,
        "copy_": lambda x, y, non_blocking=False: x,
        "as_strided": lambda x, size, stride, offset=None: as_strided.redispatch(meta, x, size, stride, offset),
        "view": lambda x, size: torch.ops.aten.view.default.redispatch(meta, x, size),
    }
    for name, kernel in kernels.items():
        library.impl(name, kernel, "PrivateUse1")
