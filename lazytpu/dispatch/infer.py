"""Shapes and dtypes of results, asked of PyTorch's own meta kernels."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch._ops import OpOverload

from lazytpu.dispatch import cells
from lazytpu.ir import TensorType, tensor_type


def stand_in(type: TensorType) -> torch.Tensor:
    """A meta tensor of this type."""
    return torch.empty(type.shape, dtype=type.dtype, device="meta")


def to_meta(x: Any, strided: bool = False) -> Any:
    """``x`` with tensors on ``tpu`` replaced by meta tensors, row-major unless ``strided``."""
    if isinstance(x, torch.Tensor):
        if x.device.type == "tpu":
            if strided:
                return torch.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device="meta")
            return torch.empty(tuple(x.shape), dtype=x.dtype, device="meta")
        return x
    if isinstance(x, (list, tuple)):
        return [to_meta(item, strided) for item in x]
    if isinstance(x, torch.device):
        return torch.device("meta")
    return x


def _zeros(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return torch.zeros(tuple(x.shape), dtype=x.dtype, device="cpu")
    if isinstance(x, (list, tuple)):
        return [_zeros(item) for item in x]
    return torch.device("cpu") if isinstance(x, torch.device) else x


_UNLIKE_CPU = {torch.ops.aten.multi_margin_loss.default, torch.ops.aten.multilabel_margin_loss_forward.default}
"""Ops whose meta kernel gives other shapes than their CPU kernel."""


def check_empty(op: OpOverload, args: list[Any]) -> None:
    """Raise what CPU raises where the only tensor of a call has no elements: meta kernels let more pass."""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if len(tensors) != 1 or tensors[0].numel() or any(isinstance(x, torch.device) for x in args):
        return
    keywords = {a.name: _zeros(x) for a, x in zip(op._schema.arguments, args) if a.kwarg_only}
    positional = [_zeros(x) for a, x in zip(op._schema.arguments, args) if not a.kwarg_only]
    with contextlib.suppress(NotImplementedError):
        op(*positional, **keywords)


def call(op: OpOverload, args: list[Any], strided: bool = False) -> Any:
    """The result of ``op`` on stand-ins for ``args``, given in the schema's order.

    Raises what PyTorch raises for these shapes and dtypes. An op without a meta kernel, or with one
    that fails on empty tensors, runs on zeros on the CPU instead, unless it returns nothing.
    """
    positional, keywords = [], {}
    for argument, x in zip(op._schema.arguments, args):
        if argument.name == "generator":
            x = None  # decides no shape, and some meta kernels refuse one
        if argument.kwarg_only:
            keywords[argument.name] = x
        else:
            positional.append(x)
    if "device" in keywords:
        keywords["device"] = torch.device("meta")
    try:
        if op in _UNLIKE_CPU:
            raise NotImplementedError
        return op(*to_meta(positional, strided), **{k: to_meta(v, strided) for k, v in keywords.items()})
    except AssertionError as error:
        # PyTorch's meta kernels in Python assert where its other kernels raise RuntimeError.
        raise RuntimeError(str(error)) from None
    except (NotImplementedError, ZeroDivisionError):
        if not op._schema.returns:
            return None
        if "device" in keywords:
            keywords["device"] = torch.device("cpu")
        return op(*_zeros(positional), **{k: _zeros(v) for k, v in keywords.items()})


def types_of(result: Any) -> Any:
    """The structure of ``result`` with a ``TensorType`` for each tensor."""
    if isinstance(result, torch.Tensor):
        return tensor_type(tuple(result.shape), result.dtype)
    if isinstance(result, (list, tuple)):
        kind = type(result) if type(result) in (list, tuple) else tuple
        return kind(map(types_of, result))
    return None


def flatten(structure: Any) -> tuple[TensorType, ...]:
    """The types in ``structure``, in order."""
    if isinstance(structure, TensorType):
        return (structure,)
    if isinstance(structure, (list, tuple)):
        return tuple(t for item in structure for t in flatten(item))
    return ()


def rebuild(structure: Any, tensors: Any) -> Any:
    """``structure`` with its types replaced by tensors taken from the iterator ``tensors``."""
    if isinstance(structure, TensorType):
        return next(tensors)
    if isinstance(structure, (list, tuple)):
        return type(structure)(rebuild(item, tensors) for item in structure)
    return None


def check_same_device(op: OpOverload, args: list[Any]) -> None:
    """Raise as CUDA does where tensors of ``tpu`` and of another device are mixed.

    A 0-dimensional CPU tensor counts as a number.
    """
    for x in args:
        for item in x if isinstance(x, (list, tuple)) else (x,):
            if isinstance(item, torch.Tensor) and not cells.is_lazy(item) and (item.device.type != "cpu" or item.dim()):
                raise cells.mixed_devices(item, op._schema.name)
