"""Moving modules to and from ``tpu`` with parameters, ties and optimizers intact.

PyTorch makes new ``Parameter`` objects where a move changes the device, which unties tied weights and
leaves an optimizer with the old ones. Swapping contents instead keeps the objects; that is switched on
only while a module is moved to or from ``tpu``.
"""

from __future__ import annotations

import functools
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from lazytpu.device import backward, scripting

_local = threading.local()
_Places = list[tuple[nn.Module, str]]


def apply() -> None:
    """Wrap the methods of ``nn.Module`` that move or convert it."""
    _wrap_conversion()
    for name in ("to", "to_empty", "tpu"):
        _wrap_move(name)
    _wrap_swap()


def _is_tpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "tpu"


def _wrap_move(name: str) -> None:
    """Note the destination while one of the named moves runs."""
    original = getattr(nn.Module, name)

    def destination(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if name == "tpu":
            return True
        if name == "to_empty":
            return _is_tpu(args[0] if args else kwargs.get("device"))
        try:
            return _is_tpu(torch._C._nn._parse_to(*args, **kwargs)[0])
        except (TypeError, RuntimeError):
            return False

    @functools.wraps(original)
    def move(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not destination(args, kwargs):
            return original(self, *args, **kwargs)
        before = getattr(_local, "to_tpu", False)
        _local.to_tpu = True
        try:
            return original(self, *args, **kwargs)
        finally:
            _local.to_tpu = before

    setattr(nn.Module, name, move)


def _wrap_conversion() -> None:
    original = nn.Module._apply

    @functools.wraps(original)
    def _apply(self: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> Any:
        if getattr(_local, "moving", False) or not _concerns_tpu(self):
            return original(self, fn, recurse)
        if isinstance(self, torch.jit.ScriptModule):
            return scripting.convert(self, fn)
        _local.moving = True
        try:
            return _moved(original, self, fn, recurse)
        finally:
            _local.moving = False

    nn.Module._apply = _apply  # type: ignore[method-assign]


def _concerns_tpu(module: nn.Module) -> bool:
    """Whether ``module`` is on its way to ``tpu`` or partly there."""
    if getattr(_local, "to_tpu", False):
        return True
    return backward.in_use() and any(t.device.type == "tpu" for t in _tensors(module))


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            yield from (t for t in held.values() if t is not None)


@contextmanager
def _swapping() -> Iterator[None]:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _moved(original: Callable[..., Any], module: nn.Module, fn: Callable[..., Any], recurse: bool) -> Any:
    """Convert ``module`` by swapping; where that cannot be, make new parameters and tie what was tied."""
    places = _places_of_tensors(module)
    buffers = {key: held for key, held in places.items() if held[0][1] in held[0][0]._buffers}
    try:
        with _swapping():
            result = original(module, fn, recurse)
    except RuntimeError as error:
        if "Couldn't swap" not in str(error):
            raise
        result = original(module, fn, recurse)
        replaced = _tie(places, "_parameters")
        if replaced:
            warnings.warn(
                f"the parameters {', '.join(replaced[:3])}{'…' if len(replaced) > 3 else ''} are in use elsewhere (a graph "
                "kept alive holds them), so new ones were made on the device: make the optimizer after the move.",
                stacklevel=4,
            )
    _tie(buffers, "_buffers")
    return result


def _places_of_tensors(module: nn.Module) -> dict[int, _Places]:
    """Where each tensor of the module is held, by identity, parameters and buffers alike."""
    places: dict[int, _Places] = {}
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for key, tensor in held.items():
                if tensor is not None:
                    places.setdefault(id(tensor), []).append((part, key))
    return places


def _tie(places: dict[int, _Places], kind: str) -> list[str]:
    """Put one object wherever one object was before; returns the names of those that are new."""
    new = []
    for identity, held in places.items():
        owners = [(getattr(part, kind), key) for part, key in held if key in getattr(part, kind)]
        if not owners:
            continue
        tensor = owners[0][0][owners[0][1]]
        if id(tensor) != identity:
            new.append(owners[0][1])
        for owner, key in owners[1:]:
            owner[key] = tensor
    return new


def _wrap_swap() -> None:
    """While a module moves, a weak reference to a parameter is no obstacle: it keeps meaning that parameter."""
    original = torch.utils.swap_tensors
    none = types.SimpleNamespace(getweakrefs=lambda tensor: ())
    blind = types.FunctionType(original.__code__, {**original.__globals__, "weakref": none}, original.__name__)

    @functools.wraps(original)
    def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> None:
        return (blind if getattr(_local, "moving", False) else original)(t1, t2)

    torch.utils.swap_tensors = swap_tensors
