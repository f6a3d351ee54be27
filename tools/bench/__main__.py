"""``python -m tools.bench``: run workloads, contenders interleaved, and print the table of medians."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from tools.bench.worker import CONTENDERS

_UNITS = {"first_s": "first step s", "second_s": "second step s", "host_ms": "host ms", "step_ms": "step ms"}


def _run(workload: str, contender: str) -> dict[str, float]:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-m", "tools.bench.worker", workload, contender]
    if contender == "lazytpu":
        environment.pop("TORCH_DEVICE_BACKEND_AUTOLOAD")
        environment["LAZYTPU_PLATFORM"] = "cpu"
        environment["LAZYTPU_CACHE_DIR"] = "off"
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{contender} failed on {workload}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def table(workload: str, results: dict[str, list[dict[str, float]]]) -> str:
    """Markdown: a row a contender, the median of its rounds (the best, for recording)."""
    figures = list(dict.fromkeys(f for rows in results.values() for row in rows for f in row))
    middle = min if workload == "recording" else statistics.median
    lines = ["| " + " | ".join([workload, *(_UNITS.get(f, f.replace("_", " ")) for f in figures)]) + " |"]
    lines.append("|" + "---|" * (len(figures) + 1))
    for contender, rows in results.items():
        cells = [f"{middle([r[f] for r in rows]):.4g}" if f in rows[0] else "" for f in figures]
        lines.append("| " + " | ".join([contender, *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(CONTENDERS), help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write every round's figures here")
    args = parser.parse_args()
    everything: dict[str, Any] = {}
    for workload in args.workloads:
        results: dict[str, list[dict[str, float]]] = {c: [] for c in CONTENDERS[workload]}
        for _ in range(args.rounds):
            for contender, rows in results.items():
                rows.append(_run(workload, contender))
        everything[workload] = results
        print(table(workload, results) + "\n", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
