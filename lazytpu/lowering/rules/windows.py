"""Windows onto cells: strided reads and writes, reinterpretation of bytes, and resizing.

These ops are lazytpu's own; ATen's views record nothing until they are read.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu import dtypes
from lazytpu.lowering import windows
from lazytpu.lowering.context import Context
from lazytpu.lowering.registry import rule


def reinterpret(x: jax.Array, dtype: np.dtype) -> jax.Array:
    """The bytes of ``x`` as a flat array of ``dtype``, little-endian as on every host; zeros fill up the last element."""
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x.reshape(-1)
    flat = x.reshape(-1)
    if flat.dtype.itemsize < dtype.itemsize:
        flat = jnp.pad(flat, (0, -flat.size % (dtype.itemsize // flat.dtype.itemsize)))
    if flat.dtype == np.bool_:
        flat = flat.astype(jnp.uint8)
    elif jnp.issubdtype(flat.dtype, jnp.complexfloating):
        flat = jnp.stack([flat.real, flat.imag], axis=-1).reshape(-1)
    if dtype == np.bool_:
        return reinterpret(flat, np.dtype(np.uint8)) != 0
    if jnp.issubdtype(dtype, jnp.complexfloating):
        part = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
        pairs = reinterpret(flat, part).reshape(-1, 2)
        return lax.complex(pairs[:, 0], pairs[:, 1])
    if flat.dtype.itemsize < dtype.itemsize:
        flat = flat.reshape(-1, dtype.itemsize // flat.dtype.itemsize)
    return lax.bitcast_convert_type(flat, dtype).reshape(-1)


@rule("lazytpu::view")
def view(ctx: Context, x: Any, size: Any, stride: Any, offset: int) -> Any:
    dtype = ctx.dtype
    return windows.read(x if x.dtype == dtype else reinterpret(x, dtype), size, stride, offset)


@rule("lazytpu::view_write")
def view_write(ctx: Context, x: Any, update: Any, size: Any, stride: Any, offset: int) -> Any:
    whole = reinterpret(x, update.dtype) if x.dtype != update.dtype else x
    written = windows.write(whole, jnp.broadcast_to(update, size), stride, offset)
    dtype = dtypes.to_numpy(ctx.out.dtype)
    return (written if written.dtype == dtype else reinterpret(written, dtype)[: x.size]).reshape(ctx.shape)


@rule("lazytpu::view_at")
def view_at(ctx: Context, x: Any, offset: Any, size: Any, stride: Any, anchor: int) -> Any:
    return windows.read_at(x, size, stride, anchor, offset)


@rule("lazytpu::view_write_at")
def view_write_at(ctx: Context, x: Any, update: Any, offset: Any, size: Any, stride: Any, anchor: int) -> Any:
    return windows.write_at(x, jnp.broadcast_to(update, size), stride, anchor, offset)


@rule("lazytpu::conj")
def conj(ctx: Context, x: Any) -> Any:
    return x.conj()


@rule("lazytpu::neg")
def neg(ctx: Context, x: Any) -> Any:
    return -x


@rule("lazytpu::resize")
def resize(ctx: Context, x: Any) -> Any:
    (count,) = ctx.shape
    return x[:count] if count <= x.size else jnp.pad(x, (0, count - x.size))
