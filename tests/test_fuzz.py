"""Random programs agree with CPU PyTorch, wherever sync points are put."""

from __future__ import annotations

import os
import random
from typing import Any

import programs
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lazytpu
from lazytpu.ir.verify import verify


def syncs(seed: int) -> Any:
    """Sync points of every kind after random steps."""
    rng = random.Random(seed)

    def after(position: int, pool: list[torch.Tensor]) -> None:
        verify(lazytpu.current_trace())
        kind = rng.randrange(8)
        if kind == 0:
            lazytpu.sync()
        elif kind == 1:
            lazytpu.sync(wait=True)
        elif kind == 2:
            pool[rng.randrange(len(pool))].cpu()

    return after


def compare(seed: int, length: int, sync_seed: int | None) -> None:
    """Run one random program on both devices and assert that they agree."""
    program = programs.random_program(seed, length)
    expected = programs.execute(program, "cpu")
    actual = programs.execute(program, "tpu", syncs(sync_seed) if sync_seed is not None else None)
    found = programs.differences(expected, actual)
    assert not found, f"program {seed} of {length} (syncs {sync_seed}):\n{found}\n" + "\n".join(map(str, program))


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32), st.integers(5, 40), st.one_of(st.none(), st.integers(0, 1 << 16)))
def test_random_programs_agree_with_the_cpu(seed: int, length: int, sync_seed: int | None) -> None:
    compare(seed, length, sync_seed)


@pytest.mark.sweep
def test_many_random_programs_agree_with_the_cpu() -> None:
    """``LAZYTPU_FUZZ`` programs (20,000 by default), seeds from ``LAZYTPU_FUZZ_FROM``."""
    first = int(os.environ.get("LAZYTPU_FUZZ_FROM", "0"))
    for seed in range(first, first + int(os.environ.get("LAZYTPU_FUZZ", "20000"))):
        compare(seed, 5 + seed % 36, seed if seed % 3 else None)
