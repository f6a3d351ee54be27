"""Replay: a trace that repeats an earlier one borrows its ops, and leaves it at any op at no loss."""

from __future__ import annotations

import gc
import inspect
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lazytpu
from lazytpu.cache import templates
from lazytpu.ir.verify import verify


def here(offset: int = 0) -> str:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


class Run:
    """A small model that trains, evaluates, logs and accumulates on one device."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.log: list[float] = []

    def batch(self, i: int) -> torch.Tensor:
        return torch.sin(torch.arange(12.0).reshape(3, 4) + i).to(self.device)

    def loss(self, i: int) -> torch.Tensor:
        return self.model(self.batch(i)).square().mean()

    def train(self, i: int) -> None:
        self.optimizer.zero_grad()
        self.loss(i).backward()
        self.optimizer.step()

    def evaluate(self, i: int) -> None:
        with torch.no_grad():
            self.log.append(self.loss(i).item())

    def train_and_log(self, i: int) -> None:
        self.optimizer.zero_grad()
        loss = self.loss(i)
        loss.backward()
        self.log.append(loss.item())
        self.optimizer.step()

    def accumulate(self, i: int) -> None:
        self.optimizer.zero_grad()
        for k in range(3):
            (self.loss(i + k) / 3).backward()
        self.optimizer.step()

    def all(self) -> list[torch.Tensor]:
        return [p.detach().cpu() for p in self.model.parameters()]


STEPS = (Run.train, Run.evaluate, Run.train_and_log, Run.accumulate)


def test_the_same_step_is_replayed() -> None:
    run = Run("tpu")
    for i in range(4):
        run.train(i)
    lazytpu.reset_metrics()
    for i in range(5):
        run.train(i)
    found = lazytpu.metrics()
    assert found["replays"] == found["executions"] >= 5
    assert found["cache_misses"] == 0


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, len(STEPS) - 1), min_size=4, max_size=14))
def test_steps_of_several_kinds_side_by_side(kinds: list[int]) -> None:
    here, there = Run("cpu"), Run("tpu")
    for i, kind in enumerate(kinds):
        STEPS[kind](here, i)
        STEPS[kind](there, i)
        trace = lazytpu.last_trace()
        assert trace is not None
        verify(trace)
    torch.testing.assert_close(there.log, here.log, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(there.all(), here.all(), rtol=1e-4, atol=1e-5)


def test_alternating_kinds_all_replay_once_known() -> None:
    run = Run("tpu")
    for turn in range(3):
        if turn == 2:
            lazytpu.reset_metrics()
        for i in range(8):
            STEPS[i % 4](run, i)
    found = lazytpu.metrics()
    assert found["compiles"] == 0
    assert found["replays"] == found["executions"]


@pytest.mark.parametrize("leave_at", range(6))
def test_leaving_at_any_op_keeps_what_was_matched(leave_at: int) -> None:
    x = torch.arange(4.0, device="tpu")

    def step(stop: int | None) -> tuple[torch.Tensor, str]:
        y, place = x, ""
        for k in range(6):
            if k == stop:
                y, place = y.cos() + y, here()
            y = y * 1.5 - 0.25
        return y, place

    for _ in range(3):
        step(None)[0].cpu()
    y, place = step(leave_at)
    trace = lazytpu.current_trace()
    verify(trace)
    cos = [node for node in trace.nodes if node.signature.op == "aten::cos"]
    assert [str(node.source) for node in cos] == [place]
    expected = torch.arange(4.0)
    for k in range(6):
        if k == leave_at:
            expected = expected.cos() + expected
        expected = expected * 1.5 - 0.25
    torch.testing.assert_close(y.cpu(), expected)


def test_the_same_ops_on_another_line_name_that_line() -> None:
    def launch(i: int) -> None:
        x = torch.ones(3, device="tpu")
        if i % 2:
            x.exp().cpu()
        else:
            x.exp().cpu()

    for i in range(4):
        launch(i)
        trace = lazytpu.last_trace()
        assert trace is not None
        line = next(node.source.line for node in trace.nodes if node.signature.op == "aten::exp" and node.source)
        assert line - launch.__code__.co_firstlineno == (3 if i % 2 else 5)


def test_what_lives_on_decides_the_results_of_a_replay() -> None:
    kept = []
    for i in range(9):
        x = torch.full((3,), float(i), device="tpu")
        middle = x + 1
        y = middle * 2
        if i % 3 == 2:
            kept.append((i, middle))
        del middle
        lazytpu.sync()
        assert y.tolist() == [2.0 * (i + 1)] * 3
    assert [m.tolist() for _, m in kept] == [[i + 1.0] * 3 for i, _ in kept]


def test_templates_are_bounded_and_hold_no_memory() -> None:
    lazytpu.sync()
    templates.clear()
    for n in range(1, 3 * templates.MAX_TEMPLATES):
        x = torch.ones(2, device="tpu")
        for _ in range(n):
            x = x + 1
        assert x[0].item() == n + 1
    count, ops = templates.count()
    assert count <= templates.MAX_TEMPLATES
    assert ops <= templates.MAX_OPS
    gc.collect()
    before = torch.tpu.memory_allocated()
    big = torch.zeros(1 << 20, device="tpu") + 1
    assert big[0].item() == 1
    assert torch.tpu.memory_allocated() >= before + (4 << 20)
    del big, x
    gc.collect()
    assert torch.tpu.memory_allocated() <= before


def test_programs_of_one_template_are_bounded() -> None:
    lazytpu.sync()
    templates.clear()
    parts: list[torch.Tensor] = []
    for i in range(2 * templates.MAX_PROGRAMS):
        x = torch.full((), float(i), device="tpu")
        parts = [x + k for k in range(6)]
        parts = [p for k, p in enumerate(parts) if i >> k & 1]
        lazytpu.sync()
        assert [p.item() for p in parts] == [i + k for k in range(6) if i >> k & 1]
    assert all(len(t.programs) <= templates.MAX_PROGRAMS for t in templates._templates)


def test_a_thread_leaves_the_replay_of_another() -> None:
    x = torch.arange(3.0, device="tpu")

    def step() -> torch.Tensor:
        return ((x + 1) * 2 - 3).exp()

    for _ in range(3):
        step().cpu()
    wrong = []

    def work(k: int) -> None:
        for _ in range(20):
            got = step() if k else x * 5
            want = ((torch.arange(3.0) + 1) * 2 - 3).exp() if k else torch.arange(3.0) * 5
            if not torch.allclose(got.cpu(), want):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
