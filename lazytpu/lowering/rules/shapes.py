"""Joining, repeating, reordering and masking by position, and the gradients of views."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering import taps
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.conversion import convert
from lazytpu.lowering.registry import rule


@rule("cat")
def cat(ctx: Context, tensors: list[Any], dim: int) -> Any:
    """Vectors of no elements are left out whatever the others' shape, as PyTorch always did."""
    rank = len(ctx.shape)
    parts = [convert(x, ctx.dtype) for x in tensors if x.ndim == rank and (x.size or x.shape != (0,))]
    if not parts:
        return jnp.zeros(ctx.shape, ctx.dtype)
    return lax.concatenate(parts, dim % rank)


@rule("stack", "_stack")
def stack(ctx: Context, tensors: list[Any], dim: int) -> Any:
    axis = dim % len(ctx.shape)
    return lax.concatenate([jnp.expand_dims(convert(x, ctx.dtype), axis) for x in tensors], axis)


@rule("repeat")
def repeat(ctx: Context, self: Any, repeats: tuple[int, ...]) -> Any:
    shape = (1,) * (len(repeats) - self.ndim) + self.shape
    pairs = [n for pair in zip(repeats, shape) for n in pair]
    spread = lax.broadcast_in_dim(self.reshape(shape), pairs, range(1, 2 * len(shape), 2))
    return spread.reshape(ctx.shape)


@rule("flip", pointwise=True)
def flip(ctx: Context, self: Any, dims: tuple[int, ...]) -> Any:
    return lax.rev(self, tuple(d % self.ndim for d in dims)) if self.ndim else self


