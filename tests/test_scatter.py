"""Writing by index and mask, and reductions by index, against the CPU."""

from __future__ import annotations

import pytest
import torch
from support import assert_same, check, integers, randn

import lazytpu

NUMBERS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8]


@pytest.mark.parametrize("dtype", [*NUMBERS, torch.bool])
def test_writes_in_every_dtype(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        j = i[None].expand(4, 3)
        results = [
            x.scatter(1, j, y),
            x.scatter(1, j, 1),
            x.index_copy(1, i, y),
            x.index_fill(1, i, 1),
            x.index_put((i,), y[0, 0]),
        ]
        results += [x.put(i * 3, y[0]), x.masked_scatter(x == 0, y.repeat(2, 3)), x.index_fill(0, i, y[0, 0])]
        z = x.clone()
        z[i, i] = y[0]
        z[:, i] = y
        z[z == 1] = 0
        return [*results, z]

    check(fn, integers(0, 4, 4, 5).to(dtype), integers(0, 4, 4, 3, seed=1).to(dtype), torch.tensor([3, 0, 2]))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_reductions_in_every_dtype(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        j = i[None].expand(4, 3)
        results = [
            x.scatter_add(1, j, y),
            x.index_add(1, i, y),
            x.index_add(1, i, y, alpha=2),
            x.put(j * 2, y, accumulate=True),
        ]
        results += [x.scatter(1, j, y, reduce="add"), x.scatter(1, j, y, reduce="multiply"), x.scatter(1, j, 2, reduce="add")]
        results += [x.index_put((i,), y[0, 0], accumulate=True), x.index_put((i, i), y[0], accumulate=True)]
        for include_self in (True, False):
            for reduce in ("sum", "prod", "mean", "amax", "amin"):
                results.append(x.scatter_reduce(1, j, y, reduce, include_self=include_self))
                if reduce != "sum":
                    results.append(x.index_reduce(1, i, y, reduce, include_self=include_self))
        return results

    x, y = integers(1, 5, 4, 5).to(dtype), integers(1, 4, 4, 3, seed=1).to(dtype)
    check(fn, x, y, torch.tensor([3, 0, 3]))


def test_gradients_of_writes() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor, u: torch.Tensor, m: torch.Tensor) -> list[torch.Tensor]:
        j = i[None].expand(4, 3)
        results = [
            x.scatter(1, u[None].expand(4, 3), y),
            x.scatter_add(1, j, y),
            x.index_add(1, i, y, alpha=0.5),
            x.index_copy(1, u, y),
        ]
        results += [
            x.index_fill(1, i, 2.0),
            x.index_fill(1, i, y[0, 0]),
            x.index_put((i,), y[:3, :1], accumulate=True),
            x.index_put((u, u), y[0]),
        ]
        results += [
            x.masked_scatter(m, y.repeat(2, 2)),
            x.put(u, y[0]),
            x.put(j, y, accumulate=True),
            x.index_put((m,), y[1, 1]),
        ]
        for reduce in ("sum", "mean", "prod", "amax", "amin"):
            results.append(x.scatter_reduce(1, j, y, reduce))
            results.append(x.scatter_reduce(1, j, y, reduce, include_self=False))
            if reduce != "sum":
                results.append(x.index_reduce(1, i, y, reduce))
        z = x * 1
        z[:, u] = y
        z[m] = z[m] * 3
        z[i, 1] += y[2]
        z[..., m[0]] = y[0, 0]
        return [*results, z]

    x = randn(4, 5, grad=True)
    check(fn, x, randn(4, 3, seed=1, grad=True), torch.tensor([3, 0, 3]), torch.tensor([3, 0, 2]), x.detach() > 0)


def test_second_gradients() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        parts = [
            x.scatter(1, i.expand(3, 2), y),
            x.scatter_add(1, i.expand(3, 2), y),
            x.index_add(1, i, y),
            x.index_put((i,), y[:2, :1], True),
        ]
        first = torch.autograd.grad(sum((p**3).sum() for p in parts), [x, y], create_graph=True)
        return [*first, *torch.autograd.grad(sum((g**2).sum() for g in first), [x, y])]

    check(fn, randn(3, 4, grad=True), randn(3, 2, seed=1, grad=True), torch.tensor([2, 0]), grad=False)


def test_writes_through_views_and_in_place() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        a = x.clone()
        a.t()[i] = y.t()[:3]
        a[:, 1:].index_add_(1, i, y)
        a[::2].scatter_(1, i[None], 7.0)
        a.t().index_copy_(0, i, y.t())
        a[1].masked_scatter_(a[1] > 0, y[0].repeat(2))
        a[:, ::2].index_fill_(1, i % 2, -1.0)
        a.view(-1).put_(i * 5, y[0])
        a[2:].scatter_add_(1, i[None].expand(2, 3), y[:2]).scatter_reduce_(0, i[None, :2] % 2, y[:1, :2], "amax")
        a[a > 1] -= 0.5
        a.t()[a.t() < -1] = 0
        return [a, a.t().clone().index_put_((i, i), y[0]), x.clone().t().index_fill_(0, i, 1).clone()]

    check(fn, randn(4, 5), randn(4, 3, seed=1), torch.tensor([3, 0, 2]))


def test_masks_that_write() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor, r: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        results = []
        for write in (
            lambda t: t.__setitem__(m, 3),
            lambda t: t.__setitem__(m, y[0, 0, 0]),
            lambda t: t.__setitem__(m, y[0, 0, :1]),
            lambda t: t.__setitem__(r, -1.0),
            lambda t: t.__setitem__(r, y[0]),
            lambda t: t.__setitem__(r, y[0, 0]),
            lambda t: t.__setitem__(r, y[1:2]),
            lambda t: t.__setitem__((slice(None), r[:3]), y[:, :1]),
            lambda t: t.__setitem__((slice(None), r[:3]), y[:, :2]),
            lambda t: t.__setitem__((slice(None), slice(None), y[0, 0] > 0), 5),
            lambda t: t.__setitem__((r, 0), 9.0),
            lambda t: t.__setitem__(m[:, :, 0], y[0, 0]),
            lambda t: t.__setitem__(m, t[m] * 2),
            lambda t: t.__setitem__(m & ~m, 1),
            lambda t: t.__setitem__(m | ~m, 1),
            lambda t: t.__setitem__((r, slice(None), r.new_tensor([True, False, True, False, True])), 4.0),
            lambda t: t.index_put_((r,), y[0], accumulate=True),
            lambda t: t.index_put_((m,), y[0, 0, 0], accumulate=True),
            lambda t: t.transpose(0, 1).__setitem__(m.transpose(0, 1), 2),
        ):
            t = x.clone()
            write(t)
            results.append(t)
        return results

    check(fn, randn(4, 3, 5), randn(4, 3, 5, seed=1) > 0.2, torch.tensor([True, False, True, True]), randn(4, 3, 5, seed=2))


def test_masked_scatter() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.masked_scatter(m, y),
            x.masked_scatter(m[:, :1], y),
            x[0].masked_scatter(m, y),
            x.masked_scatter(m & ~m, y[:0]),
            x[:0].masked_scatter(m[:0], y),
        ]

    check(fn, randn(3, 4, grad=True), integers(0, 2, 3, 4).bool(), randn(15, seed=1, grad=True))
    short = torch.zeros(4, device="tpu").masked_scatter(
        torch.ones(4, dtype=torch.bool, device="tpu"), torch.ones(3, device="tpu")
    )
    with pytest.raises(RuntimeError, match="number of ones in mask"):
        short.cpu()


