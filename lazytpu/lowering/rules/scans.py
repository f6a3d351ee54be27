"""Running sums, products, extrema and log-sums along an axis."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering.axes import along
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.conversion import convert
from lazytpu.lowering.registry import rule


def _scan(ctx: Context, self: Any, dim: int, scan: Any) -> Any:
    x, axis = along(convert(self, ctx.dtype), dim)
    accumulated = np.dtype(np.int64) if x.dtype == np.bool_ else opmath(x.dtype)
    return scan(x.astype(accumulated), axis).reshape(ctx.shape)


@rule("cumsum")
def cumsum(ctx: Context, self: Any, dim: int, dtype: Any) -> Any:
    return _scan(ctx, self, dim, lax.cumsum)


@rule("cumprod")
def cumprod(ctx: Context, self: Any, dim: int, dtype: Any) -> Any:
    return _scan(ctx, self, dim, lax.cumprod)


@rule("logcumsumexp", "_logcumsumexp")
def logcumsumexp(ctx: Context, self: Any, dim: int) -> Any:
    return _scan(ctx, self, dim, lambda x, axis: lax.associative_scan(jnp.logaddexp, x, axis=axis))


def _running_extremum(ctx: Context, self: Any, dim: int, scan: Any) -> Any:
    """The extremum so far and where it is: the last of equals, the last NaN."""
    x, axis = along(self, dim)
    if 0 in x.shape:
        return x, jnp.zeros(x.shape, jnp.int64)
    x = x.astype(jnp.uint8) if x.dtype == np.bool_ else x
    reached = (x == scan(x, axis)) | (x != x)
    positions = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    index = lax.cummax(jnp.where(reached, positions, 0), axis)
    return jnp.take_along_axis(x, index, axis, mode="clip").reshape(ctx.shape), index.reshape(ctx.shape)


@rule("cummax")
def cummax(ctx: Context, self: Any, dim: int) -> Any:
    return _running_extremum(ctx, self, dim, lax.cummax)


@rule("cummin")
def cummin(ctx: Context, self: Any, dim: int) -> Any:
    return _running_extremum(ctx, self, dim, lax.cummin)
