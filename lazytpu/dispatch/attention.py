"""Attention: the kernels behind ``scaled_dot_product_attention`` and PyTorch's fast path for encoders.

PyTorch's composite kernel would not choose a fused op on this device, so it is replaced: a call goes
to ``_scaled_dot_product_fused_attention_overrideable``, whose derivative PyTorch knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.device import random
from lazytpu.dispatch import cells, infer
from lazytpu.dispatch.fixed import record, values, wide
from lazytpu.ir import Value, tensor_type

_ATEN = torch.ops.aten
_SDPA = _ATEN.scaled_dot_product_attention.default
_FUSED = _ATEN._scaled_dot_product_fused_attention_overrideable.default
_FUSED_BACKWARD = _ATEN._scaled_dot_product_fused_attention_overrideable_backward.default
_INT = tensor_type((), torch.int64)
_checked: set[Any] = set()


# Choosing how to compute


def _sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """One fused op where the shapes allow it, else (or where only MATH is enabled) PyTorch's composite of small ops."""
    if cells.has_cell(query):
        _check(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    flat = query.dim() == 3 and key.dim() == 3 and value.dim() == 3 and (attn_mask is None or attn_mask.dim() < 4)
    if not _fused_allowed() or not _fits(query, key, value, attn_mask, enable_gqa, 3 if flat else 4):
        return _ATEN._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]
    if flat:
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
    out = _FUSED(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)[0]
    return out.squeeze(0) if flat else out


def _check(query: torch.Tensor, key: Any, value: Any, attn_mask: Any, dropout_p: float, is_causal: bool, *rest: Any) -> None:
    """Raise what PyTorch raises for such arguments, by calling it on meta tensors, once for each kind of call."""
    described = tuple(None if t is None else (t.shape, t.dtype, t.device) for t in (query, key, value, attn_mask))
    drops = 0.0 <= dropout_p <= 1.0
    known = (described, drops, is_causal, *rest)
    if known in _checked:
        return
    arguments = [query, key, value, attn_mask, dropout_p, is_causal, *rest]
    infer.check_same_device(_SDPA, arguments)
    if attn_mask is not None:
        arguments[5] = False  # both at once are an error in the composite kernel, but not in CPU's fused one
    infer.call(_SDPA, arguments)
    if not drops:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    _checked.add(known)


def _fused_allowed() -> bool:
    """Whether ``torch.nn.attention.sdpa_kernel`` allows any fused kernel; raises where it allows nothing."""
    c = torch._C
    if (
        c._get_overrideable_sdp_enabled()
        or c._get_flash_sdp_enabled()
        or c._get_mem_efficient_sdp_enabled()
        or c._get_cudnn_sdp_enabled()
    ):
        return True
    if not c._get_math_sdp_enabled():
        raise RuntimeError("No viable backend for scaled_dot_product_attention was found.")
    return False


def _fits(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any, enable_gqa: bool, rank: int) -> bool:
    if query.dim() != rank or key.dim() != rank or value.dim() != rank or not query.dtype.is_floating_point:
        return False
    heads, served = query.size(-3), key.size(-3)
    if value.size(-3) != served or (served != heads and not (enable_gqa and served and heads % served == 0)):
        return False
    if rank == 4 and not query.size(0) == key.size(0) == value.size(0):
        return False
    if attn_mask is None:
        return True
    whole = (*query.shape[:-1], key.size(-2))
    places = zip(reversed(attn_mask.shape), reversed(whole))
    return attn_mask.dim() <= rank and all(a in (1, b) for a, b in places)


# The fused op


def _scale_of(scale: float | None, query: torch.Tensor) -> float:
    if scale is not None:
        return float(scale)
    return 1 / math.sqrt(query.size(-1)) if query.size(-1) else math.inf


