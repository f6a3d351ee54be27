"""Joining, repeating, reordering, triangles, diagonals and the gradients of views, against the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import check, integers, randn

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        results = [
            torch.cat([x, x]),
            torch.stack([x, x], -1),
            x.repeat(2, 1, 2),
            x.flip(0),
            x.roll(1),
            x.tril(),
            x.triu(1),
            torch.diag_embed(x),
        ]
        return [
            *results,
            x.diagonal_scatter(x[0, :3]),
            x.slice_scatter(x[:2], 0, 1),
            x.select_scatter(x[0], 0, 2),
            torch.block_diag(x, x),
        ]

    check(fn, integers(0, 3, 3, 4).to(dtype))


def test_joining() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, h: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        nothing = torch.empty(0, device=x.device)
        results = [
            torch.cat([x, y]),
            torch.cat([x, y[:1]], -2),
            torch.cat([x.t(), y.t()], 1),
            torch.cat([nothing, x]),
            torch.cat([nothing, nothing]),
        ]
        results += [
            torch.cat([x, i]),
            torch.cat([h, i]),
            torch.cat([h, x], 1),
            torch.cat([x[:0], y]),
            torch.cat([x[:, :0], x], 1),
            torch.cat([i, i > 1]),
        ]
        results += [
            torch.stack([x, y]),
            torch.stack([x, y], 1),
            torch.stack([s, s]),
            torch.stack([x.t(), y.t()], -2),
            torch.stack([x[0], h[0].float()]),
        ]
        results += [
            torch.hstack([x, y]),
            torch.vstack([x[0], y]),
            torch.dstack([x, y]),
            torch.column_stack([x[0], y[0]]),
            torch.stack([x, i.float()], 2),
        ]
        results += [
            torch.kron(x, y[:1]),
            torch.cartesian_prod(x[0], y[0]),
            torch.combinations(x[0]),
            *torch.meshgrid(x[0], y[0], indexing="ij"),
        ]
        return [*results, torch.block_diag(x, s, y[0]), torch.cat([x.expand(2, 3, 4), y.expand(1, 3, 4)]), torch.atleast_3d(x)]

    check(
        fn,
        randn(3, 4, grad=True),
        randn(3, 4, seed=1, grad=True),
        randn(3, 4, seed=2, dtype=torch.float16),
        integers(0, 4, 3, 4),
        torch.tensor(1.5, requires_grad=True),
    )


def test_repeating_and_reordering() -> None:
    def fn(x: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        results = [
            x.repeat(2, 1, 1),
            x.repeat(3, 2, 1, 2),
            x.repeat(0, 1, 1),
            x.tile(2),
            x.tile((2, 1, 3)),
            s.repeat(3),
            s.repeat(()),
            x[:0].repeat(1, 2, 1),
        ]
        results += [
            x.flip(0),
            x.flip(-1, 0),
            x.flip(()),
            s.flip(()),
            x.transpose(0, 2).flip(1),
            x[0].fliplr(),
            x[0].flipud(),
            x[:, :0].flip(1),
        ]
        results += [
            x.roll(1),
            x.roll(-5),
            x.roll(7, 1),
            x.roll((2, -1), (0, 2)),
            x.roll((1, 1), (0, 0)),
            x.t().roll(1) if x.dim() == 2 else x[0].t().roll(1, 0),
        ]
        results += [
            x.rot90(1, (1, 2)),
            x.rot90(2, (0, 1)),
            x.rot90(-1, (0, 2)),
            x[:0].roll(1, 0),
            s.roll(0),
            x.movedim(0, 2),
            x.swapaxes(0, 1),
        ]
        return [
            *results,
            x.unflatten(2, (2, 2)),
            x.reshape(4, 6),
            x.ravel(),
            x.permute(2, 0, 1).reshape(-1),
            x.broadcast_to(5, 2, 3, 4),
            x.expand_as(x),
        ]

    check(fn, randn(2, 3, 4, grad=True), torch.tensor(2.0, requires_grad=True))


def test_triangles_and_diagonals() -> None:
    def fn(x: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        results: list[torch.Tensor] = []
        for k in (-6, -2, 0, 1, 7):
            results += [x.tril(k), x.triu(k), b.tril(k), x.t().triu(k)]
        for k in (-2, 0, 1):
            results += [
                torch.diag_embed(b, k),
                torch.diag_embed(b, k, 0, 2),
                torch.diag_embed(b, k, -1, 1),
                v.diag(k),
                x.diag(k),
                torch.diagflat(v, k),
            ]
            results += [x.diagonal(k), b.diagonal(k, 0, 2), b.diagonal(k, -1, 1), x.diagonal_scatter(x.diagonal(k) * 2 + 1, k)]
        results += [
            x[:0].tril(),
            x.diagonal(9),
            b.diagonal_scatter(b.diagonal(0, 0, 2) * 3, 0, 0, 2),
            x.trace(),
            torch.diag_embed(v[:0]),
        ]
        y = x * 1
        y.tril_().fill_diagonal_(4.0)
        z = x.t() * 1
        z.triu_(1)
        return [*results, y, z, torch.tril(x > 0), (x > 0).triu(1)]

    check(fn, randn(4, 5, grad=True), randn(2, 3, 4, seed=1, grad=True), randn(4, seed=2, grad=True))


def test_scatters_into_views() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        results = [
            x.slice_scatter(y[:, :2], 1, 1, 3),
            x.slice_scatter(y[:2, :5], 0, 0, 4, 2),
            x.slice_scatter(y[:, :2], -1, -2),
            x.slice_scatter(y[:0, :5], 0, 2, 2),
        ]
        results += [x.slice_scatter(y[:, :3], 1, 0, 99, 2), x.select_scatter(y[0, :5], 0, -1), x.select_scatter(y[:, 1], 1, 3)]
        return [*results, torch.as_strided_scatter(x, y[:2, :2], (2, 2), (5, 2), 1), x.t().slice_scatter(y.t()[:2], 0, 1, 3)]

    check(fn, randn(4, 5, grad=True), randn(4, 6, seed=1, grad=True))


def test_backward_ops_of_views() -> None:
    def fn(g: torch.Tensor) -> list[torch.Tensor]:
        aten: Any = torch.ops.aten
        results = [
            aten.slice_backward(g, [4, 9], 1, 2, 8, 2),
            aten.slice_backward(g, [9, 3], 0, -5, -1, 1),
            aten.slice_backward(g[:0], [4, 3], 0, 2, 2, 1),
        ]
        results += [
            aten.select_backward(g, [4, 2, 3], 1, -1),
            aten.select_backward(g[0, 0], [3], 0, 1),
            aten.diagonal_backward(g, [4, 4, 4], 1, 1, 2),
        ]
        results += [
            aten.diagonal_backward(g, [4, 3, 6], 0, 1, 2),
            aten.unfold_backward(g, [6], 0, 3, 1),
            aten.unfold_backward(g, [11], 0, 3, 2),
        ]
        results += [aten.unfold_backward(g, [20], 0, 3, 5), aten.unfold_backward(g.t().contiguous()[None], [1, 9], 1, 4, 3)]
        return results

    check(fn, randn(4, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_unfold(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.unfold(0, 3, 1),
            x.unfold(1, 2, 2),
            x.unfold(-1, 2, 4),
            x.unfold(1, 10, 1).unfold(0, 2, 2),
            x[0, 0].unfold(0, 1, 1),
        ]

    check(fn, randn(6, 12, dtype=dtype, grad=True))


def test_second_gradients() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        parts = [
            torch.cat([x, x * 2]),
            x.repeat(2, 1),
            x.flip(0),
            x.roll(1, 1),
            x.tril(),
            torch.diag_embed(x),
            torch.stack([x, x]),
            x.unfold(0, 2, 1),
        ]
        first = torch.autograd.grad(sum((p**3).sum() for p in parts), x, create_graph=True)[0]
        return [first, torch.autograd.grad((first**2).sum(), x)[0]]

    check(fn, randn(3, 4, grad=True), grad=False)


def test_results_written_to_out() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        outs = [torch.empty(0, device=x.device) for _ in range(4)]
        torch.cat([x, x], 1, out=outs[0])
        torch.stack([x, x], out=outs[1])
        torch.tril(x, out=outs[2])
        torch.triu(x, 1, out=outs[3])
        base = torch.zeros(3, 9, device=x.device)
        torch.cat([x[:, :1], x[:, 2:]], 1, out=base[:, ::3])
        doubled = torch.empty(3, 8, dtype=torch.float64, device=x.device)
        torch.cat([x, x], 1, out=doubled)
        return [*outs, base, doubled]

    check(fn, randn(3, 4))


def test_strides_of_flip_and_roll_are_kept() -> None:
    x = torch.zeros(2, 3, 4).permute(2, 0, 1)
    y = torch.zeros(2, 3, 4, device="tpu").permute(2, 0, 1)
    assert y.flip(0).stride() == x.flip(0).stride()
    assert y.roll(1, 0).stride() == x.roll(1, 0).stride()
