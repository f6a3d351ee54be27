"""Interpolation to another size, and sampling at given points, with their gradients.

Interpolation is one table of taps for each axis, made as PyTorch's CPU kernels make theirs; the
gradient is the transposed table.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering import taps
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule

_Table = Callable[[int, int, Any, bool, Any], taps.Taps]
"""From input size, output size, scale given by the user or None, align_corners and dtype."""


def _scale(size: int, output: int, given: Any, align: bool, dtype: Any) -> Any:
    """How far apart in the input two neighbours of the output are."""
    if align:
        return dtype(size - 1) / dtype(output - 1) if output > 1 else dtype(0)
    return dtype(1.0 / given) if given is not None and given > 0 else dtype(size) / dtype(output)


def _one_tap(index: np.ndarray) -> taps.Taps:
    index = index.astype(np.int64)[:, None]
    return taps.Taps(index, np.ones(index.shape), np.ones(index.shape, bool))


def _nearest(size: int, output: int, given: Any, align: bool, dtype: Any) -> taps.Taps:
    place = _scale(size, output, given, False, dtype) * np.arange(output, dtype=dtype)
    return _one_tap(np.minimum(np.floor(place.astype(np.float32)), size - 1))


def _nearest_exact(size: int, output: int, given: Any, align: bool, dtype: Any) -> taps.Taps:
    place = np.maximum(_source(size, output, given, False, dtype), 0) + dtype(0.5)
    return _one_tap(np.minimum(np.floor(place.astype(np.float32)), size - 1))


def _source(size: int, output: int, given: Any, align: bool, dtype: Any) -> np.ndarray:
    """The place in the input of each output."""
    scale = _scale(size, output, given, align, dtype)
    i = np.arange(output, dtype=dtype)
    # A fused multiply-add, as compilers make of it: the product is not rounded.
    return scale * i if align else (np.float64(scale) * (i.astype(np.float64) + 0.5) - 0.5).astype(dtype)


def _linear(size: int, output: int, given: Any, align: bool, dtype: Any) -> taps.Taps:
    if output == size:
        return _one_tap(np.arange(output))
    place = np.maximum(_source(size, output, given, align, dtype), 0)
    low = np.minimum(place.astype(np.int64), size - 1)
    part = np.clip(place - low.astype(dtype), 0, 1)
    source = np.stack([low, np.minimum(low + 1, size - 1)], 1)
    return taps.Taps(source, np.stack([1 - part, part], 1), np.ones(source.shape, bool))


def _cubic_weights(part: Any, a: float = -0.75) -> list[Any]:
    """The weights of the four neighbours of a point ``part`` of the way between the middle two."""
    return [weight for weight, _ in _cubic(part, a)]


def _cubic(part: Any, a: float) -> list[tuple[Any, Any]]:
    """Weight and derivative by ``part`` for each of the four neighbours."""

    def far(x: Any, sign: int) -> tuple[Any, Any]:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, sign * ((3 * a * x - 10 * a) * x + 8 * a)

    def near(x: Any, sign: int) -> tuple[Any, Any]:
        return ((a + 2) * x - (a + 3)) * x * x + 1, sign * (3 * (a + 2) * x - 2 * (a + 3)) * x

    return [far(part + 1, 1), near(part, 1), near(1 - part, -1), far(2 - part, -1)]


def _bicubic(size: int, output: int, given: Any, align: bool, dtype: Any) -> taps.Taps:
    if output == size:
        return _one_tap(np.arange(output))
    place = _source(size, output, given, align, dtype)
    low = np.minimum(np.floor(place), size - 1)
    part = np.clip(place - low, 0, 1)
    source = np.clip(low.astype(np.int64)[:, None] + np.arange(-1, 3), 0, size - 1)
    return taps.Taps(source, np.stack(_cubic_weights(part), 1), np.ones(source.shape, bool))


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _keys_cubic(x: np.ndarray) -> np.ndarray:
    x, a = np.abs(x), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return np.where(x < 1, near, np.where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0))


def _lanczos3(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _antialiased(filter: Callable[[np.ndarray], np.ndarray], width: int) -> _Table:
    """Tables of a filter ``width`` inputs wide, and wider in proportion where the output is smaller."""

    def table(size: int, output: int, given: Any, align: bool, dtype: Any) -> taps.Taps:
        scale = _scale(size, output, given, align, dtype)
        stretch = max(scale, dtype(1))
        support = dtype(width / 2) * stretch
        half = dtype(0.5)
        center = scale * (np.arange(output, dtype=dtype) + half)
        start = np.maximum((center - support + half).astype(np.int64), 0)
        end = np.minimum((center + support + half).astype(np.int64), size)
        source = start[:, None] + np.arange(int((end - start).max()))
        valid = source < end[:, None]
        weight = np.where(valid, filter((source.astype(dtype) - center[:, None] + half) / stretch), 0)
        total = weight.sum(1, keepdims=True)
        weight = weight / np.where(total == 0, 1, total)
        return taps.Taps(np.minimum(source, size - 1), weight, valid)

    return table


def _resize(ctx: Context, x: Any, table: _Table, align: bool, scales: Any) -> Any:
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, x.dtype)
    # The last axis first, as PyTorch's kernels do.
    axes = reversed(list(enumerate(scales, start=2)))
    if table not in (_nearest, _nearest_exact):
        if x.dtype == np.uint8:
            for axis, given in axes:
                if x.shape[axis] != ctx.shape[axis]:
                    x = _fixed_point(x, axis, table(x.shape[axis], ctx.shape[axis], given, align, np.float64))
            return x
        x = x.astype(opmath(x.dtype))
    for axis, given in axes:
        x = taps.apply(x, axis, table(x.shape[axis], ctx.shape[axis], given, align, _scalar(x)))
    return x


def _fixed_point(x: Any, axis: int, table: taps.Taps) -> Any:
    """A map of bytes to bytes with the 16-bit weights of PyTorch's (and Pillow's) integer kernels."""
    source, weight, valid = table
    weight = np.where(valid, weight, 0)
    for k in range(1, source.shape[1]):
        # Taps on the same input are one tap: their weights are summed before they are rounded.
        for j in range(k):
            same = valid[:, j] & valid[:, k] & (source[:, j] == source[:, k])
            weight[same, j] += weight[same, k]
            weight[same, k] = 0
    bits = 0
    while bits < 21 and int(0.5 + weight.max() * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    scaled = np.trunc(weight * (1 << bits) + np.where(weight < 0, -0.5, 0.5))
    total = taps.apply(x.astype(jnp.int32), axis, taps.Taps(source, scaled, valid))
    return jnp.clip((total + (1 << (bits - 1))) >> bits, 0, 255).astype(jnp.uint8)


def _resize_backward(ctx: Context, grad: Any, table: _Table, align: bool, scales: Any) -> Any:
    if 0 in ctx.shape or 0 in grad.shape:
        return jnp.zeros(ctx.shape, grad.dtype)
    grad = grad.astype(opmath(grad.dtype))
    for axis, given in enumerate(scales, start=2):
        size = ctx.shape[axis]
        forward = table(size, grad.shape[axis], given, align, _scalar(grad))
        grad = taps.apply(grad, axis, taps.transposed(forward, size))
    return grad


def _scalar(x: Any) -> Any:
    """The NumPy type that PyTorch computes tables for ``x`` in."""
    return np.float64 if x.dtype == np.float64 else np.float32


def _register(op: str, table: _Table, aligns: bool) -> None:
    """Register the rules of an interpolation and of its gradient."""

    @rule(op)
    def forward(ctx: Context, self: Any, output_size: Any, *rest: Any) -> Any:
        align, scales = (rest[0], rest[1:]) if aligns else (False, rest)
        return _resize(ctx, self, table, align, scales)

    @rule(f"{op}_backward")
    def backward(ctx: Context, grad_output: Any, output_size: Any, input_size: Any, *rest: Any) -> Any:
        align, scales = (rest[0], rest[1:]) if aligns else (False, rest)
        return _resize_backward(ctx, grad_output, table, align, scales)


for _rank in (1, 2, 3):
    _register(f"upsample_nearest{_rank}d", _nearest, False)
    _register(f"_upsample_nearest_exact{_rank}d", _nearest_exact, False)
for _op, _table in (
    ("upsample_linear1d", _linear),
    ("upsample_bilinear2d", _linear),
    ("upsample_trilinear3d", _linear),
    ("upsample_bicubic2d", _bicubic),
    ("_upsample_bilinear2d_aa", _antialiased(_triangle, 2)),
    ("_upsample_bicubic2d_aa", _antialiased(_keys_cubic, 4)),
    ("_upsample_lanczos2d_aa", _antialiased(_lanczos3, 6)),
):
    _register(_op, _table, True)


_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


class _Tap(NamedTuple):
    """One neighbour of every sampled point along one axis: which, its weight, and the weight's slope."""

    index: Any
    weight: Any
    slope: Any


