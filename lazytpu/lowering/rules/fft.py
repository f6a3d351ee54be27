"""Fourier transforms. The scale of each is its ``normalization``: 0 none, 1 by the root of n, 2 by n."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from lazytpu.lowering.context import Context
from lazytpu.lowering.registry import rule


def _scaled(x: Any, normalization: int, size: int) -> Any:
    if normalization == 0 or size == 0:
        return x
    return x * (1 / math.sqrt(size) if normalization == 1 else 1 / size)


def _transform(x: Any, dim: tuple[int, ...], forward: bool) -> Any:
    """The transform over ``dim``, not scaled."""
    if not dim:
        return x
    return jnp.fft.fftn(x, axes=dim) if forward else jnp.fft.ifftn(x, axes=dim, norm="forward")


@rule("_fft_c2c")
def fft_c2c(ctx: Context, self: Any, dim: tuple[int, ...], normalization: int, forward: bool) -> Any:
    if 0 in self.shape:
        return self
    return _scaled(_transform(self, dim, forward), normalization, math.prod(self.shape[d] for d in dim))


@rule("_fft_r2c")
def fft_r2c(ctx: Context, self: Any, dim: tuple[int, ...], normalization: int, onesided: bool) -> Any:
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, ctx.dtype)
    size = math.prod(self.shape[d] for d in dim)
    if not onesided:
        return _scaled(_transform(self.astype(ctx.dtype), dim, True), normalization, size)
    halved = jnp.fft.rfft(self, axis=dim[-1])  # the last axis in dim is the one that is halved
    return _scaled(_transform(halved, dim[:-1], True), normalization, size)


@rule("_fft_c2r")
def fft_c2r(ctx: Context, self: Any, dim: tuple[int, ...], normalization: int, last_dim_size: int) -> Any:
    if 0 in ctx.shape:
        return jnp.zeros(ctx.shape, ctx.dtype)
    whole = jnp.fft.irfft(_transform(self, dim[:-1], False), n=last_dim_size, axis=dim[-1], norm="forward")
    return _scaled(whole, normalization, math.prod(ctx.shape[d] for d in dim))
