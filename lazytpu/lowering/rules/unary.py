"""Functions of one number, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule
from lazytpu.lowering.rules.pointwise import hurwitz


def _is_inexact(dtype: np.dtype) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def _is_complex(dtype: np.dtype) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.complexfloating))


def _floating(name: str, function: Callable[[Any], Any]) -> None:
    """Register a function to floats: integers become the default dtype, halves are computed in float32."""

    @rule(name, pointwise=True)
    def lower(ctx: Context, self: Any) -> Any:
        return function(self.astype(opmath(ctx.dtype)))


def _exp2(x: Any) -> Any:
    """2 to the power of ``x``, exact where ``x`` is an integer."""
    if _is_complex(x.dtype):
        return jnp.exp(x * np.log(2))
    whole = jnp.clip(jnp.round(x), -2000, 2000)
    return jnp.ldexp(jnp.exp((x - whole) * np.log(2)), whole.astype(jnp.int32)).astype(x.dtype)


def _log2(x: Any) -> Any:
    """The binary logarithm, exact for powers of two."""
    if _is_complex(x.dtype):
        return jnp.log(x) / np.log(2)
    mantissa, exponent = jnp.frexp(x)
    small = mantissa < np.sqrt(0.5)
    mantissa = jnp.where(small, mantissa * 2, mantissa)
    exact = jnp.log(mantissa) / np.log(2) + (exponent - small).astype(x.dtype)
    return jnp.where((x > 0) & (x < jnp.inf), exact, jnp.log(x))


def _digamma(x: Any) -> Any:
    return jnp.where(x == 0, jnp.copysign(jnp.full_like(x, jnp.inf), -x), lax.digamma(x))


def _sinc(x: Any) -> Any:
    turned = x * np.pi
    return jnp.where(x == 0, jnp.ones_like(x), jnp.sin(turned) / jnp.where(x == 0, jnp.ones_like(x), turned))


def _reciprocal(x: Any) -> Any:
    return 1 / x


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + jnp.exp(-x))


_FLOATING: dict[str, Callable[[Any], Any]] = {
    "acos": jnp.arccos,
    "acosh": jnp.arccosh,
    "asin": jnp.arcsin,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atanh": jnp.arctanh,
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "digamma": _digamma,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erfinv": lax.erf_inv,
    "exp": jnp.exp,
    "exp2": _exp2,
    "expm1": jnp.expm1,
    "i0": special.i0,
    "lgamma": lax.lgamma,
    "log": jnp.log,
    "log10": jnp.log10,
    "log1p": jnp.log1p,
    "log2": _log2,
    "reciprocal": _reciprocal,
    "rsqrt": lax.rsqrt,
    "sigmoid": _sigmoid,
    "sin": jnp.sin,
    "sinc": _sinc,
    "sinh": jnp.sinh,
    "special_entr": special.entr,
    "special_erfcx": special.erfcx,
    "special_i0e": special.i0e,
    "special_i1": special.i1,
    "special_i1e": special.i1e,
    "special_log_ndtr": special.log_ndtr,
    "special_ndtri": special.ndtri,
    "sqrt": lax.sqrt,
    "tan": jnp.tan,
    "tanh": jnp.tanh,
}

for _name, _function in _FLOATING.items():
    _floating(_name, _function)


@rule("polygamma", pointwise=True)
def polygamma(ctx: Context, n: int, self: Any) -> Any:
    x = self.astype(opmath(ctx.dtype))
    if n == 0:
        return _digamma(x)
    if n == 1:
        return _trigamma(x)
    sign = 1.0 if n % 2 else -1.0
    order = jnp.full_like(x, n)
    return sign * jnp.exp(lax.lgamma(order + 1)) * hurwitz(order + 1, x)


def _trigamma(x: Any) -> Any:
    reflected = x < 0.5
    y = jnp.where(reflected, 1 - x, x)
    total = jnp.zeros_like(y)
    for _ in range(6):
        total = total + 1 / (y * y)
        y = y + 1
    square = 1 / (y * y)
    series = (1 + 1 / (2 * y) + square * (1 / 6 - square * (1 / 30 - square * (1 / 42)))) / y
    total = total + series
    sine = jnp.sin(np.pi * x)
    return jnp.where(reflected, np.pi**2 / (sine * sine) - total, total)


@rule("logit", pointwise=True)
def logit(ctx: Context, self: Any, eps: float | None) -> Any:
    x = self.astype(opmath(ctx.dtype))
    if eps is not None:
        x = jnp.clip(x, eps, 1 - eps)
    return jnp.log(x / (1 - x))


# Signs


@rule("abs", pointwise=True)
def absolute(ctx: Context, self: Any) -> Any:
    return jnp.abs(self)


@rule("neg", pointwise=True)
def neg(ctx: Context, self: Any) -> Any:
    return -self


@rule("sign", pointwise=True)
def sign(ctx: Context, self: Any) -> Any:
    if self.dtype == bool:
        return self
    return (self > 0).astype(jnp.int8) - (self < 0).astype(jnp.int8)  # NaN has sign 0


@rule("sgn", pointwise=True)
def sgn(ctx: Context, self: Any) -> Any:
    if not _is_complex(self.dtype):
        return sign(ctx, self)
    size = jnp.abs(self)
    return jnp.where(size == 0, 0, self / jnp.where(size == 0, 1, size))


@rule("signbit", pointwise=True)
def signbit(ctx: Context, self: Any) -> Any:
    return jnp.signbit(self) if _is_inexact(self.dtype) else self < 0


@rule("angle", pointwise=True)
def angle(ctx: Context, self: Any) -> Any:
    if _is_complex(self.dtype):
        return jnp.arctan2(self.imag, self.real)
    x = self.astype(ctx.dtype)
    return jnp.where(jnp.isnan(x), x, jnp.where(x < 0, np.pi, 0))


@rule("_conj_physical", pointwise=True)
def conj(ctx: Context, self: Any) -> Any:
    return jnp.conj(self)


# Rounding


def _rounding(name: str, function: Callable[[Any], Any]) -> None:
    @rule(name, pointwise=True)
    def lower(ctx: Context, self: Any) -> Any:
        return function(self) if _is_inexact(self.dtype) else self


def _frac(x: Any) -> Any:
    return x - jnp.trunc(x)


for _name, _function in {
    "ceil": jnp.ceil,
    "floor": jnp.floor,
    "frac": _frac,
    "round": jnp.round,
    "trunc": jnp.trunc,
}.items():
    _rounding(_name, _function)


@rule("round.decimals", pointwise=True)
def round_decimals(ctx: Context, self: Any, decimals: int) -> Any:
    x = self.astype(opmath(ctx.dtype))
    scale = 10.0 ** abs(decimals)
    return jnp.round(x * scale) / scale if decimals >= 0 else jnp.round(x / scale) * scale


@rule("frexp.Tensor", pointwise=True)
def frexp(ctx: Context, self: Any) -> Any:
    mantissa, exponent = jnp.frexp(self.astype(opmath(self.dtype)))
    return mantissa, exponent


# Tests of a number


def _predicate(name: str, function: Callable[[Any], Any]) -> None:
    @rule(name, pointwise=True)
    def lower(ctx: Context, self: Any) -> Any:
        return function(self) if _is_inexact(self.dtype) else jnp.zeros(self.shape, bool)


_predicate("isnan", jnp.isnan)
_predicate("isinf", jnp.isinf)
_predicate("isposinf", jnp.isposinf)
_predicate("isneginf", jnp.isneginf)


@rule("logical_not", pointwise=True)
def logical_not(ctx: Context, self: Any) -> Any:
    return self == 0


@rule("bitwise_not", pointwise=True)
def bitwise_not(ctx: Context, self: Any) -> Any:
    return ~self


@rule("nan_to_num", numbers=("nan", "posinf", "neginf"), pointwise=True)
def nan_to_num(ctx: Context, self: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    if not _is_inexact(self.dtype):
        return self
    if _is_complex(self.dtype):
        return lax.complex(*(_finite(part, nan, posinf, neginf) for part in (self.real, self.imag)))
    return _finite(self, nan, posinf, neginf)


def _finite(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    info = jnp.finfo(x.dtype)
    nan, posinf, neginf = (
        jnp.asarray(default if given is None else given).astype(x.dtype)
        for given, default in ((nan, 0.0), (posinf, info.max), (neginf, info.min))
    )
    return jnp.where(jnp.isnan(x), nan, jnp.where(x == jnp.inf, posinf, jnp.where(x == -jnp.inf, neginf, x)))
