"""Linear maps along one axis whose outputs are weighted sums of a few inputs each.

Pooling, padding, resampling and their gradients are such maps, one axis after the other. Their
tables are made at lowering time; a map and its transpose (the gradient) are the same kind of table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

_UNROLLED = 8
"""The most taps to add up one by one; more are gathered into an axis of their own and reduced."""


class Taps(NamedTuple):
    """Output ``o`` is the sum over ``k`` of ``weight[o, k] * x[source[o, k]]`` where ``valid[o, k]``."""

    source: np.ndarray
    weight: np.ndarray
    valid: np.ndarray


def plain(source: np.ndarray, size: int) -> Taps:
    """Taps of weight 1; sources outside ``[0, size)`` do not count."""
    valid = (source >= 0) & (source < size)
    return Taps(np.clip(source, 0, max(size - 1, 0)), np.ones(source.shape), valid)


def transposed(taps: Taps, size: int) -> Taps:
    """The transpose of a map from ``size`` inputs."""
    outputs, columns = np.nonzero(taps.valid)
    sources = taps.source[outputs, columns]
    order = np.argsort(sources, kind="stable")
    sources, outputs, columns = sources[order], outputs[order], columns[order]
    position = np.arange(len(sources)) - np.searchsorted(sources, sources)
    width = int(position.max()) + 1 if len(position) else 0
    source = np.zeros((size, width), np.int64)
    weight = np.zeros((size, width))
    valid = np.zeros((size, width), bool)
    source[sources, position] = outputs
    weight[sources, position] = taps.weight[outputs, columns]
    valid[sources, position] = True
    return Taps(source, weight, valid)


def take(x: Any, axis: int, index: np.ndarray) -> Any:
    """``x`` at the static ``index`` along ``axis``: by slices where a few do, else by a gather."""
    runs = _runs(index)
    if runs is not None:
        pieces = [_run(x, axis, *run) for run in runs]
        return pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces, axis=axis)
    first = int(index[0])
    repeats = int((index == first).sum())
    if len(index) % repeats == 0 and (index == first + np.arange(len(index)) // repeats).all():
        once = lax.slice_in_dim(x, first, first + len(index) // repeats, axis=axis)
        return jnp.repeat(once, repeats, axis=axis)
    return jnp.take(x, index.astype(np.int32), axis=axis, mode="clip")


def _runs(index: np.ndarray, limit: int = 3) -> list[tuple[int, int, int]] | None:
    """``index`` as at most ``limit`` arithmetic progressions (start, step, count), or None."""
    if len(index) < 2:
        return [(int(index[0]) if len(index) else 0, 1, len(index))]
    steps = np.diff(index)
    runs: list[tuple[int, int, int]] = []
    at = 0
    while at < len(index):
        if len(runs) == limit:
            return None
        step = int(steps[at]) if at < len(steps) else 1
        changes = np.nonzero(steps[at:] != step)[0]
        count = int(changes[0]) + 1 if len(changes) else len(index) - at
        runs.append((int(index[at]), step, count))
        at += count
    return runs


def _run(x: Any, axis: int, start: int, step: int, count: int) -> Any:
    if step == 0:
        one = lax.slice_in_dim(x, start, start + 1, axis=axis)
        return jnp.broadcast_to(one, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    last = start + (count - 1) * step
    low, high = min(start, last), max(start, last)
    piece = lax.slice_in_dim(x, low, high + 1 if count else low, abs(step), axis=axis)
    return piece if step > 0 else lax.rev(piece, (axis,))


def windows(x: Any, axis: int, source: np.ndarray) -> Any:
    """``x`` with ``axis`` replaced by two: outputs and taps, of the shape of ``source``."""
    return take(x, axis, source.reshape(-1)).reshape(*x.shape[:axis], *source.shape, *x.shape[axis + 1 :])


def apply(x: Any, axis: int, taps: Taps) -> Any:
    """The map applied along ``axis``, in the dtype of ``x``."""
    source, weight, valid = taps
    shape = (*x.shape[:axis], source.shape[0], *x.shape[axis + 1 :])
    if 0 in x.shape or 0 in source.shape or not valid.any():
        return jnp.zeros(shape, x.dtype)
    trailing = x.ndim - axis - 1
    weigh = not (weight[valid] == 1).all()
    if source.shape[1] <= _UNROLLED and not _contiguous(source, valid):
        total = None
        for k in range(source.shape[1]):
            column = (-1, *(1,) * trailing)
            term = take(x, axis, _continued(source[:, k], valid[:, k]))
            if weigh:
                term = term * weight[:, k].reshape(column).astype(x.dtype)
            if not valid[:, k].all():
                term = jnp.where(valid[:, k].reshape(column), term, jnp.zeros((), x.dtype))
            total = term if total is None else total + term
        return total
    spread = windows(x, axis, source)
    table = (*source.shape, *(1,) * trailing)
    if weigh:
        spread = spread * weight.reshape(table).astype(x.dtype)
    if not valid.all():
        spread = jnp.where(valid.reshape(table), spread, jnp.zeros((), x.dtype))
    return spread.sum(axis + 1, dtype=x.dtype)


def _contiguous(source: np.ndarray, valid: np.ndarray) -> bool:
    """Whether the windows lie side by side, so that a reshape makes them."""
    return bool(valid.all()) and source.shape[1] > 1 and _runs(source.reshape(-1), 1) is not None


def _continued(source: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """``source`` with its invalid entries chosen so that fewer runs remain."""
    if valid.all() or not valid.any():
        return source
    positions = np.nonzero(valid)[0]
    nearest = np.abs(np.arange(len(source))[:, None] - positions[None, :]).argmin(1)
    return source[positions[nearest]]