def _inside(place: Any, size: int, padding: int, align: bool) -> tuple[Any, Any]:
    """``place`` brought into the input by the padding mode, and the derivative of doing so."""
    slope = jnp.ones_like(place)
    if padding == _REFLECTION:
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            return jnp.zeros_like(place), jnp.zeros_like(place)
        offset = place - low
        slope = jnp.where(offset < 0, -slope, slope)
        offset = jnp.abs(offset)
        extra = jnp.fmod(offset, span)
        odd = jnp.fmod(jnp.floor(offset / span), 2) != 0
        place = jnp.where(odd, span - extra, extra) + low
        slope = jnp.where(odd, -slope, slope)
    if padding in (_BORDER, _REFLECTION):
        slope = jnp.where((place <= 0) | (place >= size - 1), 0, slope)
        place = jnp.clip(place, 0, size - 1)
    return place, slope


def _neighbours(grid: Any, size: int, mode: int, padding: int, align: bool) -> list[_Tap]:
    """The taps along one axis for coordinates in [-1, 1]."""
    factor = (size - 1) / 2 if align else size / 2
    place = (grid + 1) * factor if align else ((grid + 1) * size - 1) / 2
    if mode == _BICUBIC:
        low = jnp.floor(place)
        return [
            _Tap(_inside(low + k - 1, size, padding, align)[0], weight, slope * factor)
            for k, (weight, slope) in enumerate(_cubic(place - low, -0.75))
        ]
    place, slope = _inside(place, size, padding, align)
    if mode == _NEAREST:
        return [_Tap(jnp.round(place), jnp.ones_like(place), jnp.zeros_like(place))]
    low = jnp.floor(place)
    part = place - low
    return [_Tap(low, 1 - part, -slope * factor), _Tap(low + 1, part, slope * factor)]


