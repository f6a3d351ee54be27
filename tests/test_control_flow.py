"""Control flow on tensors: Python's is a located, counted read; torch.cond, while_loop and scan stay on the device."""

from __future__ import annotations

from typing import Any

import torch
from support import check, randn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import lazytpu


def test_python_branches_on_tensors_are_counted_with_their_line() -> None:
    x = torch.ones(3, device="tpu")
    line = test_python_branches_on_tensors_are_counted_with_their_line.__code__.co_firstlineno + 3
    if x.sum() > 2:
        x = x + 1
    assert lazytpu.metrics()[f"host_reads.{__file__}:{line}"] == 1
    assert x.tolist() == [2, 2, 2]


def test_cond_chooses_on_the_device() -> None:
    def program(x: Any, scale: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a: (a * scale).sin(), lambda a: a - 1, (x,))

    check(program, randn(4, grad=True), torch.tensor(2.0), grad=False)
    x = torch.ones(3, device="tpu")
    before = lazytpu.metrics()
    y = torch.cond(x.sum() > 2, lambda a: a * 2, lambda a: a + 0, (x,))
    assert lazytpu.metrics()["host_reads"] == before["host_reads"]
    assert y.tolist() == [2, 2, 2]


def test_cond_has_gradients() -> None:
    def program(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a: a.sin() * 3, lambda a: a.cos(), (x,)).sum()

    check(program, randn(4, seed=1, grad=True))
    check(program, (-randn(4, seed=1).abs()).requires_grad_())


def test_while_loop_is_one_program_however_many_turns() -> None:
    def halve(x: Any, i: Any) -> Any:
        return while_loop(lambda x, i: x.abs().max() > 0.1, lambda x, i: (x * 0.5, i + 1), (x, i))

    check(halve, randn(5), torch.tensor(0))
    for turn, size in enumerate((1.0, 100.0, 1e6, 5.0)):
        if turn == 2:
            lazytpu.reset_metrics()
        x, i = halve(torch.full((3,), size, device="tpu"), torch.zeros((), dtype=torch.int64, device="tpu"))
        assert float(x[0]) <= 0.1 and int(i) > 0
    assert lazytpu.metrics()["compiles"] == 0


def test_scan_carries_and_stacks() -> None:
    def program(init: Any, xs: Any) -> Any:
        return scan(lambda c, x: (c + x, c * x), init, xs, dim=0)

    check(program, randn(3), randn(6, 3, seed=1))
