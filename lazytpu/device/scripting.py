"""TorchScript files: its C++ reads and writes storages directly, where a tensor on ``tpu`` has no bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def apply() -> None:
    """Save only what is on the host; load there and move."""
    load, save = torch.jit.load, torch.jit.save

    @functools.wraps(save)
    def save_checked(m: Any, *args: Any, **kwargs: Any) -> Any:
        _check(m)
        return save(m, *args, **kwargs)

    @functools.wraps(load)
    def load_and_move(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if map_location is None or torch.device(map_location).type != "tpu":
            return load(f, map_location, *args, **kwargs)
        return convert(load(f, "cpu", *args, **kwargs), lambda t: t.to(map_location))

    torch.jit.save, torch.jit.load = save_checked, load_and_move
    for name in ("save", "save_to_buffer"):
        setattr(torch.jit.RecursiveScriptModule, name, _checked_method(getattr(torch.jit.RecursiveScriptModule, name)))


def convert(module: Any, fn: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Put ``fn`` of each parameter and buffer in its place: C++ holds them too, so their content cannot be swapped."""
    made: dict[int, torch.Tensor] = {}
    kept = []
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in list(held.items()):
                if tensor is None:
                    continue
                kept.append(tensor)
                if id(tensor) not in made:
                    with torch.no_grad():
                        made[id(tensor)] = fn(tensor).detach().requires_grad_(tensor.requires_grad)
                held[name] = made[id(tensor)]
    return module


def _checked_method(method: Any) -> Any:
    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check(self)
        return method(self, *args, **kwargs)

    return checked


def _check(module: Any) -> None:
    if isinstance(module, torch.nn.Module) and any(t.device.type == "tpu" for t in module.state_dict().values()):
        raise RuntimeError(
            "TorchScript cannot save tensors on 'tpu': call .cpu() on the module first, or torch.save its state_dict()"
        )
