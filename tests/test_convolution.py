"""Convolutions and their gradients against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support import check, randn

SPACE, KERNEL = (7, 6, 5), (3, 2, 3)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolution(rank, groups):
    convolve = getattr(F, f"conv{rank}d")
    x = randn(2, 4, *SPACE[:rank], grad=True)
    w, b = randn(8, 4 // groups, *KERNEL[:rank], seed=1, grad=True), randn(8, seed=2, grad=True)

    def fn(x, w, b):
        return [
            convolve(x, w, b, groups=groups), convolve(x, w, stride=2, padding=1, groups=groups),
            convolve(x, w, b, padding="same", groups=groups), convolve(x, w, dilation=2, padding=2, stride=3, groups=groups),
            convolve(x[0], w, b, padding=3, groups=groups), convolve(x.detach(), w, b.detach(), groups=groups),
        ]  # fmt: skip

    check(fn, x, w, b, atol=1e-4)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution(rank, groups):
    convolve = getattr(F, f"conv_transpose{rank}d")
    x = randn(2, 4, *SPACE[:rank], grad=True)
    w, b = randn(4, 6 // groups, *KERNEL[:rank], seed=1, grad=True), randn(6, seed=2, grad=True)

    def fn(x, w, b):
        return [
            convolve(x, w, b, groups=groups), convolve(x, w, stride=2, padding=1, output_padding=1, groups=groups),
            convolve(x, w, b, dilation=2, padding=2, stride=3, output_padding=2, groups=groups),
            convolve(x[0], w, b, padding=1, groups=groups), convolve(x, w.detach(), b, stride=2, groups=groups),
        ]  # fmt: skip

    check(fn, x, w, b, atol=1e-4)


def test_asymmetric_geometry():
    def fn(x, w, p):
        return [
            F.conv2d(x, w, stride=(1, 2), padding=(0, 1), dilation=(2, 1)), F.conv2d(x, p, padding=2, stride=3),
            F.conv_transpose2d(x, w.transpose(0, 1), stride=(3, 1), padding=(1, 2), dilation=(1, 2)), F.conv2d(x, p),
            F.conv2d(x, w.transpose(2, 3), padding=(4, 0)), F.conv2d(x[:, :, ::2].flip(3), w),
        ]  # fmt: skip

    weights = [randn(4, 3, 3, 2, seed=1, grad=True), randn(5, 3, 1, 1, seed=2, grad=True)]
    check(fn, randn(2, 3, 8, 7, grad=True), *weights, atol=1e-4)


def test_depthwise_with_multiplier():
    fn = lambda x, w, v: [F.conv2d(x, w, groups=6, padding=1), F.conv2d(x, v, groups=6, stride=2)]  # noqa: E731
    weights = [randn(12, 1, 3, 3, seed=1, grad=True), randn(6, 1, 3, 3, seed=2, grad=True)]
    check(fn, randn(2, 6, 5, 5, grad=True), *weights, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes(dtype):
    x, w, b = (randn(*s, seed=i, dtype=dtype, grad=True) for i, s in enumerate([(2, 3, 6, 6), (4, 3, 3, 3), (4,)]))
    half = dtype != torch.float64
    fn = lambda x, w, b: [F.conv2d(x, w, b, padding=1), F.conv_transpose2d(x, w.transpose(0, 1), b, stride=2)]  # noqa: E731
    check(fn, x, w, b, rtol=2e-2 if half else None, atol=0.25 if half else None)


def test_integers_are_exact():
    x, w = torch.arange(50).reshape(1, 2, 5, 5), torch.arange(16).reshape(2, 2, 2, 2) - 7
    check(lambda x, w: [F.conv2d(x, w), F.conv2d(x, w, stride=2, padding=1)], x, w)


def test_complex():
    x = torch.complex(randn(1, 2, 5), randn(1, 2, 5, seed=1)).requires_grad_()
    w = torch.complex(randn(3, 2, 2, seed=2), randn(3, 2, 2, seed=3)).requires_grad_()
    check(lambda x, w: F.conv1d(x, w), x, w)


def test_empty_batch_and_no_channels():
    x, w, b = randn(0, 3, 5, 5, grad=True), randn(4, 3, 2, 2, grad=True), randn(4, grad=True)
    check(lambda x, w, b: [F.conv2d(x, w, b), F.conv_transpose2d(x, w.transpose(0, 1), b)], x, w, b)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_double_backward(groups, transposed):
    x = randn(3, 6, 5, grad=True)
    w = randn(*((6, 9 // groups) if transposed else (9, 6 // groups)), 2, seed=1, grad=True)
    b = randn(9, seed=2, grad=True)

    def fn(x, w, b):
        y = (F.conv_transpose1d if transposed else F.conv1d)(x, w, b, stride=2, groups=groups, padding=1)
        first = torch.autograd.grad((y * y).sum(), [x, w, b], create_graph=True)
        return [*first, sum((g * g).mean() for g in first)]

    check(fn, x, w, b, rtol=1e-3, atol=1e-3)


def test_modules_with_padding_modes_and_channels_last():
    def fn(x, w):
        last = x.to(memory_format=torch.channels_last)
        return [
            F.conv2d(last, w, padding=1), F.conv2d(F.pad(x, (1, 2, 0, 1), mode="circular"), w),
            F.conv2d(F.pad(x, (1, 1, 2, 0), mode="reflect"), w), F.conv2d(last, w.to(memory_format=torch.channels_last)),
        ]  # fmt: skip

    check(fn, randn(2, 3, 4, 5, grad=True), randn(4, 3, 3, 3, grad=True), atol=1e-4)


def test_errors_are_raised_at_the_call():
    def on(*shape, dtype=torch.float32):
        return torch.ones(*shape, dtype=dtype, device="tpu")

    x, w = on(1, 4, 5, 5), on(4, 4, 2, 2)
    for match, call in {
        "to have 2 channels": lambda: F.conv2d(x, on(4, 2, 2, 2)),
        "expected scalar type Float but found BFloat16": lambda: F.conv2d(x, w.bfloat16()),
        "bias of size": lambda: F.conv2d(x, w, on(3)),
        "divisible by 2": lambda: F.conv2d(x, on(3, 2, 2, 2), groups=2),
        "negative padding": lambda: F.conv2d(x, w, padding=-1),
        "non-positive stride": lambda: F.conv2d(x, w, stride=0),
        "output padding must be smaller": lambda: F.conv_transpose2d(x, w, output_padding=1),
        "Kernel size can't be greater": lambda: F.conv2d(x, on(4, 4, 9, 9)),
    }.items():
        with pytest.raises(RuntimeError, match=match):
            call()
