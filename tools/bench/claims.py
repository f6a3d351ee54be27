"""The ratios that lazytpu claims, each with its interval and whether it holds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from tools.bench.summary import UNITS, Rows, interval


class Claim(NamedTuple):
    """In ``workload``, the ratio of ``figure`` between lazytpu and ``other`` is at most ``limit``."""

    workload: str
    figure: str
    other: str
    limit: float


class Ratio(NamedTuple):
    """The median over the rounds, its 95 % interval, and the claim it was measured for."""

    claim: Claim
    median: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``holds`` or ``fails`` if the whole interval says so, else ``undecided``."""
        if self.high <= self.claim.limit:
            return "holds"
        return "fails" if self.low > self.claim.limit else "undecided"


CLAIMS = (
    Claim("gpt12", "host_ms", "do-nothing kernels", 1.5),
    Claim("gpt12", "host_ms", "PyTorch/XLA 2.9", 0.2),
    *(Claim(workload, "step_ms", "jax.jit by hand", 1.05) for workload in ("mlp", "gpt4", "gpt12", "gpt24", "cnn", "lstm")),
)


def ratios(everything: dict[str, Rows]) -> Iterator[Ratio]:
    """Each claim whose contenders were both measured; a round's figures are divided by those of the same round."""
    for claim in CLAIMS:
        rows = everything.get(claim.workload, {})
        rounds = list(zip(rows.get("lazytpu", []), rows.get(claim.other, [])))
        if rounds:
            values = [ours[claim.figure] / theirs[claim.figure] for ours, theirs in rounds]
            yield Ratio(claim, statistics.median(values), *interval(values))


def ratio_table(everything: dict[str, Rows]) -> str:
    """Markdown: a row a claim that was measured; empty if none was."""
    lines = ["| lazytpu's ratio to | workload | figure | median | at most | |", "|---|---|---|---|---|---|"]
    for ratio in ratios(everything):
        claim = ratio.claim
        middle = f"{ratio.median:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]"
        cells = (claim.other, claim.workload, UNITS[claim.figure], middle, f"{claim.limit:g}", ratio.verdict)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) if len(lines) > 2 else ""