def test_scalars_empties_and_smaller_indices() -> None:
    def fn(x: torch.Tensor, s: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = i[0, 0] * 0
        results = [
            s.scatter(0, z, 5.0),
            s.index_add(0, z, s),
            s.index_fill(0, z, 3.0),
            s.index_copy(0, z, s + 1),
            s.put(z, s * 2),
            s.scatter_add(0, z, s),
        ]
        results += [
            x.scatter(0, i[:0], y),
            x.index_add(0, i[0, :0], y[:0]),
            x.index_fill(0, i[0, :0], 1.0),
            x.put(i[:0], y[:0]),
            x.index_copy(1, i[0, :0], y[:, :0]),
        ]
        results += [
            x.scatter(0, i[:1, :2], y),
            x.scatter(1, i, y),
            x.scatter_add(0, i[:, :2], y),
            x.scatter(-1, i[:1].int(), y),
            x.index_put((i[:0],), y[0, 0]),
        ]
        results += [
            x[:, :0].index_add(0, i[0, :1], x[:1, :0]),
            x.index_add(0, i[0, 0], x[:1]),
            x.scatter_reduce(0, i[:0], y, "mean", include_self=False),
        ]
        return results

    check(fn, randn(3, 4), torch.tensor(2.0), integers(0, 3, 3, 3), randn(3, 4, seed=1))


def test_extremes_of_nan_and_infinity() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return [x.scatter_reduce(0, i, y, r, include_self=s) for r in ("amax", "amin", "sum", "mean") for s in (True, False)]

    values = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1.0, float("nan")])
    check(fn, torch.tensor([0.0, float("nan"), 2.0, -float("inf")]), values, torch.tensor([0, 1, 1, 2, 3, 3]))


