"""Padding, columns, shuffles, interpolation and grid sampling against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support import check, integers, randn

SIZES = ((10, 14), (3, 4), (5, 7), (11, 3), (1, 1))
SCALES = (2, 0.5, 1.7, (0.3, 2.2))


def test_pad():
    def fn(x):
        return [
            F.pad(x, (1, 2, 0, 3), value=7.0), F.pad(x, (-1, 2, 1, -2)), F.pad(x, (1, 1, 2, 0, 0, 1), value=float("nan")),
            F.pad(x, (2, 1, 1, 2), mode="reflect"), F.pad(x[0], (1, 1), mode="reflect"),
            F.pad(x[0], (3, 0, 0, 1), mode="reflect"), F.pad(x, (-1, 2, 1, -2), mode="reflect"),
            F.pad(x, (1, 1, 1, 1, 1, 0), mode="reflect"),
            F.pad(x, (1, 3, 2, 0), mode="replicate"), F.pad(x, (-1, 2, 1, -2), mode="replicate"),
            F.pad(x, (12, 0, 0, 0), mode="replicate"), F.pad(x, (1, 1, 1, 1, 1, 3), mode="replicate"),
            F.pad(x, (1, 2, 3, 1), mode="circular"), F.pad(x.mT, (1, 0), mode="constant"),
        ]  # fmt: skip

    check(fn, randn(1, 2, 4, 5, grad=True))


def test_pad_of_other_dtypes_and_empty():
    def fn(x, b, h, e):
        return [
            F.pad(x, (1, 1), value=3), F.pad(b, (0, 2), value=True), F.pad(x, (-4, 1)), F.pad(x, (1, 1), mode="reflect"),
            F.pad(h, (1, 2), mode="replicate"), F.pad(h, (1, 2), value=0.1), F.pad(e, (1, 1, 2, 2)),
            F.pad(e, (1, 1), mode="reflect"),
        ]  # fmt: skip

    check(fn, integers(0, 5, 2, 4), integers(0, 2, 3).bool(), randn(2, 4, dtype=torch.bfloat16), randn(0, 3, 4))


def test_double_backward_of_padding():
    def fn(x):
        y = [F.pad(x, (1, 2), mode="reflect"), F.pad(x, (1, 2), mode="replicate"), F.pad(x, (1, 2)), F.unfold(x[:, None], 2)]
        (first,) = torch.autograd.grad(sum((t * t).sum() for t in y), x, create_graph=True)
        return [first, (first * first).sum()]

    check(fn, randn(2, 3, 4, grad=True))


def test_unfold_and_fold():
    def fn(x):
        return [
            F.unfold(x, (2, 3), dilation=1, padding=1, stride=2), F.unfold(x, 2, 2, 2, 1), F.unfold(x[0], 2, stride=2),
            F.fold(F.unfold(x, 2, dilation=2, padding=1), (4, 5), 2, dilation=2, padding=1),
            F.fold(F.unfold(x[0], 2, stride=2), (4, 5), 2, stride=2), F.fold(F.unfold(x, 3), (4, 5), 3),
        ]  # fmt: skip

    check(fn, randn(1, 2, 4, 5, grad=True))
    check(fn, randn(1, 2, 4, 5, dtype=torch.bfloat16))


def test_shuffles():
    fn = lambda x: [F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 4), F.pixel_shuffle(x[0], 2)]  # noqa: E731
    check(fn, randn(2, 8, 4, 6, grad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nearest(dtype):
    def fn(x):
        return [
            y for mode in ("nearest", "nearest-exact") for y in (
                *(F.interpolate(x, size=size, mode=mode) for size in SIZES),
                *(F.interpolate(x, scale_factor=scale, mode=mode) for scale in SCALES),
                F.interpolate(x, scale_factor=1.3, mode=mode, recompute_scale_factor=True),
                F.interpolate(x[0], scale_factor=2.4, mode=mode), F.interpolate(x[None], size=(3, 4, 9), mode=mode),
            )
        ]  # fmt: skip

    check(fn, randn(2, 2, 5, 7, dtype=dtype, grad=True))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nearest_picks_the_very_pixels_of_the_cpu(dtype, exact):
    """Sizes whose ratio rounds differently in float32, float64 and with a fused multiply-add."""
    mode = "nearest-exact" if exact else "nearest"
    pairs = [(216, 178), (208, 97), (186, 283), (234, 167), (54, 174), (148, 52), (72, 228)]
    inputs = [torch.arange(n, dtype=dtype)[None, None] for n, _ in pairs]
    check(lambda *xs: [F.interpolate(x, size=out, mode=mode) for x, (_, out) in zip(xs, pairs)], *inputs, rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
def test_interpolation(mode, align):
    def fn(x, d, h):
        options = {"mode": mode, "align_corners": align}
        return [
            *(F.interpolate(t, size=size, **options) for t in (x, d, h) for size in SIZES),
            *(F.interpolate(x, scale_factor=scale, **options) for scale in SCALES),
            *(F.interpolate(t, size=size, antialias=True, **options) for t in (x, d) for size in SIZES),
            *(F.interpolate(x, scale_factor=scale, antialias=True, **options) for scale in SCALES),
        ]

    kinds = (torch.float32, torch.float64, torch.bfloat16)
    check(fn, *(randn(2, 2, 5, 7, dtype=dtype, grad=True) for dtype in kinds))


def test_linear_and_trilinear():
    def fn(x):
        return [
            F.interpolate(x[0], size=9, mode="linear"), F.interpolate(x[0], size=3, mode="linear", align_corners=True),
            F.interpolate(x[None], size=(3, 4, 9), mode="trilinear"), F.interpolate(x, size=3, mode="area"),
            F.interpolate(x[None], scale_factor=1.5, mode="trilinear", align_corners=True),
        ]  # fmt: skip

    check(fn, randn(2, 2, 5, 7, grad=True))


def test_bytes_are_interpolated_bit_for_bit():
    def fn(x):
        return [
            F.interpolate(x, size=size, mode=mode, antialias=antialias, align_corners=align)
            for mode in ("bilinear", "bicubic") for antialias in (False, True) for align in (False, True)
            for size in ((17, 9), (10, 12), (5, 16), (12, 10))
        ] + [F.interpolate(x, scale_factor=1.7), F.interpolate(x, scale_factor=1.7, mode="bilinear")]  # fmt: skip

    check(fn, integers(0, 256, 1, 3, 12, 16, dtype=torch.uint8))


THETA = torch.tensor([[[1.2, 0.3, 0.1], [-0.2, 0.9, -0.4]]])


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode):
    def fn(x, grid, identity=None):
        grids = [(grid, False), (grid, True)] + ([(identity, True)] if identity is not None else [])
        return [
            F.grid_sample(x, points, mode=mode, padding_mode=padding, align_corners=align)
            for points, align in grids for padding in ("zeros", "border", "reflection")
        ]  # fmt: skip

    far = (F.affine_grid(THETA, (1, 2, 3, 6), align_corners=True) * 1.37 + 0.0137).requires_grad_()
    identity = F.affine_grid(torch.eye(2, 3)[None], (1, 2, 4, 5), align_corners=True).requires_grad_()
    check(fn, randn(1, 2, 4, 5, grad=True), far, identity, atol=1e-4)
    if mode != "bicubic":
        check(fn, randn(2, 2, 3, 4, 5, grad=True), randn(2, 2, 3, 2, 3, seed=4, grad=True), atol=1e-4)


def test_grid_sample_masks_and_one_pixel():
    def fn(x, grid):
        return [F.grid_sample(x.detach(), grid), F.grid_sample(x, grid.detach()), F.grid_sample(
            x[:, :, :1, :1], grid, padding_mode="reflection", align_corners=True)]  # fmt: skip

    check(fn, randn(2, 2, 4, 5, grad=True), randn(2, 3, 2, 2, seed=1, grad=True), atol=1e-4)


def test_affine_grid():
    def fn(t, u):
        return [F.affine_grid(t, (1, 2, 3, 6), align_corners=a) for a in (True, False)] + [
            F.affine_grid(u, (2, 2, 3, 6, 1), align_corners=a) for a in (True, False)
        ]

    check(fn, THETA.clone().requires_grad_(), randn(2, 3, 4, grad=True))


def test_errors_are_raised_at_the_call():
    x = torch.ones(1, 1, 2, 2, device="tpu")
    with pytest.raises(RuntimeError, match="Padding size should be less"):
        F.pad(x, (2, 0, 0, 0), mode="reflect")
    with pytest.raises(RuntimeError, match="should be greater than 0"):
        F.interpolate(x, size=0)
    with pytest.raises(NotImplementedError, match="Long"):
        F.interpolate(x.long(), size=3, mode="bilinear")
    with pytest.raises(RuntimeError):
        F.grid_sample(x, torch.ones(1, 2, 2, 3, device="tpu"))
