"""The dtypes that ``tpu`` carries: PyTorch's, NumPy's (which JAX uses) and StableHLO's spelling."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

_TABLE: list[tuple[torch.dtype, type, str]] = [
    (torch.float32, np.float32, "f32"),
    (torch.float64, np.float64, "f64"),
    (torch.float16, np.float16, "f16"),
    (torch.bfloat16, ml_dtypes.bfloat16, "bf16"),
    (torch.int64, np.int64, "i64"),
    (torch.int32, np.int32, "i32"),
    (torch.int16, np.int16, "i16"),
    (torch.int8, np.int8, "i8"),
    (torch.uint8, np.uint8, "ui8"),
    (torch.uint16, np.uint16, "ui16"),
    (torch.uint32, np.uint32, "ui32"),
    (torch.uint64, np.uint64, "ui64"),
    (torch.bool, np.bool_, "i1"),
    (torch.complex64, np.complex64, "complex<f32>"),
    (torch.complex128, np.complex128, "complex<f64>"),
    (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn, "f8E4M3FN"),
    (torch.float8_e5m2, ml_dtypes.float8_e5m2, "f8E5M2"),
    (torch.float8_e4m3fnuz, ml_dtypes.float8_e4m3fnuz, "f8E4M3FNUZ"),
    (torch.float8_e5m2fnuz, ml_dtypes.float8_e5m2fnuz, "f8E5M2FNUZ"),
]

SUPPORTED: tuple[torch.dtype, ...] = tuple(t for t, _, _ in _TABLE)
"""The dtypes that ``tpu`` carries."""

_NUMPY = {t: np.dtype(n) for t, n, _ in _TABLE}
_TORCH = {np.dtype(n): t for t, n, _ in _TABLE}
_MLIR = {t: m for t, _, m in _TABLE}
_BITS = {1: (torch.uint8, np.uint8), 2: (torch.int16, np.int16)}


def _known(table: dict[torch.dtype, object], dtype: torch.dtype) -> object:
    found = table.get(dtype)
    if found is None:
        raise TypeError(f"dtype {dtype} is not supported on 'tpu'; supported are {', '.join(map(str, table))}")
    return found


def to_numpy(dtype: torch.dtype) -> np.dtype:
    """The NumPy (or ml_dtypes) dtype of a PyTorch dtype; TypeError where ``tpu`` has no such type."""
    return _known(_NUMPY, dtype)  # type: ignore[arg-type, return-value]


def to_torch(dtype: np.dtype) -> torch.dtype:
    """The PyTorch dtype of a NumPy (or ml_dtypes) dtype."""
    return _TORCH[np.dtype(dtype)]


def to_mlir(dtype: torch.dtype) -> str:
    """The element type as StableHLO spells it; TypeError where ``tpu`` has no such type."""
    return _known(_MLIR, dtype)  # type: ignore[arg-type, return-value]


def numpy_view(tensor: torch.Tensor) -> np.ndarray:
    """A row-major CPU tensor as a NumPy array on the same memory, of any supported dtype."""
    numpy_dtype = to_numpy(tensor.dtype)
    tensor = tensor.detach()
    if numpy_dtype.kind in "biufc" and tensor.dtype != torch.bfloat16 and numpy_dtype.isbuiltin == 1:
        return tensor.numpy()
    bits, numpy_bits = _BITS[tensor.dtype.itemsize]
    return tensor.view(bits).numpy().view(numpy_bits).view(numpy_dtype)


def tensor_view(array: np.ndarray) -> torch.Tensor:
    """A NumPy array as a CPU tensor on the same memory, of any supported dtype."""
    dtype = to_torch(array.dtype)
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    bits, numpy_bits = _BITS[dtype.itemsize]
    shape = array.shape
    return torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(numpy_bits)).view(bits).view(dtype).reshape(shape)
