"""Conversions between dtypes with the values that PyTorch's CPU kernels give."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def convert(x: Any, dtype: np.dtype) -> Any:
    """``x`` as ``dtype``: complex to real drops the imaginary part, integers wrap, floats as on x86."""
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    if dtype == np.bool_:
        return x != 0
    if x.dtype == np.bool_:
        # XLA would turn a product with a converted bool into a select, which loses NaN * 0.
        x = x.astype(jnp.int32)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return x.astype(dtype)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = x.real
    if jnp.issubdtype(dtype, jnp.integer):
        return _to_integer(x, dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(dtype)
    if dtype.itemsize < 4:
        x = x.astype(jnp.float32)  # CPU rounds twice, by way of float32
        if dtype == jnp.float8_e4m3fn:
            largest = float(jnp.finfo(dtype).max)
            x = jnp.clip(x, -largest, largest)
    return x.astype(dtype)


def _to_integer(x: Any, dtype: np.dtype) -> Any:
    """Truncation toward zero; out of range as x86 does it: the smallest integer, or its low bits for a narrow type."""
    if x.dtype.itemsize < 4:
        x = x.astype(jnp.float32)
    if dtype == np.uint64:
        half = jnp.asarray(2.0**63, x.dtype)
        low = _indefinite(x, np.dtype(np.int64)).astype(dtype)
        high = _indefinite(x - half, np.dtype(np.int64)).astype(dtype) ^ jnp.uint64(1 << 63)
        return jnp.where(x >= half, high, low)
    through = np.int64 if dtype in (np.int64, np.uint32, np.uint8) else np.int32
    return _indefinite(x, np.dtype(through)).astype(dtype)


def _indefinite(x: Any, dtype: np.dtype) -> Any:
    """Truncation to int32 or int64, the smallest one standing for all that is out of range and for NaN."""
    limit = 2.0 ** (8 * dtype.itemsize - 1)
    exact = x.dtype.itemsize > dtype.itemsize
    fits = (x > -limit - 1 if exact else x >= -limit) & (x < limit)
    truncated = lax.convert_element_type(jnp.where(fits, x, 0), dtype)
    return jnp.where(fits, truncated, jnp.iinfo(dtype).min)
