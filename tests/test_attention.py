"""Attention against CPU: masks, shapes, dropout, derivatives, and the modules built on it."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import assert_same, check, randn
from torch.nn.attention import SDPBackend, sdpa_kernel

import lazytpu

attend = F.scaled_dot_product_attention


def inputs(dtype: torch.dtype = torch.float32) -> list[Any]:
    """Query, key and value, a bool mask with a row that sees nothing, and a float mask."""
    tensors = [randn(2, 4, 5, 8, seed=s, dtype=dtype, grad=True) for s in range(3)]
    mask = randn(5, 5, seed=9) > 0
    mask[1] = False
    return [*tensors, mask, randn(2, 1, 5, 5, seed=8, dtype=dtype, grad=True)]


def outputs(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> list[Any]:
    hidden = torch.zeros_like(bias[:, :, :1]).masked_fill(mask, 1.0).log()
    return [
        attend(q, k, v),
        attend(q, k, v, is_causal=True),
        attend(q, k, v, mask),
        attend(q, k, v, bias, scale=0.3),
        attend(q, k, v, hidden.detach()),
        attend(q, k, v, bias[0, 0, 0]),
        attend(q, k[:, :2], v[:, :2], enable_gqa=True),
        attend(q, k[:, :1], v[:, :1], mask, enable_gqa=True),
        attend(q[:, :, :3], k, v, is_causal=True),
        attend(q, k[:, :, :2], v[:, :, :2], is_causal=True),
        attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)[..., :3]),
        attend(q[0], k[0], v[0], mask),
        attend(q[0, 0], k[0, 0], v[0, 0]),
        attend(q, k[:1], v[:1]),
        attend(q[:0], k[:0], v[:0]),
        attend(q, q, q),
        attend(q, k, v, mask, is_causal=True),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_attention(dtype: torch.dtype) -> None:
    check(outputs, *inputs(dtype), **({"rtol": 3e-2, "atol": 6e-2} if dtype.itemsize == 2 else {}))


def test_attention_records_one_op_each_way() -> None:
    q, k, v = (randn(2, 4, 5, 8, seed=s).to("tpu").requires_grad_() for s in range(3))
    lazytpu.sync()
    before = lazytpu.metrics()["ops_recorded"]
    attend(q, k, v, is_causal=True).backward(torch.ones(2, 4, 5, 8, device="tpu"))
    assert lazytpu.metrics()["ops_recorded"] - before <= 4


def test_attention_double_backward() -> None:
    def fn(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        results = []
        with sdpa_kernel(SDPBackend.MATH) if q.device.type == "cpu" else nullcontext():
            for out in (
                attend(q, k, v, is_causal=True),
                attend(q, k, v, mask),
                attend(q, k[:, :2], v[:, :2], bias, enable_gqa=True),
            ):
                results += [g.pow(2) for g in torch.autograd.grad(out.pow(2).sum(), [q, k, v], create_graph=True)]
        return results

    check(fn, *inputs(torch.float64))


def test_attention_dropout() -> None:
    """The result is linear in the values: its gradient shows that the backward drops the same weights."""
    torch.manual_seed(3)
    q = torch.randn(2, 4, 6, 8, device="tpu", requires_grad=True)
    v = torch.rand(2, 2, 6, 8, device="tpu", requires_grad=True)
    torch.manual_seed(7)
    out = attend(q, q[:, :2], v, dropout_p=0.4, enable_gqa=True)
    assert abs(out.mean().item() / v.mean().item() - 1) < 0.2
    (by_value,) = torch.autograd.grad(out.sum(), v, retain_graph=True)
    assert math.isclose((by_value * v).sum().item(), out.sum().item(), rel_tol=1e-5)
    (by_query,) = torch.autograd.grad(out.pow(2).sum(), q, retain_graph=True)
    (again,) = torch.autograd.grad(out.pow(2).sum(), q, create_graph=True)
    assert_same(by_query.cpu(), again.cpu(), atol=1e-4)
    again.pow(2).sum().backward()
    assert q.grad.isfinite().all()
    torch.manual_seed(7)
    assert torch.equal(out.cpu(), attend(q, q[:, :2], v, dropout_p=0.4, enable_gqa=True).cpu())
    assert not torch.equal(out.cpu(), attend(q, q[:, :2], v, dropout_p=0.4, enable_gqa=True).cpu())
    assert attend(q, q[:, :2], v, dropout_p=1.0, enable_gqa=True).abs().sum().item() == 0


def test_attention_backends_and_errors() -> None:
    q, k, v = (randn(2, 4, 5, 8, seed=s).to("tpu") for s in range(3))
    expected = attend(q, k, v).cpu()
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        with sdpa_kernel(backend):
            assert_same(expected, attend(q, k, v).cpu())
    with sdpa_kernel(SDPBackend.MATH), pytest.raises(RuntimeError, match="is_causal"):
        attend(q, k, v, torch.ones(5, 5, device="tpu", dtype=torch.bool), is_causal=True)
    with torch.inference_mode():
        assert_same(expected, attend(q, k, v).cpu())
    for bad in (
        lambda d: attend(q.to(d), k.to(d).double(), v.to(d)),
        lambda d: attend(q.to(d), k.to(d), v.to(d), torch.ones(5, 5, device=d, dtype=torch.int64)),
        lambda d: attend(q.to(d), k[:, :2].to(d), v[:, :2].to(d)),
        lambda d: attend(q.to(d), k[..., :4].to(d), v.to(d)),
    ):
        for device in ("cpu", "tpu"):
            with pytest.raises(RuntimeError):
                bad(device)
    with pytest.raises(RuntimeError, match="same device"):
        attend(q, k, v, torch.ones(5, 5, dtype=torch.bool))


PADDING = torch.tensor([[False, False, False, True, True], [False, False, False, False, True]])
CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)


def test_multihead_attention() -> None:
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def run(device: str) -> Any:
        attention, x, results = copy.deepcopy(module).to(device), randn(2, 5, 8).to(device), []
        padding, causal = PADDING.to(device), CAUSAL.to(device)
        for training in (True, False):
            attention.train(training)
            with torch.set_grad_enabled(training):
                for options in (
                    {},
                    {"need_weights": False},
                    {"average_attn_weights": False},
                    {"key_padding_mask": padding},
                    {"attn_mask": causal, "need_weights": False},
                    {"attn_mask": causal, "key_padding_mask": padding},
                    {"attn_mask": randn(5, 5).to(device)},
                ):
                    results.append([t for t in attention(x, x, x, **options) if t is not None])
                results.append(attention(randn(2, 3, 8, seed=4).to(device), x, x))
        sum(r[0].pow(2).sum() for r in results if r[0].requires_grad).backward()
        return [results, [p.grad for p in attention.parameters()]]

    assert_same(run("cpu"), run("tpu"))
    assert lazytpu.metrics()["cpu_fallbacks"] == 0


@pytest.mark.parametrize("norm_first, activation", [(False, "relu"), (True, "gelu")])
def test_transformer_encoder(norm_first: bool, activation: str) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation, batch_first=True, norm_first=norm_first)
    encoder = torch.nn.TransformerEncoder(layer, 2)

    def run(device: str) -> Any:
        model, single, x = copy.deepcopy(encoder).to(device), copy.deepcopy(layer).to(device).eval(), randn(2, 5, 8).to(device)
        padding, causal = PADDING.to(device), CAUSAL.to(device)
        results = [model(x, mask=causal, src_key_padding_mask=padding)]
        results[0].pow(2).mean().backward()
        model.eval()
        with torch.no_grad():
            padded = model(x, src_key_padding_mask=padding)
            # CPU goes through nested tensors here, which leave zeros where there is padding.
            results += [model(x), model(x, mask=causal), padded.masked_fill(padding.unsqueeze(-1), 0)]
            results += [single(x, src_mask=causal, src_key_padding_mask=padding)]
        return [results, [p.grad for p in model.parameters()]]

    assert_same(run("cpu"), run("tpu"))
    assert lazytpu.metrics()["cpu_fallbacks"] == 0
