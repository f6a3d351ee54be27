"""Windows onto row-major memory: how a strided view is cut from a value, as geometry alone."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple


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
    if any(numel % b for b in chain) or any(a % b for a, b in pairwise(chain)):
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


MANY_OFFSETS = 8
"""Offsets at which one kind of window is static; a window seen at more is one that moves."""


class Family:
    """The windows of one size and stride onto values of one shape, wherever they start.

    Where the offset keeps changing (``buffer[i] = x`` in a loop) it becomes a runtime input.
    """

    __slots__ = ("anchor", "_base", "_fits", "_geometry", "_numel", "_plan")

    def __init__(self, numel: int, base: tuple[int, ...], size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
        self._numel, self._base, self._geometry = numel, base, (size, stride)
        self._plan = plan(numel, base, size, stride, offset)
        self.anchor = offset
        self._fits: dict[int, bool] = {}

    def moves(self, offset: int, writes: bool) -> bool:
        """Whether the window at ``offset`` should take it as a runtime input."""
        fits = self._fits.get(offset)
        if fits is None:
            if len(self._fits) > 1 << 16:
                self._fits.clear()
            fits = self._fits[offset] = self._like_anchor(offset)
        return fits and len(self._fits) > MANY_OFFSETS and not (writes and self._stepped())

    def _like_anchor(self, offset: int) -> bool:
        own, anchor = plan(self._numel, self._base, *self._geometry, offset), self._plan
        if own is None or anchor is None:
            return False
        return (own.shape, own.counts, own.steps, own.dims) == (anchor.shape, anchor.counts, anchor.steps, anchor.dims)

    def _stepped(self) -> bool:
        return self._plan is not None and any(step > 1 for step in self._plan.steps)


_families: dict[tuple[object, ...], Family] = {}


def family(
    numel: int, base: tuple[int, ...], size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> Family:
    """The family of a window; ``offset`` is its anchor if it is the first seen."""
    key = (base, size, stride)
    found = _families.get(key)
    if found is None:
        found = _families[key] = Family(numel, base, size, stride, offset)
    return found
