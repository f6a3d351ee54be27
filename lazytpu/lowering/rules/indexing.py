"""Reading elements by index: gathers, selections, and membership.

An index out of range fails a check that is raised at the next wait. What is read for it is NaN (the
smallest integer for integers, the largest for unsigned ones and True for bools), never a neighbour's value.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering.axes import along
from lazytpu.lowering.context import Context
from lazytpu.lowering.registry import rule
from lazytpu.lowering.rules.sorting import sort_along

_COMPARED_ALL = 64
"""Up to so many elements to look for, each is compared with each; beyond, they are sorted and searched."""


def located(ctx: Context, index: Any, size: int, error: type[Exception] = IndexError) -> Any:
    """An index that may not be negative, required to be below ``size``; where it is not it lies beyond ``size``."""
    if index.size:
        ctx.require((index >= 0) & (index < size), f"index out of range for dimension with size {size}", error)
    return jnp.where(index < 0, np.array(size, index.dtype) if size <= np.iinfo(index.dtype).max else index, index)


def advanced(ctx: Context, x: Any, indices: list[Any]) -> tuple[Any, ...]:
    """``indices`` (index arrays, None for whole dimensions) for ``x``, required to be in range, as NumPy takes them."""
    given = [(index, x.shape[axis]) for axis, index in enumerate(indices) if index is not None and index.size]
    if len(given) == 1:
        ctx.require_indices(*given[0])
    elif given:
        inside = jnp.stack([jnp.all((index >= -size) & (index < size)) for index, size in given])
        ctx.require(inside, f"index out of range for dimensions with sizes {', '.join(str(size) for _, size in given)}")
    return tuple(slice(None) if index is None else index for index in indices)


def _filler(dtype: np.dtype) -> Any:
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.array(np.nan, dtype)
    if dtype == np.bool_:
        return np.array(True)
    limits = jnp.iinfo(dtype)
    return np.array(limits.max if limits.min == 0 else limits.min, dtype)


def taken(x: Any, index: Any, axis: int) -> Any:
    """The slices of ``x`` at ``index`` along ``axis``; a negative index counts from the end."""
    if x.shape[axis] == 0:
        return jnp.full((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), _filler(x.dtype))
    return jnp.take(x, index, axis=axis, mode="fill")


@rule("index.Tensor")
def index(ctx: Context, self: Any, indices: list[Any]) -> Any:
    where = advanced(ctx, self, indices)
    if any(self.shape[d] == 0 for d, i in enumerate(indices) if i is not None):
        return jnp.full(ctx.shape, _filler(self.dtype))
    return self.at[where].get(mode="fill")


@rule("index_select")
def index_select(ctx: Context, self: Any, dim: int, index: Any) -> Any:
    x, axis = along(self, dim)
    return taken(x, located(ctx, index.reshape(-1), x.shape[axis]), axis).reshape(ctx.shape)


@rule("gather")
def gather(ctx: Context, self: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    if index.size == 0:
        return jnp.zeros(ctx.shape, self.dtype)
    x, axis = along(self, dim)
    index = located(ctx, jnp.atleast_1d(index), x.shape[axis], RuntimeError)
    if x.shape[axis] == 0:
        return jnp.full(ctx.shape, _filler(x.dtype))
    corner = lax.slice(x, (0,) * x.ndim, [n if d == axis else m for d, (n, m) in enumerate(zip(x.shape, index.shape))])
    return jnp.take_along_axis(corner, index, axis, mode="fill").reshape(ctx.shape)


@rule("take")
def take(ctx: Context, self: Any, index: Any) -> Any:
    ctx.require_indices(index, self.size)
    return taken(self.reshape(-1), index, 0)


@rule("nonzero_static")
def nonzero_static(ctx: Context, self: Any, size: int, fill_value: int) -> Any:
    flat = jnp.nonzero(self.reshape(-1) != 0, size=size, fill_value=self.size)[0]
    there = flat < self.size
    columns = jnp.unravel_index(jnp.where(there, flat, 0), self.shape) if self.size else [flat] * self.ndim
    if not columns:
        return jnp.zeros(ctx.shape, jnp.int64)
    return jnp.where(there[:, None], jnp.stack(columns, 1), fill_value)


@rule("repeat_interleave.Tensor")
def repeat_interleave(ctx: Context, repeats: Any, output_size: int) -> Any:
    ends = jnp.cumsum(repeats, dtype=jnp.int64)
    total = ends[-1] if repeats.size else jnp.int64(0)
    message = f"repeats can not be negative, and have to add up to the output size ({output_size})"
    ctx.require((repeats >= 0).all() & (total == output_size), message, RuntimeError)
    if repeats.size == 0 or output_size == 0:
        return jnp.zeros(ctx.shape, repeats.dtype)
    return jnp.searchsorted(ends, jnp.arange(output_size, dtype=jnp.int64), side="right")


@rule("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def isin(ctx: Context, elements: Any, test_elements: Any, assume_unique: bool, invert: bool) -> Any:
    x, tested = ctx.promoted(elements, test_elements)
    tested = tested.reshape(-1)
    if tested.size <= _COMPARED_ALL:
        found = jnp.any(x[..., None] == tested, -1)
    else:
        ordered = sort_along(tested, 0)[0]
        place = jnp.searchsorted(ordered, x)
        found = jnp.take(ordered, place, mode="clip") == x
    return ~found if invert else found


@rule("one_hot")
def one_hot(ctx: Context, self: Any, num_classes: int) -> Any:
    inside = (self >= 0) & (self < num_classes)
    ctx.require(inside, "Class values must be non-negative and smaller than num_classes.", RuntimeError)
    return self[..., None] == jnp.arange(num_classes, dtype=self.dtype)


# Distinct rows


def _sorted_rows(rows: Any) -> Any:
    """The order that sorts ``rows`` lexicographically, equal rows in their own order."""
    count, width = rows.shape
    keys = (rows.astype(jnp.uint8) if rows.dtype == np.bool_ else rows).T

    def by_column(i: Any, order: Any) -> Any:
        return lax.sort((keys[width - 1 - i][order], order), num_keys=1, is_stable=True)[1]

    return lax.fori_loop(0, width, by_column, jnp.arange(count, dtype=jnp.int32))


@rule("lazytpu::unique")
def unique(ctx: Context, rows: Any, sorts: bool) -> Any:
    """The distinct rows, where each row went, how often each occurs, and how many there are.

    Runs of equal rows count as one; sorted first, equal rows are all in one run. The first and third result
    have a place for each row, those past the number of distinct rows without meaning.
    """
    count = rows.shape[0]
    order = None
    if sorts:
        order = _sorted_rows(rows) if rows.shape[1] > 1 else sort_along(rows[:, 0], 0)[1]
        rows = rows[order]
    begins = jnp.concatenate([jnp.ones((1,), bool), (rows[1:] != rows[:-1]).any(1)])
    run = jnp.cumsum(begins, dtype=jnp.int64) - 1
    first = jnp.full((count,), count, jnp.int64).at[jnp.where(begins, run, count)].set(jnp.arange(count), mode="drop")
    counts = jnp.append(first[1:], count) - first
    inverse = run if order is None else jnp.zeros((count,), jnp.int64).at[order].set(run, unique_indices=True)
    return jnp.take(rows, first, axis=0, mode="clip"), inverse, counts, run[-1] + 1
