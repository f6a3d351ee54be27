"""Reading and writing a strided window of a row-major value, without gathers where it can be.

A window is (size, stride, offset) over the flat memory of a value. ``plan`` looks for a row-major
shape of that memory in which each dimension of the window is a stepped slice of one dimension;
then a read is reshape, slice, transpose and broadcast, and a write is the reverse.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.ir.windows import Plan, plan


def _span(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """How many elements of memory a window needs to be planned from its own offset, whole rows counted."""
    return max((n * s for n, s in zip(size, stride) if n > 1), default=1)


def flat_indices(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> jax.Array:
    """The flat index of each element of a window, computed on the device."""
    index = jnp.full(size, offset, dtype=jnp.int64)
    for d, step in enumerate(stride):
        if size[d] > 1 and step:
            index = index + lax.broadcasted_iota(jnp.int64, size, d) * step
    return index


def read(x: jax.Array, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> jax.Array:
    """The window of ``x``'s memory as a row-major array."""
    if 0 in size:
        return jnp.zeros(size, x.dtype)
    found = plan(x.size, x.shape, size, stride, offset)
    if found is None:
        span = _span(size, stride)
        found = plan(span, (), size, stride, 0)
        if found is None:
            return x.reshape(-1)[flat_indices(size, stride, offset)]
        x = lax.slice(x.reshape(-1), (offset,), (min(offset + span, x.size),))
        x = jnp.pad(x, (0, span - x.size))
    y = x.reshape(found.shape)
    if any(found.starts) or found.counts != found.shape:
        stops = [a + (n - 1) * k + 1 for a, n, k in zip(found.starts, found.counts, found.steps)]
        y = lax.slice(y, found.starts, stops, found.steps)
    return _shown(y, found, size)


def read_at(x: jax.Array, size: tuple[int, ...], stride: tuple[int, ...], anchor: int, offset: jax.Array) -> jax.Array:
    """The window at a runtime ``offset``, which has a plan like that of the static offset ``anchor``."""
    found = plan(x.size, x.shape, size, stride, anchor)
    assert found is not None
    spans = [(n - 1) * k + 1 for n, k in zip(found.counts, found.steps)]
    y = lax.dynamic_slice(x.reshape(found.shape), _starts(found, offset), spans)
    return _shown(lax.slice(y, [0] * y.ndim, spans, found.steps), found, size)


def write_at(x: jax.Array, update: jax.Array, stride: tuple[int, ...], anchor: int, offset: jax.Array) -> jax.Array:
    """``x`` with ``update`` in the window at a runtime ``offset``; the plan has no steps."""
    found = plan(x.size, x.shape, update.shape, stride, anchor)
    assert found is not None
    u = _laid(update, found)
    return lax.dynamic_update_slice(x.reshape(found.shape), u, _starts(found, offset)).reshape(x.shape)


def _starts(found: Plan, offset: jax.Array) -> list[jax.Array]:
    """Where the slices of a plan start for a runtime offset."""
    starts, rest, below = [], offset, 1
    for dim in found.shape:
        below *= dim
    for dim in found.shape:
        below //= dim
        starts.append(rest // below)
        rest = rest % below
    return starts


def _shown(y: jax.Array, found: Plan, size: tuple[int, ...]) -> jax.Array:
    """The slice of a plan, arranged as the window."""
    kept = [(i, d) for i, d in enumerate(found.dims) if d is not None]
    y = y.reshape([found.counts[i] for i, _ in kept])
    order = sorted(range(len(kept)), key=lambda k: kept[k][1])  # type: ignore[arg-type, return-value]
    y = lax.transpose(y, order)
    placed = tuple(d for _, d in sorted(kept, key=lambda k: k[1]))  # type: ignore[arg-type, return-value]
    return lax.broadcast_in_dim(y, size, placed)  # type: ignore[arg-type]


def write(x: jax.Array, update: jax.Array, stride: tuple[int, ...], offset: int) -> jax.Array:
    """``x`` with ``update`` in the window of its memory; no element is in the window twice."""
    size = update.shape
    if 0 in size:
        return x
    found = plan(x.size, x.shape, size, stride, offset)
    if found is not None:
        return _written(x.reshape(found.shape), update, found).reshape(x.shape)
    flat = x.reshape(-1)
    span = _span(size, stride)
    found = plan(span, (), size, stride, 0)
    if found is None:
        indices = flat_indices(size, stride, offset).reshape(-1)
        return flat.at[indices].set(update.reshape(-1)).reshape(x.shape)
    part = lax.slice(flat, (offset,), (min(offset + span, flat.size),))
    padded = jnp.pad(part, (0, span - part.size)).reshape(found.shape)
    part = _written(padded, update, found).reshape(-1)[: part.size]
    return lax.dynamic_update_slice(flat, part, [np.int64(offset)]).reshape(x.shape)


def _written(whole: jax.Array, update: jax.Array, found: Plan) -> jax.Array:
    """``whole``, of the plan's shape, with ``update`` in the window."""
    u = _laid(update, found)
    if found.counts == found.shape:
        return u
    if all(k == 1 for k in found.steps):
        return lax.dynamic_update_slice(whole, u, [np.int64(s) for s in found.starts])
    # A stepped write as pad and select: a scatter would run element by element.
    config = [
        (a, total - a - ((n - 1) * k + 1), k - 1)
        for a, n, k, total in zip(found.starts, found.counts, found.steps, found.shape)
    ]
    spread = lax.pad(u, jnp.zeros((), u.dtype), config)
    inside = lax.pad(jnp.ones(u.shape, bool), jnp.zeros((), bool), config)
    return jnp.where(inside, spread, whole)


def _laid(update: jax.Array, found: Plan) -> jax.Array:
    """A window's content, arranged as the slice of a plan."""
    kept = [d for d in found.dims if d is not None]
    small = [d for d in range(update.ndim) if d not in kept]
    return lax.transpose(update, [*kept, *small]).reshape(found.counts)
