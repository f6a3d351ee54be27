"""Microseconds to record one op, with lazytpu's kernels or with ones that do nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def _best(f: Callable[[], Any], reset: Callable[[], Any], count: int = 2000, rounds: int = 7) -> float:
    best = float("inf")
    for _ in range(rounds):
        reset()
        started = time.perf_counter()
        for _ in range(count):
            f()
        best = min(best, time.perf_counter() - started)
    return 1e6 * best / count


def recording(nothing: bool) -> dict[str, float]:
    """The time of ``x + y``, ``add_`` and ``y[1:3] = 1``, the best of a few rounds."""
    import torch

    if nothing:
        from tools.bench.nothing import register

        register()
    else:
        import lazytpu  # noqa: F401
        from lazytpu import recorder

        recorder.LOOP_NODES = 1 << 60
    x, y, z, w = (torch.ones(8, 8, device="tpu") for _ in range(4))

    def reset() -> None:
        nonlocal z, w
        if not nothing:
            from lazytpu import recorder

            recorder.sync(wait=True)
            recorder.trace = type(recorder.trace)()
        z, w = torch.ones(8, 8, device="tpu"), torch.ones(8, 8, device="tpu")
        x + y
        z.add_(x)
        w[1:3] = 1

    def fresh() -> None:
        if not nothing:
            from lazytpu import recorder

            # The ops recorded in a round are thrown away, not run: only recording is timed.
            recorder.trace = type(recorder.trace)()
        nonlocal z, w
        z, w = torch.ones(8, 8, device="tpu"), torch.ones(8, 8, device="tpu")
        z.add_(1)
        w.add_(1)

    reset()

    def assign() -> None:
        w[1:3] = 1

    return {
        "add_us": _best(lambda: x + y, fresh),
        "add_inplace_us": _best(lambda: z.add_(x), fresh),
        "setitem_us": _best(assign, fresh),
    }
