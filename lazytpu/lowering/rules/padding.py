"""Padding, sliding windows as columns, and the shuffles between channels and space."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering import taps
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule


def _pairs(padding: Any) -> list[tuple[int, int]]:
    """(low, high) for each padded axis, from the first to the last."""
    return [(padding[i], padding[i + 1]) for i in range(len(padding) - 2, -1, -2)]


@rule("constant_pad_nd")
def constant_pad(ctx: Context, self: Any, pad: Any, value: Any) -> Any:
    pairs = _pairs(pad)
    config = [(0, 0, 0)] * (self.ndim - len(pairs)) + [(low, high, 0) for low, high in pairs]
    (fill,) = ctx.cast(value)
    return lax.pad(self, fill, config)


def _replicated(low: int, high: int, size: int) -> np.ndarray:
    return np.clip(np.arange(-low, size + high), 0, size - 1)


def _reflected(low: int, high: int, size: int) -> np.ndarray:
    index = np.abs(np.arange(-low, size + high))
    return size - 1 - np.abs(size - 1 - index)


def _pad(ctx: Context, x: Any, padding: Any, source: Any) -> Any:
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, x.dtype)
    pairs = _pairs(padding)
    for axis, (low, high) in enumerate(pairs, start=x.ndim - len(pairs)):
        if low or high:
            x = taps.take(x, axis, source(low, high, x.shape[axis]))
    return x


def _pad_backward(ctx: Context, grad: Any, padding: Any, source: Any) -> Any:
    if 0 in ctx.shape or 0 in grad.shape:
        return jnp.zeros(ctx.shape, grad.dtype)
    pairs = _pairs(padding)
    grad = grad.astype(opmath(grad.dtype))
    for axis, (low, high) in enumerate(pairs, start=grad.ndim - len(pairs)):
        if low or high:
            size = ctx.shape[axis]
            spread = taps.plain(source(low, high, size)[:, None], size)
            grad = taps.apply(grad, axis, taps.transposed(spread, size))
    return grad


@rule("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(ctx: Context, self: Any, padding: Any) -> Any:
    return _pad(ctx, self, padding, _reflected)


@rule("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward")
def reflection_pad_backward(ctx: Context, grad_output: Any, self: Any, padding: Any) -> Any:
    return _pad_backward(ctx, grad_output, padding, _reflected)


@rule("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(ctx: Context, self: Any, padding: Any) -> Any:
    return _pad(ctx, self, padding, _replicated)


@rule("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def replication_pad_backward(ctx: Context, grad_output: Any, self: Any, padding: Any) -> Any:
    return _pad_backward(ctx, grad_output, padding, _replicated)


def _two(values: Any) -> tuple[int, ...]:
    return tuple(values) * 2 if len(values) == 1 else tuple(values)


def _sliding(size: int, kernel: int, dilation: int, padding: int, stride: int) -> np.ndarray:
    """The input at each (kernel position, output), outside ``[0, size)`` in the padding."""
    outputs = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    return np.arange(kernel)[:, None] * dilation + np.arange(outputs) * stride - padding


@rule("im2col")
def im2col(ctx: Context, self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, self.dtype)
    x = self
    first = x.ndim - 2
    geometry = zip(self.shape[-2:], *map(_two, (kernel_size, dilation, padding, stride)))
    for i, (size, k, d, p, s) in enumerate(geometry):
        axis = first + 2 * i
        pads = [(0, 0)] * x.ndim
        pads[axis] = (p, p)
        x = taps.windows(jnp.pad(x, pads), axis, _sliding(size, k, d, p, s) + p)
    return x.swapaxes(first + 1, first + 2).reshape(ctx.shape)


@rule("col2im")
def col2im(
    ctx: Context, self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    if 0 in ctx.shape or 0 in self.shape:
        return jnp.zeros(ctx.shape, self.dtype)
    geometry = list(zip(output_size, *map(_two, (kernel_size, dilation, padding, stride))))
    tables = [_sliding(*axis) for axis in geometry]
    (kh, oh), (kw, ow) = (table.shape for table in tables)
    first = len(ctx.shape) - 2
    x = self.astype(opmath(self.dtype)).reshape(*ctx.shape[:first], kh, kw, oh, ow)
    x = x.swapaxes(first + 1, first + 2).reshape(*ctx.shape[:first], kh * oh, kw * ow)
    for i, (size, table) in enumerate(zip(output_size, tables)):
        x = taps.apply(x, first + i, taps.transposed(taps.plain(table.reshape(-1, 1), size), size))
    return x


@rule("pixel_shuffle")
def pixel_shuffle(ctx: Context, self: Any, upscale_factor: int) -> Any:
    *batch, channels, height, width = self.shape
    r, n = upscale_factor, len(batch)
    x = self.reshape(*batch, channels // (r * r), r, r, height, width)
    return x.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2).reshape(ctx.shape)


@rule("pixel_unshuffle")
def pixel_unshuffle(ctx: Context, self: Any, downscale_factor: int) -> Any:
    *batch, channels, height, width = self.shape
    r, n = downscale_factor, len(batch)
    x = self.reshape(*batch, channels, height // r, r, width // r, r)
    return x.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3).reshape(ctx.shape)


@rule("channel_shuffle")
def channel_shuffle(ctx: Context, self: Any, groups: int) -> Any:
    batch, channels, *space = self.shape
    return self.reshape(batch, groups, channels // groups, *space).swapaxes(1, 2).reshape(ctx.shape)
