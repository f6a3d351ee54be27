"""Normalisation of layers, groups and batches, and dropout.

Statistics are taken in the dtype PyTorch computes in (float32 for the half types), in two passes.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering import draws
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule


def _wide(x: Any) -> Any:
    return None if x is None else x.astype(opmath(x.dtype))


def moments(x: Any, axes: tuple[int, ...]) -> tuple[Any, Any]:
    """The mean and the biased variance of ``x`` over ``axes``, which are kept."""
    mean = jnp.mean(x, axes, keepdims=True)
    return mean, jnp.mean(jnp.square(x - mean), axes, keepdims=True)


def affine(x: Any, weight: Any, bias: Any) -> Any:
    """``x * weight + bias``, of which either may be None."""
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def _input_gradient(scaled: Any, normal: Any, rstd: Any, axes: tuple[int, ...]) -> Any:
    """The gradient through ``(x - mean) * rstd``, given the one that arrives there and the normalised input."""
    mean = jnp.mean(scaled, axes, keepdims=True)
    along = jnp.mean(scaled * normal, axes, keepdims=True)
    return (scaled - mean - normal * along) * rstd


def _trailing(input: Any, normalized_shape: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes before and within ``normalized_shape``."""
    first = input.ndim - len(normalized_shape)
    return tuple(range(first)), tuple(range(first, input.ndim))


# Layers


