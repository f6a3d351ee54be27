"""Maximum and average pooling over windows, fixed and adaptive, with their gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering import taps
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule


def _each(values: Any, rank: int) -> tuple[int, ...]:
    """One number for each pooled axis; a single number stands for all of them."""
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def _flat_index(shape: tuple[int, ...], rank: int) -> Any:
    """For each element its row-major position among the last ``rank`` axes."""
    space = shape[len(shape) - rank :]
    return jnp.broadcast_to(lax.iota(jnp.int32, int(np.prod(space))).reshape(space), shape)


def _lowest(dtype: Any) -> Any:
    return np.array(-np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min, dtype)


_NOWHERE = np.int32(-1)


def _larger(a: Any, b: Any) -> Any:
    """The larger of two (value, position) pairs, whatever the order of evaluation.

    As in PyTorch's loop, the first of equal values wins and the last NaN beats all.
    """
    (x, i), (y, j) = a, b
    x_nan, y_nan = x != x, y != y
    among_nans = y_nan & (~x_nan | (j > i))
    among_numbers = (y > x) | (i < 0) | ((y == x) & (j < i) & (j >= 0))
    second = jnp.where(x_nan | y_nan, among_nans, among_numbers)
    return jnp.where(second, y, x), jnp.where(second, j, i)


def _max_pool(
    ctx: Context, x: Any, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, output: tuple[int, ...]
) -> Any:
    batch = x.ndim - rank
    pads = [
        (p, max(0, (o - 1) * s + (k - 1) * d + 1 - n - p))
        for n, o, k, s, p, d in zip(x.shape[batch:], output, kernel, stride, padding, dilation)
    ]
    ones = (1,) * batch
    return lax.reduce_window(
        (x, _flat_index(x.shape, rank)), (_lowest(x.dtype), _NOWHERE), _larger, (*ones, *kernel), (*ones, *stride),
        [(0, 0)] * batch + pads, window_dilation=(*ones, *dilation),
    )  # fmt: skip


def _max_pool_with_indices(
    ctx: Context, self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, *, rank: int
) -> Any:
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, self.dtype), jnp.zeros(ctx.shape, jnp.int64)
    kernel = _each(kernel_size, rank)
    strides = _each(stride, rank) if stride else kernel
    return _max_pool(
        ctx, self, rank, kernel, strides, _each(padding, rank), _each(dilation, rank), ctx.shape[-rank:]
    )


@rule("max_pool2d_with_indices")
def max_pool2d(ctx: Context, *args: Any) -> Any:
    return _max_pool_with_indices(ctx, *args, rank=2)


@rule("max_pool3d_with_indices")
def max_pool3d(ctx: Context, *args: Any) -> Any:
    return _max_pool_with_indices(ctx, *args, rank=3)


def _scatter(values: Any, indices: Any, shape: tuple[int, ...], rank: int, dtype: Any, add: bool) -> Any:
    """``values`` put (or added) at flat ``indices`` of the last ``rank`` axes of zeros of ``shape``."""
    planes = int(np.prod(shape[: len(shape) - rank]))
    if 0 in values.shape or 0 in shape:
        return jnp.zeros(shape, dtype)
    flat = jnp.zeros((planes, int(np.prod(shape[len(shape) - rank :]))), dtype)
    rows = lax.broadcasted_iota(jnp.int32, (planes, values.size // planes), 0)
    where = flat.at[rows, indices.reshape(planes, -1)]
    values = values.reshape(planes, -1).astype(dtype)
    return (where.add(values, mode="drop") if add else where.set(values, mode="drop")).reshape(shape)


def _max_pool_backward(grad: Any, self: Any, indices: Any, rank: int) -> Any:
    return _scatter(grad, indices, self.shape, rank, opmath(grad.dtype), add=True)


@rule("max_pool2d_with_indices_backward")
def max_pool2d_backward(ctx: Context, grad_output: Any, self: Any, *geometry: Any) -> Any:
    return _max_pool_backward(grad_output, self, geometry[-1], 2)


@rule("max_pool3d_with_indices_backward")
def max_pool3d_backward(ctx: Context, grad_output: Any, self: Any, *geometry: Any) -> Any:
    return _max_pool_backward(grad_output, self, geometry[-1], 3)


@rule("adaptive_max_pool2d_backward", "fractional_max_pool2d_backward")
def adaptive_max_pool2d_backward(ctx: Context, grad_output: Any, self: Any, *rest: Any) -> Any:
    return _max_pool_backward(grad_output, self, rest[-1], 2)


@rule("adaptive_max_pool3d_backward", "fractional_max_pool3d_backward")
def adaptive_max_pool3d_backward(ctx: Context, grad_output: Any, self: Any, *rest: Any) -> Any:
    return _max_pool_backward(grad_output, self, rest[-1], 3)


@rule("max_unpool2d")
def max_unpool2d(ctx: Context, self: Any, indices: Any, output_size: Any) -> Any:
    return _scatter(self, indices, ctx.shape, 2, self.dtype, add=False)


@rule("max_unpool3d")
def max_unpool3d(ctx: Context, self: Any, indices: Any, output_size: Any, stride: Any, padding: Any) -> Any:
    return _scatter(self, indices, ctx.shape, 3, self.dtype, add=False)


def _adaptive_bounds(size: int, output: int) -> tuple[np.ndarray, np.ndarray]:
    """First and one-past-last input of each adaptive window."""
    i = np.arange(output)
    return i * size // output, -(-(i + 1) * size // output)


def _adaptive_sources(size: int, output: int) -> np.ndarray:
    """The inputs of each adaptive window, -1 past the end of the shorter ones."""
    start, end = _adaptive_bounds(size, output)
    width = int((end - start).max()) if output else 0
    source = start[:, None] + np.arange(width)
    return np.where(source < end[:, None], source, -1)


def _max_over(x: Any, positions: Any, rank: int, sources: list[np.ndarray]) -> Any:
    """Maximum and its position over windows given as one table of inputs for each pooled axis."""
    batch = x.ndim - rank
    inside: Any = np.ones((), bool)
    for i, source in enumerate(sources):
        axis = batch + 2 * i
        clipped = np.maximum(source, 0)
        x, positions = taps.windows(x, axis, clipped), taps.windows(positions, axis, clipped)
        inside = inside & (source >= 0).reshape(*source.shape, *(1,) * (2 * (rank - 1 - i)))
    if not inside.all():
        x, positions = jnp.where(inside, x, _lowest(x.dtype)), jnp.where(inside, positions, _NOWHERE)
    axes = tuple(batch + 1 + 2 * i for i in range(rank))
    return lax.reduce((x, positions), (_lowest(x.dtype), _NOWHERE), _larger, axes)


def _adaptive_max_pool(ctx: Context, x: Any, rank: int) -> Any:
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, x.dtype), jnp.zeros(ctx.shape, jnp.int64)
    space, output = x.shape[-rank:], ctx.shape[-rank:]
    if all(n % o == 0 for n, o in zip(space, output)):
        kernel = tuple(n // o for n, o in zip(space, output))
        return _max_pool(ctx, x, rank, kernel, kernel, (0,) * rank, (1,) * rank, output)
    return _max_over(x, _flat_index(x.shape, rank), rank, [_adaptive_sources(n, o) for n, o in zip(space, output)])


@rule("adaptive_max_pool2d")
def adaptive_max_pool2d(ctx: Context, self: Any, output_size: Any) -> Any:
    return _adaptive_max_pool(ctx, self, 2)


@rule("adaptive_max_pool3d")
def adaptive_max_pool3d(ctx: Context, self: Any, output_size: Any) -> Any:
    return _adaptive_max_pool(ctx, self, 3)


def _outer_product(factors: list[np.ndarray]) -> np.ndarray:
    product = np.ones((), np.int64)
    for factor in factors:
        product = product[..., None] * factor
    return product


def _divisor(
    size: tuple[int, ...], output: tuple[int, ...], kernel: Any, stride: Any, padding: Any, include_pad: bool, override: Any
) -> np.ndarray:
    """What each window's sum is divided by."""
    if override is not None:
        return np.array(override, np.int64)
    counts = []
    for n, o, k, s, p in zip(size, output, kernel, stride, padding):
        start = np.arange(o) * s - p
        end = np.minimum(start + k, n + p)
        counts.append(end - start if include_pad else np.maximum(np.minimum(end, n) - np.maximum(start, 0), 0))
    return np.maximum(_outer_product(counts), 1)


