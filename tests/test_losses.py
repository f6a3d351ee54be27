"""Losses, their gradients and second derivatives against the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import check, integers, randn

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
REDUCTIONS = ["none", "mean", "sum"]


def probabilities(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def reductions_of(dtype: torch.dtype) -> list[str]:
    """What to test a dtype with: float32 with everything, the others with less."""
    return REDUCTIONS if dtype is torch.float32 else ["mean"]


def regression(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    sign = y.detach().sign()
    found = []
    for r in reductions_of(x.dtype):
        found += [
            F.mse_loss(x, y, reduction=r),
            F.smooth_l1_loss(x, y, reduction=r, beta=0.3),
            F.smooth_l1_loss(x, y, reduction=r),
            F.huber_loss(x, y, reduction=r, delta=0.7),
            F.soft_margin_loss(x, sign, reduction=r),
            F.l1_loss(x, y, reduction=r),
            F.kl_div(x, y.softmax(-1), reduction=r),
        ]
    return found


@pytest.mark.parametrize("dtype", FLOATS)
def test_regression(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        found = regression(x, y) + regression(x.t()[::2], y.t()[::2])
        return found + regression(x[0, 0], y[0, 0]) + regression(x[:0], y[:0]) if x.dtype is torch.float32 else found

    check(fn, randn(4, 6, dtype=dtype, grad=True), randn(4, 6, seed=1, dtype=dtype, grad=dtype is torch.float32))


def test_regression_at_the_corners_and_with_special_values() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        found = [F.smooth_l1_loss(x, y, reduction="none", beta=b) for b in (0.0, 0.5, 1.0)]
        found += [F.huber_loss(x, y, reduction="none", delta=d) for d in (0.5, 1.0)]
        return [
            *found,
            F.mse_loss(x, y, reduction="none"),
            torch.ops.aten.smooth_l1_loss_backward(torch.ones_like(x), x, y, 0, 0.0),
            torch.ops.aten.huber_loss_backward(torch.ones_like(x), x, y, 0, 0.5),
        ]

    x = torch.tensor([0.0, 0.5, -0.5, 1.0, -1.0, math.nan, math.inf, -math.inf, 0.25, -3.0])
    check(fn, x, torch.zeros(10))


def test_broadcasting_and_second_derivatives() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for r in (1, 2):
            for loss in (
                torch.ops.aten.mse_loss(x, y, r),
                torch.ops.aten.smooth_l1_loss(x, y, r, 0.5),
                torch.ops.aten.huber_loss(x, y, r, 0.5),
                torch.ops.aten.soft_margin_loss(x, y.detach().sign(), r),
                torch.ops.aten.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid(), None, r),
            ):
                (slope,) = torch.autograd.grad(loss, x, create_graph=True)
                found += [loss, slope, *torch.autograd.grad(slope.pow(2).sum(), x, create_graph=True)]
        return found

    check(fn, randn(4, 6, dtype=torch.float64, grad=True), randn(4, 6, seed=1, dtype=torch.float64, grad=True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_binary_cross_entropy(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, p: torch.Tensor, t: torch.Tensor, w: torch.Tensor, e: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for r in reductions_of(x.dtype):
            found += [
                F.binary_cross_entropy(p, t, reduction=r),
                F.binary_cross_entropy(p, t, w, reduction=r),
                F.binary_cross_entropy_with_logits(x, t, reduction=r),
                F.binary_cross_entropy_with_logits(x, t, w, reduction=r),
                F.binary_cross_entropy_with_logits(x * 60, t, w, pos_weight=w, reduction=r),
                F.binary_cross_entropy(e, e.detach(), reduction=r),
                F.binary_cross_entropy(e, 1 - e.detach(), reduction=r),
                F.binary_cross_entropy(p[:0], t[:0], reduction=r),
                F.binary_cross_entropy_with_logits(x[0, 0], t[0, 0], reduction=r),
            ]
        return found

    t = probabilities(4, 3, seed=1, dtype=dtype).requires_grad_(dtype is torch.float64)
    args = (probabilities(4, 3, dtype=dtype).requires_grad_(), t, torch.tensor([1.0, 2.0, 0.5], dtype=dtype))
    # CPU rounds each of the many gradients that meet in a half-precision input.
    rtol = {torch.bfloat16: 0.1, torch.float16: 0.02}.get(dtype)
    check(
        fn,
        randn(4, 3, dtype=dtype, grad=True),
        *args,
        torch.tensor([0.0, 1.0, 0.5], dtype=dtype, requires_grad=True),
        rtol=rtol,
    )


def test_probabilities_out_of_range_raise_at_the_next_wait() -> None:
    x, one = torch.tensor([0.5, 1.5], device="tpu"), torch.ones(2, device="tpu")
    for call in (
        lambda: F.binary_cross_entropy(x, one),
        lambda: F.binary_cross_entropy(one, x),
        lambda: F.binary_cross_entropy(x * math.nan, one),
    ):
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            call().cpu()


@pytest.mark.parametrize("dtype", FLOATS)
def test_nll_loss(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, z: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for r in reductions_of(x.dtype):
            for weight in (None, w) if r == "mean" else (w,):
                found += [
                    F.nll_loss(x, t, weight, reduction=r),
                    F.nll_loss(x, t, weight, ignore_index=1, reduction=r),
                    F.nll_loss(x[0], t[0], weight, reduction=r),
                    F.cross_entropy(x, t, weight, reduction=r, label_smoothing=0.1),
                    F.nll_loss(z, s, weight, reduction=r),
                    F.cross_entropy(z, s, weight, ignore_index=2, reduction=r),
                ]
            found += [F.cross_entropy(x, x.detach().softmax(1), w, reduction=r), F.nll_loss(x.t()[:4].t(), t, reduction=r)]
        return found

    t, s = integers(0, 4, 6), integers(0, 4, 2, 3, 2)
    args = (torch.tensor([0.5, 1.0, 2.0, 0.0], dtype=dtype), randn(2, 4, 3, 2, seed=1, dtype=dtype, grad=True), s)
    check(fn, randn(6, 4, dtype=dtype, grad=True), t, *args)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss_with_nothing_to_average(reduction: str) -> None:
    def fn(x: torch.Tensor, ignored: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
        r = reduction
        found = [
            F.cross_entropy(x, ignored, reduction=r),
            F.cross_entropy(x[:0], ignored[:0], reduction=r),
            F.cross_entropy(z[:0], ignored[:0, None, None].expand(0, 2, 2), reduction=r),
            F.cross_entropy(z, ignored[:2, None, None].expand(2, 2, 2), reduction=r),
            F.nll_loss(x[0], ignored[0], reduction=r),
        ]
        return found

    check(fn, randn(4, 3, grad=True), torch.full((4,), -100), randn(2, 3, 2, 2, grad=True))


def test_second_derivative_of_cross_entropy() -> None:
    def fn(x: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
        loss = F.cross_entropy(x, t, ignore_index=2)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        return [loss, slope, *torch.autograd.grad(slope.pow(2).sum(), x, create_graph=True)]

    check(fn, randn(5, 4, dtype=torch.float64, grad=True), integers(0, 4, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_margins(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for r in REDUCTIONS:
            found += [
                F.multi_margin_loss(x, t, reduction=r),
                F.multi_margin_loss(x, t, p=2, margin=0.7, weight=w, reduction=r),
                F.multi_margin_loss(x[0], t[0], reduction=r),
                F.multilabel_margin_loss(x, labels, reduction=r),
                F.multilabel_margin_loss(x[0], labels[0], reduction=r),
            ]
        return found

    labels = torch.tensor([[0, 2, -1, 1], [3, 3, 1, -1], [-1, 0, 1, 2], [0, 1, 2, 3]])
    check(fn, randn(4, 4, dtype=dtype, grad=True), integers(0, 4, 4), probabilities(4, seed=3, dtype=dtype), labels)


def test_composite_losses() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, sign: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.cosine_similarity(x, y),
            F.pairwise_distance(x, y),
            F.cosine_embedding_loss(x, y, sign),
            F.triplet_margin_loss(x, y, z),
            F.margin_ranking_loss(x[:, 0], y[:, 0], sign, 0.1),
            F.hinge_embedding_loss(x[:, 0], sign),
            F.poisson_nll_loss(x, y.exp()),
            F.gaussian_nll_loss(x, y, y.square() + 1),
            F.multilabel_soft_margin_loss(x, y.sigmoid()),
        ]

    tensors = [randn(4, 3, seed=s, grad=True) for s in range(3)]
    check(fn, *tensors, torch.tensor([1.0, -1.0, 1.0, -1.0]))


def test_written_to_out() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        out, scalar = torch.empty_like(x), torch.empty(0, device=x.device)
        torch.ops.aten.mse_loss.out(x, y, 0, out=out)
        torch.ops.aten.huber_loss.out(x, y, 1, 1.0, out=scalar)
        return [out, scalar]

    check(fn, randn(4, 3), randn(4, 3, seed=1))


@pytest.mark.parametrize(
    ("loss", "error"),
    [
        (F.cross_entropy, IndexError),
        (F.multi_margin_loss, RuntimeError),
        (lambda x, t: F.nll_loss(x[:, :, None, None], t[:, None, None]), IndexError),
    ],
)
def test_classes_out_of_range_raise_at_the_next_wait(loss: Any, error: type[Exception]) -> None:
    x = torch.randn(2, 3)
    for wrong in (3, -1):
        t = torch.tensor([0, wrong])
        with pytest.raises((IndexError, RuntimeError)):
            loss(x, t)
        with pytest.raises(error, match="out of"):
            loss(x.to("tpu"), t.to("tpu")).cpu()


def test_a_schedule_of_thresholds_compiles_once() -> None:
    import lazytpu

    x, y = randn(4, 3).to("tpu"), randn(4, 3, seed=1).to("tpu")
    F.huber_loss(x, y, delta=0.5).item(), F.smooth_l1_loss(x, y, beta=0.5).item()
    before = lazytpu.metrics()["compiles"]
    for step in range(1, 4):
        F.huber_loss(x, y, delta=0.1 * step).item(), F.smooth_l1_loss(x, y, beta=0.1 * step).item()
    assert lazytpu.metrics()["compiles"] == before