class _Corners(NamedTuple):
    """All neighbours of all points, one after the other along the second axis of (batch, neighbours, points)."""

    index: Any
    inside: Any
    weight: Any
    slopes: list[Any]


def _corners(grid: Any, space: tuple[int, ...], mode: int, padding: int, align: bool) -> _Corners:
    """Flat index, weight and the weight's slope along each spatial axis, for every neighbour."""
    # The last coordinate of the grid belongs to the first spatial axis.
    axes = [_neighbours(grid[..., -1 - i], n, mode, padding, align) for i, n in enumerate(space)]
    index, inside, weight, slopes = [], [], [], []
    for corner in product(*axes):
        flat, within = jnp.zeros(grid.shape[:2], jnp.int32), jnp.ones(grid.shape[:2], bool)
        for tap, n in zip(corner, space):
            within = within & (tap.index >= 0) & (tap.index <= n - 1)
            flat = flat * n + jnp.clip(tap.index, 0, n - 1).astype(jnp.int32)
        index.append(jnp.where(within, flat, 0))
        inside.append(within)
        weight.append(prod(tap.weight for tap in corner))
        slopes.append([prod(t.slope if i == axis else t.weight for i, t in enumerate(corner)) for axis in range(len(space))])
    by_axis = [jnp.stack(slope, 1) for slope in zip(*slopes)]
    return _Corners(jnp.stack(index, 1), jnp.stack(inside, 1), jnp.stack(weight, 1), by_axis)


