"""Sums, extrema, moments, norms, scans and softmax against the CPU."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import check, integers, randn

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
NAN, INF = math.nan, math.inf


def shapes_and_axes(x: torch.Tensor) -> list[torch.Tensor]:
    """``x``, views of it that are not dense, a scalar."""
    return [x, x.transpose(0, 2), x[:, ::2], x[1:, 0, 0][:1].reshape(())]


def special() -> torch.Tensor:
    """Ties, NaN, infinities and zeros of both signs."""
    rows = [[1.0, NAN, 3.0, NAN, -2.0], [2.0, 2.0, -1.0, 2.0, -1.0], [INF, -INF, 0.0, INF, -INF], [-0.0, 0.0, 0.0, -0.0, -0.0]]
    return torch.tensor([*rows, [NAN] * 5, [-INF] * 5])


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
def test_sums(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for y in shapes_and_axes(x):
            found += [y.sum(), y.mean(), y.prod(), y.sum(-1), y.mean(0, keepdim=True), y.prod(-1)]
        found += [x.sum((0, -1)), x.mean((0, 2), keepdim=True), x.sum(dim=()), x.sum(1, dtype=torch.complex128)]
        return [*found, x[:0].sum(0), x[:0].sum(), x[:0].prod(), x[:0].mean(), x[0].trace()]

    check(fn, randn(3, 4, 5, dtype=dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_sums(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        floats = [x.mean(dtype=torch.float32), x.mean(1, dtype=torch.float64), x.sum(dtype=torch.float16)]
        return [
            x.sum(),
            x.sum(0),
            x.prod(),
            x.prod(1),
            x.sum(1, dtype=torch.int32),
            x.any(),
            x.all(),
            x.any(1),
            x.all(0),
            x.any((0, 1)),
            x.all((0, -1), keepdim=True),
            x.nansum(0),
            x.count_nonzero(),
            x.count_nonzero((0, 1)),
            x.count_nonzero(-1),
            x.sum(dtype=torch.bool),
            *floats,
        ]

    check(fn, integers(0, 3, 4, 5, dtype=dtype))
    if dtype is not torch.bool:
        check(lambda x: x.trace(), integers(0, 100, 4, 5, dtype=dtype))


def test_long_sums_of_halves_accumulate_in_float32() -> None:
    x = torch.ones(5000)
    check(lambda h, b: [h.sum(), h.mean(), b.sum(), b.mean(), b.cumsum(0)[-1], b.norm()], x.half(), x.bfloat16())


def test_gradients_of_sums() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.sum(),
            x.mean(1),
            x.prod(1),
            x.nansum(0),
            x.logsumexp(1),
            x.var(),
            x.std(0),
            *torch.var_mean(x, 1, correction=0),
            *torch.std_mean(x, (0, 1)),
            x.cumsum(1),
            x.trace(),
            x.norm(),
            x.norm(3, 1),
        ]

    check(fn, randn(3, 4, dtype=torch.float64, grad=True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_extrema_of_special_values(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        found: list[Any] = [x.max(), x.min(), x[1:4].max(), x[1:4].min(), x.argmax(), x.argmin(), x[1:4].argmax()]
        for dim in (0, 1):
            for y in (x, x[:, 0], x.t()[::2]):
                d = dim % y.dim()
                found += [
                    y.max(d),
                    y.min(d),
                    y.argmax(d),
                    y.argmin(d, keepdim=True),
                    y.amax(d),
                    y.amin(d),
                    torch.aminmax(y, dim=d),
                ]
            found += [x.cummax(dim), x.cummin(dim)]
        found += [x.amax((0, 1)), x.amin((0, -1), keepdim=True), torch.aminmax(x[1:3]), x.nansum(1), x.any(1), x.all(1)]
        return [t for item in found for t in ([item] if isinstance(item, torch.Tensor) else item)]

    check(fn, special().to(dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_extrema_of_integers(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        found: list[Any] = [
            x.max(),
            x.min(),
            x.max(1),
            x.min(0),
            x.amax(),
            x.amin(1),
            torch.aminmax(x),
            x.cummax(1),
            x.cummin(0),
        ]
        if x.dtype is not torch.bool:
            found += [x.argmax(), x.argmin(1)]
        return [t for item in found for t in ([item] if isinstance(item, torch.Tensor) else item)]

    low = 0 if dtype in (torch.uint8, torch.bool) else -4
    check(fn, integers(low, 5, 4, 6, dtype=dtype))


def test_signs_of_zeros_follow_the_index() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        values = [x.max(0).values, x.min(0).values, x.flip(0).max(0).values, *x.cummax(0)[:1], *x.cummin(0)[:1]]
        return [torch.copysign(torch.ones_like(v), v) for v in values]

    check(fn, torch.tensor([-0.0, 0.0]))


def test_gradients_of_extrema() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.max(),
            x.amax(1),
            x.max(0).values,
            x.min(1).values,
            *torch.aminmax(y, dim=1),
            y.amin((0, 1)),
            y.median(),
            y.cummax(1).values,
            y.cummin(0).values,
            y.min(),
        ]

    check(fn, randn(3, 4, grad=True), integers(0, 3, 4, 6).double().requires_grad_())


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
def test_moments(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        found = [
            x.var(),
            x.std(),
            x.var(1, unbiased=False),
            x.std((0, 2), keepdim=True),
            x.var(correction=3),
            x.std(0, correction=2),
        ]
        found += [*torch.var_mean(x), *torch.std_mean(x, -1), x[0, 0, 0].var(), x[:1].var(0), x[:1].std(0, correction=2)]
        return [*found, x[:0].var(), x[:0].std(0), x.var(dim=(), correction=0)]

    check(fn, randn(3, 4, 5, dtype=dtype) + 10)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
def test_norms(dtype: torch.dtype) -> None:
    norm = torch.linalg.vector_norm

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        found = [
            norm(x, p, d, keepdim=k)
            for p in (0, 0.5, 1, 2, 3.5, -1, -2.5, INF, -INF)
            for d, k in ((None, False), (1, True), ((0, -1), False))
        ]
        found += [
            x.norm(),
            x.norm(3),
            x.norm(1, 0),
            x.norm(INF, (0, 1), keepdim=True),
            x.norm(None, 1),
            norm(x[:0], 2),
            norm(x[0, 0, 0]),
        ]
        wide = torch.complex128 if x.is_complex() else torch.float64
        return [*found, x.norm(2, dtype=wide), norm(x, 2, 1, dtype=wide), x.norm(2, (1,), dtype=wide), x.norm(p="fro")]

    x = randn(3, 4, 5, dtype=dtype)
    x[0, 0] = 0
    check(fn, x)


def test_gradients_of_norms() -> None:
    norm = torch.linalg.vector_norm

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [norm(x, p, d) for p in (0, 1, 2, 3, INF) for d in (None, 1)] + [x.renorm(2, 0, 1.0), x.dist(x.detach() * 2, 3)]

    check(fn, randn(3, 4, dtype=torch.float64, grad=True))


def test_norms_of_special_values_and_renorm() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        found = [torch.linalg.vector_norm(x, p, 1) for p in (0, 1, 2, INF, -INF, 3)]
        found += [y.renorm(p, d, limit) for p in (1, 2, INF) for d in (0, -1) for limit in (0.5, 100.0)]
        return [*found, y.dist(y * 0.5), y.dist(y * 2, 1), y.half().renorm(2, 1, 1)]

    check(fn, special(), randn(3, 4))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF])
def test_distances(p: float) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [torch.cdist(x, y, p), F.pdist(x[0, 0], p), torch.cdist(x[:, :, :0], y, p), F.pdist(y[0, :1], p)]

    x, y = randn(2, 1, 4, 3, dtype=torch.float64), randn(2, 5, 3, dtype=torch.float64, seed=1)
    y[0, 0] = x[0, 0, 0]
    check(fn, x.requires_grad_(p >= 1), y.requires_grad_(p >= 1))


def test_distances_by_matrix_product() -> None:
    check(
        lambda x, y: torch.cdist(x, y),
        randn(30, 4, dtype=torch.float64, grad=True),
        randn(26, 4, dtype=torch.float64, seed=1, grad=True),
    )


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
def test_logsumexp(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        found = [
            x.logsumexp(1),
            x.logsumexp((0, -1), keepdim=True),
            x[0, 0, 0].logsumexp(0),
            x[:0].logsumexp(0),
            (x * 50).logsumexp(-1),
        ]
        return [*found, x.logcumsumexp(1), x[0, 0, 0].logcumsumexp(0), x[:0].logcumsumexp(0), s.logcumsumexp(1), s.logsumexp(1)]

    check(
        fn, randn(3, 4, 5, dtype=dtype), special().to(dtype)[[1, 2, 3, 5]] if not dtype.is_complex else randn(2, 2, dtype=dtype)
    )


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.int64, torch.int8, torch.bool])
def test_running_sums(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for y in shapes_and_axes(x):
            found += [y.cumsum(-1), y.cumprod(0)]
        return [
            *found,
            x.cumsum(1, dtype=torch.complex128),
            x[:0].cumsum(0),
            x[:0].cumprod(1),
            x.int().cumsum(-1, dtype=torch.int8),
        ]

    check(fn, integers(0, 3, 3, 4, 5).to(dtype))


def test_gradients_of_scans_and_second_derivatives() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.softmax(1).cumsum(0).log_softmax(0) + x.logcumsumexp(1) + x.cumprod(1)
        (slope,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
        return [y, slope]

    check(fn, randn(3, 4, dtype=torch.float64, grad=True))


def test_results_written_in_place_and_to_out() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        base = x.clone()
        base[1:].cumsum_(0)
        base[:, 1].cumprod_(0)
        total, wide = torch.empty_like(x[0]), torch.empty(0, device=x.device)
        values, indices = torch.empty_like(x[0]), torch.empty(4, dtype=torch.int64, device=x.device)
        torch.sum(x, 0, out=total)
        torch.amax(x, 1, out=wide)
        torch.max(x, 0, out=(values, indices))
        return [base, total, wide, values, indices, x.clone().renorm_(2, 0, 0.5)]

    check(fn, randn(3, 4))


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for y in shapes_and_axes(x):
            found += [y.softmax(-1), y.log_softmax(0), y.softmax(-1, dtype=torch.float64), F.softmin(y, dim=0)]
        return [
            *found,
            s.softmax(1),
            s.log_softmax(1),
            x[:0].softmax(1),
            x[:, :, :0].log_softmax(-1),
            torch.ops.aten._safe_softmax(s, 1),
        ]

    check(fn, randn(3, 4, 5, dtype=dtype, grad=True), special().to(dtype))


def test_masked_softmax() -> None:
    op, back = torch.ops.aten._masked_softmax, torch.ops.aten._masked_softmax_backward

    def fn(x: torch.Tensor, attention: torch.Tensor, padding: torch.Tensor, full: torch.Tensor) -> list[torch.Tensor]:
        y = op(x, full, 3, 2)
        return [op(x, attention, 3, 0), op(x, padding, 3, 1), y, back(x, y, full, 3)]

    full = integers(0, 2, 2, 3, 4, 4, dtype=torch.bool)
    full[..., 0] = False
    padding = torch.tensor([[False, True, False, True], [True] * 4])
    check(fn, randn(2, 3, 4, 4), torch.ones(4, 4, dtype=torch.bool).triu(1), padding, full)


def test_safe_softmax_has_a_gradient() -> None:
    check(partial(torch.ops.aten._safe_softmax, dim=1), randn(3, 4, grad=True))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.max(),
        lambda x: x.argmax(),
        lambda x: x.max(0),
        lambda x: x.median(0),
        lambda x: x.amax(),
        lambda x: x.mode(0),
    ],
)
def test_empty_reductions_without_identity_raise_as_cpu(fn: Any) -> None:
    with pytest.raises((RuntimeError, IndexError)) as expected:
        fn(torch.empty(0))
    with pytest.raises(expected.type):
        fn(torch.empty(0, device="tpu"))
