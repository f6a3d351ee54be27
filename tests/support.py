"""Differential checks: the same function on the CPU and on ``tpu``, values, dtypes and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import lazytpu

TOLERANCE = {
    torch.float64: (1e-7, 1e-9),
    torch.float32: (1e-4, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (5e-3, 2e-3),
    torch.complex64: (1e-4, 1e-5),
    torch.complex128: (1e-7, 1e-9),
}


def to_device(x: Any, device: str, clones: dict[int, torch.Tensor]) -> Any:
    """A private copy of a tree on ``device``; a tensor met twice stays one tensor."""
    if isinstance(x, torch.Tensor):
        if id(x) not in clones:
            clones[id(x)] = x.detach().clone().to(device).requires_grad_(x.requires_grad)
        return clones[id(x)]
    if isinstance(x, (list, tuple)):
        return type(x)(to_device(item, device, clones) for item in x)
    return x


def leaves(x: Any) -> list[torch.Tensor]:
    """The tensors of a tree, in order."""
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, (list, tuple)):
        return [t for item in x for t in leaves(item)]
    if isinstance(x, dict):
        return [t for item in x.values() for t in leaves(item)]
    return []


def assert_same(expected: Any, actual: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """Compare two results: structure, shape, dtype, device and values."""
    a, b = leaves(expected), leaves(actual)
    assert len(a) == len(b), f"{len(b)} tensors instead of {len(a)}"
    for i, (x, y) in enumerate(zip(a, b)):
        assert y.dtype == x.dtype, f"result {i}: dtype {y.dtype} instead of {x.dtype}"
        assert y.shape == x.shape, f"result {i}: shape {tuple(y.shape)} instead of {tuple(x.shape)}"
        r, t = TOLERANCE.get(x.dtype, (0, 0))
        torch.testing.assert_close(
            y.detach().cpu(), x.detach(), rtol=r if rtol is None else rtol, atol=t if atol is None else atol, equal_nan=True
        )
    if not a:
        assert expected == actual, f"{actual!r} instead of {expected!r}"


def run(fn: Callable[..., Any], device: str, args: tuple[Any, ...], grad: bool) -> tuple[Any, list[Any], list[Any]]:
    """``fn``'s result on ``device``, the gradients of its inputs, and its inputs afterwards."""
    clones: dict[int, torch.Tensor] = {}
    moved = to_device(args, device, clones)
    result = fn(*moved)
    inputs = [t for t in clones.values() if t.requires_grad]
    gradients: list[Any] = []
    if grad:
        outputs = [t for t in leaves(result) if t.requires_grad]
        weights = [
            torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64).reshape(t.shape).to(t.dtype).to(device)
            for t in outputs
        ]
        gradients = [g for g in torch.autograd.grad(outputs, inputs, weights, allow_unused=True) if g is not None]
    return result, gradients, [t for t in clones.values()]


def check(
    fn: Callable[..., Any],
    *args: Any,
    grad: bool | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    fallback: bool = False,
) -> None:
    """Assert that ``fn(*args)`` agrees on CPU and ``tpu``: results, gradients, and inputs after the call.

    Args:
        grad: also compare gradients of the inputs that require them (default: if any does).
        fallback: allow CPU fallbacks; else none may happen.
    """
    grad = any(t.requires_grad for t in leaves(list(args))) if grad is None else grad
    expected = run(fn, "cpu", args, grad)
    before = lazytpu.metrics()["cpu_fallbacks"]
    actual = run(fn, "tpu", args, grad)
    for t in leaves(actual[0]):
        assert t.device.type == "tpu", f"a result is on {t.device}"
    for want, got in zip(expected, actual):
        assert_same(want, got, rtol, atol)
    if not fallback:
        counters = lazytpu.metrics()
        assert counters["cpu_fallbacks"] == before, f"fell back: {[k for k in counters if k.startswith('cpu_fallback.')]}"


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """A CPU tensor of normal numbers from a seed."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return x.requires_grad_(grad)


def integers(low: int, high: int, *shape: int, seed: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """A CPU tensor of integers in [low, high) from a seed."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
