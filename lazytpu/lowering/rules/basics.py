"""Constants, conversions and the plainest pointwise arithmetic."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lazytpu.lowering.context import Context
from lazytpu.lowering.registry import rule


@rule("lazytpu::zeros")
def zeros(ctx: Context) -> Any:
    return jnp.zeros(ctx.shape, ctx.dtype)


@rule("lazytpu::full")
def full(ctx: Context, number: Any) -> Any:
    return jnp.full(ctx.shape, number.astype(ctx.dtype))


@rule("lazytpu::cast")
def cast(ctx: Context, x: Any) -> Any:
    return x


@rule("add.Tensor", pointwise=True)
def add(ctx: Context, self: Any, other: Any, alpha: Any) -> Any:
    x, y, a = ctx.cast(self, other, alpha)
    return x + a * y if ctx.dtype != bool else x | (a & y)


@rule("mul.Tensor", pointwise=True)
def mul(ctx: Context, self: Any, other: Any) -> Any:
    x, y = ctx.cast(self, other)
    return x * y if ctx.dtype != bool else x & y
