"""``torch.autocast("tpu")`` and ``GradScaler("tpu")``: bfloat16 in every thread, CUDA's casting lists."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from support import assert_same
from torch import nn

import lazytpu
from lazytpu.device import autocast


def test_the_lists_are_cudas() -> None:
    ours = autocast.LOWER | autocast.FLOAT32 | autocast.FLOAT32_RESULT | autocast.WIDEST | autocast.BANNED
    ours |= set(autocast.FLOAT32_APPENDED)
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    cuda = {n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::") and has_kernel(n, "AutocastCUDA")}
    assert ours == {name.removeprefix("aten::") for name in cuda}


def test_dtypes_of_results() -> None:
    x, w = torch.ones(2, 4, 4, device="tpu"), torch.ones(4, 4, device="tpu", requires_grad=True)
    half, wide = x.bfloat16(), x.double()
    with torch.autocast("tpu"):
        assert torch.is_autocast_enabled("tpu")
        lower = [x @ w, F.linear(x, w), torch.bmm(x, x), F.conv1d(x, torch.ones(2, 4, 1, device="tpu")),
                 torch.einsum("bij,bjk->bik", x, x), F.scaled_dot_product_attention(x[None], x[None], x[None])]  # fmt: skip
        upper = [half.exp(), half.pow(2), F.softmax(half, -1), F.log_softmax(half, -1), half.sum(), half.sum(0), half.cumsum(0),
                 F.layer_norm(half, (4,)), torch.norm(half), torch.norm(half, 2, 1), F.mse_loss(half, half), half.prod(),
                 torch.addcmul(half, x, x), F.gelu(x)]  # fmt: skip
        same = [half + half, F.relu(half), half.sum(0, dtype=torch.bfloat16), torch.addcmul(half, half, half)]
        doubles = [wide @ wide, wide.exp(), F.softmax(wide, -1)]
        with torch.autocast("tpu", enabled=False):
            upper.append(x @ w)
        with torch.autocast("tpu", dtype=torch.float16):
            assert (x @ w).dtype is torch.float16
        inside = (x @ w).sum()
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x, x)
    for results, dtype in ((lower, torch.bfloat16), (upper, torch.float32), (same, torch.bfloat16), (doubles, torch.float64)):
        assert {t.dtype for t in results} == {dtype}
    inside.backward()
    assert w.grad.dtype is torch.float32 and w.grad.tolist() == [[8.0] * 4] * 4
    assert torch.ones(2, 2).matmul(torch.ones(2, 2)).dtype is torch.float32


def test_every_thread_starts_with_bfloat16() -> None:
    found = []

    def multiply() -> None:
        found.append(torch.get_autocast_dtype("tpu"))
        with torch.autocast("tpu"):
            found.append(torch.ones(2, 2, device="tpu").mm(torch.ones(2, 2, device="tpu")).dtype)

    def choose() -> None:
        torch.set_autocast_dtype("tpu", torch.float16)
        found.append(torch.get_autocast_dtype("tpu"))

    for work in (multiply, choose):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    multiply()
    assert found == [torch.bfloat16, torch.bfloat16, torch.float16, torch.bfloat16, torch.bfloat16]
    with pytest.warns(UserWarning, match="tpu Autocast only supports"):
        torch.autocast("tpu", dtype=torch.float64)


def test_training_agrees_with_the_cpus_autocast() -> None:
    def train(device: str) -> tuple[list[float], list[torch.Tensor]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        generator = torch.Generator().manual_seed(1)
        x, y = torch.randn(32, 8, generator=generator).to(device), torch.randint(0, 4, (32,), generator=generator).to(device)
        losses = []
        for _ in range(5):
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach() for p in model.parameters()]

    expected, actual = train("cpu"), train("tpu")
    torch.testing.assert_close(torch.tensor(actual[0]), torch.tensor(expected[0]), rtol=2e-2, atol=2e-2)
    assert_same(expected[1], actual[1], rtol=5e-2, atol=5e-2)


@torch.amp.custom_fwd(device_type="tpu", cast_inputs=torch.float32)
def _forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
    assert not torch.is_autocast_enabled("tpu")
    return x * 2


class Doubled(torch.autograd.Function):
    forward = staticmethod(_forward)

    @staticmethod
    @torch.amp.custom_bwd(device_type="tpu")
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


def test_functions_of_the_users_own() -> None:
    x = torch.ones(2, device="tpu", dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("tpu"):
        assert Doubled.apply(x).dtype is torch.float32


def test_the_scaler_skips_what_overflows() -> None:
    for fused in (False, True):
        weight = nn.Parameter(torch.ones(3, device="tpu"))
        optimizer = torch.optim.SGD([weight], 0.5, fused=fused)
        scaler = torch.amp.GradScaler("tpu", init_scale=8.0, growth_interval=1)
        for factor in (1.0, float("inf")):
            optimizer.zero_grad()
            scaler.scale((weight * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        assert weight.tolist() == [0.5] * 3 and scaler.get_scale() == 8.0
    assert "cpu_fallback.aten::_amp_update_scale_" not in lazytpu.metrics()
