"""Random PyTorch programs: made from a list of integers, run on any device, compared at the end.

A program is a list of instructions over a growing pool of tensors: creation, views and views of
views, in-place ops on bases and through views, indexing, reductions, matrix products, conversions.
What an instruction does depends only on shapes and dtypes, so it does the same on every device.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

SHAPES: list[tuple[int, ...]] = [(), (1,), (4,), (0,), (2, 3), (3, 2), (3, 3), (1, 4), (2, 0), (2, 3, 2), (4, 1, 3)]
DTYPES = [torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.bfloat16]
POOL = 10


class Instruction(NamedTuple):
    """One step: an op's name, which tensors of the pool it takes, and a seed for its parameters."""

    op: str
    a: int
    b: int
    seed: int


def _data(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    whole = torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed))
    return (whole > 0) if dtype is torch.bool else (whole.to(dtype) / 4 if dtype.is_floating_point else whole.to(dtype))


def _number(rng: random.Random, x: torch.Tensor) -> Any:
    if not x.dtype.is_floating_point or rng.random() < 0.4:
        return rng.choice([2, -1, 3, 0])
    return rng.choice([0.5, -1.25, 2.0, 0.0])


def _view(rng: random.Random, x: torch.Tensor) -> torch.Tensor:
    """A random view of ``x``."""
    choices = ["flatten", "unsqueeze", "detach", "narrow", "reverse_dims"]
    if x.dim():
        choices += ["slice", "select", "step", "transpose", "expand", "diagonal", "slice", "step"]
    kind = rng.choice(choices)
    if kind == "flatten":
        return x.view(-1) if x.is_contiguous() else x.mT if x.dim() > 1 else x
    if kind == "unsqueeze":
        return x.unsqueeze(rng.randint(0, x.dim()))
    if kind == "detach":
        return x.detach()
    if kind == "reverse_dims":
        return x.permute(*reversed(range(x.dim()))) if x.dim() else x.view(1)
    if not x.dim():
        return x.view(())
    dim = rng.randrange(x.dim())
    size = x.shape[dim]
    if kind in ("slice", "narrow"):
        start = rng.randint(0, size)
        return x.narrow(dim, start, rng.randint(0, size - start))
    if kind == "select":
        return x.select(dim, rng.randrange(size)) if size else x
    if kind == "step":
        index = [slice(None)] * x.dim()
        index[dim] = slice(rng.randint(0, 1), None, rng.randint(1, 3))
        return x[tuple(index)]
    if kind == "transpose":
        return x.transpose(dim, rng.randrange(x.dim()))
    if kind == "diagonal":
        return x.diagonal(rng.randint(-1, 1)) if x.dim() > 1 else x
    return x.expand(2, *x.shape)


