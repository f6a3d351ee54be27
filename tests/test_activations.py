"""Activation functions and their gradients, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import check, randn
from sweep import Call, disagreements

import lazytpu

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "threshold": lambda x: F.threshold(x, 0.5, 20),
    "hardtanh": lambda x: F.hardtanh(x, -2, 0.5),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "softplus": lambda x: F.softplus(x, 2, 5),
    "softshrink": lambda x: F.softshrink(x, 0.3),
    "hardshrink": lambda x: F.hardshrink(x, 0.3),
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "silu": F.silu,
    "mish": F.mish,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "rrelu": lambda x: F.rrelu(x, 0.1, 0.3, training=False),
    "gelu": F.gelu,
}


def sample(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Numbers around every kink, large ones, NaN and infinities, enough of each for CPU's vector loops."""
    kinks = torch.tensor([0.0, -0.0, 0.5, -0.5, 1, -1, 3, -3, 6, -2, 20, -20, 90, -90, NAN, INF, -INF])
    x = torch.cat([randn(47, seed=seed) * 3, kinks])
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))].to(dtype)


def calls_of(dtype: torch.dtype) -> list[Call]:
    x, g = sample(dtype, 0), sample(dtype, 1).nan_to_num(1, 2, 3)
    finite = x.nan_to_num(1, 2, 3)
    calls: list[Call] = [(name, fn, (finite if name == "gelu" else x,)) for name, fn in ACTIVATIONS.items()]
    backwards: list[tuple[str, tuple[Any, ...]]] = [
        ("threshold_backward", (g, x, 0.5)),
        ("hardtanh_backward", (g, x, -1, 1)),
        ("hardsigmoid_backward", (g, x)),
        ("hardswish_backward", (g, x)),
        ("leaky_relu_backward", (g, x, 0.1, False)),
        ("elu_backward", (g, 0.7, 1.1, 0.9, False, x)),
        ("elu_backward", (g, 0.7, 1.1, 0.9, True, x)),
        ("softplus_backward", (g, finite, 1.5, 20)),
        ("softshrink_backward", (g, x, 0.5)),
        ("hardshrink_backward", (g, x, 0.5)),
        ("silu_backward", (g, finite)),
        ("mish_backward", (g, finite)),
        ("gelu_backward", (g, finite)),
        ("sigmoid_backward", (g, x)),
        ("tanh_backward", (g, x)),
        ("logit_backward", (g, x)),
        ("logit_backward", (g, x, 0.1)),
        ("log_sigmoid_backward", (g, finite, torch.exp(-finite.abs()))),
        ("_prelu_kernel_backward", (g, finite, g)),
        ("rrelu_with_noise_backward", (g, x, g, 0.1, 0.3, False, False)),
    ]
    calls += [(name, getattr(aten, name), args) for name, args in backwards]
    pair = x.reshape(2, 32)
    calls += [
        ("glu", lambda a: F.glu(a, 0), (pair,)),
        ("glu last", F.glu, (pair,)),
        ("prelu", F.prelu, (pair.t(), g[:2].clone())),
    ]
    calls += [(f"{name} of a transpose", fn, (pair.nan_to_num(1, 2, 3).t(),)) for name, fn in ACTIVATIONS.items()]
    return calls


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_values_agree_with_the_cpu(dtype: torch.dtype) -> None:
    assert not disagreements(calls_of(dtype), {torch.float32: (1e-4, 2e-5)})


def test_integers() -> None:
    check(lambda i: [F.relu(i), F.relu6(i), F.threshold(i, 2, 7), F.hardtanh(i, -1, 3)], torch.arange(-4, 9))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_gradients(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        results = [activation(x) for activation in ACTIVATIONS.values()]
        return [*results, F.glu(x, 1), F.glu(x, -2), F.prelu(x, w), F.prelu(x, w[:1]), torch.logit(x.sigmoid(), 0.2)]

    x = (randn(4, 6) * 3).to(dtype).requires_grad_()
    check(fn, x, randn(6, seed=1).to(dtype).requires_grad_(), rtol=4e-2 if dtype == torch.bfloat16 else None)


def test_second_derivatives() -> None:
    smooth = (
        "elu",
        "celu",
        "selu",
        "softplus",
        "silu",
        "mish",
        "gelu",
        "gelu tanh",
        "logsigmoid",
        "sigmoid",
        "tanh",
        "leaky_relu",
    )

    def fn(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        outputs = [ACTIVATIONS[name](x) for name in smooth] + [F.glu(x, 1), F.prelu(x, w), F.hardtanh(x) ** 2, F.hardswish(x)]
        return [torch.autograd.grad((y * y).sum(), x, create_graph=True)[0] for y in outputs]

    check(fn, randn(4, 6, grad=True, dtype=torch.float64), torch.tensor([0.25]).double().requires_grad_())


def test_in_place_and_out() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.clone()
        F.relu_(y[1:])
        F.leaky_relu_(y.t()[::2], 0.3)
        out = torch.empty(0, device=x.device)
        torch.ops.aten.silu.out(x, out=out)
        return [
            y,
            out,
            F.elu_(x.clone()),
            F.hardtanh_(x.clone()),
            F.silu(x.clone(), inplace=True),
            F.celu_(x.clone()),
            F.threshold_(x.clone(), 0.1, 5),
        ]

    check(fn, randn(4, 6))


def test_modules_with_a_changing_slope_compile_once() -> None:
    x = randn(8).to("tpu")
    F.leaky_relu(F.elu(F.softplus(x, 1.5), 0.3), 0.1).cpu()
    compiles = lazytpu.metrics()["compiles"]
    for k in range(1, 4):
        F.leaky_relu(F.elu(F.softplus(x, 1.5 + k), 0.3 + k), 0.1 * k).cpu()
    assert lazytpu.metrics()["compiles"] == compiles
