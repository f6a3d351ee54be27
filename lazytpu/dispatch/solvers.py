"""Linear solvers whose steps depend on strides or data, written as calls of other ops."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.dispatch import cells, infer
from lazytpu.ir import Signature, Slot, TensorType, tensor_type

_ATEN = torch.ops.aten
_SIGNATURES: dict[tuple[Any, ...], Signature] = {}


def _factors(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """LU factors of ``a``, or of its transpose where ``a`` is row-major: PyTorch's derivatives infer which from the strides."""
    transposed = a.is_contiguous() and not a.is_complex()
    return _ATEN.linalg_lu_factor_ex(a.mT if transposed else a)[:2]


def _record(op: str, inputs: tuple[torch.Tensor | float, ...], outputs: tuple[TensorType, ...]) -> list[torch.Tensor]:
    """Record an op of ours on tensors and numbers."""
    with recorder.lock:
        values = [cells.read(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        types = tuple(tensor_type((), torch.float64) if isinstance(x, float) else x.type for x in values)
        key = (op, types, outputs)
        signature = _SIGNATURES.get(key)
        if signature is None:
            kinds = tuple("number" if isinstance(x, float) else "tensor" for x in values)
            slots = tuple(map(Slot, range(len(types))))
            signature = _SIGNATURES[key] = Signature(op, types, slots, outputs, kinds)
        return [cells.new(value) for value in recorder.record(signature, values)]


def _determinant(lu: torch.Tensor, pivots: torch.Tensor) -> list[torch.Tensor]:
    batch = tuple(lu.shape[:-2])
    kinds = (lu.dtype, lu.dtype, lu.dtype.to_real())
    return _record("lazytpu::lu_determinant", (lu, pivots), tuple(tensor_type(batch, kind) for kind in kinds))


def _det(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    infer.call(_ATEN._linalg_det.default, [a])
    lu, pivots = _factors(a)
    return _determinant(lu, pivots)[0], lu, pivots


def _slogdet(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    infer.call(_ATEN._linalg_slogdet.default, [a])
    lu, pivots = _factors(a)
    _, sign, logarithm = _determinant(lu, pivots)
    return sign, logarithm, lu, pivots


def _lstsq(
    a: torch.Tensor, b: torch.Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[torch.Tensor, ...]:
    """By singular values, whatever the driver; it decides which of the four results are given.

    Waits for the device where CPU gives no residuals to a matrix that lacks full rank.
    """
    infer.check_same_device(_ATEN.linalg_lstsq.default, [a, b])
    driver = driver or "gelsy"
    m, n = a.shape[-2:] if a.dim() > 1 else (0, 0)
    example = _lstsq_of_zeros(tuple(a.shape), a.dtype, tuple(b.shape), b.dtype, driver)
    if 0 in a.shape or 0 in b.shape:
        return tuple(x.to(a.device) for x in example)
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    columns = b.unsqueeze(-1) if vector else b
    batch = torch.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    a, columns = a.expand(*batch, m, n), columns.expand(*batch, m, columns.shape[-1])
    cutoff = torch.finfo(a.dtype).eps * max(m, n) if rcond is None else float(rcond)
    k = columns.shape[-1]
    real = a.dtype.to_real()
    types = ((*batch, n, k), a.dtype), ((*batch, k), real), (batch, torch.int64), ((*batch, min(m, n)), real)
    outputs = tuple(tensor_type(tuple(shape), dtype) for shape, dtype in types)
    solution, residuals, rank, values = _record("lazytpu::lstsq", (a, columns, 0.0 if driver == "gels" else cutoff), outputs)
    complete = m > n and (driver == "gels" or (driver != "gelsy" and (bool(batch) or rank.item() == n)))
    nothing = torch.empty(0, dtype=real, device=a.device)
    return (
        solution.squeeze(-1) if vector else solution,
        residuals if complete else nothing,
        torch.empty(0, dtype=torch.int64, device=a.device) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else nothing.clone(),
    )


@lru_cache(maxsize=256)
def _lstsq_of_zeros(
    a: tuple[int, ...], a_dtype: torch.dtype, b: tuple[int, ...], b_dtype: torch.dtype, driver: str
) -> tuple[torch.Tensor, ...]:
    """What CPU gives for zeros of these shapes: it raises on those that do not fit."""
    zeros = [torch.zeros(shape, dtype=dtype, device="cpu") for shape, dtype in ((a, a_dtype), (b, b_dtype))]
    return torch.linalg.lstsq(*zeros, driver=driver)


KERNELS: dict[str, Callable[..., Any]] = {
    "_linalg_det": _det,
    "_linalg_slogdet": _slogdet,
    "linalg_lstsq": _lstsq,
}
"""Kernels by overload name, for registration."""
