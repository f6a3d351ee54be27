"""Making ``tpu`` a PyTorch device: cheap enough to run at every ``import torch``.

Only names are registered here; kernels and JAX are loaded when the first op reaches the device.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from lazytpu.device.backward import keep_pending

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
        keep_pending()
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
        RuntimeError: another package holds PyTorch's slot for out-of-tree devices, or the name ``torch.tpu``.
    """
    global registered
    if registered:
        return
    _check_free()
    from lazytpu import recorder
    from lazytpu.device import autocast, module, patches, pinning

    registered = True
    _setup_privateuseone_for_python_backend("tpu", module.make(), _Hook(), _Guard())
    every, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(_boxed, "PrivateUse1")
    autocast.fall_through(every)
    pinning.register(aten)
    _KEPT.extend((every, aten))
    patches.apply()
    os.register_at_fork(after_in_child=recorder.after_fork)


def _check_free() -> None:
    """Raise where the slot, or the name, is taken."""
    taken = torch._C._get_privateuse1_backend_name()
    if taken == "privateuseone" and not hasattr(torch, "tpu"):
        return
    name = "tpu" if taken == "privateuseone" else taken
    owner = getattr(torch, name, None)
    where = getattr(owner, "__file__", None) or type(owner).__module__
    hints = [f"torch.{name} comes from {where}"] if owner is not None else []
    others = _other_backends()
    if others:
        hints.append(f"installed packages that register devices: {', '.join(others)}")
    hint = f" ({'; '.join(hints)})" if hints else ""
    raise RuntimeError(
        f"lazytpu cannot register the device 'tpu': another package has already registered '{name}' as PyTorch's one "
        f"out-of-tree device in this process{hint}. "
        "Uninstall it, or start Python with TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the one you want."
    )


def _other_backends() -> list[str]:
    """The packages besides this one that PyTorch loads as device backends."""
    from importlib.metadata import entry_points

    names = {point.dist.name for point in entry_points(group="torch.backends") if point.dist is not None}
    return sorted(names - {"lazytpu"})