def _flattened(input: Any, grid: Any) -> tuple[Any, Any]:
    """(batch, channels, space) and (batch, points, coordinates), in the dtype to compute in."""
    dtype = opmath(input.dtype)
    planes = input.astype(dtype).reshape(*input.shape[:2], -1)
    return planes, grid.astype(dtype).reshape(grid.shape[0], -1, grid.shape[-1])


def _at_corners(planes: Any, corners: _Corners) -> Any:
    """The inputs at every corner, zero outside: (batch, channels, neighbours, points)."""
    pick = jax.vmap(lambda plane, index: jnp.take(plane, index, axis=1, mode="clip"))
    return jnp.where(corners.inside[:, None], pick(planes, corners.index), 0)


def _grid_sampler(ctx: Context, input: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, input.dtype)
    planes, points = _flattened(input, grid)
    corners = _corners(points, input.shape[2:], mode, padding, align)
    weight = jnp.where(corners.inside, corners.weight, 0)
    return (_at_corners(planes, corners) * weight[:, None]).sum(2).reshape(ctx.shape)


def _grid_sampler_backward(
    ctx: Context, grad_output: Any, input: Any, grid: Any, mode: int, padding: int, align: bool, mask: Any
) -> Any:
    if 0 in input.shape or 0 in grid.shape:
        return tuple(jnp.zeros(x.shape, x.dtype) if wanted else None for x, wanted in zip((input, grid), mask))
    planes, points = _flattened(input, grid)
    corners = _corners(points, input.shape[2:], mode, padding, align)
    grad = grad_output.astype(planes.dtype).reshape(*planes.shape[:2], 1, -1)
    by_input = by_grid = None
    if mask[0]:
        weight = jnp.where(corners.inside, corners.weight, 0)[:, None]
        added = jnp.moveaxis(grad * weight, 1, -1)
        rows = jnp.arange(input.shape[0])[:, None, None]
        by_input = jnp.zeros(planes.shape, planes.dtype).at[rows, :, corners.index].add(added).reshape(input.shape)
    if mask[1]:
        along = (grad * _at_corners(planes, corners)).sum(1)
        by_axis = [jnp.where(corners.inside, along * slope, 0).sum(1) for slope in corners.slopes]
        by_grid = jnp.stack(by_axis[::-1], axis=-1).reshape(grid.shape)
    return by_input, by_grid


@rule("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(ctx: Context, *args: Any) -> Any:
    return _grid_sampler(ctx, *args)


@rule("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(ctx: Context, *args: Any) -> Any:
    return _grid_sampler_backward(ctx, *args)


@rule("affine_grid_generator")
def affine_grid_generator(ctx: Context, theta: Any, size: Any, align_corners: bool) -> Any:
    dtype = opmath(theta.dtype)
    space = size[2:]
    axes = []
    for n in space:
        steps = np.linspace(-1, 1, n) if n > 1 else np.zeros(n)
        axes.append(steps if align_corners else steps * (n - 1) / max(n, 1))
    places = np.meshgrid(*axes, indexing="ij")[::-1]
    base = jnp.asarray(np.stack([*places, np.ones(space)], -1).reshape(-1, len(space) + 1), dtype)
    grid = jnp.einsum("pk,nik->npi", base, theta.astype(dtype), precision=lax.Precision.HIGHEST)
    return grid.reshape(ctx.shape)
