"""Pooling, fixed, adaptive and fractional, against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support import check, integers, randn

NAN, INF = float("nan"), float("inf")


def test_max_pool_values_indices_and_gradients():
    def fn(x, z):
        return [
            F.max_pool2d(x, (2, 3), (5, 4), ceil_mode=True), F.max_pool2d(x, 3, 2, 1, dilation=2, return_indices=True),
            F.max_pool2d(x, 3, return_indices=True), F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
            F.max_pool2d(x[:, :, 1:8, ::2], 1, 3, ceil_mode=True), F.max_pool2d(x, (9, 11)), F.max_pool2d(x[0], 2),
            F.max_pool1d(x[0], 3, 1, 1), F.max_pool1d(x[0], 2, ceil_mode=True, return_indices=True),
            F.max_pool3d(z, (1, 2, 3)), F.max_pool3d(z, 2, 1, 1, return_indices=True), F.max_pool3d(z[0], 2, ceil_mode=True),
        ]  # fmt: skip

    check(fn, randn(2, 3, 9, 11, grad=True), randn(2, 3, 4, 6, 5, seed=1, grad=True))


def test_ties_nan_and_infinity():
    x = torch.tensor([[[1, 1, 2, 2], [1, 1, 2, 2], [NAN, 0, NAN, NAN], [0, 0, -INF, 1]]])

    def fn(x):
        low, zeros = torch.full_like(x, -INF), torch.where(x > 1, -0.0, 0.0)
        return [f(t) for t in (x, low, zeros) for f in (
            lambda t: F.max_pool2d(t, 2, return_indices=True), lambda t: F.max_pool2d(t, 3, 1, 1, return_indices=True),
            lambda t: F.adaptive_max_pool2d(t, 3, return_indices=True), lambda t: F.adaptive_max_pool2d(t, 2),
            lambda t: F.max_pool2d(t, 2, dilation=2, return_indices=True),
        )]  # fmt: skip

    check(fn, x)
    check(lambda x: [F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 3), F.adaptive_avg_pool2d(x, (4, 2))], x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    def fn(x):
        return [
            F.max_pool2d(x, 3, 1, 1), F.avg_pool2d(x, 3, 1, 1), F.adaptive_avg_pool2d(x, 3), F.adaptive_max_pool2d(x, 3),
            F.avg_pool1d(x[0], 2),
        ]  # fmt: skip

    check(fn, randn(2, 2, 5, 5, dtype=dtype, grad=True))


def test_integers():
    x = integers(-30, 30, 2, 5, 5)
    check(lambda x: [F.max_pool2d(x, 2, 1, 1, return_indices=True), F.avg_pool2d(x, 2, 1, 1)], x)


def test_average_pool():
    def fn(x, z):
        return [
            F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, (2, 3), divisor_override=5),
            F.avg_pool2d(x, 2, 3, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(x, (9, 11)), F.avg_pool2d(x[0], 2), F.avg_pool2d(x, (1, 10), 1, (0, 5)), F.avg_pool1d(x[0], 3, 2, 1),
            F.avg_pool1d(x[0], 3, 2, 1, ceil_mode=True, count_include_pad=False), F.avg_pool3d(z, 2, 1, 1),
            F.avg_pool3d(z, (2, 3, 1), ceil_mode=True, count_include_pad=False), F.avg_pool3d(z[0], 2, divisor_override=-3),
        ]  # fmt: skip

    check(fn, randn(2, 3, 9, 11, grad=True), randn(2, 3, 4, 6, 5, seed=1, grad=True))


def test_adaptive_average_pool():
    def fn(x):
        return [
            F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (9, 11)), F.adaptive_avg_pool2d(x, (20, 1)),
            F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (None, 1)), F.adaptive_avg_pool1d(x[0], 4),
            F.adaptive_avg_pool2d(x[0], (3, 5)), F.adaptive_avg_pool3d(x, (1, 2, 3)),
            F.adaptive_avg_pool3d(x[None], (3, 3, 11)),
        ]  # fmt: skip

    check(fn, randn(2, 3, 9, 11, grad=True))


def test_adaptive_max_pool():
    def fn(x):
        return [
            F.adaptive_max_pool2d(x, (3, 4), return_indices=True), F.adaptive_max_pool2d(x, (3, 11), return_indices=True),
            F.adaptive_max_pool2d(x, (20, 1)), F.adaptive_max_pool1d(x[0], 4, return_indices=True),
            F.adaptive_max_pool3d(x, (1, 2, 3)), F.adaptive_max_pool3d(x[None], (2, 3, 11), return_indices=True),
        ]  # fmt: skip

    check(fn, randn(2, 3, 9, 11, grad=True))


def test_unpool():
    def fn(x):
        y, i = F.max_pool2d(x, 2, return_indices=True)
        z, j = F.max_pool3d(x, (1, 2, 2), return_indices=True)
        w, k = F.max_pool1d(x[0], 2, return_indices=True)
        return [
            F.max_unpool2d(y, i, 2), F.max_unpool2d(y[0], i[0], 2, output_size=(8, 10)),
            F.max_unpool3d(z, j, (1, 2, 2)), F.max_unpool1d(w, k, 2),
        ]  # fmt: skip

    check(fn, randn(2, 3, 8, 10, grad=True))


def test_fractional_max_pool():
    def fn(x, z, s, t):
        return [
            F.fractional_max_pool2d(x, 2, (4, 5), return_indices=True, _random_samples=s),
            F.fractional_max_pool2d(x, (3, 2), (1, 5), return_indices=True, _random_samples=s),
            F.fractional_max_pool3d(z, 2, (2, 3, 4), return_indices=True, _random_samples=t),
        ]

    samples = [torch.rand(2, 3, n, generator=torch.Generator().manual_seed(n)) for n in (2, 3)]
    check(fn, randn(2, 3, 9, 11, grad=True), randn(2, 3, 5, 6, 7, seed=1, grad=True), *samples)


def test_double_backward():
    def fn(x):
        y = [F.max_pool2d(x, 3, 2), F.avg_pool2d(x, 3, 2), F.adaptive_avg_pool2d(x, 4), F.adaptive_max_pool2d(x, 4)]
        (first,) = torch.autograd.grad(sum((t * t).sum() for t in y), x, create_graph=True)
        return [first, (first * first).sum()]

    check(fn, randn(2, 3, 9, 11, grad=True))


def test_empty_batch_and_views():
    x = randn(0, 3, 6, 6, grad=True)
    check(lambda x: [F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 3), F.adaptive_max_pool2d(x, 3)], x)
    y = randn(3, 8, 2, 9, grad=True)
    check(lambda y: [F.max_pool2d(y.permute(2, 0, 3, 1), 3), F.avg_pool2d(y[..., ::2].transpose(1, 3), 2)], y)


def test_errors_are_raised_at_the_call():
    x = torch.ones(1, 4, 4, device="tpu")
    with pytest.raises(RuntimeError, match="pad should be at most half"):
        F.max_pool2d(x, 2, padding=2)
    with pytest.raises(RuntimeError, match="Output size is too small"):
        F.avg_pool2d(x, 5)
    with pytest.raises(NotImplementedError, match="Bool"):
        F.avg_pool2d(x.bool(), 2)
