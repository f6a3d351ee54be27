"""Axes as reductions, scans and sorts name them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def axes_of(x: Any, dim: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """The axes that ``dim`` names, counted from the front; none named are all of them."""
    if x.ndim == 0:
        return ()
    if dim is None or dim == ():
        return tuple(range(x.ndim))
    return tuple(d % x.ndim for d in ((dim,) if isinstance(dim, int) else dim))


def count_over(x: Any, axes: tuple[int, ...]) -> int:
    """How many elements a reduction over ``axes`` takes into each result."""
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return count


def along(x: Any, dim: int) -> tuple[Any, int]:
    """``x`` and the axis ``dim`` of it; a 0-d ``x`` is seen as a vector of one element."""
    x = jnp.atleast_1d(x)
    return x, dim % x.ndim
