"""Normalisation, embedding and dropout against CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import assert_same, check, integers, randn

import lazytpu

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layer_and_rms_norm(dtype: torch.dtype) -> None:
    x = randn(4, 6, 8, dtype=dtype, grad=True)
    weight, bias = (randn(8, seed=s, dtype=dtype, grad=True) for s in (1, 2))

    def fn(x: Any, weight: Any, bias: Any) -> Any:
        return [
            F.layer_norm(x, (8,), weight, bias),
            F.layer_norm(x.transpose(0, 1), (4, 8), eps=1e-2),
            F.layer_norm(x[0, 0], (8,), weight),
            F.layer_norm(x[:0], (8,), weight, bias),
            F.rms_norm(x, (8,), weight, 1e-3),
            F.rms_norm(x[..., ::2], (6, 4)),
            F.rms_norm(x.flatten(), (192,), eps=1e-3),
        ]

    check(fn, x, weight, bias, **({"rtol": 2e-2, "atol": 6e-2} if dtype.itemsize == 2 else {}))


def test_rms_norm_default_eps_shows_in_small_inputs() -> None:
    check(lambda x: F.rms_norm(x, (8,)), randn(3, 8, grad=True).mul(1e-4).detach().requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_group_and_batch_norm(dtype: torch.dtype) -> None:
    x = randn(4, 6, 3, 2, dtype=dtype, grad=True)
    weight, bias = (randn(6, seed=s, dtype=dtype, grad=True) for s in (1, 2))
    mean, var = torch.linspace(-1, 1, 6).to(dtype), torch.linspace(0.5, 2, 6).to(dtype)

    def fn(x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Any:
        a, b = (mean.clone(), var.clone()), (mean.clone(), var.clone())
        return [
            F.group_norm(x, 3, weight, bias),
            F.group_norm(x.flatten(2), 2),
            F.batch_norm(x, mean, var, weight, bias, True, 0.2),
            F.batch_norm(x[:, :, 0, 0], *a, None, None, True),
            F.batch_norm(x.flatten(2), None, None, weight, bias, True),
            F.batch_norm(x, mean.clone(), var.clone(), weight, bias, False, eps=0.1),
            F.instance_norm(x, *b, weight, bias, True),
            F.instance_norm(x),
            *a,
            *b,
        ]

    check(fn, x, weight, bias, mean, var, **({"rtol": 2e-2, "atol": 0.15} if dtype.itemsize == 2 else {}))


def test_norm_double_backward() -> None:
    x = randn(3, 4, 5, dtype=torch.float64, grad=True)
    weight, bias = (randn(4, seed=s, dtype=torch.float64, grad=True) for s in (1, 2))

    def fn(x: Any, weight: Any, bias: Any) -> Any:
        results = []
        for y in (
            F.layer_norm(x.transpose(1, 2), (4,), weight, bias),
            F.group_norm(x, 2, weight, bias),
            F.batch_norm(x, None, None, weight, bias, True),
        ):
            gradients = torch.autograd.grad(y.pow(2).sum(), [x, weight, bias], create_graph=True)
            results += [g.pow(2) for g in gradients]
        return results

    check(fn, x, weight, bias)


def test_batch_norm_modules_and_variants() -> None:
    """Running statistics in their own momentum, without statistics, and the overloads that ``torch.export`` uses."""

    def run(device: str) -> Any:
        results: list[Any] = []
        for make in (
            lambda: torch.nn.BatchNorm1d(5),
            lambda: torch.nn.BatchNorm2d(5, momentum=None),
            lambda: torch.nn.BatchNorm1d(5, affine=False, track_running_stats=False),
        ):
            module = make().to(device)
            shape = (4, 5, 3, 2) if isinstance(module, torch.nn.BatchNorm2d) else (4, 5)
            results += [module(randn(*shape, seed=s).to(device)) for s in range(3)]
            results += [module.eval()(randn(*shape, seed=9).to(device)), list(module.buffers())]
        x, mean, var = randn(4, 3).to(device), torch.zeros(3, device=device), torch.ones(3, device=device)
        aten = torch.ops.aten
        results += [aten._native_batch_norm_legit_functional(x, None, None, mean, var, True, 0.1, 1e-5), mean, var]
        results += [aten._native_batch_norm_legit(x, None, None, mean, var, True, 0.1, 1e-5), mean, var]
        results += [aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)]
        results += [aten._native_batch_norm_legit_no_training(x, None, None, mean, var, 0.1, 1e-5)[0]]
        return results

    assert_same(run("cpu"), run("tpu"))
    assert lazytpu.metrics()["cpu_fallbacks"] == 0


def test_momentum_is_no_part_of_the_program() -> None:
    mean, var = torch.zeros(3).to("tpu"), torch.ones(3).to("tpu")
    compiles = []
    for momentum in (0.1, 0.2, 0.5):
        F.batch_norm(randn(4, 3).to("tpu"), mean, var, None, None, True, momentum)
        lazytpu.sync(wait=True)
        compiles.append(lazytpu.metrics()["compiles"])
    assert compiles[0] == compiles[2]


def test_batch_norm_errors() -> None:
    x = torch.ones(2, 3, device="tpu")
    with pytest.raises(RuntimeError, match="3 elements"):
        torch.native_batch_norm(x, torch.ones(4, device="tpu"), None, None, None, True, 0.1, 1e-5)
    with pytest.raises(RuntimeError, match="running_mean"):
        F.batch_norm(x, None, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_embedding(dtype: torch.dtype) -> None:
    table = randn(5, 3, dtype=dtype, grad=True)

    def fn(table: Any, index: Any, small: Any) -> Any:
        return [
            F.embedding(index, table),
            F.embedding(index, table, padding_idx=2),
            F.embedding(small, table, padding_idx=-1, scale_grad_by_freq=True),
            F.embedding(index[0, 0], table),
            F.embedding(index[:0], table),
        ]

    check(fn, table, integers(0, 5, 3, 4), integers(0, 5, 7, dtype=torch.int32))
    check(lambda table, index: [F.embedding(index, table, max_norm=1.0), table], table.detach(), integers(0, 3, 4))


def test_embedding_index_out_of_range() -> None:
    table = torch.zeros(5, 3, device="tpu")
    for bad in (5, -1):
        with pytest.raises(IndexError, match="index out of range in self"):
            F.embedding(torch.tensor([0, bad], device="tpu"), table).cpu()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str) -> None:
    table, scale = randn(5, 3, grad=True), randn(12, seed=4, grad=True)

    def fn(table: Any, index: Any, offsets: Any, ends: Any, scale: Any) -> Any:
        results = [
            F.embedding_bag(index, table, offsets, mode=mode),
            F.embedding_bag(index, table, offsets, mode=mode, padding_idx=1),
            F.embedding_bag(index.view(3, 4), table, mode=mode),
            F.embedding_bag(index, table, ends, mode=mode, include_last_offset=True),
        ]
        if mode == "sum":
            results.append(F.embedding_bag(index, table, offsets, mode=mode, per_sample_weights=scale))
        return results

    index = integers(0, 5, 12)
    check(fn, table, index, torch.tensor([0, 2, 2, 7]), torch.tensor([0, 2, 2, 7, 12]), scale)


def test_embedding_bag_gradient_by_frequency() -> None:
    """Against bags made of single lookups: CPU's own kernel divides by the counts of other rows."""
    index, table = integers(0, 5, 3, 4).to("tpu"), randn(5, 3).to("tpu").requires_grad_()
    results = [F.embedding(index, table, scale_grad_by_freq=True).sum(1)]
    results.append(F.embedding_bag(index, table, mode="sum", scale_grad_by_freq=True))
    weights = randn(3, 3, seed=2).to("tpu")
    expected, actual = (torch.autograd.grad(r, table, weights)[0].cpu() for r in results)
    assert_same(expected, actual)