@rule("native_layer_norm")
def layer_norm(ctx: Context, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    _, inner = _trailing(input, normalized_shape)
    x = _wide(input)
    mean, variance = moments(x, inner)
    rstd = lax.rsqrt(variance + eps)
    return affine((x - mean) * rstd, _wide(weight), _wide(bias)), mean, rstd


@rule("native_layer_norm_backward")
def layer_norm_backward(
    ctx: Context,
    grad_out: Any,
    input: Any,
    normalized_shape: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    output_mask: tuple[bool, ...],
) -> Any:
    outer, inner = _trailing(input, normalized_shape)
    grad, rstd = _wide(grad_out), _wide(rstd)
    normal = (_wide(input) - _wide(mean)) * rstd
    scaled = affine(grad, _wide(weight), None)
    return (
        _input_gradient(scaled, normal, rstd, inner) if output_mask[0] else None,
        jnp.sum(grad * normal, outer) if output_mask[1] and weight is not None else None,
        jnp.sum(grad, outer) if output_mask[2] and bias is not None else None,
    )


@rule("_fused_rms_norm")
def rms_norm(ctx: Context, input: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Any:
    _, inner = _trailing(input, normalized_shape)
    x = _wide(input)
    small = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    rstd = lax.rsqrt(jnp.mean(x * x, inner, keepdims=True) + small)
    return affine(x * rstd, _wide(weight), None), rstd


@rule("_fused_rms_norm_backward")
def rms_norm_backward(
    ctx: Context, grad_out: Any, input: Any, normalized_shape: Any, rstd: Any, weight: Any, output_mask: tuple[bool, ...]
) -> Any:
    outer, inner = _trailing(input, normalized_shape)
    grad, rstd = _wide(grad_out), _wide(rstd)
    normal = _wide(input) * rstd
    scaled = affine(grad, _wide(weight), None)
    along = jnp.mean(scaled * normal.conj(), inner, keepdims=True)
    return (
        (scaled - normal * along) * rstd if output_mask[0] else None,
        jnp.sum(grad * normal.conj(), outer) if output_mask[1] and weight is not None else None,
    )


# Groups


def _grouped(x: Any, count: int, channels: int, groups: int) -> Any:
    """``x`` as (batch, group, channel in the group, position)."""
    return _wide(x).reshape(count, groups, channels // groups, math.prod(x.shape[2:]))


def _by_group(x: Any, groups: int) -> Any:
    """A parameter for each channel, to go with ``_grouped``."""
    return None if x is None else _wide(x).reshape(1, groups, x.shape[0] // groups, 1)


@rule("native_group_norm")
def group_norm(
    ctx: Context, input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    x = _grouped(input, N, C, group)
    mean, variance = moments(x, (2, 3))
    rstd = lax.rsqrt(variance + eps)
    out = affine((x - mean) * rstd, _by_group(weight, group), _by_group(bias, group))
    return out.reshape(input.shape), mean.reshape(N, group), rstd.reshape(N, group)


@rule("native_group_norm_backward")
def group_norm_backward(
    ctx: Context,
    grad_out: Any,
    input: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: tuple[bool, ...],
) -> Any:
    grad, x = _grouped(grad_out, N, C, group), _grouped(input, N, C, group)
    mean, rstd = (_wide(s).reshape(N, group, 1, 1) for s in (mean, rstd))
    normal = (x - mean) * rstd
    scaled = affine(grad, _by_group(weight, group), None)
    return (
        _input_gradient(scaled, normal, rstd, (2, 3)).reshape(input.shape) if output_mask[0] else None,
        jnp.sum(grad * normal, (0, 3)).reshape(C) if output_mask[1] else None,
        jnp.sum(grad, (0, 3)).reshape(C) if output_mask[2] else None,
    )


# Batches


def _by_channel(x: Any, like: Any) -> Any:
    return None if x is None else _wide(x).astype(like.dtype).reshape(-1, *[1] * (like.ndim - 2))


def _across(x: Any) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


@rule("lazytpu::batch_norm")
def batch_norm(
    ctx: Context,
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: Any,
    training: bool,
    eps: float,
) -> Any:
    """The result; in training also the batch's mean and reciprocal deviation, and then the new running statistics."""
    x = _wide(input)
    if not training:
        scale = lax.rsqrt(_by_channel(running_var, x) + eps)
        return affine((x - _by_channel(running_mean, x)) * scale, _by_channel(weight, x), _by_channel(bias, x))
    axes = _across(x)
    mean, variance = moments(x, axes)
    rstd = lax.rsqrt(variance + eps)
    results = [affine((x - mean) * rstd, _by_channel(weight, x), _by_channel(bias, x)), mean.reshape(-1), rstd.reshape(-1)]
    count = np.array(math.prod(x.shape[axis] for axis in axes), x.dtype)
    for running, batch in ((running_mean, mean), (running_var, variance * (count / (count - 1)))):
        if running is not None:
            old = _wide(running)
            share = momentum.astype(old.dtype)
            results.append((1 - share) * old + share * batch.reshape(-1).astype(old.dtype))
    return tuple(results)


@rule("native_batch_norm_backward")
def batch_norm_backward(
    ctx: Context,
    grad_out: Any,
    input: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: tuple[bool, ...],
) -> Any:
    grad, x = _wide(grad_out), _wide(input)
    axes = _across(x)
    if train:
        mean, rstd = _by_channel(save_mean, x), _by_channel(save_invstd, x)
    else:
        mean, rstd = _by_channel(running_mean, x), lax.rsqrt(_by_channel(running_var, x) + eps)
    normal = (x - mean) * rstd
    scaled = affine(grad, _by_channel(weight, x), None)
    by_input = None
    if output_mask[0]:
        by_input = _input_gradient(scaled, normal, rstd, axes) if train else scaled * rstd
    return (
        by_input,
        jnp.sum(grad * normal, axes) if output_mask[1] else None,
        jnp.sum(grad, axes) if output_mask[2] else None,
    )


# Dropout


def keep(key: Any, shape: tuple[int, ...], p: Any) -> Any:
    """A mask that is true with probability ``1 - p``."""
    return draws.unit(key, shape, np.dtype(np.float32)) >= p.astype(jnp.float32)


@rule("native_dropout", numbers=("p",), random=True)
def dropout(ctx: Context, input: Any, p: Any, train: bool | None) -> Any:
    if train is False:
        return input, jnp.ones(input.shape, bool)
    mask = keep(ctx.key, input.shape, p)
    # Dropped elements are multiplied by zero, so that what is not finite shows as on CPU.
    return _wide(input) * mask * _wide(scale_of_kept(p).astype(input.dtype)), mask


def scale_of_kept(p: Any) -> Any:
    """What elements that are kept are multiplied by; 0 where none is."""
    return jnp.where(p == 1, 0.0, 1 / (1 - p))


@rule("native_dropout_backward", numbers=("scale",))
def dropout_backward(ctx: Context, grad_output: Any, mask: Any, scale: Any) -> Any:
    grad = _wide(grad_output)
    return grad * mask * scale.astype(grad.real.dtype)