def _divided(x: Any, divisor: np.ndarray) -> Any:
    by = jnp.asarray(divisor.astype(x.dtype))
    return lax.div(x, jnp.broadcast_to(by, x.shape)) if jnp.issubdtype(x.dtype, jnp.integer) else x / by


def _avg_pool(
    ctx: Context, self: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, include_pad: bool, override: Any,
    *, rank: int,
) -> Any:  # fmt: skip
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, self.dtype)
    x = self.astype(opmath(self.dtype))
    batch = x.ndim - rank
    size, output = x.shape[batch:], ctx.shape[-rank:]
    kernel = _each(kernel_size, rank)
    strides, pads = _each(stride, rank) if stride else kernel, _each(padding, rank)
    padded = [(p, max(0, (o - 1) * s + k - n - p)) for n, o, k, s, p in zip(size, output, kernel, strides, pads)]
    ones = (1,) * batch
    zero = np.zeros((), x.dtype)
    sums = lax.reduce_window(
        x, zero, lax.add, (*ones, *kernel), (*ones, *strides), [(0, 0)] * batch + padded
    )
    return _divided(sums, _divisor(size, output, kernel, strides, pads, include_pad, override))


def _avg_pool_backward(
    ctx: Context, grad_output: Any, self: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
    include_pad: bool, override: Any, *, rank: int,
) -> Any:  # fmt: skip
    if 0 in ctx.shape or 0 in grad_output.shape:
        return jnp.zeros(ctx.shape, self.dtype)
    batch = self.ndim - rank
    size, output = self.shape[batch:], grad_output.shape[batch:]
    kernel = _each(kernel_size, rank)
    strides, pads = _each(stride, rank) if stride else kernel, _each(padding, rank)
    grad = grad_output.astype(opmath(grad_output.dtype))
    grad = _divided(grad, _divisor(size, output, kernel, strides, pads, include_pad, override))
    for i, (n, o, k, s, p) in enumerate(zip(size, output, kernel, strides, pads)):
        window = taps.plain((np.arange(o) * s - p)[:, None] + np.arange(k), n)
        grad = taps.apply(grad, batch + i, taps.transposed(window, n))
    return grad