def _fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Record one op. With dropout its seed and offset are results too, for the backward to drop the same weights."""
    batch, heads, length, _ = query.shape
    sums = tensor_type((batch, heads, length), wide(query.dtype))
    outputs = (tensor_type((batch, heads, length, value.size(3)), query.dtype), sums)
    dropout = float(dropout_p) if dropout_p > 0 else None
    with recorder.lock:
        if dropout is None:
            seed = [cells.undefined((), torch.int64), cells.undefined((), torch.int64)]
        else:
            seed = [cells.full(_INT, x) for x in random.next_seed(None)]
        inputs = [*values(query, key, value, attn_bias), _scale_of(scale, query), dropout]
        op = "lazytpu::attention" if dropout is None else "lazytpu::attention_dropout"
        out, saved = record(op, inputs, (bool(is_causal),), outputs, [] if dropout is None else seed)
        states = tuple(map(cells.new, seed))
        return cells.new(out), cells.new(saved), None, None, length, key.size(2), *states, None


def _fused_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any,
    grad_input_mask: Any,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    dropout = float(dropout_p) if dropout_p > 0 else None
    wanted = tuple(bool(m) and t is not None for m, t in zip(grad_input_mask, (query, key, value, attn_bias)))
    with recorder.lock:
        read = values(query, key, value, attn_bias)
        outputs = tuple(v.type for v, w in zip(read, wanted) if w and v is not None)
        inputs = [cells.read(grad_out), *read, cells.read(logsumexp), _scale_of(scale, query), dropout]
        op = "lazytpu::attention_backward" if dropout is None else "lazytpu::attention_dropout_backward"
        seed = [] if dropout is None else [cells.read(philox_seed), cells.read(philox_offset)]
        results = iter(record(op, inputs, (bool(is_causal), wanted), outputs, seed))
        return tuple(cells.new(next(results)) if w else None for w in wanted)


def _fused_backward_autograd(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any,
    grad_input_mask: Any,
    *saved: Any,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """PyTorch knows no derivative of the backward op: where one may be asked for, it is made of small ops."""
    tensors = (grad_out, query, key, value, attn_bias)
    if not torch.is_grad_enabled() or not any(t is not None and t.requires_grad for t in tensors):
        with torch._C._AutoDispatchBelowAutograd():
            return _FUSED_BACKWARD(grad_out, query, key, value, attn_bias, grad_input_mask, *saved, scale=scale)
    dropout_p, is_causal, seed, offset = saved[6:]
    dtype = wide(query.dtype)
    group = query.size(1) // key.size(1)
    factor = _scale_of(scale, query)
    q, g = query.to(dtype), grad_out.to(dtype)
    k, v = (t.to(dtype).repeat_interleave(group, 1) for t in (key, value))
    scores = (q @ k.transpose(-2, -1)) * factor
    if attn_bias is not None:
        off = attn_bias.logical_not() if attn_bias.dtype == torch.bool else None
        scores = scores + attn_bias.to(dtype) if off is None else scores.masked_fill(off, -math.inf)
    if is_causal:
        off = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(off, -math.inf)
    weights = torch._safe_softmax(scores, -1)
    by_weights = g @ v.transpose(-2, -1)
    dropped = weights
    if dropout_p > 0:
        kept = _kept(query, key, dropout_p, seed, offset)
        by_weights, dropped = by_weights * kept, weights * kept
    by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True))

    def grouped(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return x.unflatten(1, (like.size(1), group)).sum(2).to(like.dtype)

    return (
        (by_scores @ k * factor).to(query.dtype) if grad_input_mask[0] else None,
        grouped(by_scores.transpose(-2, -1) @ q * factor, key) if grad_input_mask[1] else None,
        grouped(dropped.transpose(-2, -1) @ g, value) if grad_input_mask[2] else None,
        by_scores.sum_to_size(attn_bias.shape).to(attn_bias.dtype) if grad_input_mask[3] and attn_bias is not None else None,
    )


def _kept(query: torch.Tensor, key: torch.Tensor, p: float, seed: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    dtype = wide(query.dtype)
    output = tensor_type((*query.shape[:3], key.size(2)), dtype)
    with recorder.lock:
        inputs: list[Value | float | None] = [cells.read(query), cells.read(key), float(p)]
        drawn = record("lazytpu::attention_kept", inputs, (), (output,), [cells.read(seed), cells.read(offset)])
        return cells.new(drawn[0])


# PyTorch's fast path for attention modules that are not trained


def _native_multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Any, Any]:
    linear = torch.nn.functional.linear
    projected = [
        linear(x, w, b) for x, w, b in zip((query, key, value), qkv_weight.split(embed_dim), qkv_bias.split(embed_dim))
    ]
    q, k, v = (x.unflatten(-1, (num_head, -1)).transpose(1, 2) for x in projected)
    scores = (q / math.sqrt(embed_dim // num_head)) @ k.transpose(-2, -1)
    weights = scores.softmax(-1) if mask is None else torch._masked_softmax(scores, mask.to(torch.bool), 3, mask_type)
    out = linear((weights @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return out, None
    return out, weights.mean(1) if average_attn_weights else weights


def _transformer_encoder_layer_fwd(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: Any = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    functional = torch.nn.functional

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    def attend(x: torch.Tensor) -> torch.Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _native_multi_head_attention(x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)[0]

    def feed(x: torch.Tensor) -> torch.Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return x + feed(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(x + feed(x), norm_weight_2, norm_bias_2)


def _left_aligned(t: torch.Tensor, mask: torch.Tensor) -> bool:
    """False: encoders then keep dense tensors, since there are no nested ones on this device."""
    return False


def _nested_tensor_from_mask(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "there are no nested tensors on 'tpu'; build nn.TransformerEncoder with enable_nested_tensor=False, "
        "or leave its mask_check on"
    )


KERNELS: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": _sdpa,
    "_scaled_dot_product_fused_attention_overrideable": _fused,
    "_scaled_dot_product_fused_attention_overrideable_backward": _fused_backward,
    "_native_multi_head_attention": _native_multi_head_attention,
    "_transformer_encoder_layer_fwd": _transformer_encoder_layer_fwd,
    "_nested_tensor_from_mask_left_aligned": _left_aligned,
    "_nested_tensor_from_mask": _nested_tensor_from_mask,
}
"""Kernels by overload name, for registration."""

AUTOGRAD_KERNELS: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": _sdpa,
    "_scaled_dot_product_fused_attention_overrideable_backward": _fused_backward_autograd,
}
"""Kernels on ``AutogradPrivateUse1`` by overload name."""
