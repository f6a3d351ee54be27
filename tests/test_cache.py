"""The cache: what is part of a program, what is not, and the word on why something recompiled."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import lazytpu
from lazytpu.cache import LRU


def compiles() -> float:
    return lazytpu.metrics()["compiles"]


def test_lru_forgets_the_least_recently_used() -> None:
    lru: LRU[str, int] = LRU(2)
    lru.put("a", 1)
    lru.put("b", 2)
    assert lru.get("a") == 1
    lru.put("c", 3)
    assert lru.get("b") is None and lru.get("a") == 1 and lru.get("c") == 3 and len(lru) == 2


def train_steps(model: nn.Module, optimizer: Any, schedule: Any, steps: int) -> list[float]:
    """The number of programs compiled after each step."""
    seen = []
    for i in range(steps):
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(i)).to("tpu")
        loss = F.mse_loss(model(x), x[:, :2])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if schedule is not None:
            schedule.step(*([loss.item()] if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau) else []))
        seen.append(compiles())
    return seen


SCHEDULES: dict[str, Any] = {
    "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda e: 0.9**e),
    "MultiplicativeLR": lambda o: torch.optim.lr_scheduler.MultiplicativeLR(o, lambda e: 0.9),
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda o: torch.optim.lr_scheduler.ConstantLR(o, 0.5, 3),
    "LinearLR": lambda o: torch.optim.lr_scheduler.LinearLR(o),
    "ExponentialLR": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "PolynomialLR": lambda o: torch.optim.lr_scheduler.PolynomialLR(o, 8),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "CyclicLR": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.001, 0.1, 3),
    "CosineAnnealingWarmRestarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "ReduceLROnPlateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.8)], [3]
    ),
    "ChainedScheduler": lambda o: torch.optim.lr_scheduler.ChainedScheduler([torch.optim.lr_scheduler.ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_schedule_recompiles(name: str) -> None:
    model = nn.Linear(6, 2).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    seen = train_steps(model, optimizer, SCHEDULES[name](optimizer), 8)
    assert seen[-1] == seen[1] <= 3, seen


def test_step_counts_and_bias_corrections_do_not_recompile() -> None:
    for foreach, fused in ((True, False), (False, False), (False, True)):
        lazytpu.reset_metrics()
        model = nn.Linear(6, 2).to("tpu")
        seen = train_steps(model, torch.optim.AdamW(model.parameters(), foreach=foreach, fused=fused), None, 6)
        assert seen[-1] == seen[1] <= 2, (foreach, fused, seen)


def test_a_growing_index_is_diagnosed_once_with_the_op_and_lines() -> None:
    """A loop whose shapes grow must recompile; after three programs it is told what differs, where."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(3, 10):
            x = torch.ones(12, device="tpu")
            y = x[:n] * 2.5
            cut_line = test_a_growing_index_is_diagnosed_once_with_the_op_and_lines.__code__.co_firstlineno + 8
            lazytpu.sync()
    told = [str(w.message) for w in caught if "programs have been compiled" in str(w.message)]
    assert len(told) == 1, told
    assert f"{__file__}:{cut_line}: 3 programs" in told[0]
    assert f"{__file__}:{cut_line - 2}" in told[0] and "before" in told[0] and "now" in told[0]
    assert y.tolist() == [2.5] * 9


def test_a_leftover_temporary_is_named_as_the_reason() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(3):
            x = torch.ones(4, device="tpu")
            y = x * 2
            z = y + 1
            if i == 0:
                y = None
            elif i == 2:
                z = None
            lazytpu.sync()
    told = [str(w.message) for w in caught if "other results live on" in str(w.message)]
    assert len(told) == 1 and "aten::add.Tensor" in told[0] and "is not now" in told[0]
    assert z is None and y.tolist() == [2.0] * 4


def test_loops_on_python_numbers_share_one_program() -> None:
    x = torch.zeros(4, device="tpu")
    for i in range(10):
        y = torch.full((4,), float(i), device="tpu") * math.exp(-i) + i
        x = x + y
        lazytpu.sync()
    assert compiles() <= 2


def test_reading_later_does_not_stall_or_rerun() -> None:
    x = torch.ones(4, device="tpu")
    handles = []
    for _ in range(4):
        x = x * 2
        handles.append(lazytpu.later(x.sum()))
        lazytpu.sync()
    before = lazytpu.metrics()["executions"]
    x.zero_()
    assert [h.result() for h in handles] == [8.0, 16.0, 32.0, 64.0]
    assert lazytpu.metrics()["executions"] == before
    assert handles[0].done()
    with pytest.raises(TypeError, match="tpu"):
        lazytpu.later(torch.ones(1))


def test_a_moving_window_is_one_program() -> None:
    """``buffer[i] = x`` and ``buffer[i]`` with a growing ``i``: the offset becomes an input."""
    buffer = torch.zeros(40, 3, device="tpu")
    column = torch.zeros(3, 40, device="tpu")
    expected, seen = torch.zeros(40, 3), []
    for i in range(40):
        buffer[i] = buffer[i - 1] + i
        column[:, i] = buffer[i]
        expected[i] = expected[i - 1] + i
        lazytpu.sync()
        seen.append(compiles())
    assert torch.equal(buffer.cpu(), expected) and torch.equal(column.cpu(), expected.t())
    assert seen[-1] == seen[20]
