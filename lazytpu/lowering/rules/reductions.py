"""Reductions: sums, extrema and their positions, moments, norms and distances.

Half types are accumulated in float32 and rounded once, integers are summed in int64.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering.axes import along, axes_of, count_over
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.conversion import convert
from lazytpu.lowering.registry import rule


def widened(x: Any) -> Any:
    """``x`` in the dtype that it is accumulated in."""
    return x.astype(opmath(x.dtype))


def _sum(ctx: Context, self: Any, dim: Any = None) -> Any:
    x = widened(convert(self, ctx.dtype))
    return jnp.sum(x, axes_of(x, dim), dtype=x.dtype if x.dtype != np.bool_ else np.int64).reshape(ctx.shape)


@rule("sum")
def sum_all(ctx: Context, self: Any, dtype: Any) -> Any:
    return _sum(ctx, self)


@rule("sum.dim_IntList")
def sum_dim(ctx: Context, self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return _sum(ctx, self, dim)


@rule("nansum")
def nansum(ctx: Context, self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return _sum(ctx, jnp.where(jnp.isnan(self), jnp.zeros((), self.dtype), self), dim)


def _mean(ctx: Context, self: Any, dim: Any = None) -> Any:
    x = widened(convert(self, ctx.dtype))
    axes = axes_of(x, dim)
    return (jnp.sum(x, axes) / np.array(count_over(x, axes), x.dtype)).reshape(ctx.shape)


@rule("mean")
def mean_all(ctx: Context, self: Any, dtype: Any) -> Any:
    return _mean(ctx, self)


@rule("mean.dim")
def mean_dim(ctx: Context, self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return _mean(ctx, self, dim)


def _prod(ctx: Context, self: Any, dim: Any = None) -> Any:
    x = widened(convert(self, ctx.dtype))
    return jnp.prod(x, axes_of(x, dim), dtype=x.dtype if x.dtype != np.bool_ else np.int64).reshape(ctx.shape)


@rule("prod")
def prod_all(ctx: Context, self: Any, dtype: Any) -> Any:
    return _prod(ctx, self)


@rule("prod.dim_int")
def prod_dim(ctx: Context, self: Any, dim: int, keepdim: bool, dtype: Any) -> Any:
    return _prod(ctx, self, dim)


@rule("trace")
def trace(ctx: Context, self: Any) -> Any:
    x = widened(convert(self, ctx.dtype))
    return jnp.sum(jnp.diagonal(x), dtype=x.dtype)


@rule("any", "any.dim")
def any_of(ctx: Context, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.any(self != 0, axes_of(self, dim)).reshape(ctx.shape)


@rule("all", "all.dim")
def all_of(ctx: Context, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.all(self != 0, axes_of(self, dim)).reshape(ctx.shape)


@rule("any.dims")
def any_dims(ctx: Context, self: Any, dim: Any, keepdim: bool) -> Any:
    # An empty list of axes reduces nothing here, unlike everywhere else.
    return self != 0 if dim == () else any_of(ctx, self, dim)


@rule("all.dims")
def all_dims(ctx: Context, self: Any, dim: Any, keepdim: bool) -> Any:
    return self != 0 if dim == () else all_of(ctx, self, dim)


@rule("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(ctx: Context, self: Any, dim: Any) -> Any:
    return jnp.sum(self != 0, axes_of(self, dim), dtype=jnp.int64)


@rule("amax", "max")
def amax(ctx: Context, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.max(self, axes_of(self, dim)).reshape(ctx.shape)


@rule("amin", "min")
def amin(ctx: Context, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return jnp.min(self, axes_of(self, dim)).reshape(ctx.shape)


@rule("aminmax")
def aminmax(ctx: Context, self: Any, dim: Any, keepdim: bool) -> Any:
    axes = axes_of(self, dim)
    return jnp.min(self, axes).reshape(ctx.shape), jnp.max(self, axes).reshape(ctx.shape)


def extremum(x: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    """The extreme value along ``axis`` and its position: the first NaN, else the first of equals."""
    if x.dtype == np.bool_:
        x = x.astype(jnp.uint8)
    if jnp.issubdtype(x.dtype, jnp.floating):
        start = np.array(-np.inf if largest else np.inf, x.dtype)
    else:
        limits = jnp.iinfo(x.dtype)
        start = np.array(limits.min if largest else limits.max, x.dtype)

    def pick(a: Any, b: Any) -> Any:
        (x, i), (y, j) = a, b
        x_nan, y_nan = x != x, y != y
        beyond = y > x if largest else y < x
        second = (y_nan & ~x_nan) | (beyond & ~x_nan) | (((y == x) | (x_nan & y_nan)) & (j < i))
        return jnp.where(second, y, x), jnp.where(second, j, i)

    positions = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    return lax.reduce((x, positions), (start, np.int32(np.iinfo(np.int32).max)), pick, (axis,))


def _extremum_dim(ctx: Context, self: Any, dim: int, largest: bool) -> Any:
    value, position = extremum(*along(self, dim), largest)
    return value.reshape(ctx.shape), position.reshape(ctx.shape)


@rule("max.dim")
def max_dim(ctx: Context, self: Any, dim: int, keepdim: bool) -> Any:
    return _extremum_dim(ctx, self, dim, True)


@rule("min.dim")
def min_dim(ctx: Context, self: Any, dim: int, keepdim: bool) -> Any:
    return _extremum_dim(ctx, self, dim, False)


def _position(ctx: Context, self: Any, dim: int | None, largest: bool) -> Any:
    operand = (self.reshape(-1), 0) if dim is None else along(self, dim)
    return extremum(*operand, largest)[1].reshape(ctx.shape)


@rule("argmax")
def argmax(ctx: Context, self: Any, dim: int | None, keepdim: bool) -> Any:
    return _position(ctx, self, dim, True)


@rule("argmin")
def argmin(ctx: Context, self: Any, dim: int | None, keepdim: bool) -> Any:
    return _position(ctx, self, dim, False)


def _variance_and_mean(self: Any, dim: Any, correction: Any) -> tuple[Any, Any]:
    x = widened(self)
    axes = axes_of(x, dim)
    count = count_over(x, axes)
    mean = jnp.sum(x, axes, keepdims=True) / np.array(count, x.dtype)
    off = x - mean
    squares = (off * off.conj()).real if jnp.issubdtype(x.dtype, jnp.complexfloating) else off * off
    freedom = max(count - (1 if correction is None else correction), 0)
    return jnp.sum(squares, axes) / np.array(freedom, squares.dtype), mean


@rule("var.correction", static=("correction",))
def var(ctx: Context, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return _variance_and_mean(self, dim, correction)[0].reshape(ctx.shape)


@rule("std.correction", static=("correction",))
def std(ctx: Context, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return jnp.sqrt(_variance_and_mean(self, dim, correction)[0]).reshape(ctx.shape)


@rule("var_mean.correction", static=("correction",))
def var_mean(ctx: Context, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    variance, mean = _variance_and_mean(self, dim, correction)
    return variance.reshape(ctx.shape), mean.reshape(ctx.shape)


@rule("std_mean.correction", static=("correction",))
def std_mean(ctx: Context, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    variance, mean = _variance_and_mean(self, dim, correction)
    return jnp.sqrt(variance).reshape(ctx.shape), mean.reshape(ctx.shape)


def norm_over(x: Any, order: float, axes: tuple[int, ...]) -> Any:
    """The vector norm of any order over ``axes``, in the (real) dtype of accumulation."""
    x = widened(x)
    if order == 2 and not jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jnp.sqrt(jnp.sum(x * x, axes))
    size = jnp.abs(x)
    if order == math.inf:
        return jnp.max(size, axes, initial=0)
    if order == -math.inf:
        return jnp.min(size, axes, initial=np.inf)
    if order == 0:
        return jnp.sum(size != 0, axes, dtype=size.dtype)
    if order == 1:
        return jnp.sum(size, axes)
    if order == 2:
        return jnp.sqrt(jnp.sum(size * size, axes))
    return jnp.sum(size ** np.array(order, size.dtype), axes) ** np.array(1 / order, size.dtype)


def _norm(ctx: Context, self: Any, order: Any, dim: Any = None, dtype: Any = None) -> Any:
    x = self
    if dtype is not None:
        # The result is real where the dtype asked for, or the input, is complex.
        complex_input = jnp.issubdtype(x.dtype, jnp.complexfloating)
        x = jnp.abs(x).astype(ctx.dtype) if complex_input else convert(x, ctx.dtype)
    return norm_over(x, 2 if order is None else order, axes_of(x, dim)).reshape(ctx.shape)


@rule("linalg_vector_norm", static=("ord",))
def vector_norm(ctx: Context, self: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return _norm(ctx, self, ord, dim, dtype)


@rule("norm.Scalar", static=("p",))
def norm_all(ctx: Context, self: Any, p: Any) -> Any:
    return _norm(ctx, self, p)


@rule("norm.ScalarOpt_dtype", static=("p",))
def norm_all_dtype(ctx: Context, self: Any, p: Any, dtype: Any) -> Any:
    return _norm(ctx, self, p, None, dtype)


@rule("norm.ScalarOpt_dim", static=("p",))
def norm_dim(ctx: Context, self: Any, p: Any, dim: Any, keepdim: bool) -> Any:
    return _norm(ctx, self, p, dim)


@rule("norm.ScalarOpt_dim_dtype", static=("p",))
def norm_dim_dtype(ctx: Context, self: Any, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    return _norm(ctx, self, p, dim, dtype)


@rule("renorm", static=("p",))
def renorm(ctx: Context, self: Any, p: Any, dim: int, maxnorm: Any) -> Any:
    x = widened(self)
    axes = tuple(d for d in range(x.ndim) if d != dim % x.ndim)
    size = jnp.expand_dims(norm_over(x, p, axes), axes)
    limit = maxnorm.astype(size.dtype)
    scale = jnp.where(size > limit, limit / (size + np.array(1e-7, size.dtype)), np.array(1, size.dtype))
    return x * scale


@rule("logsumexp")
def logsumexp(ctx: Context, self: Any, dim: Any, keepdim: bool) -> Any:
    x = self.astype(opmath(ctx.dtype))
    axes = axes_of(x, dim)
    if 0 in x.shape:
        return jnp.log(jnp.sum(jnp.exp(x), axes)).reshape(ctx.shape)
    peak = jnp.max(x.real, axes, keepdims=True)
    peak = jnp.where(jnp.isinf(peak), jnp.zeros((), peak.dtype), peak)
    return (jnp.log(jnp.sum(jnp.exp(x - peak), axes, keepdims=True)) + peak).reshape(ctx.shape)


def _distance(off: Any, p: float) -> Any:
    return norm_over(off, p, (off.ndim - 1,))


def _distance_gradient(off: Any, p: float, distance: Any) -> Any:
    """The derivative of a distance with respect to each entry of ``off``; zero where not defined."""
    distance = distance[..., None]
    zero = jnp.zeros((), off.dtype)
    if p == 0:
        return jnp.zeros_like(off)
    if p == 1:
        return jnp.sign(off)
    if p == math.inf:
        return jnp.where(jnp.abs(off) == distance, jnp.sign(off), zero)
    if p == 2:
        return jnp.where(distance == 0, zero, off / distance)
    power = np.array(p - 1, off.dtype)
    slope = jnp.sign(off) * jnp.abs(off) ** power / distance**power
    return jnp.where((distance == 0) | ((off == 0) & (p < 1)), zero, slope)


@rule("_cdist_forward")
def cdist(ctx: Context, x1: Any, x2: Any, p: float, compute_mode: Any) -> Any:
    return _distance(x1[..., :, None, :] - x2[..., None, :, :], p)


@rule("_cdist_backward")
def cdist_backward(ctx: Context, grad: Any, x1: Any, x2: Any, p: float, cdist: Any) -> Any:
    if 0 in x1.shape or 0 in x2.shape:
        return jnp.zeros(ctx.shape, ctx.dtype)
    slope = _distance_gradient(x1[..., :, None, :] - x2[..., None, :, :], p, cdist)
    return jnp.sum(grad[..., None] * slope, -2)


@rule("_pdist_forward")
def pdist(ctx: Context, self: Any, p: float) -> Any:
    first, second = np.triu_indices(self.shape[0], 1)
    return _distance(self[first] - self[second], p)


@rule("_pdist_backward")
def pdist_backward(ctx: Context, grad: Any, self: Any, p: float, pdist: Any) -> Any:
    first, second = np.triu_indices(self.shape[0], 1)
    terms = grad[:, None] * _distance_gradient(self[first] - self[second], p, pdist)
    return jnp.zeros_like(self).at[first].add(terms).at[second].add(-terms)
