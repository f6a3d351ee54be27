"""Lists of tensors treated alike in one op: each element is lowered by the rule of the single-tensor op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import torch

from lazytpu.ir import Slot, TensorType, tensor_type
from lazytpu.lowering.context import Context
from lazytpu.lowering.registry import RULES, rule

_UNIT = tensor_type((), torch.int64)


class _Part(NamedTuple):
    """What the rule of the single-tensor op sees of one element: a signature of its own."""

    op: str
    inputs: tuple[TensorType, ...]
    args: tuple[Any, ...]
    outputs: tuple[TensorType, ...]
    kinds: tuple[str, ...]


def _element(x: Any, i: int) -> Any:
    return x[i] if isinstance(x, (list, tuple)) else x


def _lower_each(single: str, ctx: Context, args: Any, unit: bool) -> list[Any]:
    """The results of ``single`` on each element.

    Where ``unit``, the single-tensor op takes one factor more than the list op: 1.
    """
    whole = ctx.signature
    results = []
    for i, out in enumerate(ctx.outs):
        types: list[TensorType] = []
        kinds: list[str] = []
        template: list[Any] = []
        operands: list[Any] = []
        for spec, x in zip(whole.args, args):
            spec, operand = _element(spec, i), _element(x, i)
            if isinstance(spec, Slot):
                types.append(whole.inputs[spec.index])
                kinds.append(whole.kinds[spec.index])
                spec = Slot(len(types) - 1)
            template.append(spec)
            operands.append(operand)
        if unit:
            types.append(_UNIT)
            kinds.append("number")
            template.append(Slot(len(types) - 1))
            operands.append(jnp.int64(1))
        part: Any = _Part(single, tuple(types), tuple(template), (out,), tuple(kinds))
        context = Context(part, ctx.platform)
        results.append(RULES[single].lower(context, *operands))
        ctx.checks += context.checks
    return results


def _each(name: str, single: str, unit: bool = False, static: tuple[str, ...] = ()) -> None:
    """Register the rule of a list op, in terms of the rule of ``single``."""

    @rule(f"_foreach_{name}", static=static)
    def lower(ctx: Context, *args: Any) -> Any:
        return _lower_each(f"aten::{single}", ctx, args, unit)


_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)
_SCALARS = ("Scalar", "ScalarList")

for _name in _UNARY.split():
    _each(_name, _name)
for _name in ("add", "sub"):
    _each(f"{_name}.List", f"{_name}.Tensor")
    for _overload in _SCALARS:
        _each(f"{_name}.{_overload}", f"{_name}.Tensor", unit=True)
_each("add.Tensor", "add.Tensor")
for _name in ("mul", "div"):
    for _overload in ("List", "Tensor", *_SCALARS):
        _each(f"{_name}.{_overload}", f"{_name}.Tensor")
for _name in ("clamp_min", "clamp_max"):
    _each(f"{_name}.List", f"{_name}.Tensor")
    for _overload in _SCALARS:
        _each(f"{_name}.{_overload}", _name)
for _name, _limit in (("maximum", "clamp_min"), ("minimum", "clamp_max")):
    _each(f"{_name}.List", _name)
    for _overload in _SCALARS:
        _each(f"{_name}.{_overload}", _limit)
for _name in ("addcmul", "addcdiv"):
    for _overload in _SCALARS:
        _each(f"{_name}.{_overload}", _name)
_each("lerp.List", "lerp.Tensor")
for _overload in _SCALARS:
    _each(f"lerp.{_overload}", "lerp.Scalar")
    _each(f"pow.{_overload}", "pow.Tensor_Scalar", static=("exponent",))
_each("pow.List", "pow.Tensor_Tensor")
_each("pow.ScalarAndTensor", "pow.Scalar")
_each("max", "max")
_each("mm", "mm")


@rule("_foreach_norm.Scalar", static=("ord",))
def norm(ctx: Context, self: list[Any], ord: Any, dtype: Any) -> Any:
    lower: Callable[..., Any] = RULES["aten::linalg_vector_norm"].lower
    parts: list[Any] = [_Part("aten::linalg_vector_norm", (t,), (), (out,), ("tensor",)) for t, out in zip(ctx.ins, ctx.outs)]
    return [lower(Context(part, ctx.platform), x, ord, None, False, dtype) for part, x in zip(parts, self)]


@rule("_foreach_zero")
def zero(ctx: Context, self: list[Any]) -> Any:
    return [jnp.zeros_like(x) for x in self]