def _cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``x`` as ``dtype``; floats are moved away from the integers first, where their last bit would decide."""
    return (x + 0.137).to(dtype) if x.dtype.is_floating_point and not dtype.is_floating_point else x.to(dtype)


def _squash(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-50, 50) if x.dtype is not torch.bool else x


def _unary(rng: random.Random, x: torch.Tensor) -> torch.Tensor:
    if x.dtype is torch.bool:
        return ~x
    kind = rng.choice(["neg", "abs", "relu", "tanh", "square", "add", "mul", "rsub", "clone", "where", "div"])
    if kind == "add":
        return _squash(x + _number(rng, x))
    if kind == "mul":
        return _squash(x * _number(rng, x))
    if kind == "rsub":
        return 1 - x
    if kind == "where":
        return torch.where(x > 0.137, x, -x)
    if kind == "div":
        return x / 4
    return _squash(getattr(torch, kind)(x))


def _binary(rng: random.Random, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kind = rng.choice(["add", "sub", "mul", "maximum", "minimum", "add_alpha", "eq_shape"])
    if kind in ("sub", "add_alpha") and (x.dtype is torch.bool or y.dtype is torch.bool):
        kind = "add"
    if kind == "add_alpha":
        return _squash(torch.add(x, y, alpha=2))
    if kind == "eq_shape":
        return x * y if x.shape == y.shape else x + y
    return _squash(getattr(torch, kind)(x, y))


def _reduce(rng: random.Random, x: torch.Tensor) -> torch.Tensor:
    kind = rng.choice(["sum", "sum_dim", "mean", "amax", "any", "cumsum", "prod_dim", "argmax"])
    if kind == "sum":
        return _squash(x.sum())
    if kind == "mean":
        return x.double().mean() if x.numel() else x.double().sum()
    if kind == "any":
        return (x > 0.137).any() if x.dtype is not torch.bool else x.any()
    if not x.dim() or not x.numel():
        return _squash(x.sum())
    dim = rng.randrange(x.dim())
    if kind == "sum_dim":
        return _squash(x.sum(dim, keepdim=rng.random() < 0.5))
    if kind == "amax":
        return x.amax(dim)
    if kind == "cumsum":
        return _squash(x.cumsum(dim))
    if kind == "argmax" and x.dtype is not torch.bool:
        return x.double().argmax(dim)
    return _squash((x if x.dtype is torch.bool else x.clamp(-2, 2)).prod(dim))


def _inplace(rng: random.Random, x: torch.Tensor, y: torch.Tensor) -> None:
    """Write to ``x``; raises on every device where PyTorch refuses."""
    if y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() and not (x.is_contiguous() and y.is_contiguous()):
        # What CPU reads of memory that it is overwriting is undefined where it does not refuse the call.
        y = y.clone()
    kind = rng.choice(["add", "mul", "copy", "fill", "zero", "sub", "clamp", "addcmul", "neg", "setitem", "setslice", "mask"])
    if kind == "fill":
        x.fill_(_number(rng, x))
    elif kind == "zero":
        x.zero_()
    elif kind == "copy":
        x.copy_(y)
    elif kind == "mask":
        mask = x > 0.137 if x.dtype is not torch.bool else x.clone()
        x[mask] = _number(rng, x)
    elif kind == "setitem" and x.dim() and x.shape[0]:
        x[rng.randrange(x.shape[0])] = _number(rng, x)
    elif kind == "setslice" and x.dim():
        x[rng.randint(0, 1) :: rng.randint(1, 2)] = _number(rng, x)
    elif x.dtype is torch.bool:
        x.logical_or_(y)
    elif kind == "add":
        x.add_(y).clamp_(-50, 50)
    elif kind == "sub":
        x.sub_(_number(rng, x))
    elif kind == "mul":
        x.mul_(_number(rng, x)).clamp_(-50, 50)
    elif kind == "clamp":
        x.clamp_(-3, 5)
    elif kind == "addcmul":
        factor = _cast(y, x.dtype)
        x.addcmul_(factor, factor, value=2).clamp_(-50, 50)
    else:
        x.neg_()


def _shape(rng: random.Random, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kind = rng.choice(["cat", "stack", "flip", "repeat", "matmul", "index", "gather", "reshape", "roll", "tril", "index_add"])
    if kind == "cat" and x.dim() and x.dim() == y.dim():
        return torch.cat([x, x], rng.randrange(x.dim()))
    if kind == "stack":
        return torch.stack([x, x], 0)
    if kind == "matmul" and x.dim() == 2 and x.dtype is not torch.bool:
        return _squash(x @ x.mT)
    if kind == "reshape":
        return x.reshape(-1)
    if not x.dim() or not x.numel():
        return x.clone()
    dim = rng.randrange(x.dim())
    size = x.shape[dim]
    index = torch.tensor([rng.randrange(size) for _ in range(3)], device=x.device)
    if kind == "index":
        return x.index_select(dim, index) if rng.random() < 0.5 else x[index % x.shape[0]]
    if kind == "gather":
        return x.gather(dim, torch.zeros_like(x, dtype=torch.int64))
    if kind == "roll":
        return x.roll(rng.randint(-2, 2), dim)
    if kind == "repeat":
        return x.repeat(*([2] * x.dim()))
    if kind == "tril" and x.dim() > 1:
        return x.tril(rng.randint(-1, 1))
    if kind == "index_add" and x.dtype is not torch.bool:
        return x.index_add(dim, index, x.index_select(dim, index))
    return x.flip(dim)


OPS = [
    "new", "view", "view", "view", "unary", "binary", "reduce", "inplace", "inplace", "inplace_view", "inplace_view",
    "shape", "cast",
]  # fmt: skip


def random_program(seed: int, length: int) -> list[Instruction]:
    """A program of ``length`` instructions from a seed."""
    rng = random.Random(seed)
    return [
        Instruction(rng.choice(OPS), rng.randrange(1 << 16), rng.randrange(1 << 16), rng.randrange(1 << 16))
        for _ in range(length)
    ]


def _apply(step: Instruction, x: torch.Tensor, y: torch.Tensor, device: str) -> torch.Tensor | None:
    rng = random.Random(step.seed)
    if step.op == "new":
        return _data(rng.choice(SHAPES), rng.choice(DTYPES), step.seed).to(device)
    if step.op == "view":
        return _view(rng, x)
    if step.op == "unary":
        return _unary(rng, x)
    if step.op == "binary":
        return _binary(rng, x, y)
    if step.op == "reduce":
        return _reduce(rng, x)
    if step.op == "shape":
        return _shape(rng, x, y)
    if step.op == "cast":
        return _cast(x, rng.choice(DTYPES))
    _inplace(rng, _view(rng, x) if step.op == "inplace_view" else x, y)
    return None


def execute(
    program: list[Instruction], device: str, after_step: Callable[[int, list[torch.Tensor]], None] | None = None
) -> list[Any]:
    """Run a program; returns the tensors of the pool as CPU tensors, and for each step its error's type if it raised.

    ``after_step(position, pool)`` runs between instructions: sync points go there.
    """
    pool = [_data(shape, dtype, i).to(device) for i, (shape, dtype) in enumerate(zip(SHAPES[1:6], DTYPES))]
    errors: list[str] = []
    for position, step in enumerate(program):
        x, y = pool[step.a % len(pool)], pool[step.b % len(pool)]
        try:
            result = _apply(step, x, y, device)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
            errors.append(f"{position}: {type(error).__name__}")
            result = None
        if result is not None and result.numel() <= 200:
            if len(pool) >= POOL:
                pool[step.seed % POOL] = result
            else:
                pool.append(result)
        if after_step is not None:
            after_step(position, pool)
    return [*(t.detach().cpu() for t in pool), errors]


def differences(expected: list[Any], actual: list[Any]) -> str:
    """What differs between two runs, as text; empty where nothing does."""
    found = []
    if expected[-1] != actual[-1]:
        found.append(f"errors: {expected[-1]} on the CPU, {actual[-1]} on the device")
    for i, (x, y) in enumerate(zip(expected[:-1], actual[:-1])):
        if x.dtype != y.dtype or x.shape != y.shape:
            found.append(f"tensor {i}: {x.dtype}{tuple(x.shape)} on the CPU, {y.dtype}{tuple(y.shape)} on the device")
            continue
        tolerance = {torch.float32: 1e-4, torch.float64: 1e-5, torch.bfloat16: 2e-2}.get(x.dtype, 0)
        if not torch.allclose(x.double(), y.double(), rtol=tolerance, atol=tolerance, equal_nan=True):
            ours, theirs = y.flatten().tolist()[:12], x.flatten().tolist()[:12]
            found.append(f"tensor {i} ({x.dtype}): {theirs} on the CPU, {ours} on the device")
    return "\n".join(found)
