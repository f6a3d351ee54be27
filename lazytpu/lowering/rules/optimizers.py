"""Fused optimizer steps over lists of parameters, and the loss scaler's checks.

Each rule returns the new content of every list that its op writes to, in the schema's order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule

_HYPERPARAMETERS = ("lr", "beta1", "beta2", "weight_decay", "momentum", "dampening", "lr_decay")


def _fused(*ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    overloads = [f"{op}{suffix}" for op in ops for suffix in ("", ".tensor_lr")]
    return rule(*overloads, numbers=_HYPERPARAMETERS)


def _number(x: Any, dtype: Any) -> Any:
    return x.reshape(()).astype(dtype)


def _unscaled(grad: Any, grad_scale: Any) -> Any:
    return grad if grad_scale is None else grad / _number(grad_scale, grad.dtype)


def _unless(found_inf: Any, new: Any, old: Any) -> Any:
    """``new``, or ``old`` where the step is to be skipped."""
    new = new.astype(old.dtype)
    return new if found_inf is None else jnp.where(_number(found_inf, jnp.float32) == 1, old, new)


def _decayed(grad: Any, parameter: Any, weight_decay: Any) -> Any:
    """The gradient with the penalty's; none at all without a penalty, so that what is not finite stays out."""
    return jnp.where(weight_decay != 0, grad + weight_decay.astype(grad.dtype) * parameter, grad)


def _adam(decoupled: bool) -> Callable[..., Any]:
    def lower(
        ctx: Context,
        self: list[Any],
        grads: list[Any],
        exp_avgs: list[Any],
        exp_avg_sqs: list[Any],
        max_exp_avg_sqs: list[Any],
        state_steps: list[Any],
        lr: Any,
        beta1: Any,
        beta2: Any,
        weight_decay: Any,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Any,
        found_inf: Any,
    ) -> Any:
        written: list[list[Any]] = [[], [], [], [], []]
        for i, parameter in enumerate(self):
            math = opmath(parameter.dtype)
            x, first, second = (t.astype(math) for t in (parameter, exp_avgs[i], exp_avg_sqs[i]))
            rate, decay, b2 = (_number(t, math) for t in (lr, weight_decay, beta2))
            unscaled = _unscaled(grads[i].astype(math), grad_scale)
            gradient = -unscaled if maximize else unscaled
            if decoupled:
                x = jnp.where(decay != 0, x - rate * decay * x, x)
            else:
                gradient = _decayed(gradient, x, decay)
            first = first + (gradient - first) * (1 - beta1).astype(math)
            second = b2 * second + (1 - beta2).astype(math) * gradient * gradient
            step = state_steps[i].reshape(()).astype(jnp.float64)
            correction1, correction2 = 1 - beta1**step, jnp.sqrt(1 - beta2**step)
            squares = second
            if amsgrad:
                squares = jnp.maximum(max_exp_avg_sqs[i].astype(math), second)
                written[4].append(_unless(found_inf, squares, max_exp_avg_sqs[i]))
            root = jnp.sqrt(squares) / correction2.astype(math) + eps
            x = x - (_number(lr, jnp.float64) / correction1).astype(math) * first / root
            written[0].append(_unless(found_inf, x, parameter))
            written[1].append(_unless(found_inf, unscaled, grads[i]))
            written[2].append(_unless(found_inf, first, exp_avgs[i]))
            written[3].append(_unless(found_inf, second, exp_avg_sqs[i]))
        if not amsgrad:
            written[4] = max_exp_avg_sqs
        return [t for tensors in written for t in tensors]

    return lower


_fused("_fused_adam_")(_adam(decoupled=False))
_fused("_fused_adamw_")(_adam(decoupled=True))