def test_dropout() -> None:
    x = torch.full((4000,), 2.0, device="tpu", requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    dropped = y.detach().cpu()
    assert torch.equal(dropped / 2, x.grad.cpu()), "the backward drops what the forward dropped"
    assert sorted(dropped.unique().tolist()) == [0.0, pytest.approx(2 / 0.75)]
    assert abs((dropped == 0).double().mean().item() - 0.25) < 0.03
    assert torch.equal(F.dropout(x, 0.0).cpu(), x.cpu()) and F.dropout(x, 1.0).abs().sum().item() == 0
    assert F.dropout(x, 0.5, training=False) is x
    out, mask = torch.native_dropout(x, 0.5, True)
    assert mask.dtype == torch.bool and torch.equal(out.cpu(), x.detach().cpu() * mask.cpu() * 2)
    assert torch.native_dropout(x, 0.5, False)[1].all()
    half = F.dropout(torch.ones(100, device="tpu", dtype=torch.bfloat16), 0.5)
    assert half.dtype == torch.bfloat16 and set(half.unique().tolist()) == {0.0, 2.0}
    assert F.dropout(torch.tensor([float("inf")], device="tpu"), 1.0).isnan().all()


def test_dropout_probability_is_no_part_of_the_program() -> None:
    x = torch.ones(50).to("tpu")
    compiles = []
    for p in (0.1, 0.2, 0.9):
        F.dropout(x, p).cpu()
        compiles.append(lazytpu.metrics()["compiles"])
    assert compiles[0] == compiles[2]