@rule("avg_pool2d")
def avg_pool2d(ctx: Context, *args: Any) -> Any:
    return _avg_pool(ctx, *args, rank=2)


@rule("avg_pool3d")
def avg_pool3d(ctx: Context, *args: Any) -> Any:
    return _avg_pool(ctx, *args, rank=3)


@rule("avg_pool2d_backward")
def avg_pool2d_backward(ctx: Context, *args: Any) -> Any:
    return _avg_pool_backward(ctx, *args, rank=2)


@rule("avg_pool3d_backward")
def avg_pool3d_backward(ctx: Context, *args: Any) -> Any:
    return _avg_pool_backward(ctx, *args, rank=3)


def _adaptive_taps(size: int, output: int) -> tuple[taps.Taps, np.ndarray]:
    """The windows of one axis and how many inputs each has."""
    start, end = _adaptive_bounds(size, output)
    return taps.plain(_adaptive_sources(size, output), size), end - start


def _adaptive_avg_pool(ctx: Context, x: Any, rank: int) -> Any:
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, x.dtype)
    batch = x.ndim - rank
    x = x.astype(opmath(x.dtype))
    counts = []
    for i, o in enumerate(ctx.shape[batch:]):
        window, count = _adaptive_taps(x.shape[batch + i], o)
        x = taps.apply(x, batch + i, window)
        counts.append(count)
    return _divided(x, _outer_product(counts))