@_fused("_fused_sgd_")
def sgd(
    ctx: Context,
    self: list[Any],
    grads: list[Any],
    momentum_buffer_list: list[Any],
    weight_decay: Any,
    momentum: Any,
    lr: Any,
    dampening: Any,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any,
    found_inf: Any,
) -> Any:
    parameters, gradients, buffers = [], [], []
    for i, parameter in enumerate(self):
        math = opmath(parameter.dtype)
        x = parameter.astype(math)
        rate, decay, share = (_number(t, math) for t in (lr, weight_decay, momentum))
        unscaled = _unscaled(grads[i].astype(math), grad_scale)
        update = _decayed(-unscaled if maximize else unscaled, x, decay)
        if momentum_buffer_list:
            old = momentum_buffer_list[i]
            buffer = update if is_first_step else share * old.astype(math) + (1 - dampening).astype(math) * update
            buffers.append(_unless(found_inf, buffer, old))
            update = update + share * buffer if nesterov else buffer
        parameters.append(_unless(found_inf, x - rate * update, parameter))
        gradients.append(_unless(found_inf, unscaled, grads[i]))
    return [*parameters, *gradients, *buffers]


def _adagrad(
    ctx: Context,
    self: list[Any],
    grads: list[Any],
    state_sums: list[Any],
    state_steps: list[Any],
    lr: Any,
    lr_decay: Any,
    weight_decay: Any,
    eps: float,
    maximize: bool,
    grad_scale: Any,
    found_inf: Any,
) -> Any:
    parameters, gradients, sums = [], [], []
    for i, parameter in enumerate(self):
        math = opmath(parameter.dtype)
        x = parameter.astype(math)
        unscaled = _unscaled(grads[i].astype(math), grad_scale)
        gradient = _decayed(-unscaled if maximize else unscaled, x, _number(weight_decay, math))
        total = state_sums[i].astype(math) + gradient * gradient
        step = state_steps[i].reshape(()).astype(jnp.float64)
        rate = (_number(lr, jnp.float64) / (1 + (step - 1) * lr_decay)).astype(math)
        parameters.append(_unless(found_inf, x - rate * gradient / (jnp.sqrt(total) + eps), parameter))
        gradients.append(_unless(found_inf, unscaled, grads[i]))
        sums.append(_unless(found_inf, total, state_sums[i]))
    return [*parameters, *gradients, *sums]


@rule("_fused_adagrad_", numbers=_HYPERPARAMETERS)
def adagrad(ctx: Context, *args: Any) -> Any:
    """As the overload with a tensor for a rate; this one's schema writes the steps too."""
    return [*_adagrad(ctx, *args), *args[3]]


rule("_fused_adagrad_.tensor_lr", numbers=_HYPERPARAMETERS)(_adagrad)


# The loss scaler


@rule("_amp_foreach_non_finite_check_and_unscale_")
def check_and_unscale(ctx: Context, self: list[Any], found_inf: Any, inv_scale: Any) -> Any:
    bad = [jnp.any(~jnp.isfinite(x)) for x in self]
    flag = jnp.where(jnp.stack(bad).any(), jnp.ones_like(found_inf), found_inf) if bad else found_inf
    return [*(x.astype(opmath(x.dtype)) * _number(inv_scale, opmath(x.dtype)) for x in self), flag]


@rule("_amp_update_scale_", numbers=("scale_growth_factor", "scale_backoff_factor", "growth_interval"))
def update_scale(
    ctx: Context,
    self: Any,
    growth_tracker: Any,
    found_inf: Any,
    scale_growth_factor: Any,
    scale_backoff_factor: Any,
    growth_interval: Any,
) -> Any:
    overflowed = found_inf != 0
    grown = growth_tracker + 1
    due = grown == growth_interval.astype(grown.dtype)
    larger = (self * scale_growth_factor).astype(self.dtype)
    larger = jnp.where(jnp.isfinite(larger), larger, self)
    smaller = (self * scale_backoff_factor).astype(self.dtype)
    scale = jnp.where(overflowed, smaller, jnp.where(due, larger, self))
    return scale, jnp.where(overflowed | due, jnp.zeros_like(grown), grown)
