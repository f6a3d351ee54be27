"""What a fresh process of a benchmark does: one contender, one workload; prints one line of JSON.

    python -m tools.bench.worker WORKLOAD CONTENDER STEPS
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable

from tools.bench.step import Skipped, Step, measure


def _eager(workload: str) -> Step:
    from tools.bench.torch_steps import on_cpu

    return on_cpu(workload)


def _inductor(workload: str) -> Step:
    from tools.bench.torch_steps import on_cpu

    if shutil.which("g++") is None and shutil.which("clang++") is None:
        raise Skipped("inductor needs a C++ compiler, and there is none")
    return on_cpu(workload, "inductor")


def _jax(workload: str) -> Step:
    from tools.bench.jax_steps import by_hand

    return by_hand(workload)


def _torch_xla(workload: str) -> Step:
    from tools.bench.torch_steps import on_torch_xla

    return on_torch_xla(workload)


def _lazytpu(workload: str) -> Step:
    import lazytpu  # noqa: F401
    from tools.bench.torch_steps import on_tpu

    return on_tpu(workload)


def _lazytpu_compiled(workload: str) -> Step:
    import lazytpu  # noqa: F401
    from tools.bench.torch_steps import on_tpu

    return on_tpu(workload, "tpu")


def _floor(workload: str) -> Step:
    from tools.bench.floor import floor

    return floor(workload)


CONTENDERS: dict[str, Callable[[str], Step]] = {
    "CPU eager": _eager,
    "torch.compile": _inductor,
    "PyTorch/XLA 2.9": _torch_xla,
    "lazytpu": _lazytpu,
    "lazytpu, torch.compile": _lazytpu_compiled,
    "jax.jit by hand": _jax,
    "do-nothing kernels": _floor,
}
"""What makes the step of a workload, by contender."""

RECORDING = {"do-nothing kernels": True, "lazytpu": False}
"""The contenders of the workload ``recording``, and whether their kernels do nothing."""


def _figures(workload: str, contender: str, steps: int) -> dict[str, float]:
    if workload == "recording":
        from tools.bench.recording import recording

        return recording(RECORDING[contender])
    figures = measure(CONTENDERS[contender](workload), steps)
    if contender == "do-nothing kernels":
        return {"host_ms": figures["host_ms"]}
    return figures


if __name__ == "__main__":
    try:
        print(json.dumps(_figures(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
    except Skipped as reason:
        print(json.dumps({"skipped": str(reason)}))