@pytest.mark.parametrize("index", [4, -5])
def test_writes_out_of_range_are_dropped_and_raise_at_the_next_wait(index: int) -> None:
    i = torch.tensor([0, index], device="tpu")
    y = torch.ones(2, device="tpu")
    for write in (
        lambda t: t.index_put_((i,), y),
        lambda t: t.index_add_(0, i, y),
        lambda t: t.scatter_(0, i, y),
        lambda t: t.scatter_add_(0, i, y),
        lambda t: t.index_copy_(0, i, y),
        lambda t: t.index_fill_(0, i, 1.0),
        lambda t: t.put_(i, y),
    ):
        t = torch.zeros(4, device="tpu")
        write(t)
        with pytest.raises((IndexError, RuntimeError), match="out of range"):
            t.cpu()
        assert t.tolist() == [1, 0, 0, 0]


def test_negative_indices_count_where_the_cpu_lets_them() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return [x.index_put((i,), x[0]), x.index_fill(0, i, 2.0), x.put(i, x[0, :2]), x.take(i)]

    check(fn, randn(3, 4), torch.tensor([-1, -3]))
    for call in (
        lambda x, i: x.index_add(0, i, x[:1]),
        lambda x, i: x.scatter(0, i[:, None], 1.0),
        lambda x, i: x.index_select(0, i),
    ):
        result = call(torch.ones(3, 4, device="tpu"), torch.tensor([-1], device="tpu"))
        with pytest.raises((IndexError, RuntimeError)):
            result.cpu()


def test_complex_values() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        results = [
            x[i],
            x.index_add(0, i, x[:2], alpha=1j),
            x.index_fill(0, i, 1 + 2j),
            x.scatter(0, i[:, None], 2j),
            x.index_put((i,), x[0], accumulate=True),
        ]
        return [*results, x.scatter_add(0, i[:, None], x), x[x.real > 0]]

    check(fn, torch.complex(randn(3, 2), randn(3, 2, seed=1)), torch.tensor([2, 0]))


def test_results_written_to_out() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        outs = [torch.empty(0, device=x.device) for _ in range(4)]
        torch.scatter(x, 0, i, 2.0, out=outs[0])
        torch.index_add(x, 0, i[0], x[:3], out=outs[1])
        torch.index_copy(x, 0, i[0], x[:3], out=outs[2])
        torch.scatter_add(x, 0, i, x, out=outs[3])
        return outs

    check(fn, randn(4, 4), torch.tensor([[0, 1, 3], [2, 0, 1]]))


def test_repeated_steps_with_other_numbers_compile_once() -> None:
    x = torch.zeros(5, device="tpu")
    i = torch.tensor([1, 3, 1], device="tpu")
    results = []
    for step in range(4):
        x.index_add_(0, i, torch.ones(3, device="tpu"), alpha=step + 0.5).index_fill_(0, i[:1], float(step)).scatter_(
            0, i[1:2], step * 2.0
        )
        lazytpu.sync()
        if step == 1:
            before = lazytpu.metrics()["compiles"]
        results.append(x.clone())
    assert lazytpu.metrics()["compiles"] <= before + 1
    assert_same(torch.tensor([0, 3.0, 0, 6.0, 0]), x)
