"""Batch normalisation, which writes running statistics that its schema does not say it writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.dispatch import cells, infer
from lazytpu.dispatch.fixed import record, values, wide
from lazytpu.ir import TensorType, tensor_type

_ATEN = torch.ops.aten


@lru_cache(maxsize=4096)
def _check(types: tuple[TensorType | None, ...], training: bool, eps: float) -> None:
    """Raise as PyTorch would for these types of input, weight, bias and running statistics."""
    input = types[0]
    assert input is not None
    if len(input.shape) < 2:
        raise RuntimeError(f"batch_norm expects an input of 2 dimensions at least, got {len(input.shape)}")
    for t in types[1:]:
        if t is not None and t.shape != input.shape[1:2]:
            raise RuntimeError(f"batch_norm: parameters and statistics should have {input.shape[1]} elements, got {t.shape}")
    if not training and (types[3] is None or types[4] is None):
        raise RuntimeError("running_mean and running_var must be given in evaluation mode")
    _ATEN.native_batch_norm.default(*(None if t is None else infer.stand_in(t) for t in types), training, 0.1, eps)


def _batch_norm(
    input: torch.Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Record one op with the statistics among its results, and write them where they belong."""
    tensors = (input, weight, bias, running_mean, running_var)
    infer.check_same_device(_ATEN.native_batch_norm.default, list(tensors))
    with recorder.lock:
        read = values(*tensors)
        types = tuple(None if v is None else v.type for v in read)
        _check(types, bool(training), float(eps))
        saved = tensor_type(tuple(input.shape[1:2]) if training else (0,), wide(input.dtype))
        assert types[0] is not None
        outputs = [types[0]]
        if training:
            outputs += [saved, saved, *(t for t in types[3:] if t is not None)]
        results = record("lazytpu::batch_norm", [*read, float(momentum)], (bool(training), float(eps)), tuple(outputs))
        if not training:
            output = cells.new(results[0])
            mean, deviation = (cells.new(cells.undefined(saved.shape, saved.dtype)) for _ in range(2))
            return output, mean, deviation
        updates = iter(results[3:])
        for running in (running_mean, running_var):
            if running is not None:
                cells.write(running, next(updates))
        return cells.new(results[0]), cells.new(results[1]), cells.new(results[2])


def _without_statistics(input: torch.Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    return _batch_norm(input, weight, bias, None, None, training, momentum, eps)


def _without_training(
    input: torch.Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    return _batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)


def _functional(
    input: torch.Tensor,
    weight: Any,
    bias: Any,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    mean, var = running_mean.clone(), running_var.clone()
    return (*_batch_norm(input, weight, bias, mean, var, training, momentum, eps), mean, var)


KERNELS: dict[str, Callable[..., Any]] = {
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit.no_stats": _without_statistics,
    "_native_batch_norm_legit_no_training": _without_training,
    "_native_batch_norm_legit_functional": _functional,
}
"""Kernels by overload name, for registration."""
