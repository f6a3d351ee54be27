"""Softmax, its logarithm and its masked forms, with their gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lazytpu.lowering.axes import along
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule


def _exponentials(ctx: Context, self: Any, dim: int) -> tuple[Any, Any, int]:
    """``self`` less its maximum along an axis, the exponentials of that, and the axis."""
    x, axis = along(self.astype(opmath(self.dtype)), dim)
    shifted = x - jnp.max(x, axis, keepdims=True, initial=-np.inf)
    return shifted, jnp.exp(shifted), axis


def softmax_over(ctx: Context, self: Any, dim: int) -> Any:
    """Softmax in the dtype of accumulation; a row that is -inf throughout gives NaN."""
    _, powers, axis = _exponentials(ctx, self, dim)
    return (powers / jnp.sum(powers, axis, keepdims=True)).reshape(self.shape)


@rule("_softmax")
def softmax(ctx: Context, self: Any, dim: int, half_to_float: bool) -> Any:
    return softmax_over(ctx, self, dim)


@rule("_log_softmax")
def log_softmax(ctx: Context, self: Any, dim: int, half_to_float: bool) -> Any:
    shifted, powers, axis = _exponentials(ctx, self, dim)
    return (shifted - jnp.log(jnp.sum(powers, axis, keepdims=True))).reshape(self.shape)


@rule("_safe_softmax")
def safe_softmax(ctx: Context, self: Any, dim: int, dtype: Any) -> Any:
    x, axis = along(self if dtype is None else self.astype(ctx.dtype), dim)
    nothing = jnp.all(x == -np.inf, axis, keepdims=True)
    result = softmax_over(ctx, x, axis)
    return jnp.where(nothing, jnp.zeros((), result.dtype), result).reshape(ctx.shape)


def _backward_operands(grad_output: Any, output: Any, dim: int) -> tuple[Any, Any, int]:
    dtype = opmath(jnp.promote_types(grad_output.dtype, output.dtype))
    grad, axis = along(grad_output.astype(dtype), dim)
    return grad, jnp.atleast_1d(output.astype(dtype)), axis


@rule("_softmax_backward_data")
def softmax_backward(ctx: Context, grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    grad, y, axis = _backward_operands(grad_output, output, dim)
    weighted = grad * y
    return (weighted - y * jnp.sum(weighted, axis, keepdims=True)).reshape(ctx.shape)


@rule("_log_softmax_backward_data")
def log_softmax_backward(ctx: Context, grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    grad, y, axis = _backward_operands(grad_output, output, dim)
    return (grad - jnp.exp(y) * jnp.sum(grad, axis, keepdims=True)).reshape(ctx.shape)


_ATTENTION, _PADDING = 0, 1


@rule("_masked_softmax")
def masked_softmax(ctx: Context, self: Any, mask: Any, dim: Any, mask_type: Any) -> Any:
    if mask_type == _PADDING and mask.ndim < self.ndim:
        mask = mask.reshape(mask.shape[0], *(1,) * (self.ndim - 2), mask.shape[1])
    return softmax_over(ctx, jnp.where(mask, np.array(-np.inf, self.dtype), self), -1 if dim is None else dim)


@rule("_masked_softmax_backward")
def masked_softmax_backward(ctx: Context, grad_output: Any, output: Any, mask: Any, dim: Any) -> Any:
    shown = jnp.where(mask, jnp.zeros((), output.dtype), output)
    return softmax_backward(ctx, grad_output, shown, -1 if dim is None else dim, None)
