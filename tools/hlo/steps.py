"""A training step as text: as lazytpu records it, and as its twin in JAX is lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from lazytpu import launch
from lazytpu.cache import key_of
from lazytpu.ir import Trace
from lazytpu.lowering.module import compose
from tools.bench.gpt_jax import gpt
from tools.bench.jax_training import arguments, compiled
from tools.bench.torch_steps import make_run


class Recorded(NamedTuple):
    """A program that was launched, with a copy of what it was called with."""

    trace: Trace
    outputs: Sequence[int]
    donated: Sequence[int]
    arguments: list[np.ndarray]

    def text(self, platform: str, donate: bool = True) -> str:
        """Its StableHLO for ``platform``."""
        return compose(self.trace, self.outputs, self.donated if donate else (), platform).text


def recorded(workload: str) -> Recorded:
    """The steady step of one of the workloads of ``tools.bench``.

    Raises:
        RuntimeError: the third step was not the program of the second.
    """
    launched: list[Recorded] = []
    launch_program = launch._run

    def noting(trace: Trace, outputs: Sequence[int], donated: Sequence[int], repeats: bool = False) -> Any:
        given = [np.array(array) for array in launch._arguments(trace)]
        launched.append(Recorded(trace, outputs, donated, given))
        return launch_program(trace, outputs, donated, repeats)

    run = make_run(workload, "tpu")
    torch.tpu.synchronize()
    launch._run = noting
    try:
        last: Any = None
        for i in range(3):
            last = run(i)  # kept while the next step runs, as a training loop keeps it
        torch.tpu.synchronize()
        del last
    finally:
        launch._run = launch_program
    second, third = (key_of(*step[:3], ()) for step in launched[-2:])
    if second != third:
        raise RuntimeError("the third step is not the program of the second")
    return launched[-1]


def by_hand(layers: int, platform: str, precision: str) -> str:
    """The step of a GPT's twin, with float32 products of this precision."""
    twin = gpt(layers)
    with jax.default_matmul_precision(precision):
        traced = compiled(twin).trace(*arguments(twin))
        return traced.lower(lowering_platforms=(platform,)).as_text()
