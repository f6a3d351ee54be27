"""Making ``tpu`` a PyTorch device: cheap enough to run at every ``import torch``.

Only names are registered here; kernels and JAX are loaded when the first op reaches the device.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_KEPT: list[Any] = []
registered = False


class _Hook(torch._C._acc.PrivateUse1Hooks):
    def is_available(self) -> bool:
        return True

    def has_primary_context(self, dev_id: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


class _Guard(torch._C._acc.DeviceGuard):
    def type_(self) -> Any:
        return torch._C._autograd.DeviceType.PrivateUse1


def _boxed(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The boxed fallback: the first op registers all kernels and is dispatched again."""
    from lazytpu.dispatch import install

    if not install.installed:
        install.install()
        return op(*args, **kwargs)
    return install.last_resort(op, *args, **kwargs)


def register() -> None:
    """Register the device; does nothing the second time.

    Raises:
        RuntimeError: another package holds PyTorch's slot for out-of-tree devices.
    """
    global registered
    if registered:
        return
    taken = torch._C._get_privateuse1_backend_name()
    if taken != "privateuseone":
        raise RuntimeError(
            f"lazytpu cannot register the device 'tpu': another package has already registered '{taken}' as PyTorch's "
            "one out-of-tree device in this process. Uninstall it, or start Python with TORCH_DEVICE_BACKEND_AUTOLOAD=0 "
            "and import only the one you want."
        )
    from lazytpu import recorder
    from lazytpu.device import module, patches

    registered = True
    _setup_privateuseone_for_python_backend("tpu", module.make(), _Hook(), _Guard())
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(_boxed, "PrivateUse1")
    _KEPT.append(fallback)
    patches.apply()
    os.register_at_fork(after_in_child=recorder.after_fork)
