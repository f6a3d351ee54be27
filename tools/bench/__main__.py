"""``python -m tools.bench``: workloads side by side, each contender's every round in a fresh process.

Contenders are interleaved over the rounds, so that a machine that slows down slows all of them down.
Writes ``bench.json`` (every round's figures), ``bench.md`` and ``bench.svg`` after each workload.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys

from tools.bench.claims import ratio_table
from tools.bench.setup_xla import PYTHON as XLA_PYTHON
from tools.bench.summary import Rows, machine, plot, table
from tools.bench.worker import CONTENDERS, RECORDING

WORKLOADS = ("mlp", "gpt4", "gpt12", "gpt24", "cnn", "lstm", "recording")
_ON_LAZYTPU = {"lazytpu", "lazytpu, torch.compile", "do-nothing kernels"}


def run_once(workload: str, contender: str, steps: int) -> dict[str, float] | str:
    """The figures of one process, or why there are none."""
    python = sys.executable
    # A first step pays for every compile, none of them found on disk.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    if contender in _ON_LAZYTPU:
        environment["LAZYTPU_PLATFORM"] = "cpu"
        environment["LAZYTPU_CACHE_DIR"] = "off"
    elif contender == "PyTorch/XLA 2.9":
        if not XLA_PYTHON.exists():
            return "its environment is not there: python -m tools.bench.setup_xla makes it"
        python, environment["PJRT_DEVICE"] = str(XLA_PYTHON), "CPU"
    command = [python, "-m", "tools.bench.worker", workload, contender, str(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        return f"it failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    figures = json.loads(done.stdout.splitlines()[-1])
    return figures.get("skipped", figures)


def run_all(workload: str, contenders: list[str], rounds: int, steps: int) -> tuple[Rows, dict[str, str]]:
    """Every contender's figures by round, and why others have none."""
    results: Rows = {contender: [] for contender in contenders}
    skipped: dict[str, str] = {}
    for _ in range(rounds):
        for contender in list(results):
            figures = run_once(workload, contender, steps)
            if isinstance(figures, str):
                skipped[contender] = figures
                del results[contender]
            else:
                results[contender].append(figures)
    return results, skipped


def _write(folder: pathlib.Path, everything: dict[str, Rows], skipped: dict[str, dict[str, str]], plotted: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    measured = {"machine": machine(), "rounds": everything, "skipped": skipped}
    (folder / "bench.json").write_text(json.dumps(measured, indent=1) + "\n")
    parts = [machine(), *(table(workload, rows, skipped[workload]) for workload, rows in everything.items())]
    (folder / "bench.md").write_text("\n\n".join(filter(None, [*parts, ratio_table(everything)])) + "\n")
    if plotted:
        plot(everything, folder / "bench.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps timed in each process")
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"), help="folder to write to")
    parser.add_argument("--no-plot", action="store_true", help="needs no matplotlib")
    args = parser.parse_args()
    for given, known in ((args.workloads, WORKLOADS), (args.contenders, CONTENDERS)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"{unknown[0]!r} is not one of {', '.join(known)}")

    everything: dict[str, Rows] = {}
    skipped: dict[str, dict[str, str]] = {}
    for workload in args.workloads:
        contenders = [c for c in args.contenders if workload != "recording" or c in RECORDING]
        everything[workload], skipped[workload] = run_all(workload, contenders, args.rounds, args.steps)
        print(table(workload, everything[workload], skipped[workload]) + "\n", flush=True)
        _write(args.out, everything, skipped, not args.no_plot)
    print(ratio_table(everything))


if __name__ == "__main__":
    main()
