"""``python -m tools.bench.flags``: XLA's CPU options on recorded steps: time to compile, time to run, same results.

Every option's program is compiled ``--compiles`` times and run ``--rounds`` times, all of them in turn, so
that a slow moment of the machine meets all alike. Ratios are to the program without options, round by round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tools.bench.summary import interval

CANDIDATES: tuple[dict[str, bool | int | str], ...] = (
    {"xla_cpu_enable_concurrency_optimized_scheduler": True},
    {"xla_cpu_enable_concurrency_optimized_scheduler": False},
    {"xla_cpu_prefer_vector_width": 512},
    {"xla_cpu_prefer_vector_width": 128},
    {"xla_cpu_parallel_codegen_split_count": 1},
    {"xla_cpu_parallel_codegen_split_count": 4},
    {"xla_backend_optimization_level": 1},
    {"xla_backend_optimization_level": 2},
    {"xla_llvm_disable_expensive_passes": True},
    {"xla_cpu_use_thunk_runtime": False},
    {"xla_cpu_use_onednn": True},
    {"xla_cpu_use_xnnpack": False},
    {"xla_cpu_experimental_ynn_fusion_type": ""},
    {"xla_cpu_use_fusion_emitters": False},
    {"xla_cpu_enable_fast_min_max": True},
    {"xla_cpu_enable_fast_math": True},
    {"xla_cpu_multi_thread_eigen": False},
)
"""Options compared, one set a program."""


def _seconds(f: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = f()
    return time.perf_counter() - started, result


def _ratio(values: list[float], base: list[float]) -> str:
    ratios = [a / b for a, b in zip(values, base)]
    low, high = interval(ratios)
    return f"{statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]"


def _difference(results: list[np.ndarray], base: list[np.ndarray]) -> str:
    """How far results are from those without options, beside the largest number of their own tensor."""
    if all(a.tobytes() == b.tobytes() for a, b in zip(results, base)):
        return "same bits"
    pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(results, base) if a.size]
    return f"to {max(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30) for a, b in pairs):.1e}"


def measure(workload: str, candidates: list[dict[str, Any]], compiles: int, rounds: int) -> str:
    """Markdown: a row a set of options; those that XLA refuses say so."""
    from lazytpu.runtime import buffers, compat
    from lazytpu.runtime.client import client
    from tools.hlo.steps import recorded

    step, where = recorded(workload), client()
    text = step.text(where.platform, donate=False)  # arguments that stay can be used again
    given = [buffers.put(array).array for array in step.arguments]
    names = {"none": {}} | {", ".join(f"{k}={v}" for k, v in options.items()): options for options in candidates}
    compiled: dict[str, list[float]] = {}
    programs: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for _ in range(compiles):
        for name, options in names.items():
            if name in refused:
                continue
            wanted = compat.compile_options([where.devices[0].id], options)
            try:
                took, programs[name] = _seconds(lambda wanted=wanted: compat.compile_module(text, where.devices[:1], wanted))
                compiled.setdefault(name, []).append(took)
            except Exception as reason:
                refused[name] = str(reason).splitlines()[0][:80]

    def run(program: Any) -> list[np.ndarray]:
        results = program.execute_sharded(given, with_tokens=True)
        results.consume_token().block_until_ready()
        return [np.asarray(arrays[0]) for arrays in results.disassemble_into_single_device_arrays()]

    outputs = {name: run(program) for name, program in programs.items()}
    ran: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            ran[name].append(_seconds(lambda program=program: run(program))[0])
    lines = [f"| {workload} | step ms | step / none | compile s | compile / none | results |", "|---|---|---|---|---|---|"]
    for name in programs:
        figures = (
            f"{1e3 * statistics.median(ran[name]):.1f}", _ratio(ran[name], ran["none"]),
            f"{statistics.median(compiled[name]):.2f}", _ratio(compiled[name], compiled["none"]), _difference(outputs[name], outputs["none"]),
        )  # fmt: skip
        lines.append("| " + " | ".join((name, *figures)) + " |")
    lines.extend(f"| {name} | refused: {reason} | | | | |" for name, reason in refused.items())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["gpt4", "cnn"])
    parser.add_argument("--compiles", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    import lazytpu  # noqa: F401

    for workload in args.workloads:
        print(measure(workload, list(CANDIDATES), args.compiles, args.rounds) + "\n", flush=True)


if __name__ == "__main__":
    main()
