"""What every contender offers: a training step that can be called, waited for and asked about."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import NamedTuple


class Skipped(Exception):
    """A contender that this machine cannot run; says why."""


class Step(NamedTuple):
    """``run(i)`` starts step ``i``, ``finish()`` waits for it, ``figures()`` gives what the contender knows of itself.

    ``executed()`` is how many seconds programs have run so far on the thread that called ``run``.
    """

    run: Callable[[int], None]
    finish: Callable[[], None]
    figures: Callable[[], dict[str, float]] = dict
    executed: Callable[[], float] = float


def _timed(step: Step, i: int) -> tuple[float, float]:
    """Seconds until the call returned, less those in which it ran the program itself, and until the device was done."""
    before = step.executed()
    started = time.perf_counter()
    step.run(i)
    host = time.perf_counter() - started - (step.executed() - before)
    step.finish()
    return host, time.perf_counter() - started


def measure(step: Step, steps: int, warmup: int = 3) -> dict[str, float]:
    """The figures of one process: the first and second step, then medians over ``steps`` after a warm-up."""
    first, second = (_timed(step, i)[1] for i in range(2))
    for i in range(2, 2 + warmup):
        _timed(step, i)
    host, whole = zip(*(_timed(step, i) for i in range(2 + warmup, 2 + warmup + steps)))
    return {
        "first_s": first,
        "second_s": second,
        "step_ms": 1e3 * sorted(whole)[steps // 2],
        "host_ms": 1e3 * sorted(host)[steps // 2],
        **step.figures(),
        "host_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
