"""Constants."""

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
