"""Scaled dot-product attention and its gradient, from the saved logarithms of the weights' sums.

Queries are (batch, head, position, feature). There may be fewer heads of keys and values, each then
serves a group of query heads; inside, heads are split into (key head, query head in its group).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule
from lazytpu.lowering.rules.matmul import contract
from lazytpu.lowering.rules.norms import keep, scale_of_kept

_HEADS = ((0, 1), (0, 1))


def _split(x: Any, groups: int) -> Any:
    """(batch, head, …) as (batch, key head, query head in its group, …)."""
    return x.reshape(x.shape[0], groups, x.shape[1] // groups if groups else 0, *x.shape[2:])


def _scores(query: Any, key: Any, bias: Any, scale: Any, causal: bool) -> Any:
    """Scores of (batch, key head, group, query, key); minus infinity where a key is masked off."""
    heads = key.shape[1]
    scores = contract(_split(query, heads), key, ((4,), (3,)), _HEADS)
    scores = scores * scale.astype(scores.dtype)
    whole = (*query.shape[:3], key.shape[2])
    if bias is not None:
        bias = _split(jnp.broadcast_to(bias, whole), heads)
        scores = jnp.where(bias, scores, -jnp.inf) if bias.dtype == bool else scores + bias.astype(scores.dtype)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(whole[2:], bool)), scores, -jnp.inf)
    return scores


def _kept(ctx: Context, query: Any, key: Any, p: Any, dtype: Any) -> Any:
    """The factor of each weight under dropout: 0, or what makes up for those dropped."""
    mask = keep(ctx.key, (*query.shape[:3], key.shape[2]), p)
    return _split(mask, key.shape[1]) * scale_of_kept(p).astype(dtype)


def _attention(ctx: Context, query: Any, key: Any, value: Any, bias: Any, scale: Any, p: Any, causal: bool) -> Any:
    scores = _scores(query, key, bias, scale, causal)
    largest = jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)
    # A row with every key masked off has weights of zero, not NaN.
    weights = jnp.exp(scores - jnp.where(largest == -jnp.inf, 0, largest))
    total = weights.sum(-1, keepdims=True)
    weights = weights / jnp.where(total == 0, 1, total)
    sums = (largest + jnp.log(total)).reshape(query.shape[:3])
    if p is not None:
        weights = weights * _kept(ctx, query, key, p, weights.dtype)
    out = contract(weights.astype(value.dtype), value, ((4,), (2,)), _HEADS)
    return out.reshape(*query.shape[:3], value.shape[3]), sums


@rule("lazytpu::attention")
def attention(ctx: Context, query: Any, key: Any, value: Any, bias: Any, scale: Any, p: Any, causal: bool) -> Any:
    """The result, and the logarithm of each row's sum of exponentials."""
    return _attention(ctx, query, key, value, bias, scale, p, causal)


@rule("lazytpu::attention_dropout", random=True)
def attention_dropout(ctx: Context, query: Any, key: Any, value: Any, bias: Any, scale: Any, p: Any, causal: bool) -> Any:
    """As ``attention``, with weights dropped with probability ``p``."""
    return _attention(ctx, query, key, value, bias, scale, p, causal)


def _unbroadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """``x`` summed up to the smaller shape that was broadcast to its own."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(i for i, size in enumerate(shape) if size == 1 != x.shape[i]), keepdims=True)


def _attention_backward(
    ctx: Context,
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    sums: Any,
    scale: Any,
    p: Any,
    causal: bool,
    mask: tuple[bool, ...],
) -> Any:
    heads = key.shape[1]
    sums = _split(sums, heads)[..., None]
    scores = _scores(query, key, bias, scale, causal)
    weights = jnp.exp(scores - jnp.where(sums == -jnp.inf, 0, sums))
    factor = 1 if p is None else _kept(ctx, query, key, p, weights.dtype)
    grad, split = _split(grad, heads), _split(query, heads)
    by_weights = contract(grad, value, ((4,), (3,)), _HEADS) * factor
    by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdims=True))
    by_products = (by_scores * scale.astype(by_scores.dtype)).astype(query.dtype)
    grads: list[Any] = [None] * 4
    if mask[0]:
        grads[0] = contract(by_products, key, ((4,), (2,)), _HEADS).reshape(query.shape)
    if mask[1]:
        grads[1] = contract(by_products, split, ((2, 3), (2, 3)), _HEADS)
    if mask[2]:
        grads[2] = contract((weights * factor).astype(grad.dtype), grad, ((2, 3), (2, 3)), _HEADS)
    if mask[3]:
        grads[3] = _unbroadcast(by_scores.reshape(*query.shape[:3], key.shape[2]), bias.shape)
    return tuple(grads)


@rule("lazytpu::attention_backward")
def attention_backward(ctx: Context, *args: Any) -> Any:
    """The gradients asked for, of query, key, value and bias."""
    return _attention_backward(ctx, *args)


@rule("lazytpu::attention_dropout_backward", random=True)
def attention_dropout_backward(ctx: Context, *args: Any) -> Any:
    """As ``attention_backward``, dropping the weights that the same seed and offset dropped."""
    return _attention_backward(ctx, *args)


@rule("lazytpu::attention_kept", random=True)
def attention_kept(ctx: Context, query: Any, key: Any, p: Any) -> Any:
    """The factors that ``attention_dropout`` multiplies the weights by, of (batch, head, query, key)."""
    return _kept(ctx, query, key, p, opmath(query.dtype)).reshape(ctx.shape)
