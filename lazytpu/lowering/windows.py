"""Reading and writing a strided window of a row-major value, without gathers where it can be.

A window is (size, stride, offset) over the flat memory of a value. ``plan`` looks for a row-major
shape of that memory in which each dimension of the window is a stepped slice of one dimension;
then a read is reshape, slice, transpose and broadcast, and a write is the reverse.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Plan(NamedTuple):
    """``shape`` factors the flat memory; ``starts``, ``counts`` and ``steps`` slice it; ``dims``
    says, for each dimension of the factored shape, which dimension of the window it is (or None
    where one element is picked)."""

    shape: tuple[int, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    dims: tuple[int | None, ...]


def plan(
    numel: int, base: tuple[int, ...], size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> Plan | None:
    """A plan for this window over ``numel`` elements that are shaped ``base``; None where there is none."""
    real = [(stride[d], size[d], d) for d in range(len(size)) if size[d] > 1 and stride[d] > 0]
    real.sort(reverse=True)
    bounds = {1}
    step = 1
    for dim in reversed(base):
        bounds.add(step)
        step *= dim
    # A boundary strictly inside a window dimension would split it.
    bounds = {b for b in bounds if b == 1 or not any(s < b < s * n for s, n, _ in real)}
    found = _plan_within(bounds, numel, real, offset)
    return found if found is not None or bounds == {1} else _plan_within({1}, numel, real, offset)


def _plan_within(bounds: set[int], numel: int, real: list[tuple[int, int, int]], offset: int) -> Plan | None:
    """A plan whose factored shape has dimensions of the strides ``bounds`` and of further ones in ``real``."""
    chain = sorted(bounds)
    for s, n, _ in real:
        if s in chain:
            continue
        upper = min((b for b in chain if b > s), default=numel)
        lower = max(b for b in chain if b < s)
        if upper % s == 0 and s % lower == 0 and s * n <= upper and numel % s == 0:
            chain = sorted({*chain, s})
    chain.sort(reverse=True)
    if any(numel % b for b in chain) or any(a % b for a, b in zip(chain, chain[1:])):
        return None
    shape = tuple(above // b for above, b in zip([numel, *chain], chain))
    starts, counts, steps = [0] * len(chain), [1] * len(chain), [1] * len(chain)
    dims: list[int | None] = [None] * len(chain)
    rest = offset
    for i, b in enumerate(chain):
        starts[i], rest = divmod(rest, b)
    for s, n, d in real:
        i = next(i for i, b in enumerate(chain) if s % b == 0 and b <= s)
        if dims[i] is not None:
            return None
        dims[i], counts[i], steps[i] = d, n, s // chain[i]
    if any(a + (n - 1) * k >= total for a, n, k, total in zip(starts, counts, steps, shape)):
        return None
    return Plan(shape, tuple(starts), tuple(counts), tuple(steps), tuple(dims))


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
    kept = [d for d in found.dims if d is not None]
    small = [d for d in range(update.ndim) if d not in kept]
    u = lax.transpose(update, [*kept, *small]).reshape(found.counts)
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
