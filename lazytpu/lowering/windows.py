"""Reading and writing a strided window of a row-major value, without gathers where it can be.

A window is (size, stride, offset) over the flat memory of a value. ``plan`` looks for a row-major
shape of that memory in which each dimension of the window is a stepped slice of one dimension;
then a read is reshape, slice, transpose and broadcast, and a write is the reverse.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
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
    chain = sorted(bounds)
    for s, n, _ in real:
        if s in bounds:
            continue
        upper = min((b for b in chain if b > s), default=numel)
        lower = max(b for b in chain if b < s)
        if upper % s == 0 and s % lower == 0 and s * n <= upper and numel % s == 0:
            chain = sorted({*chain, s})
            bounds.add(s)
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
        fitting = [i for i, b in enumerate(chain) if s % b == 0 and b <= s]
        if not fitting:
            return None
        i = fitting[0]
        if dims[i] is not None:
            return None
        dims[i], counts[i], steps[i] = d, n, s // chain[i]
    for i in range(len(chain)):
        if starts[i] + (counts[i] - 1) * steps[i] >= shape[i]:
            return None
    return Plan(shape, tuple(starts), tuple(counts), tuple(steps), tuple(dims))


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
        return x.reshape(-1)[flat_indices(size, stride, offset)]
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
    if found is None:
        indices = flat_indices(size, stride, offset).reshape(-1)
        return x.reshape(-1).at[indices].set(update.reshape(-1)).reshape(x.shape)
    kept = [d for d in found.dims if d is not None]
    small = [d for d in range(len(size)) if d not in kept]
    u = lax.transpose(update, [*kept, *small]).reshape(found.counts)
    whole = x.reshape(found.shape)
    if found.counts == found.shape:
        result = u
    elif all(k == 1 for k in found.steps):
        result = lax.dynamic_update_slice(whole, u, [jnp.int32(s) for s in found.starts])
    else:
        # A stepped write as pad and select: a scatter would run element by element.
        config = [
            (a, total - a - ((n - 1) * k + 1), k - 1)
            for a, n, k, total in zip(found.starts, found.counts, found.steps, found.shape)
        ]
        spread = lax.pad(u, jnp.zeros((), u.dtype), config)
        inside = lax.pad(jnp.ones(u.shape, bool), jnp.zeros((), bool), config)
        result = jnp.where(inside, spread, whole)
    return result.reshape(x.shape)
