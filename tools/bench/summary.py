"""Medians over the rounds with an interval, as Markdown and as a plot."""

from __future__ import annotations

import os
import pathlib
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Rows = dict[str, list[dict[str, float]]]
"""By contender, the figures of each round."""

UNITS = {
    "first_s": "first step s", "second_s": "second step s", "step_ms": "step ms", "host_ms": "host ms", "loss": "loss",
    "compiles": "programs", "host_mb": "host MiB", "device_mb": "device MiB", "add_us": "x + y µs",
    "add_inplace_us": "z.add_(x) µs", "setitem_us": "w[1:3] = 1 µs",
}  # fmt: skip
"""Headings by figure; times are followed by their interval."""


def interval(values: Sequence[float], resamples: int = 2000) -> tuple[float, float]:
    """The bootstrap 95 % interval of the median; the same values give the same interval."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(resamples))
    return medians[round(0.025 * (resamples - 1))], medians[round(0.975 * (resamples - 1))]


def _cell(figure: str, values: Sequence[float]) -> str:
    if not values:
        return ""
    middle = f"{statistics.median(values):.4g}"
    if not figure.endswith(("_s", "_ms", "_us")) or len(values) < 2:
        return middle
    low, high = interval(values)
    return f"{middle} [{low:.3g}, {high:.3g}]"


def table(workload: str, results: Rows, skipped: Mapping[str, str]) -> str:
    """Markdown: a row a contender, the median of its rounds and the 95 % interval of each time; then why others have none."""
    present = {figure for rows in results.values() for row in rows for figure in row}
    figures = [figure for figure in UNITS if figure in present]
    lines = ["| " + " | ".join([workload, *(UNITS[f] for f in figures)]) + " |", "|" + "---|" * (len(figures) + 1)]
    for contender, rows in results.items():
        cells = [_cell(f, [row[f] for row in rows if f in row]) for f in figures]
        lines.append("| " + " | ".join([contender, *cells]) + " |")
    if skipped:
        lines.append("")
        lines.extend(f"- {contender} was not measured: {reason}" for contender, reason in skipped.items())
    return "\n".join(lines)


def machine() -> str:
    """The processor and the releases measured, in a line."""
    from importlib.metadata import version

    info = pathlib.Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "jax", "jaxlib"))
    return f"{len(os.sched_getaffinity(0))} cores of {names[0] if names else 'an unnamed processor'}; {packages}"


def plot(everything: dict[str, Rows], file: pathlib.Path) -> None:
    """Bars of the steady step and the host's share of it, by workload, with their intervals."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    training = {name: rows for name, rows in everything.items() if name != "recording"}
    contenders = list(dict.fromkeys(contender for rows in training.values() for contender in rows))
    figure, panels = plt.subplots(2, 1, figsize=(10, 7), sharex=True)
    for panel, what in zip(panels, ("step_ms", "host_ms")):
        for place, contender in enumerate(contenders):
            _bars(panel, training, contender, what, place, len(contenders))
        panel.set_ylabel(UNITS[what])
        panel.set_yscale("log")
        panel.grid(axis="y", alpha=0.3)
    panels[1].set_xticks(range(len(training)), list(training))
    panels[0].legend(fontsize="small", ncols=3)
    figure.tight_layout()
    figure.savefig(file)


def _bars(panel: Any, training: dict[str, Rows], contender: str, what: str, place: int, count: int) -> None:
    positions, middles, below, above = [], [], [], []
    for index, rows in enumerate(training.values()):
        values = [row[what] for row in rows.get(contender, []) if what in row]
        if values:
            middle, (low, high) = statistics.median(values), interval(values)
            positions.append(index + (place - (count - 1) / 2) * 0.8 / count)
            middles.append(middle)
            below.append(middle - low)
            above.append(high - middle)
    panel.bar(positions, middles, 0.8 / count, yerr=[below, above], label=contender, color=f"C{place}", error_kw={"lw": 1})
