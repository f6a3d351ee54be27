"""Reading by index, masks, data-dependent shapes, and distinct elements against the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from support import assert_same, check, integers, randn

import lazytpu

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool]


def flat(items: list[Any]) -> list[torch.Tensor]:
    return [t for item in items for t in ([item] if isinstance(item, torch.Tensor) else item)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_selection_in_every_dtype(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> list[torch.Tensor]:
        return [x[i], x[:, i], x[j % 3, i], x.index_select(1, j), x.gather(1, j.expand(4, 3)), x.take(j), x.t()[i], x[x != 0]]

    check(fn, integers(0, 3, 4, 5).to(dtype), torch.tensor([1, -1, 0]), torch.tensor([3, 0, 3]))


def test_every_mix_of_indices() -> None:
    def fn(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        results = [
            x[a],
            x[:, a],
            x[:, :, b],
            x[a, b],
            x[a, :, b],
            x[:, a, b],
            x[a, b, a],
            x[c],
            x[a[:, None], b],
            x[:, c, :, b[:2]],
        ]
        results += [
            x[None, a],
            x[a, None, b],
            x[..., a],
            x[..., a, :],
            x[a, ..., b],
            x[0, a],
            x[a, 0],
            x[:, 0, a],
            x[0, :, a],
            x[1:, a, ::2],
        ]
        results += [
            x[[0, 2]],
            x[:, [1, 1, -1]],
            x[[0, 1], :, [2, 0]],
            x[-1, -2, -3],
            x[a.int()],
            x[a[:0]],
            x[c[:, :0]],
            x[2:2][:, a],
        ]
        results += [
            x.transpose(0, 2)[a],
            x[::2][a % 2],
            x[1][b],
            x.expand(3, *x.shape)[a, b],
            x.reshape(-1)[c * 3],
            x[:, c[0], None],
        ]
        return results

    a, b, c = torch.tensor([2, 0, -1]), torch.tensor([0, -2, 1]), torch.tensor([[0, 1], [2, -1]])
    check(fn, randn(3, 3, 4, 3, grad=True), a, b, c)


def test_indices_on_the_cpu() -> None:
    x = randn(4, 5)
    y = x.to("tpu")
    i = torch.tensor([3, 1])
    mask = torch.tensor([True, False, True, False])
    assert_same([x[i], x[:, i], x[mask], x[mask, 2], x[i, i]], [y[i], y[:, i], y[mask], y[mask, 2], y[i, i]])
    z, w = x.clone(), y.clone()
    for t in (z, w):
        t[i] = 3
        t[mask, 0] = -1
        t[:, i] += 1
    assert_same(z, w)


def test_masks_that_read() -> None:
    def fn(x: torch.Tensor, m: torch.Tensor, r: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        results = [
            x[m],
            x[r],
            x[:, r[:3]],
            x[r, 1],
            x[r, :, i],
            x[r, i],
            x[i, r[:3] | ~r[:3]],
            x[m[:, :, 0]],
            x[m & ~m],
            x[m | ~m],
            x[..., m[0, 0]],
            x[r][:, r[:3]],
        ]
        results += [x.masked_select(m), x.masked_select(r[:, None, None]), x[0].masked_select(m[..., :1]), x[r.to(torch.uint8)]]
        results += [x[r].mean((1, 2)), x[:, None][m[:, None]], x.transpose(0, 2)[m.transpose(0, 2)]]
        return results

    x = randn(4, 3, 5, grad=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "indexing with dtype torch.uint8")
        check(fn, x, x.detach() > 0.3, torch.tensor([True, False, True, True]), torch.tensor([1, 0, 2]))


def test_gather_and_its_relatives() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        results = [
            x.gather(0, i[:2]),
            x.gather(1, i),
            x.gather(-1, i[:, :1]),
            x.gather(1, i[:0]),
            x.t().gather(0, i.t()),
            x.gather(1, i[1:, :2].int()),
        ]
        results += [
            torch.take_along_dim(x, i, 1),
            torch.take_along_dim(x, x.argmax(1, keepdim=True), 1),
            torch.take_along_dim(x, i.reshape(-1)),
        ]
        results += [
            x.take(i),
            x.take(i - 4),
            x.take(i[0, 0]),
            x[:, 1:].take(i),
            x.index_select(0, i[0]),
            x.index_select(-1, i[0, :1]),
            x.index_select(1, i[0, 0]),
        ]
        results += [
            s.index_select(0, i[0, :1] * 0),
            s.gather(0, i[0, 0] * 0),
            s.take(i * 0),
            x.index_select(0, i[0, :0]),
            x.t().index_select(0, i[0].int()),
        ]
        return results

    check(fn, randn(3, 4, grad=True), integers(0, 3, 3, 4), torch.tensor(2.0, requires_grad=True))


def test_second_gradients() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, m: torch.Tensor) -> list[torch.Tensor]:
        parts = [x[i], x[:, i], x[m], x.gather(1, i[None].expand(3, -1)), x.index_select(0, i), x.take(i), x.masked_select(m)]
        first = torch.autograd.grad(sum((p**3).sum() for p in parts), x, create_graph=True)[0]
        return [first, torch.autograd.grad((first**2).sum(), x)[0]]

    x = randn(3, 4, grad=True)
    check(fn, x, torch.tensor([2, 0, 2]), x.detach() > 0, grad=False)


def test_results_written_to_out() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        empty = [torch.empty(0, device=x.device) for _ in range(5)]
        torch.gather(x, 1, i, out=empty[0])
        torch.index_select(x, 0, i[0], out=empty[1])
        torch.take(x, i, out=empty[2])
        torch.masked_select(x, x > 0, out=empty[3])
        torch.cat([x, x], out=empty[4])
        found = torch.empty(0, dtype=torch.int64, device=x.device)
        torch.nonzero(x > 0, out=found)
        base = torch.zeros(3, 8, device=x.device)
        torch.gather(x, 1, i, out=base[:, ::2])
        return [*empty, found, base]

    check(fn, randn(3, 4), integers(0, 3, 3, 4))


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_out_of_range_raises_at_the_next_wait(index: int) -> None:
    x = torch.arange(6.0, device="tpu").reshape(3, 2)
    i = torch.tensor([0, index], device="tpu")
    for read in (
        lambda: x[i],
        lambda: x.index_select(0, i),
        lambda: x.gather(0, i[:, None]),
        lambda: x.take(i * 2 + index // 4),
    ):
        y = read()
        with pytest.raises((IndexError, RuntimeError), match="out of range"):
            y.cpu()
        assert y.reshape(-1)[-1].isnan().item()
    assert x[i[:1]].tolist() == [[0, 1]]


def test_errors_are_those_of_the_cpu() -> None:
    def message(fn: Any, device: str) -> tuple[type, str]:
        x = torch.zeros(3, 4, device=device)
        with pytest.raises(Exception) as caught:
            fn(x, torch.tensor([0, 1], device=device))
        return type(caught.value), str(caught.value)

    programs = [
        lambda x, i: x[i, i, i],
        lambda x, i: x[i > 0],
        lambda x, i: x[i.float()],
        lambda x, i: torch.gather(x, 1, i),
        lambda x, i: x.gather(1, i.float()[None]),
        lambda x, i: x.index_select(2, i),
        lambda x, i: x.index_put_((i,), torch.zeros(5, device=x.device)),
        lambda x, i: x.index_put_((i,), i),
        lambda x, i: x.masked_select(i > 0),
        lambda x, i: x.repeat_interleave(-i, 0),
        lambda x, i: torch.unique(x[:, :0], dim=0),
    ]
    for program in programs:
        assert message(program, "tpu")[0] is message(program, "cpu")[0]


def test_positions() -> None:
    def fn(x: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        results = [
            x.nonzero(),
            *x.nonzero(as_tuple=True),
            b.nonzero(),
            torch.argwhere(x),
            *torch.where(b),
            x[0, 0].nonzero(),
            x[:0].nonzero(),
        ]
        results += [
            torch.nonzero_static(x, size=5),
            torch.nonzero_static(x, size=30, fill_value=-7),
            torch.nonzero_static(b.t(), size=3),
            x.t().nonzero(),
        ]
        return [*results, x.to(torch.complex64).nonzero(), x.float().nonzero(), torch.nonzero_static(x[0, 0], size=1)]

    check(fn, integers(-1, 2, 4, 5), integers(0, 2, 3, 3).bool())


def test_repeating_elements() -> None:
    def fn(c: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        results = [
            torch.repeat_interleave(c),
            torch.repeat_interleave(c.int()),
            x.repeat_interleave(c, 0),
            x.repeat_interleave(c[:2], 1),
        ]
        results += [
            x.repeat_interleave(2),
            x.repeat_interleave(2, -1),
            x.repeat_interleave(0, 0),
            x.repeat_interleave(c[:1], 0),
            torch.repeat_interleave(c[:0]),
        ]
        return [*results, torch.repeat_interleave(c, output_size=5), x.repeat_interleave(c, 0, output_size=5)]

    check(fn, torch.tensor([2, 0, 3]), randn(3, 2, grad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bool, torch.bfloat16])
def test_distinct_elements(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor) -> list[Any]:
        results: list[Any] = [
            x.unique(),
            torch.unique(x, return_inverse=True, return_counts=True),
            torch.unique(x[:, 0], return_counts=True),
        ]
        results += [
            x.unique(dim=0, return_inverse=True, return_counts=True),
            x.unique(dim=-1),
            x[:0].unique(return_inverse=True),
            x[0, 0].unique(),
        ]
        results += [
            x.unique_consecutive(return_inverse=True, return_counts=True),
            x.unique_consecutive(dim=0, return_counts=True),
        ]
        return flat(
            [
                *results,
                x.flatten().sort()[0].unique_consecutive(),
                torch.unique(x, sorted=False),
                x[:0].unique(dim=0, return_counts=True),
            ]
        )

    x = integers(0, 3, 7, 2)
    check(fn, torch.cat([x, x[:1], x[3:5].sort(0)[0]]).to(dtype))


def test_distinct_elements_with_nan() -> None:
    check(
        lambda x: list(torch.unique(x, return_inverse=True, return_counts=True)),
        torch.tensor([float("nan"), 1, float("nan"), 1.0, -0.0, 0.0]),
    )


def test_membership() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
        results = [
            torch.isin(x, t),
            torch.isin(x, t, invert=True),
            torch.isin(x, 2),
            torch.isin(3, t),
            torch.isin(y, t.float()),
            torch.isin(x, t[:0]),
        ]
        return [
            *results,
            torch.isin(x, torch.arange(2, 200, 3, device=x.device)),
            torch.isin(x[:0], t),
            torch.isin(y, y[0].repeat(20)),
        ]

    y = randn(3, 5)
    y[0, 0] = float("nan")
    check(fn, integers(0, 9, 3, 5), y, torch.tensor([2, 7, 7]))


def test_one_hot() -> None:
    def fn(i: torch.Tensor) -> list[torch.Tensor]:
        one_hot = torch.nn.functional.one_hot
        return [one_hot(i), one_hot(i, 7), one_hot(i[0, 0], 5), one_hot(i[:0], 3)]

    check(fn, integers(0, 4, 2, 3))
    bad = torch.nn.functional.one_hot(torch.tensor([1, 5], device="tpu"), 3)
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        bad.cpu()


def test_a_mask_is_read_once_and_only_to_select() -> None:
    x = torch.arange(12.0, device="tpu").reshape(3, 4)
    mask = x > 5
    lazytpu.sync(wait=True)
    before = lazytpu.metrics()["host_reads"]
    x[mask] = 0.0
    x[mask] *= 2
    assert lazytpu.metrics()["host_reads"] == before + 1
    x[x < 2] = torch.tensor(9.0, device="tpu")
    x[:, (x > 2).any(0)] = torch.arange(3.0, device="tpu")[:, None]
    x.masked_scatter_(x > 1, torch.arange(12.0, device="tpu"))
    assert lazytpu.metrics()["host_reads"] == before + 1
