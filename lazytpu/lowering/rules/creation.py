"""Arrays made from numbers: ranges and identities. Ends and steps are runtime inputs, lengths are static."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lazytpu.lowering.context import Context
from lazytpu.lowering.conversion import convert
from lazytpu.lowering.registry import rule


def _is_integer(dtype: np.dtype) -> bool:
    return jnp.issubdtype(dtype, jnp.integer) or dtype == np.bool_


@rule("lazytpu::arange")
def arange(ctx: Context, start: Any, step: Any) -> Any:
    """Counted in 64 bits, for half types in float32, as CPU does."""
    dtype = ctx.dtype
    exact = np.dtype(np.int64) if _is_integer(dtype) else np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    first, by = convert(start, exact), convert(step, exact)
    return first + jnp.arange(ctx.shape[0], dtype=exact) * by


def _steps(ctx: Context, start: Any, end: Any) -> Any:
    """Evenly spaced numbers, counted from the nearer end."""
    (count,) = ctx.shape
    dtype = ctx.dtype
    math = np.dtype(np.float64) if _is_integer(dtype) else dtype
    if jnp.issubdtype(math, jnp.floating) and math.itemsize < 4:
        math = np.dtype(np.float32)
    first, last = (convert(convert(x, dtype), math) for x in (start, end))
    if count == 1:
        return first.reshape(1)
    real = np.dtype(np.float64) if math in (np.float64, np.complex128) else np.dtype(np.float32)
    step = (last - first) / np.array(count - 1, real)
    place = jnp.arange(count)
    below = first + step * place.astype(real)
    above = last - step * (count - 1 - place).astype(real)
    return jnp.where(place < count // 2, below, above)


@rule("lazytpu::linspace")
def linspace(ctx: Context, start: Any, end: Any) -> Any:
    return _steps(ctx, start, end)


@rule("lazytpu::logspace")
def logspace(ctx: Context, start: Any, end: Any, base: Any) -> Any:
    exponents = _steps(ctx, start, end)
    return jnp.power(base.astype(exponents.dtype), exponents)


@rule("lazytpu::eye")
def eye(ctx: Context) -> Any:
    rows, columns = ctx.shape
    return jnp.eye(rows, columns, dtype=ctx.dtype)