@rule("roll", pointwise=True)
def roll(ctx: Context, self: Any, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    if self.size == 0:
        return self
    if not dims:
        return jnp.roll(self.reshape(-1), shifts[0]).reshape(ctx.shape)
    return jnp.roll(self, shifts, dims)


def _diagonal_of(shape: tuple[int, ...], row: int, column: int) -> Any:
    """The number of the diagonal on which each element lies, 0 the main one, positive above it."""
    return lax.broadcasted_iota(jnp.int32, shape, column) - lax.broadcasted_iota(jnp.int32, shape, row)


@rule("tril")
def tril(ctx: Context, self: Any, diagonal: int) -> Any:
    return jnp.where(_diagonal_of(self.shape, self.ndim - 2, self.ndim - 1) <= diagonal, self, np.zeros((), self.dtype))


@rule("triu")
def triu(ctx: Context, self: Any, diagonal: int) -> Any:
    return jnp.where(_diagonal_of(self.shape, self.ndim - 2, self.ndim - 1) >= diagonal, self, np.zeros((), self.dtype))


# Diagonals


def _with_diagonal(x: Any, diagonal: Any, offset: int, dim1: int, dim2: int) -> Any:
    """``x`` with its diagonal over two axes replaced: a selection, where a scatter would go element by element."""
    row, column = dim1 % x.ndim, dim2 % x.ndim
    if diagonal.size == 0:
        return x
    axis = row if offset >= 0 else column
    padded = jnp.pad(diagonal, [(0, 0)] * (diagonal.ndim - 1) + [(0, x.shape[axis] - diagonal.shape[-1])])
    spread = jnp.moveaxis(jnp.expand_dims(padded, -1 if offset >= 0 else -2), (-2, -1), (row, column))
    return jnp.where(_diagonal_of(x.shape, row, column) == offset, spread, x)


@rule("diag_embed")
def diag_embed(ctx: Context, self: Any, offset: int, dim1: int, dim2: int) -> Any:
    return _with_diagonal(jnp.zeros(ctx.shape, self.dtype), self, offset, dim1, dim2)


@rule("diagonal_backward")
def diagonal_backward(ctx: Context, grad_output: Any, input_sizes: Any, offset: int, dim1: int, dim2: int) -> Any:
    return _with_diagonal(jnp.zeros(ctx.shape, grad_output.dtype), grad_output, offset, dim1, dim2)


@rule("diagonal_scatter")
def diagonal_scatter(ctx: Context, self: Any, src: Any, offset: int, dim1: int, dim2: int) -> Any:
    return _with_diagonal(self, convert(src, self.dtype), offset, dim1, dim2)


# Slices


def _padding(shape: tuple[int, ...], axis: int, start: int, count: int, step: int) -> list[tuple[int, int, int]]:
    """How a slice of ``count`` elements along ``axis`` is padded to an array of ``shape``."""
    config = [(0, 0, 0)] * len(shape)
    config[axis] = (start, shape[axis] - start - ((count - 1) * step + 1), step - 1)
    return config


def _start_of(start: int | None, size: int) -> int:
    start = start or 0
    return min(max(start + size if start < 0 else start, 0), size)


@rule("slice_backward")
def slice_backward(
    ctx: Context, grad_output: Any, input_sizes: Any, dim: int, start: int, end: int, step: int
) -> Any:
    if grad_output.size == 0:
        return jnp.zeros(ctx.shape, grad_output.dtype)
    axis = dim % grad_output.ndim
    first = _start_of(start, ctx.shape[axis])
    config = _padding(ctx.shape, axis, first, grad_output.shape[axis], step)
    return lax.pad(grad_output, np.zeros((), grad_output.dtype), config)


@rule("select_backward")
def select_backward(ctx: Context, grad_output: Any, input_sizes: Any, dim: int, index: int) -> Any:
    axis = dim % len(ctx.shape)
    if grad_output.size == 0:
        return jnp.zeros(ctx.shape, grad_output.dtype)
    config = _padding(ctx.shape, axis, index % ctx.shape[axis], 1, 1)
    return lax.pad(jnp.expand_dims(grad_output, axis), np.zeros((), grad_output.dtype), config)


@rule("slice_scatter")
def slice_scatter(ctx: Context, self: Any, src: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    if src.size == 0:
        return self
    axis = dim % self.ndim
    first = _start_of(start, self.shape[axis])
    count = len(range(first, self.shape[axis] if end is None else _start_of(end, self.shape[axis]), step))
    part = jnp.broadcast_to(convert(src, self.dtype), (*self.shape[:axis], count, *self.shape[axis + 1 :]))
    if step == 1:
        return lax.dynamic_update_slice_in_dim(self, part, np.int32(first), axis)
    config = _padding(self.shape, axis, first, count, step)
    inside = lax.pad(jnp.ones(part.shape, bool), np.array(False), config)
    return jnp.where(inside, lax.pad(part, np.zeros((), self.dtype), config), self)


@rule("select_scatter")
def select_scatter(ctx: Context, self: Any, src: Any, dim: int, index: int) -> Any:
    axis = dim % self.ndim
    part = jnp.expand_dims(jnp.broadcast_to(convert(src, self.dtype), (*self.shape[:axis], *self.shape[axis + 1 :])), axis)
    return lax.dynamic_update_slice_in_dim(self, part, np.int32(index % self.shape[axis]), axis)


@rule("unfold_backward")
def unfold_backward(ctx: Context, grad_in: Any, input_sizes: Any, dim: int, size: int, step: int) -> Any:
    if not ctx.shape:
        return grad_in.sum()
    axis = dim % len(ctx.shape)
    count = grad_in.shape[axis]
    if grad_in.size == 0:
        return jnp.zeros(ctx.shape, grad_in.dtype)
    windows = jnp.moveaxis(grad_in.astype(opmath(grad_in.dtype)), -1, axis + 1)
    flat = windows.reshape(*ctx.shape[:axis], count * size, *ctx.shape[axis + 1 :])
    source = (np.arange(count)[:, None] * step + np.arange(size)).reshape(-1, 1)
    length = ctx.shape[axis]
    return taps.apply(flat, axis, taps.transposed(taps.plain(source, length), length))
