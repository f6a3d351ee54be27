"""Writing elements by index: scatters, and reductions by index.

An index out of range fails a check that is raised at the next wait; nothing is written for it. Where
places are written twice by a plain scatter, CPU keeps the last.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering.axes import along
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.conversion import convert
from lazytpu.lowering.registry import rule
from lazytpu.lowering.rules.indexing import advanced, located


def _accumulated(dtype: np.dtype) -> np.dtype:
    """The dtype to add and multiply many elements in."""
    return np.dtype(np.int32) if dtype == np.bool_ else opmath(dtype)


def _combined(x: Any, where: Any, source: Any, how: str) -> Any:
    """``x`` with ``source`` combined into the places ``where``."""
    if how == "set":
        return x.at[where].set(source, mode="drop")
    dtype = _accumulated(x.dtype)
    places = x.astype(dtype).at[where]
    source = source.astype(dtype)
    operations = {"add": places.add, "multiply": places.multiply, "max": places.max, "min": places.min}
    return operations[how](source, mode="drop")


_HOW = {"sum": "add", "prod": "multiply", "mean": "add", "amax": "max", "amin": "min"}


def _start(dtype: np.dtype, reduce: str) -> Any:
    """What a reduction starts from."""
    if reduce in ("sum", "mean"):
        return np.array(0, dtype)
    if reduce == "prod":
        return np.array(1, dtype)
    sign = -1 if reduce == "amax" else 1
    if jnp.issubdtype(dtype, jnp.floating):
        return np.array(sign * np.inf, dtype)
    if dtype == np.bool_:
        return np.array(reduce == "amin")
    return np.array(jnp.iinfo(dtype).min if reduce == "amax" else jnp.iinfo(dtype).max, dtype)


def _reduced(x: Any, where: Any, source: Any, reduce: str, include_self: bool) -> Any:
    """``x`` with ``source`` reduced into the places ``where``; without itself where it is not to be included."""
    initial = x if include_self else x.at[where].set(_start(x.dtype, reduce), mode="drop")
    result = _combined(initial, where, source, _HOW[reduce])
    if reduce != "mean":
        return result
    count = jnp.full(x.shape, int(include_self), jnp.int64).at[where].add(jnp.ones(source.shape, jnp.int64), mode="drop")
    count = jnp.maximum(count, 1).astype(result.dtype)
    return result / count if jnp.issubdtype(result.dtype, jnp.inexact) else jnp.floor_divide(result, count)


# Element by element


def _places(ctx: Context, self: Any, dim: int, index: Any) -> tuple[Any, tuple[Any, ...], tuple[int, ...]]:
    """``self`` with a dimension at least, the places in it that ``index`` names, and their shape."""
    x, axis = along(self, dim)
    index = located(ctx, jnp.atleast_1d(index), x.shape[axis], RuntimeError)
    grid = [lax.broadcasted_iota(jnp.int32, index.shape, d) for d in range(x.ndim)]
    return x, tuple(index if d == axis else grid[d] for d in range(x.ndim)), index.shape


def _corner(src: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """The elements of ``src`` that an index of ``shape`` uses: a runtime number serves all."""
    src = jnp.asarray(src)
    if src.ndim == 0:
        return jnp.broadcast_to(convert(src, dtype), shape)
    return lax.slice(src, (0,) * src.ndim, shape)


def _scatter(ctx: Context, self: Any, dim: int, index: Any, src: Any, how: str) -> Any:
    if index.size == 0:
        return self
    x, where, shape = _places(ctx, self, dim, index)
    return _combined(x, where, _corner(src, shape, x.dtype), how).reshape(ctx.shape)


@rule("scatter.src", "scatter.value")
def scatter(ctx: Context, self: Any, dim: int, index: Any, src: Any) -> Any:
    return _scatter(ctx, self, dim, index, src, "set")


@rule("scatter.reduce", "scatter.value_reduce")
def scatter_combined(ctx: Context, self: Any, dim: int, index: Any, src: Any, reduce: str) -> Any:
    return _scatter(ctx, self, dim, index, src, reduce)


@rule("scatter_add")
def scatter_add(ctx: Context, self: Any, dim: int, index: Any, src: Any) -> Any:
    return _scatter(ctx, self, dim, index, src, "add")


@rule("scatter_reduce.two")
def scatter_reduce(ctx: Context, self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    if index.size == 0:
        return self
    x, where, shape = _places(ctx, self, dim, index)
    return _reduced(x, where, _corner(src, shape, x.dtype), reduce, include_self).reshape(ctx.shape)


@rule("put")
def put(ctx: Context, self: Any, index: Any, source: Any, accumulate: bool) -> Any:
    ctx.require_indices(index, self.size)
    if index.size == 0:
        return self
    how = "add" if accumulate else "set"
    return _combined(self.reshape(-1), (index.reshape(-1),), source.reshape(-1), how).reshape(ctx.shape)


# Slice by slice


def _slices(ctx: Context, self: Any, dim: int, index: Any, source: Any) -> tuple[Any, tuple[Any, ...], Any]:
    """``self`` with a dimension at least, the slices of it that ``index`` names, and what goes there."""
    x, axis = along(self, dim)
    index = located(ctx, index.reshape(-1), x.shape[axis])
    return x, (*(slice(None),) * axis, index), source.reshape(*x.shape[:axis], index.size, *x.shape[axis + 1 :])


@rule("index_add")
def index_add(ctx: Context, self: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    x, where, slices = _slices(ctx, self, dim, index, source)
    if slices.size == 0:
        return self
    slices = slices.astype(_accumulated(x.dtype))
    return _combined(x, where, slices * convert(jnp.asarray(alpha), slices.dtype), "add").reshape(ctx.shape)


@rule("index_copy")
def index_copy(ctx: Context, self: Any, dim: int, index: Any, source: Any) -> Any:
    x, where, slices = _slices(ctx, self, dim, index, source)
    return self if slices.size == 0 else _combined(x, where, slices, "set").reshape(ctx.shape)


@rule("index_reduce")
def index_reduce(ctx: Context, self: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool) -> Any:
    x, where, slices = _slices(ctx, self, dim, index, source)
    return self if slices.size == 0 else _reduced(x, where, slices, reduce, include_self).reshape(ctx.shape)


@rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(ctx: Context, self: Any, dim: int, index: Any, value: Any) -> Any:
    """Which slices are named is marked first: marking scatters single elements, and the rest is a selection."""
    x, axis = along(self, dim)
    if x.size == 0 or index.size == 0:
        return self
    ctx.require_indices(index, x.shape[axis])
    named = jnp.zeros((x.shape[axis],), bool).at[index.reshape(-1)].set(True, mode="drop")
    named = named.reshape(-1, *(1,) * (x.ndim - axis - 1))
    return jnp.where(named, convert(jnp.asarray(value), x.dtype).reshape(()), x).reshape(ctx.shape)


# By several indices


@rule("index_put")
def index_put(ctx: Context, self: Any, indices: list[Any], values: Any, accumulate: bool) -> Any:
    where = advanced(ctx, self, indices)
    if self.size == 0 or any(i is not None and i.size == 0 for i in indices):
        return self
    return _combined(self, where, values.astype(self.dtype), "add" if accumulate else "set")


# By mask


def _rank(mask: Any) -> tuple[Any, Any]:
    """For each element of a flat mask how many are set before it, and how many are set in all."""
    upto = lax.cumsum(mask.astype(jnp.int32 if mask.size < 2**31 else jnp.int64), 0)
    return upto - mask, upto[-1]


@rule("masked_scatter")
def masked_scatter(ctx: Context, self: Any, mask: Any, source: Any) -> Any:
    mask = jnp.broadcast_to(mask, ctx.shape).reshape(-1)
    x = jnp.broadcast_to(self, ctx.shape)
    if mask.size == 0:
        return x
    rank, count = _rank(mask)
    ctx.require(
        count <= source.size,
        "masked_scatter: expected the number of elements of source to be at least the number of ones in mask",
        RuntimeError,
    )
    if source.size == 0:
        return x
    return jnp.where(mask, jnp.take(source.reshape(-1), rank, mode="clip"), x.reshape(-1)).reshape(ctx.shape)


@rule("masked_scatter_backward")
def masked_scatter_backward(ctx: Context, grad_output: Any, mask: Any, sizes: Any) -> Any:
    mask = jnp.broadcast_to(mask, grad_output.shape).reshape(-1)
    result = jnp.zeros(ctx.shape, grad_output.dtype).reshape(-1)
    if mask.size == 0 or result.size == 0:
        return result.reshape(ctx.shape)
    rank, _ = _rank(mask)
    place = jnp.where(mask, rank, result.size)
    return result.at[place].set(grad_output.reshape(-1), mode="drop").reshape(ctx.shape)
