"""Sorting, selection by rank, search in sorted sequences, and histograms.

NaN sorts as the greatest number, as on CPU; equal elements keep their order everywhere.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering.axes import along
from lazytpu.lowering.context import Context
from lazytpu.lowering.registry import rule


def sort_along(x: Any, axis: int, descending: bool = False) -> tuple[Any, Any]:
    """Stably sorted values along ``axis`` and where each came from (int32)."""
    keys = x.astype(jnp.uint8) if x.dtype == np.bool_ else x
    positions = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    if descending:
        # Sorted upwards from the back, then reversed: equal elements end up in their own order.
        keys, positions = lax.rev(keys, (axis,)), lax.rev(positions, (axis,))
    values, index = lax.sort((keys, positions), dimension=axis, is_stable=True, num_keys=1)
    if descending:
        values, index = lax.rev(values, (axis,)), lax.rev(index, (axis,))
    return values.astype(x.dtype), index


@rule("sort")
def sort(ctx: Context, self: Any, dim: int, descending: bool) -> Any:
    values, index = sort_along(*along(self, dim), descending)
    return values.reshape(ctx.shape), index.reshape(ctx.shape)


@rule("sort.stable")
def sort_stable(ctx: Context, self: Any, stable: Any, dim: int, descending: bool) -> Any:
    return sort(ctx, self, dim, descending)


@rule("topk")
def topk(ctx: Context, self: Any, k: int, dim: int, largest: bool, is_sorted: bool) -> Any:
    x, axis = along(self, dim)
    if largest and jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize <= 4:
        # XLA's own selection compares sign bits first: a NaN has to be positive to be the greatest.
        last = jnp.moveaxis(jnp.where(jnp.isnan(x), np.array(np.nan, x.dtype), x), axis, -1)
        values, index = (jnp.moveaxis(r, -1, axis) for r in lax.top_k(last, k))
    else:
        values, index = (lax.slice_in_dim(r, 0, k, axis=axis) for r in sort_along(x, axis, largest))
    return values.reshape(ctx.shape), index.reshape(ctx.shape)


def _picked(values: Any, index: Any, rank: Any, axis: int) -> tuple[Any, Any]:
    """Value and origin of the elements at ``rank`` (which keeps ``axis``, of size one) of sorted rows."""
    value, position = (jnp.take_along_axis(r, rank, axis, mode="clip") for r in (values, index))
    return value, position


@rule("kthvalue")
def kthvalue(ctx: Context, self: Any, k: int, dim: int, keepdim: bool) -> Any:
    x, axis = along(self, dim)
    values, index = (lax.index_in_dim(r, k - 1, axis) for r in sort_along(x, axis))
    return values.reshape(ctx.shape), index.reshape(ctx.shape)


def _median(x: Any, axis: int, ignore_nan: bool) -> tuple[Any, Any]:
    """The lower median and its position; unless ignored, a NaN is the median of its row."""
    size = x.shape[axis]
    nans = jnp.sum(x != x, axis, keepdims=True, dtype=jnp.int32)
    numbers = size - nans
    middle = jnp.maximum(numbers - 1, 0) // 2
    rank = middle if ignore_nan else jnp.where(nans > 0, numbers, middle)
    return _picked(*sort_along(x, axis), rank, axis)


def _median_dim(ctx: Context, self: Any, dim: int, ignore_nan: bool) -> Any:
    value, position = _median(*along(self, dim), ignore_nan)
    return value.reshape(ctx.shape), position.reshape(ctx.shape)


def _median_of_all(ctx: Context, self: Any, ignore_nan: bool) -> Any:
    if self.size == 0:
        return jnp.full((), jnp.nan) if jnp.issubdtype(self.dtype, jnp.floating) else jnp.full((), jnp.iinfo(self.dtype).min)
    return _median(self.reshape(-1), 0, ignore_nan)[0].reshape(())


@rule("median")
def median(ctx: Context, self: Any) -> Any:
    return _median_of_all(ctx, self, False)


@rule("nanmedian")
def nanmedian(ctx: Context, self: Any) -> Any:
    return _median_of_all(ctx, self, True)


@rule("median.dim")
def median_dim(ctx: Context, self: Any, dim: int, keepdim: bool) -> Any:
    return _median_dim(ctx, self, dim, False)


@rule("nanmedian.dim")
def nanmedian_dim(ctx: Context, self: Any, dim: int, keepdim: bool) -> Any:
    return _median_dim(ctx, self, dim, True)


@rule("mode")
def mode(ctx: Context, self: Any, dim: int, keepdim: bool) -> Any:
    """The least of the most frequent values, and the last place where it stands."""
    x, axis = along(self, dim)
    values, index = sort_along(x, axis)
    size = x.shape[axis]
    positions = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    before = lax.slice_in_dim(values, 0, size - 1, axis=axis)
    after = lax.slice_in_dim(values, 1, size, axis=axis)
    pads = [(0, 0)] * x.ndim
    pads[axis] = (1, 0)
    begins = jnp.pad(before != after, pads, constant_values=True)
    # The longest run reaches its full length at its last element.
    length = positions - lax.cummax(jnp.where(begins, positions, 0), axis)
    rank = jnp.expand_dims(jnp.argmax(length, axis), axis)
    value, position = _picked(values, index, rank, axis)
    return value.reshape(ctx.shape), position.reshape(ctx.shape)


def _search(boundaries: Any, values: Any, right: bool, sorter: Any = None) -> Any:
    """CPU's binary search: the same answer even where ``boundaries`` are not sorted or hold NaN.

    ``boundaries`` is a vector, or has the leading axes of ``values``.
    """
    size = boundaries.shape[-1]
    shared = boundaries.ndim == 1
    queries = values.reshape(-1) if shared else values
    if sorter is not None:
        boundaries = jnp.take_along_axis(boundaries, sorter, -1, mode="clip")
    if size == 0 or queries.size == 0:
        return jnp.zeros(values.shape, jnp.int32)

    def halve(_: Any, bounds: Any) -> Any:
        low, high = bounds
        middle = low + ((high - low) >> 1)
        at = jnp.take_along_axis(boundaries, jnp.minimum(middle, size - 1), -1, mode="clip")
        open_ = low < high
        goes_left = at > queries if right else at >= queries
        return jnp.where(open_ & ~goes_left, middle + 1, low), jnp.where(open_ & goes_left, middle, high)

    start = jnp.zeros(queries.shape, jnp.int32)
    low, _ = lax.fori_loop(0, size.bit_length(), halve, (start, jnp.full_like(start, size)))
    return low.reshape(values.shape)


@rule("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    ctx: Context, sorted_sequence: Any, self: Any, out_int32: bool, right: bool, side: str | None, sorter: Any
) -> Any:
    boundaries, values = ctx.promoted(sorted_sequence, self)
    return _search(boundaries, values, right or side == "right", sorter)


@rule("bucketize.Tensor", "bucketize.Scalar")
def bucketize(ctx: Context, self: Any, boundaries: Any, out_int32: bool, right: bool) -> Any:
    values, edges = ctx.promoted(self, boundaries)
    return _search(edges, values, right)


def _counts(bins: Any, size: int, weights: Any = None) -> Any:
    """How often each of ``size`` bins occurs, or the sum of its weights; others are left out."""
    if weights is None:
        weights = jnp.ones(bins.shape, jnp.int64)
    return jnp.zeros((size,), weights.dtype).at[jnp.where(bins < 0, size, bins)].add(weights, mode="drop")


@rule("histc")
def histc(ctx: Context, self: Any, bins: int, min: Any, max: Any) -> Any:
    x = self.reshape(-1)
    low, high = min.astype(x.dtype), max.astype(x.dtype)
    message = "torch.histc: max must be larger than min, and the range of the input finite"
    if x.size == 0:
        ctx.require(low <= high, message, RuntimeError)
        return jnp.zeros(ctx.shape, ctx.dtype)
    whole = low == high
    low, high = jnp.where(whole, jnp.min(x), low), jnp.where(whole, jnp.max(x), high)
    finite = jnp.isfinite(low) & jnp.isfinite(high)
    ctx.require(finite & (low <= high), message, RuntimeError)
    one = jnp.where(low == high, np.array(1, x.dtype), np.array(0, x.dtype))
    low, high = low - one, high + one
    inside = (x >= low) & (x <= high) & finite
    place = jnp.where(inside, (x - low) * np.array(bins, x.dtype) / (high - low), np.array(0, x.dtype))
    place = jnp.minimum(place.astype(jnp.int32), bins - 1)
    return _counts(jnp.where(inside, place, -1), bins)


@rule("lazytpu::bincount")
def bincount(ctx: Context, self: Any, weights: Any) -> Any:
    return _counts(self, ctx.shape[0], None if weights is None else weights.astype(ctx.dtype))
