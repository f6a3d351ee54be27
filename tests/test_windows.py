"""Windows onto memory: plans of reads and writes, views of views, and reinterpreted bytes, against the CPU."""

from __future__ import annotations

import random
from typing import Any

import jax
import numpy as np
import pytest
import torch
from support import check, randn

from lazytpu.lowering import windows
from lazytpu.lowering.rules.windows import reinterpret


def random_view(x: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """A view of a view of … ``x``."""
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["slice", "slice", "transpose", "select", "unsqueeze", "expand", "diagonal", "flatten", "split"])
        if kind == "slice" and x.dim():
            dim = rng.randrange(x.dim())
            start, stop = sorted((rng.randint(0, x.shape[dim]), rng.randint(0, x.shape[dim])))
            x = x[(slice(None),) * dim + (slice(start, max(stop, start + 1), rng.choice([1, 1, 2, 3])),)]
        elif kind == "transpose" and x.dim():
            order = list(range(x.dim()))
            rng.shuffle(order)
            x = x.permute(order)
        elif kind == "select" and x.dim() > 1 and 0 not in x.shape:
            dim = rng.randrange(x.dim())
            x = x.select(dim, rng.randrange(x.shape[dim]))
        elif kind == "unsqueeze":
            x = x.unsqueeze(rng.randint(0, x.dim()))
        elif kind == "diagonal" and x.dim() > 1:
            x = x.diagonal(rng.randint(-1, 1), 0, x.dim() - 1)
        elif kind == "flatten" and x.is_contiguous():
            x = x.view(-1)
        elif kind == "split" and x.dim() and x.shape[0] > 2 and x.shape[0] % 2 == 0:
            x = x.unflatten(0, (2, -1))
        elif kind == "expand":
            x = x.expand([rng.choice([n, 3]) if n == 1 else n for n in x.shape])
    return x


def test_reads_and_writes_of_random_windows() -> None:
    rng = random.Random(0)
    given, geometries, expected, names = [], [], [], []
    for _ in range(120):
        shape = [rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(1, 4))]
        base = torch.arange(float(np.prod(shape))).reshape(shape)
        view = random_view(base, rng)
        geometry = tuple(view.shape), view.stride(), int(view.storage_offset())
        writable = all(n <= 1 or s for n, s in zip(view.shape, view.stride()))
        update = -1 - torch.arange(float(view.numel())).reshape(view.shape)
        given.append((base.numpy().copy(), update.numpy() if writable else None))
        geometries.append(geometry)
        expected.append(view.numpy().copy())
        if writable:
            view.copy_(update)
            expected.append(base.numpy())
        names += [f"{shape} {geometry}"] * (1 + writable)

    def program(pairs: Any) -> list[jax.Array]:
        results = []
        for (x, update), geometry in zip(pairs, geometries):
            results.append(windows.read(x, *geometry))
            if update is not None:
                results.append(windows.write(x, update, *geometry[1:]))
        return results

    with jax.enable_x64(True):
        for got, want, name in zip(jax.jit(program)(given), expected, names, strict=True):
            np.testing.assert_array_equal(np.asarray(got), want, err_msg=name)
    planned = [0 in g[0] or windows.plan(x.size, x.shape, *g) is not None for (x, _), g in zip(given, geometries)]
    assert sum(planned) > 0.9 * len(planned)


@pytest.mark.parametrize(
    "base, size, stride, offset",
    [
        ((4, 5), (4,), (6,), 0),  # a diagonal
        ((3, 4, 4), (3, 4), (16, 5), 0),  # diagonals of a batch
        ((4, 10), (10,), (1,), 5),  # a run across rows
        ((4, 10), (2, 3, 4), (12, 4, 1), 1),  # strides that nest from an offset
    ],
)
def test_regular_windows_need_no_gather(base: Any, size: Any, stride: Any, offset: int) -> None:
    x = torch.arange(float(np.prod(base))).reshape(base)
    view = x.as_strided(size, stride, offset)
    with jax.enable_x64(True):
        read = jax.jit(lambda a: windows.read(a, size, stride, offset)).lower(x.numpy())
        write = jax.jit(lambda a, b: windows.write(a, b, stride, offset)).lower(x.numpy(), view.numpy())
        np.testing.assert_array_equal(
            np.asarray(windows.read(jax.numpy.asarray(x.numpy()), size, stride, offset)), view.numpy()
        )
    assert "gather" not in read.as_text() and "scatter" not in write.as_text()


