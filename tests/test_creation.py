"""Factories against the CPU: values, dtypes, strides, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support import assert_same

import lazytpu

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def same_on_both(fn: Callable[[Any], list[torch.Tensor]]) -> None:
    before = lazytpu.metrics()["cpu_fallbacks"]
    expected, actual = fn("cpu"), fn("tpu")
    assert all(t.device.type == "tpu" for t in actual)
    assert_same(expected, actual)
    for x, y in zip(expected, actual):
        assert (x.stride() == y.stride() or x.numel() < 2) and x.requires_grad == y.requires_grad
    assert lazytpu.metrics()["cpu_fallbacks"] == before


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_ranges_in_every_dtype(dtype: torch.dtype) -> None:
    def fn(device: Any) -> list[torch.Tensor]:
        k = {"dtype": dtype, "device": device}
        results = [
            torch.arange(7, **k),
            torch.arange(2, 9, **k),
            torch.arange(9, 2, -2, **k),
            torch.arange(1, 4, 0.5, **k) if dtype in FLOATS else torch.arange(0, **k),
        ]
        results += [
            torch.linspace(0, 10, 4, **k),
            torch.linspace(7, 1, 5, **k),
            torch.linspace(3, 3, 1, **k),
            torch.linspace(0, 1, 0, **k),
            torch.eye(3, 4, **k),
        ]
        return [
            *results,
            torch.logspace(0, 2, 3, **k),
            torch.logspace(0, 6, 7, base=2, **k),
            torch.full((2,), 3, **k),
            torch.eye(2, **k),
        ]

    same_on_both(fn)


def test_ranges() -> None:
    def fn(device: Any) -> list[torch.Tensor]:
        k = {"device": device}
        results = [
            torch.arange(5, **k),
            torch.arange(5.0, **k),
            torch.arange(0.1, 2, 0.3, **k),
            torch.arange(0, **k),
            torch.arange(5, 5, **k),
        ]
        results += [
            torch.arange(2**53, 2**53 + 5, **k),
            torch.arange(-(2**62), -(2**62) + 3, **k),
            torch.arange(0, 1, 0.1, dtype=torch.float64, **k),
        ]
        results += [
            torch.arange(torch.tensor(4), **k),
            torch.arange(0, 1_000_000, 100_003, dtype=torch.float32, **k),
            torch.arange(16777210, 16777225, **k),
        ]
        results += [
            torch.range(0, 3, **k),
            torch.range(1, 2, 0.25, **k),
            torch.arange(3, requires_grad=True, dtype=torch.float32, **k),
        ]
        a, b = torch.tensor(-2.0, **k), torch.tensor(3.0, **k)
        results += [
            torch.linspace(a, b, 6),
            torch.linspace(a, 1, 3),
            torch.linspace(0, b, 4),
            torch.logspace(a, b, 4),
            torch.logspace(a, 1, 3),
            torch.logspace(0, b, 3),
        ]
        results += [
            torch.linspace(-2, -3, 7, **k),
            torch.linspace(1, 2j, 4, **k),
            torch.linspace(0.1, 0.7, 13, dtype=torch.float64, **k),
        ]
        out = torch.empty(0, **k)
        torch.arange(1, 4, out=out)
        other = torch.empty(4, **k)
        torch.linspace(0, 1, 4, out=other)
        unit = torch.empty(0, **k)
        torch.eye(2, out=unit)
        ints = torch.empty(0, dtype=torch.int64, **k)
        torch.arange(4, out=ints)
        return [*results, out, other, unit, ints]

    with pytest.warns(UserWarning, match=r"torch\.range"):
        same_on_both(fn)


def test_triangles_and_filled_arrays() -> None:
    def fn(device: Any) -> list[torch.Tensor]:
        k = {"device": device}
        results = [
            torch.tril_indices(3, 4, **k),
            torch.triu_indices(4, 3, -1, **k),
            torch.tril_indices(3, 3, 1, dtype=torch.int32, **k),
            torch.triu_indices(0, 3, **k),
        ]
        results += [
            torch.zeros(2, 3, **k),
            torch.ones(2, 0, **k),
            torch.full((2,), True, **k),
            torch.full((2, 2), 3, **k),
            torch.full((), 1.5, **k),
            torch.full((2,), 1j, **k),
        ]
        results += [
            torch.scalar_tensor(3, **k),
            torch.zeros((), dtype=torch.bool, **k),
            torch.ones(3, dtype=torch.uint8, **k),
            torch.full((1,), -1, dtype=torch.float16, **k),
        ]
        results += [
            torch.vander(torch.arange(3, **k)),
            torch.hann_window(5, **k),
            torch.hamming_window(6, periodic=False, **k),
            torch.eye(0, **k),
            torch.eye(3, 0, **k),
        ]
        return results

    same_on_both(fn)


def test_tensors_from_data() -> None:
    def fn(device: Any) -> list[torch.Tensor]:
        k = {"device": device}
        results = [
            torch.tensor(3, **k),
            torch.tensor([1, 2.5], **k),
            torch.tensor([[True], [False]], **k),
            torch.tensor([], **k),
            torch.tensor(1j, **k),
        ]
        results += [
            torch.tensor(np.arange(6).reshape(2, 3).T, **k),
            torch.asarray([1, 2], **k),
            torch.asarray(np.float32([1, 2]), **k),
            torch.as_tensor([1.0], **k),
        ]
        results += [
            torch.tensor([1, 2], dtype=torch.float16, **k),
            torch.tensor([[1, 2], [3, 4]], dtype=torch.int8, **k),
            torch.tensor(2.0, requires_grad=True, **k),
        ]
        return [*results, torch.asarray(torch.arange(3), dtype=torch.float32, **k), torch.from_numpy(np.arange(3)).to(device)]

    same_on_both(fn)


def test_arrays_like_others() -> None:
    def fn(device: Any) -> list[torch.Tensor]:
        x = torch.arange(24.0, device=device).reshape(2, 3, 2, 2)
        last = x.to(memory_format=torch.channels_last)
        results = []
        for y in (x, last, x.permute(3, 0, 2, 1), x[:, ::2], x[:1].expand(4, 3, 2, 2)):
            results += [
                torch.zeros_like(y),
                torch.ones_like(y, dtype=torch.int8),
                torch.full_like(y, 2),
                torch.zeros_like(y, memory_format=torch.contiguous_format),
            ]
            results += [
                y.new_zeros(2, 3),
                y.new_ones((2,), dtype=torch.bool),
                y.new_full((2,), 3),
                y.new_tensor([1, 2]),
                y.clone(),
                torch.empty_like(y).fill_(1),
            ]
        results += [
            torch.zeros_like(x, memory_format=torch.channels_last),
            torch.empty_strided((2, 3), (1, 2), device=device).zero_(),
            x.new_empty(2, 0),
        ]
        results += [
            x.new_empty_strided((3, 2), (1, 3)).fill_(4),
            torch.empty(2, 3, 4, 4, device=device, memory_format=torch.channels_last).fill_(1),
        ]
        return [
            *results,
            x.new_tensor(5),
            torch.zeros_like(x[0, 0, 0, 0]),
            torch.empty_like(x, requires_grad=True).detach().fill_(2),
        ]

    same_on_both(fn)


def test_errors_are_those_of_the_cpu() -> None:
    for program in (
        lambda d: torch.arange(3, 0, device=d),
        lambda d: torch.arange(0, 3, 0, device=d),
        lambda d: torch.arange(float("nan"), device=d),
        lambda d: torch.linspace(0, 1, -1, device=d),
        lambda d: torch.linspace(torch.zeros(2, device=d), 1, 3),
        lambda d: torch.eye(-1, device=d),
        lambda d: torch.tril_indices(-1, 2, device=d),
        lambda d: torch.zeros(-1, device=d),
    ):
        with pytest.raises(Exception) as on_cpu:
            program("cpu")
        with pytest.raises(type(on_cpu.value)):
            program("tpu")
    with pytest.raises(RuntimeError, match="there is one device"):
        torch.arange(3, device="tpu:3")


def test_ranges_of_one_length_share_a_program() -> None:
    for start in range(4):
        total = torch.arange(start, start + 5, device="tpu") * 2 + torch.linspace(0, start + 1.0, 5, device="tpu")
        lazytpu.sync()
        if start == 0:
            before = lazytpu.metrics()["compiles"]
    assert lazytpu.metrics()["compiles"] == before
    assert total.tolist() == [6, 9, 12, 15, 18]


def test_filled_arrays_cost_one_op_and_unread_memory_none() -> None:
    lazytpu.sync()
    before = lazytpu.metrics()["ops_recorded"]
    kept = [
        torch.zeros(3, device="tpu"),
        torch.ones(3, device="tpu"),
        torch.full((3,), 2, device="tpu"),
        torch.empty(3, device="tpu"),
    ]
    kept += [torch.ones_like(kept[0]), kept[0].new_full((2,), 1), torch.empty_like(kept[0])]
    assert lazytpu.metrics()["ops_recorded"] - before <= 5
