"""Sorting, selection by rank, search and histograms against the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from support import check, integers, randn

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
NAN, INF = math.nan, math.inf


def flat(items: list[Any]) -> list[torch.Tensor]:
    return [t for item in items for t in ([item] if isinstance(item, torch.Tensor) else item)]


def special() -> torch.Tensor:
    return torch.tensor([[1.0, NAN, -0.0, -NAN, 0.0, INF, -2.0], [2.0, 2.0, -1.0, INF, -INF, -1.0, 2.0], [NAN] * 7])


def distinct(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers no two of which are equal, shuffled."""
    count = math.prod(shape)
    return (torch.randperm(count, generator=torch.Generator().manual_seed(0)) - count // 2).reshape(shape).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_sort(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        found: list[Any] = []
        for dim in (0, -1):
            for descending in (False, True):
                for y in (x, s, x.t(), x[:, ::2], x[:0]):
                    found.append(y.sort(dim=dim, stable=True, descending=descending))
        values, order = x.sort(1, descending=True)
        return flat(
            [*found, values, x.gather(1, order), x.argsort(stable=True, dim=0), x.msort(), x[0, 0].sort(), x[0, 0].argsort()]
        )

    x = integers(-3 if dtype.is_signed else 0, 4, 4, 12).to(dtype)
    extremes = special().to(dtype) if dtype.is_floating_point else torch.tensor([[0, 1]]).to(dtype)
    if dtype in INTEGERS:
        limits = torch.iinfo(dtype)
        extremes = torch.tensor([[0, limits.max, limits.min, 1, limits.max]], dtype=dtype)
    check(fn, x, extremes)


def test_results_written_to_out_and_gradients() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.detach()
        values, order = torch.empty_like(y), torch.empty(0, dtype=torch.int64, device=y.device)
        torch.sort(y, 1, descending=True, out=(values, order))
        top, place = torch.empty(0, device=y.device), torch.empty(0, dtype=torch.int64, device=y.device)
        torch.topk(y, 2, 0, out=(top, place))
        grads = [
            x.sort(0).values,
            x.topk(2, 1).values,
            x.kthvalue(2, 1).values,
            x.median(1).values,
            x.median(),
            x.mode(0).values,
        ]
        return [values, order, top, place, *grads, x.nanmedian(0).values, x.quantile(0.3), x.quantile(0.5, 1)]

    check(fn, distinct(4, 5).requires_grad_())


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_topk(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        found: list[Any] = []
        for dim, k in ((0, 2), (1, 5), (-1, 20)):
            for largest in (True, False):
                found += [x.topk(k, dim, largest), x.t().topk(2, dim, largest)]
        values = [s.topk(k, 1, largest).values for k in (1, 3, 7) for largest in (True, False)]
        return flat([*found, *values, x[0, 0].topk(1), x.topk(0), x[:0].topk(3, 1)])

    x = distinct(4, 20, dtype=torch.int64)
    x = (x + 40 if dtype is torch.uint8 else x).to(dtype)
    extremes = special().to(dtype) if dtype.is_floating_point else integers(0, 3, 3, 7).to(dtype)
    check(fn, x, extremes)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_ranks(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, ties: torch.Tensor) -> list[torch.Tensor]:
        found: list[Any] = [
            x.median(),
            x.nanmedian(),
            x.median(0),
            x.median(1, keepdim=True),
            x.nanmedian(-1),
            x.kthvalue(3, 0),
            x.kthvalue(1, -1, keepdim=True),
            x[0, 0].median(0),
            x[0, 0].kthvalue(1),
            x[0, 0].mode(),
            x[0, 0].median(),
        ]
        found += [ties.mode(0), ties.mode(1, keepdim=True), ties.median(1).values, ties.t().mode(0), ties[:, :1].mode(1)]
        return flat(found)

    x = distinct(4, 9, dtype=torch.int64)
    x = (x + 18 if dtype is torch.uint8 else x).to(dtype)
    check(fn, x, integers(0, 4, 5, 9).to(dtype))


def test_ranks_with_nan_and_of_nothing() -> None:
    def fn(x: torch.Tensor, e: torch.Tensor) -> list[torch.Tensor]:
        found = [
            x.median(),
            x.nanmedian(),
            x.median(1),
            x.nanmedian(1).values,
            x.median(0).values,
            x.nanmedian(0).values,
            x.kthvalue(5, 1).values,
            x[1:2].mode(1),
            x.nanquantile(0.5, 1),
            x.quantile(0.25, 1),
        ]
        return flat([*found, e.median(), e.nanmedian(), e.median(1), e.mode(1), e.kthvalue(1, 1)])

    check(fn, special(), torch.zeros(0, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_search(dtype: torch.dtype) -> None:
    def fn(edges: torch.Tensor, rows: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for right in (False, True):
            found += [
                torch.searchsorted(edges, x, right=right),
                torch.bucketize(x, edges, right=right),
                torch.searchsorted(rows, x, right=right),
                torch.searchsorted(rows.t().contiguous().t(), x.t().contiguous().t()),
                torch.searchsorted(edges, 2.5, right=right),
                torch.bucketize(3, edges, right=right),
                torch.searchsorted(edges, x[0, 0], right=right),
                torch.bucketize(x, edges[:0], right=right),
            ]
        shuffled, order = edges.flip(0).contiguous(), edges.argsort(descending=True)
        found += [torch.searchsorted(shuffled, x, sorter=order), torch.searchsorted(edges, x, side="right", out_int32=True)]
        return [*found, torch.bucketize(x, edges, out_int32=True), torch.searchsorted(edges, x[:0])]

    x = integers(0, 12, 3, 7)
    edges = torch.tensor([1, 2, 2, 4, 7, 9])
    check(fn, edges.to(dtype), integers(0, 9, 3, 8, seed=1).sort(1).values.to(dtype), x.to(dtype))


def test_search_of_nan_and_in_unsorted_boundaries() -> None:
    edges, unsorted = torch.tensor([0.0, 1.0, NAN, NAN]), torch.tensor([3.0, 1.0, 2.0, -1.0, 5.0])
    check(lambda e, u, x: [torch.bucketize(x, b, right=r) for b in (e, u) for r in (False, True)], edges, unsorted, special())


def test_histograms() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        found = [
            torch.histc(x),
            torch.histc(x, 7, -1, 2),
            torch.histc(x.double(), 5),
            torch.histc(x[0, :1], 4),
            torch.histc(x[:0], 3),
            torch.histc(s, 3, 0, 3),
            torch.histc(torch.round(x), 4, 0, 2),
        ]
        weights = x.reshape(-1)[: i.numel()]
        found += [
            i.bincount(),
            i.bincount(minlength=20),
            i.bincount(weights),
            i.int().bincount(weights.double()),
            i[::2].bincount(),
            i.to(torch.uint8).bincount(weights.half()),
            i[:0].bincount(),
            i[:0].bincount(minlength=3),
        ]
        return found

    check(fn, randn(8, 5), integers(0, 9, 30), special())


def test_histograms_refuse_what_cpu_refuses() -> None:
    i = torch.tensor([1, 2], device="tpu")
    for call in (lambda: (-i).bincount(), lambda: i.bincount(minlength=-1), lambda: i.bincount(torch.ones(3, device="tpu"))):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(RuntimeError, match="max must be larger"):
        torch.histc(i.float(), 3, 2, 1).cpu()
    with pytest.raises(RuntimeError, match="finite"):
        torch.histc(i * NAN).cpu()


@pytest.mark.parametrize(
    "fn", [lambda x: x.kthvalue(5, 1), lambda x: x.topk(5, 1), lambda x: x[:, :0].kthvalue(1, 1), lambda x: x[:, :0].mode(1)]
)
def test_ranks_out_of_range_raise_as_cpu(fn: Any) -> None:
    with pytest.raises((RuntimeError, IndexError)) as expected:
        fn(torch.ones(2, 3))
    with pytest.raises(expected.type):
        fn(torch.ones(2, 3, device="tpu"))
