"""Matrix and vector products against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support import check, integers, randn

NAN = float("nan")


def products(a, b, c, v, batch1, batch2):
    return [
        a @ b, torch.mm(a, b), a @ v, v @ b, torch.dot(v, v), torch.vdot(v, v), torch.outer(v, v), torch.bmm(batch1, batch2),
        torch.addmm(c, a, b, beta=2, alpha=3), torch.addmm(c[0], a, b), torch.addmv(c[:, 0], a, v, beta=2, alpha=3),
        torch.addbmm(c, batch1, batch2, beta=2, alpha=3), torch.baddbmm(c, batch1, batch2, beta=2, alpha=3),
        torch.addr(a, c[:, 0], v, beta=2, alpha=3), batch1 @ v, batch1 @ b, torch.inner(v, v),
        torch.tensordot(batch1, batch2.mT, ([0, 2], [0, 2])), torch.einsum("bij,bkj->ikb", batch1, batch1),
        torch.einsum("...i,i->...", batch1, v), torch.kron(a[:2, :2], b[:2, :1]), torch.linalg.multi_dot([a, b, c.mT]),
    ]  # fmt: skip


def operands(make):
    return [make(4, 5, 0), make(5, 6, 1), make(4, 6, 2), make(5, 3), make(3, 4, 5, 4), make(3, 5, 6, 5)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_products_of_floats(dtype):
    def make(*shape_and_seed):
        *shape, seed = shape_and_seed
        return randn(*shape, seed=seed, dtype=dtype, grad=True)

    rounding = {torch.bfloat16: 4e-2, torch.float16: 6e-3}.get(dtype)
    check(products, *operands(make), rtol=rounding, atol=None if rounding is None else 16 * rounding)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_products_of_integers_are_exact_and_wrap(dtype):
    def make(*shape_and_seed):
        *shape, seed = shape_and_seed
        return integers(0 if dtype == torch.uint8 else -100, 100, *shape, seed=seed, dtype=dtype)

    check(products, *operands(make))


def test_products_of_complex_numbers_see_conjugates():
    x = torch.complex(randn(3, 4), randn(3, 4, seed=1)).requires_grad_()
    y = torch.complex(randn(4, 3, seed=2), randn(4, 3, seed=3)).requires_grad_()

    def fn(x, y):
        v, w = x[0], y[:, 1]
        return [
            x @ y, x.conj() @ y, x @ x.mH, torch.dot(v.conj(), w), torch.vdot(v, w), torch.vdot(v.conj(), w), x.conj() @ w,
            torch.addmm(x @ y, x, y, beta=1 + 2j, alpha=0.5j), torch.bmm(x[None], y[None].conj()), F.linear(x, y.mH),
        ]  # fmt: skip

    check(fn, x, y)


def test_float32_products_are_full_precision():
    x = torch.full((8, 64), 1 + 2**-12)
    check(lambda x: [x @ x.mT, F.linear(x, x), torch.bmm(x[None], x[None].mT), x @ x[0]], x, rtol=1e-6, atol=0)


def test_bfloat16_accumulates_in_float32():
    x = torch.ones(2, 4096, dtype=torch.bfloat16)
    check(lambda x: [x @ x.mT, torch.dot(x[0], x[0]), F.linear(x, x)], x, rtol=0, atol=0)


def test_beta_of_zero_ignores_the_added_tensor():
    lost, x, v = torch.full((3, 3), NAN), randn(3, 3), randn(3, seed=1)
    check(
        lambda lost, x, v: [
            torch.addmm(lost, x, x, beta=0), torch.addmv(lost[0], x, v, beta=0), torch.addr(lost, v, v, beta=0),
            torch.baddbmm(lost[None], x[None], x[None], beta=0), torch.addbmm(lost, x[None], x[None], beta=0),
        ],
        lost, x, v,
    )  # fmt: skip


def test_boolean_addr():
    x = integers(0, 2, 3, 4).bool()
    check(lambda x: [torch.addr(x, x[:, 0], x[0]), torch.addr(x, x[:, 0], x[0], beta=False)], x)


def test_transposed_sliced_and_expanded_operands():
    def fn(x, w, b):
        return [
            F.linear(x, w.t()), F.linear(x[:, ::2], w[::2, :6].t(), w[0, 1::2]), b @ b.mT, b.flip(1) @ x[:, 1:4],
            torch.addmm(w[0, :4].expand(5, 4), x, w[:, 3:7], beta=0.5, alpha=2), x[0] @ w, x[:, 0] @ x, x[1].dot(x[2]),
            torch.baddbmm(torch.ones(1, 1, 4, device=x.device).expand(3, 4, 4), b, b.transpose(1, 2)),
        ]  # fmt: skip

    x, w, b = randn(5, 8, grad=True), randn(8, 12, seed=1, grad=True), randn(3, 4, 5, seed=2, grad=True)
    check(fn, x, w, b)


def test_empty_and_single():
    def fn(a, b, v):
        return [
            a @ b, b @ a, a @ v, v @ b, torch.dot(v, v), torch.bmm(a[None], b[None]), torch.addmm(a @ b, a, b), F.linear(a, a),
        ]  # fmt: skip

    check(fn, randn(3, 0, grad=True), randn(0, 3, grad=True), randn(0, grad=True))
    a, v = randn(3, 4, grad=True), randn(4, grad=True)
    check(lambda a, v: [a @ v.expand(0, 4).mT, F.linear(a[:0], v[None]), a[:0] @ v], a, v)


def test_in_place_and_out():
    def fn(x, y):
        base = torch.zeros(6, 6, device=x.device)
        base[1:4, ::2].addmm_(x, y, beta=0.5, alpha=2)
        base[0].addmv_(base, y[:, 0].repeat(2))
        batch = torch.ones(2, 3, 3, device=x.device)
        batch.baddbmm_(x[None].expand(2, 3, 3), y[None].expand(2, 3, 3))
        out = torch.empty(0, device=x.device)
        torch.mm(x, y, out=out)
        squares = torch.empty(2, 3, 6, device=x.device)
        torch.bmm(batch, batch, out=squares[..., ::2])
        other = torch.empty(3, 3, device=x.device)
        torch.addmm(x, x, y, out=other.t())
        torch.matmul(x, y[:, 0], out=base[5, :3])
        return [base, batch, out, other, squares[..., ::2]]

    check(fn, randn(3, 3), randn(3, 3, seed=1))


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 5), (0, 5), (1, 2, 2, 5)])
def test_linear_of_any_rank(shape):
    x, w, b = randn(*shape, grad=True), randn(3, 5, seed=1, grad=True), randn(3, seed=2, grad=True)
    check(lambda x, w, b: [F.linear(x, w), F.linear(x, w, b), F.linear(x.detach(), w, b), F.linear(x, w.detach(), b)], x, w, b)


def test_linear_with_vector_weight_and_odd_biases():
    x, w, b = randn(4, 5, grad=True), randn(5, seed=1, grad=True), randn(1, seed=2, grad=True)
    check(lambda x, w, b: [F.linear(x, w), F.linear(x[0], w), F.linear(x, w.expand(3, 5), b)], x, w, b)


def test_linear_masks_and_double_backward():
    x, w, b = randn(2, 3, 5, grad=True), randn(4, 5, seed=1, grad=True), randn(4, seed=2, grad=True)

    def fn(x, w, b):
        y = F.linear(x, w, b)
        first = torch.autograd.grad((y * y).sum(), [x, w, b], create_graph=True)
        only = [torch.autograd.grad(F.linear(x, w, b).sum(), [t])[0] for t in (x, w, b)]
        return [*first, *only, sum((g * g).sum() for g in first)]

    check(fn, x, w, b)


def test_products_have_double_backward():
    x, y = randn(3, 4, grad=True), randn(4, 3, seed=1, grad=True)

    def fn(x, y):
        z = (x @ y) * torch.bmm(x[None], y[None])[0] + torch.addmm(x @ y, x, y)
        first = torch.autograd.grad((z * z).sum(), [x, y], create_graph=True)
        return [*first, sum((g * g).sum() for g in first)]

    check(fn, x, y, rtol=1e-3)


def test_errors_are_raised_at_the_call():
    def on(*shape, dtype=torch.float32):
        return torch.ones(*shape, dtype=dtype, device="tpu")

    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x2\)"):
        on(2, 3) @ on(2, 2)
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(2x3 and 2x4\)"):
        F.linear(on(2, 3), on(4, 2))
    with pytest.raises(RuntimeError, match="same dtype"):
        on(2, 3) @ on(3, 2, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match="same dtype"):
        F.linear(on(2, 3), on(4, 3), on(4, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="Bool"):
        on(2, 2, dtype=torch.bool) @ on(2, 2, dtype=torch.bool)
