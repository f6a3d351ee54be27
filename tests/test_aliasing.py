"""PyTorch's aliasing rules: views of views, writes through views and bases, rebinding, and autograd over them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from support import check, integers, randn


def views_of_views(x: Any) -> Any:
    a = x[1:]
    b = a.t()[1:]
    c = b[:, ::2]
    d = c.unsqueeze(0).expand(2, *c.shape)
    return a, b, c, d, x.view(-1)[3:9].view(2, 3), x.unfold(1, 2, 1), x.diagonal()


def writes_through_views(x: Any) -> Any:
    x[1:].mul_(2)
    x.t()[0].add_(10)
    x.view(-1)[::3].zero_()
    x[:, 1:3][1] = 7
    x.diagonal().sub_(1)
    v = x[2]
    v += v
    x[-1, -1] = -5
    return x, v


def writes_through_the_base(x: Any) -> Any:
    row, col, flat = x[1], x[:, 2], x.view(-1)
    x.add_(1)
    x[1, 2] = 100
    return row, col, flat, x


def data_and_detach(x: Any) -> Any:
    y = x.detach()
    y[0] = 3
    z = x.data
    z.add_(1)
    w = x.view(-1)
    x.data = x.data * 2
    w.sub_(9)
    return x, y, z, w


def rebinding(x: Any, y: Any) -> Any:
    a = x[0]
    x.set_(y)
    x[0, 0] = 50
    b = torch.empty(0, dtype=y.dtype, device=y.device).set_(y.untyped_storage(), 1, (2, 2), (1, 2))
    b.fill_(8)
    return a, x, y, b


def resizing(x: Any) -> Any:
    y = x.clone().resize_(2, 2)
    z = x.clone().resize_(3)
    y[0, 0] = 9
    e = torch.empty(0, device=x.device)
    torch.add(x, 1, out=e)
    return y, z, e


def out_arguments(x: Any, y: Any) -> Any:
    base = torch.zeros(4, 6, device=x.device)
    torch.add(x, y, out=base[:, :4].t()[:, :])
    torch.mul(x, x, out=base.view(-1)[8:24].view(4, 4))
    return base


def self_overlapping_copies(x: Any) -> Any:
    x[1:] = x[:-1].clone()
    x[:, 1:] = x[:, :-1] + 1
    x.copy_(x.t().clone())
    return x


def bits(x: Any) -> Any:
    i = x.view(torch.int32)
    i[0] = 0x3F800000
    h = x.view(torch.int16)
    return x, i, h, torch.view_as_real(torch.view_as_complex(x.view(2, 2, 4)[..., :2].contiguous()))


def expanded(x: Any) -> Any:
    e = x[:1].expand(3, 4)
    x.add_(1)
    return e, e.contiguous(), e.reshape(-1), e + x[:3]


def chunks(x: Any) -> Any:
    a, b = x.chunk(2)
    p, q = x.split([1, 3], dim=1)
    a.add_(1)
    q.mul_(3)
    parts = x.unbind(0)
    parts[3].fill_(4)
    return a, b, p, q, x, list(parts)


def copies(x: Any) -> Any:
    a, b, c = copy.copy(x), copy.deepcopy(x), x.clone()
    x.add_(1)
    deep = copy.deepcopy([x, x[1]])
    deep[0].zero_()
    return a, b, c, deep


@pytest.mark.parametrize(
    "program",
    [
        views_of_views,
        writes_through_views,
        writes_through_the_base,
        data_and_detach,
        self_overlapping_copies,
        expanded,
        chunks,
        copies,
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_programs_on_one_base(program: Any, dtype: torch.dtype) -> None:
    x = randn(4, 4) if dtype.is_floating_point else integers(-9, 9, 4, 4)
    check(program, x)


def test_bits_of_another_dtype() -> None:
    check(bits, randn(16))


def test_rebinding_resizing_and_out() -> None:
    check(rebinding, randn(3, 4), randn(3, 4, seed=1))
    check(resizing, randn(2, 3))
    check(out_arguments, randn(4, 4), randn(4, 4, seed=1))


def test_metadata_of_views_is_the_cpus() -> None:
    def metadata(x: torch.Tensor) -> list[Any]:
        views = [x.t(), x.t().t(), x[::2], x[:, None], x.expand(2, 4, 4), x.permute(1, 0), x.unfold(0, 2, 1), x[1],
                 x.view(-1)[2:], x.t().contiguous(), x.flatten(), x.squeeze(), x.movedim(0, 1),
                 x.as_strided((2, 2), (1, 4), 3)]  # fmt: skip
        results = [(tuple(v.shape), v.stride(), v.storage_offset(), v.is_contiguous(), v._is_view()) for v in views]
        kept = [x.t() + 1, x.t().clone(), torch.empty_like(x.t()), x.t().abs(), x.t().to(torch.float64), x.t().contiguous() * 2]
        return [results, [(tuple(k.shape), k.stride()) for k in kept]]

    x = randn(4, 4)
    assert metadata(x.to("tpu")) == metadata(x)


def test_autograd_through_writes_and_views() -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * 2
        v = y[1:3]
        y[0].mul_(5)
        v.add_(w)
        y[:, 1] = w[:, 0].repeat(2)
        z = y.t()[::2].contiguous()
        z[0] = z[1].clone()
        return y.sum() + (v * v).sum() + z.pow(2).sum(), y, z

    check(program, randn(4, 3, grad=True), randn(2, 3, seed=1, grad=True))


def test_writing_to_an_expanded_tensor_is_refused() -> None:
    x = torch.zeros(1, 3, device="tpu").expand(2, 3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        x.add_(1)


def test_windows_past_the_storage_are_refused() -> None:
    x = torch.zeros(4, device="tpu")
    with pytest.raises(RuntimeError, match="out of bounds"):
        x.as_strided((3,), (2,), 0)
    assert x.as_strided((0,), (1,), 4).numel() == 0


def test_snapshots_do_not_follow_later_writes() -> None:
    w = torch.zeros(64, device="tpu")
    snapshots = []
    for i in range(3):
        snapshots += [w.clone(), w.to("tpu", copy=True), w.cpu()]
        w.add_(1)
        if i == 1:
            w.sum().item()
    assert [float(s[0]) for s in snapshots] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_inference_mode_and_no_grad() -> None:
    x = torch.ones(3, device="tpu", requires_grad=True)
    with torch.inference_mode():
        y = x * 2
        y[0] = 5
        assert y.is_inference() and not y.requires_grad
    with torch.no_grad():
        x.add_(1)
    assert y.tolist() == [5, 2, 2] and x.tolist() == [2, 2, 2]
