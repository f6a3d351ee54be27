"""Arithmetic, comparison, logic and selection of two or three tensors, element by element.

Operands are first promoted as PyTorch does it. Half types are then computed in float32 (PyTorch's
``opmath``), and integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.conversion import convert
from lazytpu.lowering.registry import rule


def is_float(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is a real floating-point type."""
    return bool(jnp.issubdtype(dtype, jnp.floating))


def is_integer(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is an integer type; bool is none."""
    return bool(jnp.issubdtype(dtype, jnp.integer))


def _as(dtype: np.dtype, *operands: Any) -> list[Any]:
    return [convert(jnp.asarray(x), dtype) for x in operands]


def promoted(ctx: Context, *operands: Any) -> list[Any]:
    """The leading arguments of the op in the dtype that PyTorch promotes them to."""
    return _as(ctx.common_dtype(*range(len(operands))), *operands)


def _in(dtype: np.dtype, *operands: Any) -> list[Any]:
    """The operands in the dtype to compute in, rounded to ``dtype`` on the way.

    As on CPU an operand of one element, the first aside, is not rounded.
    """
    math = opmath(dtype)
    first, *others = map(jnp.asarray, operands)
    return [convert(convert(first, dtype), math), *(convert(convert(x, dtype) if x.size != 1 else x, math) for x in others)]


def _math(ctx: Context, *operands: Any) -> list[Any]:
    return _in(ctx.common_dtype(*range(len(operands))), *operands)


def _float_math(ctx: Context, *operands: Any) -> list[Any]:
    """As ``_math``; integers become the default dtype."""
    dtype = ctx.common_dtype(*range(len(operands)))
    return _in(dtype if jnp.issubdtype(dtype, jnp.inexact) else ctx.dtype, *operands)


def _rounded_math(ctx: Context, *operands: Any) -> list[Any]:
    """As ``_math``, scalars too rounded to the common dtype."""
    xs = promoted(ctx, *operands)
    return _as(opmath(xs[0].dtype), *xs)


# Sums and products


@rule("add.Tensor", "add.Scalar", pointwise=True)
def add(ctx: Context, self: Any, other: Any, alpha: Any) -> Any:
    x, y = _rounded_math(ctx, self, other)
    (a,) = _as(x.dtype, alpha)
    return x | (a & y) if x.dtype == bool else x + a * y


@rule("sub.Tensor", "sub.Scalar", pointwise=True)
def sub(ctx: Context, self: Any, other: Any, alpha: Any) -> Any:
    x, y = _rounded_math(ctx, self, other)
    return x - _as(x.dtype, alpha)[0] * y


@rule("rsub.Tensor", "rsub.Scalar", pointwise=True)
def rsub(ctx: Context, self: Any, other: Any, alpha: Any) -> Any:
    x, y = _rounded_math(ctx, self, other)
    return y - _as(x.dtype, alpha)[0] * x


@rule("mul.Tensor", "mul.Scalar", pointwise=True)
def mul(ctx: Context, self: Any, other: Any) -> Any:
    x, y = _math(ctx, self, other)
    return x & y if x.dtype == bool else x * y


@rule("addcmul", pointwise=True)
def addcmul(ctx: Context, self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    x, y, z = _math(ctx, self, tensor1, tensor2)
    return x + _as(x.dtype, value)[0] * y * z


@rule("addcdiv", pointwise=True)
def addcdiv(ctx: Context, self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    x, y, z = _math(ctx, self, tensor1, tensor2)
    return x + _as(x.dtype, value)[0] * y / z


@rule("lerp.Scalar", "lerp.Tensor", pointwise=True)
def lerp(ctx: Context, self: Any, end: Any, weight: Any) -> Any:
    x, y, w = _as(opmath(ctx.dtype), self, end, weight)
    # Two branches, so that each end is met exactly and nothing between is overshot.
    return jnp.where(jnp.abs(w) < 0.5, x + w * (y - x), y - (y - x) * (1 - w))


# Divisions


def _divisor(ctx: Context, y: Any) -> Any:
    """An integer divisor, required not to be zero."""
    ctx.require(y != 0, "ZeroDivisionError", RuntimeError)
    return jnp.where(y == 0, jnp.ones_like(y), y)


def _truncated(x: Any, y: Any) -> Any:
    x, y = jnp.broadcast_arrays(x, y)
    return lax.div(x, y)


def _rest(x: Any, y: Any) -> Any:
    """What C's ``%`` and ``fmod`` leave: it has the sign of the dividend."""
    x, y = jnp.broadcast_arrays(x, y)
    return lax.rem(x, y)


def _floored(ctx: Context, x: Any, y: Any) -> Any:
    if is_integer(x.dtype):
        y = _divisor(ctx, y)
        return _truncated(x, y) - ((_rest(x, y) != 0) & ((x < 0) != (y < 0))).astype(x.dtype)
    # Python's floor division: the rest is exact, so the quotient is rounded only once.
    rest = _rest(x, y)
    quotient = (x - rest) / y
    quotient = jnp.where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    floor = jnp.floor(quotient)
    floor = jnp.where(quotient - floor > 0.5, floor + 1, floor)
    floor = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(floor), x / y), floor)
    return jnp.where(y == 0, x / y, floor)


