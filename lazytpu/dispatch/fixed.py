"""Recording an op of lazytpu's own, whose result types the kernel itself knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.dispatch import cells
from lazytpu.ir import Signature, Slot, TensorType, Value, tensor_type

HALVES = (torch.float16, torch.bfloat16)
_FLOAT = tensor_type((), torch.float64)
_INT = tensor_type((), torch.int64)
_signatures: dict[Any, Signature] = {}


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that PyTorch's kernels compute in: float32 for the half types."""
    return torch.float32 if dtype in HALVES else dtype


def values(*tensors: torch.Tensor | None) -> list[Value | None]:
    """What the tensors show; None for None."""
    return [None if t is None else cells.read(t) for t in tensors]


def record(
    op: str,
    inputs: Sequence[Value | float | None],
    static: tuple[Any, ...],
    outputs: tuple[TensorType, ...],
    seed: Sequence[Value] = (),
) -> list[Value]:
    """Record ``op``, whose rule gets ``inputs`` (floats as runtime numbers) and then the ``static`` arguments.

    ``seed`` is the pair of values that a random op's key is made of.
    """
    types = tuple(x.type if isinstance(x, Value) else None if x is None else _FLOAT for x in inputs)
    key = (op, types, static, outputs)
    signature = _signatures.get(key)
    if signature is None:
        signature = _signatures[key] = _signature(op, types, inputs, static, outputs, bool(seed))
    return recorder.record(signature, [*(x for x in inputs if x is not None), *seed])


def _signature(
    op: str,
    types: tuple[TensorType | None, ...],
    inputs: Sequence[Value | float | None],
    static: tuple[Any, ...],
    outputs: tuple[TensorType, ...],
    seeded: bool,
) -> Signature:
    given = [t for t in types if t is not None]
    slots = iter(range(len(given)))
    args = [None if t is None else Slot(next(slots)) for t in types]
    kinds = ["tensor" if isinstance(x, Value) else "number" for x in inputs if x is not None]
    if seeded:
        given, kinds = [*given, _INT, _INT], [*kinds, "seed", "seed"]
    return Signature(op, tuple(given), (*args, *static), outputs, tuple(kinds))