@pytest.mark.parametrize("seed", range(2))
def test_views_of_views_on_the_device(seed: int) -> None:
    def fn(*bases: torch.Tensor) -> list[torch.Tensor]:
        rng = random.Random(seed)
        results = []
        for base in bases:
            x = base * 1
            for _ in range(3):
                view = random_view(x, rng)
                results.append(view * 2)
                if all(n <= 1 or s for n, s in zip(view.shape, view.stride())):
                    view.add_(0.5)
            results.append(x)
        return results

    check(
        fn,
        randn(4, 6, grad=True),
        randn(2, 3, 4, seed=1, grad=True),
        randn(12, seed=2, grad=True),
        randn(6, 1, 2, seed=3, grad=True),
    )


def test_bytes_seen_as_other_dtypes() -> None:
    def fn(x: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        results = [
            x.view(torch.int32),
            x.view(torch.int16),
            x.view(torch.float64),
            x[:, 2:].view(torch.uint8),
            x.view(torch.complex64),
        ]
        results += [
            b[:4].view(torch.int32),
            b[1:5].clone().view(torch.int16),
            c.view(torch.float32),
            torch.view_as_real(c)[..., 1],
        ]
        y = x.clone()
        y.view(torch.int32)[0, 0] = 0x3F800000
        y.view(torch.int16)[1, ::2] = 7
        y.view(torch.float64)[1, 1] = -2.5
        z = b.clone()
        z[:4].view(torch.int32).fill_(0x01020304)
        z[4:6].view(torch.int16).add_(3)
        w = c.clone()
        torch.view_as_real(w)[0, :, 0] = 5
        return [r.clone() for r in results] + [y, z, w, z[:4].view(torch.int32), z[3:5]]

    bytes_ = torch.tensor([1, 2, 3, 4, 5, 6, 7], dtype=torch.uint8)
    check(fn, randn(2, 4), bytes_, torch.complex(randn(2, 3), randn(2, 3, seed=1)))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.float32, np.float64, np.complex64, np.complex128])
def test_reinterpretation_pads_the_last_element(dtype: Any) -> None:
    raw = np.arange(1, 8, dtype=np.uint8)
    with jax.enable_x64(True):
        got = np.asarray(reinterpret(jax.numpy.asarray(raw), np.dtype(dtype)))
    size = np.dtype(dtype).itemsize
    padded = np.concatenate([raw, np.zeros(-len(raw) % size, np.uint8)])
    np.testing.assert_array_equal(got.view(np.uint8), padded)


def test_gradients_through_views() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        results = [
            x[1:3, ::2],
            x[:, 1],
            x[-1, -2],
            x.t()[2:],
            x.diagonal(1),
            x.diagonal(-1, 1, 0),
            x[::3].flatten(),
            x.narrow(1, 1, 3),
        ]
        results += [
            x.as_strided((2, 3), (7, 2), 1),
            x.as_strided((3, 3), (1, 2)),
            x.unfold(1, 3, 1),
            x.unfold(0, 2, 3),
            x[None, :, None],
        ]
        results += [
            x.expand(2, *x.shape),
            x.view(-1)[3:20].clone(),
            x.unflatten(1, (2, 3)).permute(2, 0, 1),
            x.chunk(3, 1)[1],
            x.T[0],
        ]
        results += [
            y.movedim(0, -1)[1],
            y.swapaxes(0, 2),
            y.select(1, 2)[:, 1:],
            y.unbind(2)[1],
            y.split([1, 2], 1)[1],
            y[..., -1],
            y[:0],
        ]
        z = x * 1
        z[1:, ::2] *= 2
        z.t()[0].sub_(y[0, 0, 0])
        z.diagonal().mul_(z.diagonal(1)[:1] + 1)
        w = y.clone()
        w[:, 1] = x[0, :4]
        w[0].copy_(w[1] * 2)
        return [*results, z, w, x.unfold(1, 4, 2).prod(-1)]

    check(fn, randn(4, 6, grad=True), randn(2, 3, 4, seed=1, grad=True))


def test_second_gradients_through_views() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        parts = [x[1:, ::2], x.select(1, 1), x.diagonal(), x.as_strided((2, 2), (5, 2), 1), x.unfold(0, 2, 1)]
        first = torch.autograd.grad(sum((p**3).sum() for p in parts), x, create_graph=True)[0]
        return [first, torch.autograd.grad((first**2).sum(), x)[0]]

    check(fn, randn(4, 5, grad=True), grad=False)