@rule("div.Tensor", "div.Scalar", pointwise=True)
def div(ctx: Context, self: Any, other: Any) -> Any:
    x, y = _float_math(ctx, self, other)
    return x / y


@rule("div.Tensor_mode", "div.Scalar_mode", pointwise=True)
def div_mode(ctx: Context, self: Any, other: Any, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return div(ctx, self, other)
    if rounding_mode == "floor":
        return floor_divide(ctx, self, other)
    x, y = _rounded_math(ctx, self, other)
    if is_integer(x.dtype):
        return _truncated(x, _divisor(ctx, y))
    return jnp.trunc((x / y).astype(ctx.common_dtype(0, 1)))  # CPU rounds the quotient of halves first


@rule("floor_divide", "floor_divide.Scalar", pointwise=True)
def floor_divide(ctx: Context, self: Any, other: Any) -> Any:
    return _floored(ctx, *_math(ctx, self, other))


@rule("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor", pointwise=True)
def remainder(ctx: Context, self: Any, other: Any) -> Any:
    x, y = _rounded_math(ctx, self, other)
    if is_integer(x.dtype):
        y = _divisor(ctx, y)
    rest = _rest(x, y)
    return jnp.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


@rule("fmod.Tensor", "fmod.Scalar", pointwise=True)
def fmod(ctx: Context, self: Any, other: Any) -> Any:
    x, y = _rounded_math(ctx, self, other)
    return _rest(x, _divisor(ctx, y) if is_integer(x.dtype) else y)


def _gcd(x: Any, y: Any) -> Any:
    """Euclid's algorithm in signed arithmetic, as on CPU: the smallest integer is its own absolute value."""

    def step(state: tuple[Any, Any]) -> tuple[Any, Any]:
        a, b = state
        done = a == 0
        return jnp.where(done, a, lax.rem(b, jnp.where(done, 1, a))), jnp.where(done, b, a)

    def unfinished(state: tuple[Any, Any]) -> Any:
        return jnp.any(state[0] != 0)

    return lax.while_loop(unfinished, step, (jnp.abs(x), jnp.abs(y)))[1]


@rule("gcd", pointwise=True)
def gcd(ctx: Context, self: Any, other: Any) -> Any:
    return _gcd(*jnp.broadcast_arrays(*promoted(ctx, self, other)))


@rule("lcm", pointwise=True)
def lcm(ctx: Context, self: Any, other: Any) -> Any:
    x, y = jnp.broadcast_arrays(*promoted(ctx, self, other))
    divisor = _gcd(x, y)
    if x.dtype.itemsize < 4:
        x, y, divisor = _as(np.dtype(np.int32), x, y, divisor)  # C computes in int and wraps at the end
    return jnp.where(divisor == 0, 0, jnp.abs(lax.div(x, jnp.where(divisor == 0, 1, divisor)) * y))


# Powers


@rule("pow.Tensor_Tensor", "pow.Scalar", pointwise=True)
def power(ctx: Context, self: Any, exponent: Any) -> Any:
    dtype = ctx.common_dtype(0, 1)
    x, y = jnp.broadcast_arrays(*_as(dtype, self, exponent))
    if is_integer(dtype):
        return _integer_power(x, y)
    x, y = _as(opmath(dtype), x, y)
    if is_float(dtype):
        return lax.pow(x, y)
    return jnp.where((x == 0) & (y.real > 0), 0, lax.pow(x, y))


def _integer_power(x: Any, y: Any) -> Any:
    """Integers to integer powers by repeated squaring, wrapping; negative powers are truncated to integers."""

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        result, base, left = state
        return jnp.where(left & 1, result * base, result), base * base, left >> 1

    def unfinished(state: tuple[Any, Any, Any]) -> Any:
        return jnp.any(state[2] > 0)

    result, _, _ = lax.while_loop(unfinished, step, (jnp.ones_like(x), x, y))
    odd = jnp.where(y & 1, x, x * x)
    return jnp.where(y < 0, jnp.where(jnp.abs(x) == 1, odd, 0), result)


@rule("pow.Tensor_Scalar", static=("exponent",), pointwise=True)
def power_of_number(ctx: Context, self: Any, exponent: Any) -> Any:
    dtype = ctx.common_dtype(0, 1)
    (x,) = _as(opmath(dtype), jnp.asarray(self).astype(dtype))
    if not jnp.issubdtype(dtype, jnp.inexact):
        return lax.integer_pow(x, int(exponent)) if is_integer(dtype) else x | (not exponent)
    special: dict[Any, Callable[[Any], Any]] = {
        0: jnp.ones_like,
        0.5: lax.sqrt,
        1: lambda x: x,
        2: lambda x: x * x,
        3: lambda x: x * x * x,
        -0.5: lambda x: 1 / lax.sqrt(x),
        -1: lambda x: 1 / x,
        -2: lambda x: 1 / (x * x),
    }
    known = None if dtype == np.float16 and abs(exponent) == 0.5 else special.get(exponent)
    return known(x) if known else lax.pow(x, jnp.full_like(x, exponent))


# Other functions of two numbers


@rule("atan2", pointwise=True)
def atan2(ctx: Context, self: Any, other: Any) -> Any:
    return jnp.arctan2(*_float_math(ctx, self, other))


@rule("hypot", pointwise=True)
def hypot(ctx: Context, self: Any, other: Any) -> Any:
    return jnp.hypot(*_math(ctx, self, other))


@rule("maximum", pointwise=True)
def maximum(ctx: Context, self: Any, other: Any) -> Any:
    return jnp.maximum(*promoted(ctx, self, other))


@rule("minimum", pointwise=True)
def minimum(ctx: Context, self: Any, other: Any) -> Any:
    return jnp.minimum(*promoted(ctx, self, other))


@rule("fmax", pointwise=True)
def fmax(ctx: Context, self: Any, other: Any) -> Any:
    return jnp.fmax(*promoted(ctx, self, other))


@rule("fmin", pointwise=True)
def fmin(ctx: Context, self: Any, other: Any) -> Any:
    return jnp.fmin(*promoted(ctx, self, other))


@rule("copysign.Tensor", "copysign.Scalar", pointwise=True)
def copysign(ctx: Context, self: Any, other: Any) -> Any:
    return jnp.copysign(*_float_math(ctx, self, other))


@rule("nextafter", pointwise=True)
def nextafter(ctx: Context, self: Any, other: Any) -> Any:
    return jnp.nextafter(*promoted(ctx, self, other))


def _log_add(x: Any, y: Any, exp: Callable[[Any], Any], log1p: Callable[[Any], Any]) -> Any:
    larger = jnp.maximum(x, y)
    return jnp.where(jnp.isinf(x) & (x == y), x, larger + log1p(exp(-jnp.abs(x - y))))


@rule("logaddexp", pointwise=True)
def logaddexp(ctx: Context, self: Any, other: Any) -> Any:
    x, y = _math(ctx, self, other)
    if is_float(x.dtype):
        return _log_add(x, y, jnp.exp, jnp.log1p)
    first = x.real >= y.real
    return jnp.where(first, x, y) + jnp.log1p(jnp.exp(jnp.where(first, y - x, x - y)))


@rule("logaddexp2", pointwise=True)
def logaddexp2(ctx: Context, self: Any, other: Any) -> Any:
    x, y = _math(ctx, self, other)
    return _log_add(x, y, jnp.exp2, lambda x: jnp.log1p(x) / np.log(2))


def _times_log(x: Any, y: Any, log: Callable[[Any], Any]) -> Any:
    return jnp.where(jnp.isnan(y), y, jnp.where(x == 0, jnp.zeros_like(x), x * log(y)))


@rule("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self", pointwise=True)
def xlogy(ctx: Context, self: Any, other: Any) -> Any:
    x, y = _float_math(ctx, self, other)
    return _times_log(x, y, jnp.log)


@rule("special_xlog1py", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar", pointwise=True)
def xlog1py(ctx: Context, self: Any, other: Any) -> Any:
    x, y = _float_math(ctx, self, other)
    return _times_log(x, y, jnp.log1p)


def hurwitz(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function; infinite at its poles, the integers ``q`` up to 0."""
    x, q = jnp.broadcast_arrays(x, q)
    value = jnp.where((x > 1) & (q <= 0) & (q == jnp.floor(q)), jnp.inf, lax.zeta(x, q))
    return jnp.where(jnp.isnan(value) & (x > 1) & (q > 1) & (q < jnp.inf), 0, value)  # the series is too small to start


@rule("special_zeta", "special_zeta.other_scalar", "special_zeta.self_scalar", pointwise=True)
def zeta(ctx: Context, self: Any, other: Any) -> Any:
    return hurwitz(*_float_math(ctx, self, other))


def _incomplete_gamma(function: Callable[[Any, Any], Any], limit: int, a: Any, x: Any) -> Any:
    """In float64: the series cancels for large arguments. ``limit`` is the value for infinite ``a``, 1 less it for 0."""
    a, x = jnp.broadcast_arrays(*_as(np.dtype(np.float64), a, x))
    endless = jnp.where((x >= 0) & (x < jnp.inf), jnp.full_like(x, limit), jnp.nan)
    return jnp.where(jnp.isposinf(a), endless, jnp.where((a == 0) & (x > 0), 1 - limit, function(a, x)))


@rule("igamma", pointwise=True)
def igamma(ctx: Context, self: Any, other: Any) -> Any:
    return _incomplete_gamma(lax.igamma, 0, *promoted(ctx, self, other))


@rule("igammac", pointwise=True)
def igammac(ctx: Context, self: Any, other: Any) -> Any:
    return _incomplete_gamma(lax.igammac, 1, *promoted(ctx, self, other))


@rule("heaviside", pointwise=True)
def heaviside(ctx: Context, self: Any, values: Any) -> Any:
    x, y = promoted(ctx, self, values)
    return jnp.where(x == 0, y, (x > 0).astype(x.dtype))


# Bits


def _bitwise(name: str, function: Callable[[Any, Any], Any]) -> None:
    @rule(f"{name}.Tensor", f"{name}.Scalar", f"{name}.Scalar_Tensor", pointwise=True)
    def lower(ctx: Context, self: Any, other: Any) -> Any:
        return function(*promoted(ctx, self, other))


_bitwise("bitwise_and", jnp.bitwise_and)
_bitwise("bitwise_or", jnp.bitwise_or)
_bitwise("bitwise_xor", jnp.bitwise_xor)


@rule(
    "bitwise_left_shift.Tensor",
    "bitwise_left_shift.Tensor_Scalar",
    "bitwise_left_shift.Scalar_Tensor",
    "__lshift__.Tensor",
    "__lshift__.Scalar",
    "__ilshift__.Tensor",
    "__ilshift__.Scalar",
    pointwise=True,
)
def left_shift(ctx: Context, self: Any, other: Any) -> Any:
    x, y = jnp.broadcast_arrays(*promoted(ctx, self, other))
    bits = 8 * x.dtype.itemsize
    valid = (y >= 0) & (y < bits)
    return jnp.where(valid, lax.shift_left(x, jnp.where(valid, y, 0)), 0)


@rule(
    "bitwise_right_shift.Tensor",
    "bitwise_right_shift.Tensor_Scalar",
    "bitwise_right_shift.Scalar_Tensor",
    "__rshift__.Tensor",
    "__rshift__.Scalar",
    "__irshift__.Tensor",
    "__irshift__.Scalar",
    pointwise=True,
)
def right_shift(ctx: Context, self: Any, other: Any) -> Any:
    x, y = jnp.broadcast_arrays(*promoted(ctx, self, other))
    bits = 8 * x.dtype.itemsize
    valid = (y >= 0) & (y < bits)
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return jnp.where(valid, lax.shift_right_logical(x, jnp.where(valid, y, 0)), 0)
    return lax.shift_right_arithmetic(x, jnp.where(valid, y, bits - 1))


# Comparison and logic


def _comparison(name: str, function: Callable[[Any, Any], Any]) -> None:
    @rule(f"{name}.Tensor", f"{name}.Scalar", pointwise=True)
    def lower(ctx: Context, self: Any, other: Any) -> Any:
        return function(*promoted(ctx, self, other))


_comparison("eq", jnp.equal)
_comparison("ne", jnp.not_equal)
_comparison("lt", jnp.less)
_comparison("le", jnp.less_equal)
_comparison("gt", jnp.greater)
_comparison("ge", jnp.greater_equal)


def _logical(name: str, function: Callable[[Any, Any], Any]) -> None:
    @rule(name, pointwise=True)
    def lower(ctx: Context, self: Any, other: Any) -> Any:
        return function(self != 0, other != 0)


_logical("logical_and", jnp.logical_and)
_logical("logical_or", jnp.logical_or)
_logical("logical_xor", jnp.logical_xor)


# Selection and limits


@rule("where.self", pointwise=True)
def where(ctx: Context, condition: Any, self: Any, other: Any) -> Any:
    x, y = _as(ctx.common_dtype(1, 2), self, other)
    return jnp.where(condition != 0, x, y)


def _require_fit(ctx: Context, value: Any, dtype: np.dtype) -> None:
    """Have a number checked as CPU does before it turns it into a narrower ``dtype``."""
    if isinstance(value, complex) or dtype == np.bool_ or dtype.itemsize == 8:
        return
    name = _SCALAR_NAMES.get(dtype.name, f"{dtype.name}_t")
    if is_integer(dtype):
        info = jnp.iinfo(dtype)
        low = -info.max if info.min == 0 else info.min  # a negative number wraps into an unsigned type
        ok = (value >= low) & (value <= info.max)
    elif is_float(dtype):
        largest = float(jnp.finfo(dtype).max)
        ok = ~jnp.isfinite(value) | (jnp.abs(value) <= largest)
    else:
        return
    ctx.require(ok, f"value cannot be converted to type {name} without overflow", RuntimeError)


_SCALAR_NAMES = {"float16": "at::Half", "bfloat16": "at::BFloat16", "float32": "float"}


@rule("masked_fill.Scalar", "masked_fill.Tensor", pointwise=True)
def masked_fill(ctx: Context, self: Any, mask: Any, value: Any) -> Any:
    _require_fit(ctx, value, ctx.dtype)
    return jnp.where(mask != 0, convert(jnp.asarray(value), ctx.dtype), self)


def _clamp(ctx: Context, self: Any, low: Any, high: Any) -> Any:
    positions = [i for i, x in enumerate((self, low, high)) if x is not None]
    dtype = ctx.common_dtype(*positions)
    (x,) = _as(dtype, self)
    if low is not None:
        x = jnp.maximum(x, low.astype(dtype))
    return x if high is None else jnp.minimum(x, high.astype(dtype))


@rule("clamp", "clamp.Tensor", pointwise=True)
def clamp(ctx: Context, self: Any, min: Any, max: Any) -> Any:
    return _clamp(ctx, self, min, max)


@rule("clamp_min", "clamp_min.Tensor", pointwise=True)
def clamp_min(ctx: Context, self: Any, min: Any) -> Any:
    return jnp.maximum(*promoted(ctx, self, min))


@rule("clamp_max", "clamp_max.Tensor", pointwise=True)
def clamp_max(ctx: Context, self: Any, max: Any) -> Any:
    return jnp.minimum(*promoted(ctx, self, max))


# Complex numbers from two real ones


@rule("complex", pointwise=True)
def complex_of(ctx: Context, real: Any, imag: Any) -> Any:
    return lax.complex(*jnp.broadcast_arrays(real, imag))


@rule("polar", pointwise=True)
def polar(ctx: Context, abs: Any, angle: Any) -> Any:
    return lax.complex(*jnp.broadcast_arrays(abs * jnp.cos(angle), abs * jnp.sin(angle)))