def _adaptive_avg_pool_backward(grad: Any, self: Any, rank: int) -> Any:
    if 0 in self.shape or 0 in grad.shape:
        return jnp.zeros(self.shape, self.dtype)
    batch = self.ndim - rank
    maps = [_adaptive_taps(n, o) for n, o in zip(self.shape[batch:], grad.shape[batch:])]
    grad = _divided(grad.astype(opmath(grad.dtype)), _outer_product([count for _, count in maps]))
    for i, (window, _) in enumerate(maps):
        n = self.shape[batch + i]
        grad = taps.apply(grad, batch + i, taps.transposed(window, n))
    return grad


@rule("_adaptive_avg_pool2d")
def adaptive_avg_pool2d(ctx: Context, self: Any, output_size: Any) -> Any:
    return _adaptive_avg_pool(ctx, self, 2)


@rule("_adaptive_avg_pool3d")
def adaptive_avg_pool3d(ctx: Context, self: Any, output_size: Any) -> Any:
    return _adaptive_avg_pool(ctx, self, 3)


@rule("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(ctx: Context, grad_output: Any, self: Any) -> Any:
    return _adaptive_avg_pool_backward(grad_output, self, 2)


@rule("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(ctx: Context, grad_output: Any, self: Any) -> Any:
    return _adaptive_avg_pool_backward(grad_output, self, 3)


def _fractional_max_pool(ctx: Context, x: Any, kernel: Any, samples: Any, rank: int) -> Any:
    """Windows start where the samples say, so their tables are computed on the device.

    PyTorch gives the samples of the last axis first in two dimensions and last in three.
    """
    batch = x.ndim - rank
    kernel = _each(kernel, rank)
    lead = x.shape[:batch] if batch == 2 else (1, *x.shape[:batch])
    space, output = x.shape[batch:], ctx.shape[-rank:]
    values = x.reshape(*lead, -1)
    index: Any = jnp.zeros((*lead, *(1,) * (2 * rank)), jnp.int32)
    for i, (n, o, k) in enumerate(zip(space, output, kernel)):
        sample = samples[..., rank - 1 - i if rank == 2 else i][..., None]
        alpha = sample.dtype.type((n - k) / (o - 1) if o > 1 else 0)
        steps = jnp.arange(o).astype(sample.dtype)
        start = jnp.floor((steps + sample) * alpha) - jnp.floor(sample * alpha)
        start = jnp.where(jnp.arange(o) == o - 1, n - k, start.astype(jnp.int32)).astype(jnp.int32)
        source = start[..., None] + jnp.arange(k, dtype=jnp.int32)
        after = (1,) * (2 * (rank - 1 - i))
        index = index * n + source.reshape(*lead, *(1,) * (2 * i), o, k, *after)
    shape = index.shape
    picked = jnp.take_along_axis(values, index.reshape(*lead, -1), axis=-1, mode="clip").reshape(shape)
    axes = tuple(len(lead) + 1 + 2 * i for i in range(rank))
    results = lax.reduce((picked, index), (_lowest(x.dtype), _NOWHERE), _larger, axes)
    return tuple(r.reshape(ctx.shape) for r in results)


@rule("fractional_max_pool2d")
def fractional_max_pool2d(ctx: Context, self: Any, kernel_size: Any, output_size: Any, random_samples: Any) -> Any:
    return _fractional_max_pool(ctx, self, kernel_size, random_samples, 2)


@rule("fractional_max_pool3d")
def fractional_max_pool3d(ctx: Context, self: Any, kernel_size: Any, output_size: Any, random_samples: Any) -> Any:
    return _fractional_max_pool(ctx, self, kernel_size, random_samples, 3)
