"""List ops whose tensors share memory or lie on several devices: done one tensor after the other, as on CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from lazytpu.storage import LazyStorage

_storage_of: Callable[[torch.Tensor], Any] = torch._C.TensorBase.untyped_storage
# An empty backend's keys: they pick PyTorch's composite kernel, which calls the single-tensor ops.
_COMPOSITE = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse2)


def _independent(args: tuple[Any, ...], writes: bool) -> bool:
    """Whether the turns of a call can be done at once: none reads or writes what another writes.

    Nor may a tensor be on another device, unless it is a number.
    """
    turns: dict[int, int] = {}
    for position, x in enumerate(args):
        tensors = x if type(x) is list else (x,)
        for turn, tensor in enumerate(tensors):
            if not isinstance(tensor, torch.Tensor):
                break
            storage = _storage_of(tensor)
            target = writes and position == 0
            if type(storage) is not LazyStorage:
                if target or tensor.dim():
                    return False
                continue
            known = turns.setdefault(id(storage), turn) if target else turns.get(id(storage), turn)
            if known != turn or (tensors is not x and turns.get(id(storage)) is not None):
                return False
    return True


def guarded(op: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel`` for calls whose turns are independent; other ops keep their kernel."""
    schema = op._schema
    if not schema.name.startswith("aten::_foreach_") or any(a.is_out for a in schema.arguments):
        return kernel
    writes = schema.is_mutable

    def at_once(*args: Any, **kwargs: Any) -> Any:
        if _independent(args, writes):
            return kernel(*args, **kwargs)
        return op.redispatch(_COMPOSITE, *args, **kwargs)

    return at_once
