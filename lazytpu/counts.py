"""Counters of what happened: compiles, cache hits, executions, host reads, CPU fallbacks, …"""

from __future__ import annotations

_ALWAYS = (
    "compiles",
    "compile_seconds",
    "lowerings",
    "cache_hits",
    "cache_misses",
    "replays",
    "disk_hits",
    "disk_bad",
    "executions",
    "ops_recorded",
    "host_reads",
    "host_read_seconds",
    "cpu_fallbacks",
    "cpu_fallback_seconds",
    "cuts",
)

counters: dict[str, float] = dict.fromkeys(_ALWAYS, 0)
"""The live counters; modules add to them in place."""


def add(name: str, amount: float = 1) -> None:
    """Add ``amount`` to the counter ``name``, which starts at zero."""
    counters[name] = counters.get(name, 0) + amount


def metrics() -> dict[str, float]:
    """A snapshot of the counters since the start or the last ``reset_metrics()``.

    ``compiles`` and ``compile_seconds`` count programs that XLA compiled; ``lowerings`` ops lowered to StableHLO;
    ``cache_hits`` and ``cache_misses`` lookups of a trace in memory; ``disk_hits`` misses that the cache on disk
    answered, ``disk_bad`` files there that were thrown away as damaged; ``replays`` traces that repeated an earlier
    one op by op; ``executions`` launched programs; ``ops_recorded`` ops put into a trace; ``host_reads`` values read
    by the host, and ``host_read_seconds`` the time spent waiting for them; ``cpu_fallbacks`` calls that ran on the
    CPU for want of a rule, each also under ``cpu_fallback.<op>``; ``host_reads.<file>:<line>`` the reads that cut a
    trace, by the line that asked; ``cuts.<reason>`` traces cut, by reason.
    """
    return dict(counters)


def reset_metrics() -> None:
    """Set every counter back to zero."""
    counters.clear()
    counters.update(dict.fromkeys(_ALWAYS, 0))
