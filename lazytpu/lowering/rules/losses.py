"""Losses and their gradients, computed in float32 for the half types.

A class that does not exist raises at the next wait; until then the loss is NaN.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule

_NONE, _MEAN, _SUM = 0, 1, 2


def _operands(ctx: Context, *tensors: Any) -> list[Any]:
    """The operands in the dtype of computation, None left alone."""
    dtype = opmath(ctx.dtype)
    return [None if x is None else x.astype(dtype) for x in tensors]


def _reduced(loss: Any, reduction: int) -> Any:
    if reduction == _NONE:
        return loss
    total = jnp.sum(loss)
    return total / np.array(loss.size, loss.dtype) if reduction == _MEAN else total


def _spread(grad: Any, shape: tuple[int, ...], reduction: int) -> Any:
    """The gradient that reaches each element of an unreduced loss of ``shape``."""
    if reduction != _MEAN:
        return grad
    return grad / np.array(np.prod(shape), grad.dtype)


def _elementwise_gradient(ctx: Context, slope: Any, grad: Any, reduction: int) -> Any:
    return jnp.broadcast_to(slope * _spread(grad, slope.shape, reduction), ctx.shape)


@rule("mse_loss")
def mse_loss(ctx: Context, self: Any, target: Any, reduction: int) -> Any:
    x, t = _operands(ctx, self, target)
    return _reduced((x - t) * (x - t), reduction)


@rule("mse_loss_backward")
def mse_loss_backward(ctx: Context, grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    grad, x, t = _operands(ctx, grad_output, self, target)
    return _elementwise_gradient(ctx, 2 * (x - t), grad, reduction)


@rule("smooth_l1_loss", numbers=("beta",))
def smooth_l1_loss(ctx: Context, self: Any, target: Any, reduction: int, beta: Any) -> Any:
    x, t, b = _operands(ctx, self, target, beta)
    off = jnp.abs(x - t)
    return _reduced(jnp.where(off < b, 0.5 * off * off / b, off - 0.5 * b), reduction)


@rule("smooth_l1_loss_backward", numbers=("beta",))
def smooth_l1_loss_backward(ctx: Context, grad_output: Any, self: Any, target: Any, reduction: int, beta: Any) -> Any:
    grad, x, t, b = _operands(ctx, grad_output, self, target, beta)
    off = x - t
    slope = jnp.where(off <= -b, -1, jnp.where(off >= b, 1, off / b)).astype(off.dtype)
    return _elementwise_gradient(ctx, slope, grad, reduction)


@rule("huber_loss", numbers=("delta",))
def huber_loss(ctx: Context, self: Any, target: Any, reduction: int, delta: Any) -> Any:
    x, t, d = _operands(ctx, self, target, delta)
    off = jnp.abs(x - t)
    return _reduced(jnp.where(off < d, 0.5 * off * off, d * (off - 0.5 * d)), reduction)


@rule("huber_loss_backward", numbers=("delta",))
def huber_loss_backward(ctx: Context, grad_output: Any, self: Any, target: Any, reduction: int, delta: Any) -> Any:
    grad, x, t, d = _operands(ctx, grad_output, self, target, delta)
    off = x - t
    slope = jnp.where(off <= -d, -d, jnp.where(off >= d, d, off))
    return _elementwise_gradient(ctx, slope, grad, reduction)


@rule("soft_margin_loss")
def soft_margin_loss(ctx: Context, self: Any, target: Any, reduction: int) -> Any:
    x, t = _operands(ctx, self, target)
    return _reduced(jnp.log1p(jnp.exp(-x * t)), reduction)


@rule("soft_margin_loss_backward")
def soft_margin_loss_backward(ctx: Context, grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    grad, x, t = _operands(ctx, grad_output, self, target)
    power = jnp.exp(-t * x)
    return _elementwise_gradient(ctx, -t * power / (power + 1), grad, reduction)


def _weighted(x: Any, weight: Any) -> Any:
    return x if weight is None else x * weight


@rule("binary_cross_entropy")
def binary_cross_entropy(ctx: Context, self: Any, target: Any, weight: Any, reduction: int) -> Any:
    x, t, w = _operands(ctx, self, target, weight)
    message = "all elements of input should be between 0 and 1, and those of target too"
    ctx.require(jnp.stack([jnp.all((p >= 0) & (p <= 1)) for p in (x, t)]), message, RuntimeError)
    floor = np.array(-100, x.dtype)
    loss = (t - 1) * jnp.maximum(jnp.log1p(-x), floor) - t * jnp.maximum(jnp.log(x), floor)
    return _reduced(_weighted(loss, w), reduction)


@rule("binary_cross_entropy_backward")
def binary_cross_entropy_backward(ctx: Context, grad_output: Any, self: Any, target: Any, weight: Any, reduction: int) -> Any:
    grad, x, t, w = _operands(ctx, grad_output, self, target, weight)
    # As on CPU the bound is a number of the input's dtype: in float16 it is zero.
    bound = np.array(1e-12, self.dtype).astype(x.dtype)
    slope = (x - t) / jnp.maximum((1 - x) * x, bound)
    return _elementwise_gradient(ctx, _weighted(slope, w), grad, reduction)


@rule("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(ctx: Context, self: Any, target: Any, weight: Any, pos_weight: Any, reduction: int) -> Any:
    x, t, w, p = _operands(ctx, self, target, weight, pos_weight)
    log_sigmoid = jnp.minimum(x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x)))
    positive = log_sigmoid if p is None else ((p - 1) * t + 1) * log_sigmoid
    return _reduced(_weighted((1 - t) * x - positive, w), reduction)


class _Classes:
    """Class targets along the class axis of scores, with the weight of each."""

    def __init__(self, ctx: Context, scores: Any, target: Any, weight: Any, ignore_index: int, axis: int) -> None:
        self.axis = axis
        self.target = jnp.expand_dims(target.reshape(scores.shape[:axis] + scores.shape[axis + 1 :]), axis)
        size = scores.shape[axis]
        self.ignored = self.target == ignore_index
        self.valid = (self.target >= 0) & (self.target < size)
        ctx.require(self.ignored | self.valid, f"a target is out of bounds: it is not one of {size} classes")
        self.safe = jnp.where(self.valid, self.target, 0).astype(jnp.int32)
        self.weights = jnp.ones(self.target.shape, scores.dtype)
        if weight is not None and size:
            self.weights = jnp.take(weight, self.safe, mode="clip").astype(scores.dtype)

    def weigh(self, x: Any) -> Any:
        """``x`` times the weights of the targets: 0 where ignored, NaN where there is no such class."""
        weighed = jnp.where(self.valid, x * self.weights, jnp.full((), jnp.nan, x.dtype))
        return jnp.where(self.ignored, jnp.zeros((), x.dtype), weighed)


def _class_axis(scores: Any) -> int:
    return 0 if scores.ndim == 1 else 1


def _nll_loss(ctx: Context, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    x = self.astype(opmath(self.dtype))
    axis = _class_axis(x)
    classes = _Classes(ctx, x, target, weight, ignore_index, axis)
    if x.size == 0:
        losses = total = jnp.zeros(classes.target.shape, x.dtype)
    else:
        losses = classes.weigh(-jnp.take_along_axis(x, classes.safe, axis, mode="clip"))
        total = classes.weigh(jnp.ones((), x.dtype))
    total = jnp.sum(total)
    if reduction == _NONE:
        return losses.reshape(ctx.shape), total if x.ndim == 1 else jnp.zeros((), x.dtype)
    loss = jnp.sum(losses)
    return loss / total if reduction == _MEAN else loss, total


@rule("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(ctx: Context, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    return _nll_loss(ctx, self, target, weight, reduction, ignore_index)


@rule("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    ctx: Context, grad_output: Any, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int,
    total_weight: Any,
) -> Any:  # fmt: skip
    x = self.astype(opmath(self.dtype))
    axis = _class_axis(x)
    classes = _Classes(ctx, x, target, weight, ignore_index, axis)
    grad = grad_output.astype(x.dtype)
    grad = grad.reshape(classes.target.shape) if reduction == _NONE else grad.reshape((1,) * x.ndim)
    if reduction == _MEAN:
        grad = grad / total_weight.astype(x.dtype)
    places = np.arange(x.shape[axis]).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    chosen = (places == classes.target) | ~classes.valid
    return jnp.where(chosen, classes.weigh(-grad), jnp.zeros((), x.dtype))


def _rows(x: Any) -> Any:
    """Scores as (batch, classes)."""
    return x if x.ndim == 2 else x.reshape(1, -1)


def _margins(ctx: Context, self: Any, target: Any, margin: Any) -> tuple[Any, Any, Any]:
    """``max(0, margin - x[target] + x)`` off the target, where the target is, and targets."""
    x = _rows(self.astype(opmath(self.dtype)))
    t = target.reshape(-1, 1)
    valid = (t >= 0) & (t < x.shape[1])
    ctx.require(valid, "target out of range", RuntimeError)
    at_target = np.arange(x.shape[1]) == t
    safe = jnp.where(valid, t, 0).astype(jnp.int32)
    score = jnp.where(valid, jnp.take_along_axis(x, safe, 1, mode="clip"), jnp.full((), jnp.nan, x.dtype))
    gap = margin.astype(x.dtype) - score + x
    return jnp.where(at_target | (gap <= 0), jnp.zeros((), x.dtype), gap), at_target, safe


@rule("multi_margin_loss", static=("p",))
def multi_margin_loss(ctx: Context, self: Any, target: Any, p: Any, margin: Any, weight: Any, reduction: int) -> Any:
    if 0 in self.shape:
        return _reduced(jnp.zeros(ctx.shape if reduction == _NONE else (0,), opmath(self.dtype)), reduction)
    gap, _, safe = _margins(ctx, self, target, margin)
    cost = gap if p == 1 else gap * gap
    if weight is not None:
        cost = cost * jnp.take(weight, safe, mode="clip").astype(cost.dtype)
    losses = jnp.sum(cost, 1) / np.array(cost.shape[1], cost.dtype)
    return _reduced(losses, reduction).reshape(ctx.shape)


@rule("multi_margin_loss_backward", static=("p",))
def multi_margin_loss_backward(
    ctx: Context, grad_output: Any, self: Any, target: Any, p: Any, margin: Any, weight: Any, reduction: int
) -> Any:
    if 0 in self.shape:
        return jnp.zeros(ctx.shape, ctx.dtype)
    gap, at_target, safe = _margins(ctx, self, target, margin)
    slope = (gap != 0).astype(gap.dtype) if p == 1 else 2 * gap
    if weight is not None:
        slope = slope * jnp.take(weight, safe, mode="clip").astype(slope.dtype)
    slope = jnp.where(at_target, -jnp.sum(slope, 1, keepdims=True), slope)
    grad = grad_output.astype(gap.dtype).reshape(-1, 1) / np.array(gap.shape[1], gap.dtype)
    return (slope * _spread(grad, (gap.shape[0],), reduction)).reshape(ctx.shape)


def _labels(ctx: Context, self: Any, target: Any) -> tuple[Any, Any, Any]:
    """Scores and, for each label before the first negative one, a row that marks its class; all marked classes."""
    x = _rows(self.astype(opmath(self.dtype)))
    t = _rows(target)
    ctx.require(t < x.shape[1], "argument #2 'target' is out of range", RuntimeError)
    listed = jnp.cumsum(t < 0, 1) == 0
    marks = (t[:, :, None] == np.arange(x.shape[1])) & listed[:, :, None]
    return x, marks, listed


def _label_gaps(x: Any, marks: Any, listed: Any, is_target: Any) -> Any:
    """``max(0, 1 - x[label] + x[other])`` for each listed label and each class that is no label."""
    scores = jnp.sum(jnp.where(marks, x[:, None, :], jnp.zeros((), x.dtype)), 2)
    scores = jnp.where(jnp.any(marks, 2), scores, jnp.full((), jnp.nan, x.dtype))
    gap = 1 - scores[:, :, None] + x[:, None, :]
    return jnp.where(listed[:, :, None] & ~is_target[:, None, :] & ~(gap <= 0), gap, jnp.zeros((), x.dtype))


@rule("multilabel_margin_loss_forward")
def multilabel_margin_loss(ctx: Context, self: Any, target: Any, reduction: int) -> Any:
    if self.size == 0:
        empty = jnp.zeros(ctx.shape if reduction == _NONE else (0,), opmath(self.dtype))
        return _reduced(empty, reduction), jnp.zeros(ctx.outs[1].shape, self.dtype)
    x, marks, listed = _labels(ctx, self, target)
    is_target = jnp.any(marks, 1)
    losses = jnp.sum(_label_gaps(x, marks, listed, is_target), (1, 2)) / np.array(x.shape[1], x.dtype)
    return _reduced(losses, reduction).reshape(ctx.shape), is_target.reshape(ctx.outs[1].shape)


@rule("multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(
    ctx: Context, grad_output: Any, self: Any, target: Any, reduction: int, is_target: Any
) -> Any:
    if self.size == 0:
        return jnp.zeros(ctx.shape, ctx.dtype)
    x, marks, listed = _labels(ctx, self, target)
    active = (_label_gaps(x, marks, listed, _rows(is_target) != 0) != 0).astype(x.dtype)
    of_labels = jnp.sum(jnp.where(marks, jnp.sum(active, 2, keepdims=True), jnp.zeros((), x.dtype)), 1)
    grad = grad_output.astype(x.dtype).reshape(-1, 1) / np.array(x.shape[1], x.dtype)
    return ((jnp.sum(active, 1) - of_labels) * _spread(grad, (x.shape[0],), reduction)).reshape(ctx.shape)
