"""Activation functions and their gradients, element by element.

Half types are computed in float32; slopes, limits and thresholds are runtime inputs.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.conversion import convert
from lazytpu.lowering.registry import rule


def _math(ctx: Context, *operands: Any) -> list[Any]:
    dtype = opmath(ctx.dtype)
    return [convert(jnp.asarray(x), dtype) for x in operands]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + jnp.exp(-x))


def _conj(x: Any) -> Any:
    return jnp.conj(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else x


# Clipped and piecewise linear


@rule("relu", pointwise=True)
def relu(ctx: Context, self: Any) -> Any:
    return jnp.maximum(self, jnp.zeros((), self.dtype))


@rule("threshold", pointwise=True)
def threshold(ctx: Context, self: Any, threshold: Any, value: Any) -> Any:
    limit, value = ctx.cast(threshold, value)
    return jnp.where(self <= limit, value, self)


@rule("threshold_backward", pointwise=True)
def threshold_backward(ctx: Context, grad_output: Any, self: Any, threshold: Any) -> Any:
    g, x, limit = ctx.cast(grad_output, self, threshold)
    return jnp.where(x <= limit, jnp.zeros((), g.dtype), g)


@rule("hardtanh", pointwise=True)
def hardtanh(ctx: Context, self: Any, min_val: Any, max_val: Any) -> Any:
    low, high = ctx.cast(min_val, max_val)
    return jnp.minimum(jnp.maximum(self, low), high)


@rule("hardtanh_backward", pointwise=True)
def hardtanh_backward(ctx: Context, grad_output: Any, self: Any, min_val: Any, max_val: Any) -> Any:
    g, x, low, high = ctx.cast(grad_output, self, min_val, max_val)
    return jnp.where((x > low) & (x < high), g, jnp.zeros((), g.dtype))


@rule("hardsigmoid", pointwise=True)
def hardsigmoid(ctx: Context, self: Any) -> Any:
    (x,) = _math(ctx, self)
    return jnp.clip(x + 3, 0, 6) / 6


@rule("hardsigmoid_backward", pointwise=True)
def hardsigmoid_backward(ctx: Context, grad_output: Any, self: Any) -> Any:
    g, x = _math(ctx, grad_output, self)
    return jnp.where((x > -3) & (x < 3), g / 6, 0)


@rule("hardswish", pointwise=True)
def hardswish(ctx: Context, self: Any) -> Any:
    (x,) = _math(ctx, self)
    return x * jnp.clip(x + 3, 0, 6) / 6


@rule("hardswish_backward", pointwise=True)
def hardswish_backward(ctx: Context, grad_output: Any, self: Any) -> Any:
    g, x = _math(ctx, grad_output, self)
    return jnp.where(x <= -3, 0, jnp.where(x >= 3, g, g * (x / 3 + 0.5)))


@rule("leaky_relu", pointwise=True)
def leaky_relu(ctx: Context, self: Any, negative_slope: Any) -> Any:
    x, slope = _math(ctx, self, negative_slope)
    return jnp.where(x > 0, x, x * slope)


@rule("leaky_relu_backward", pointwise=True)
def leaky_relu_backward(ctx: Context, grad_output: Any, self: Any, negative_slope: Any, self_is_result: bool) -> Any:
    g, x, slope = _math(ctx, grad_output, self, negative_slope)
    return jnp.where(x > 0, g, g * slope)


@rule("_prelu_kernel", pointwise=True)
def prelu(ctx: Context, self: Any, weight: Any) -> Any:
    x, w = _math(ctx, self, weight)
    return jnp.where(x > 0, x, x * w)


@rule("_prelu_kernel_backward")
def prelu_backward(ctx: Context, grad_output: Any, self: Any, weight: Any) -> Any:
    g, x, w = _math(ctx, grad_output, self, weight)
    return jnp.where(x > 0, g, g * w), jnp.where(x > 0, 0, g * x)


@rule("softshrink", pointwise=True)
def softshrink(ctx: Context, self: Any, lambd: Any) -> Any:
    x, limit = _math(ctx, self, lambd)
    return jnp.where(x > limit, x - limit, jnp.where(x < -limit, x + limit, x * 0))


@rule("hardshrink", pointwise=True)
def hardshrink(ctx: Context, self: Any, lambd: Any) -> Any:
    x, limit = _math(ctx, self, lambd)
    return jnp.where((x >= -limit) & (x <= limit), 0, x)


@rule("softshrink_backward", "hardshrink_backward", pointwise=True)
def shrink_backward(ctx: Context, grad_output: Any, self: Any, lambd: Any) -> Any:
    g, x, limit = _math(ctx, grad_output, self, lambd)
    return jnp.where((x < -limit) | (x > limit), g, 0)


# Exponential


@rule("elu", pointwise=True)
def elu(ctx: Context, self: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    x, a, s, i = _math(ctx, self, alpha, scale, input_scale)
    return jnp.where(x < 0, jnp.expm1(x * i) * (a * s), x * s)


@rule("elu_backward", pointwise=True)
def elu_backward(
    ctx: Context, grad_output: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self_or_result: Any
) -> Any:
    g, x, a, s, i = _math(ctx, grad_output, self_or_result, alpha, scale, input_scale)
    slope = i * (x + a * s) if is_result else i * (a * s) * jnp.exp(x * i)
    return jnp.where(x > 0, g * s, g * slope)


@rule("softplus", pointwise=True)
def softplus(ctx: Context, self: Any, beta: Any, threshold: Any) -> Any:
    x, b, limit = _math(ctx, self, beta, threshold)
    return jnp.where(x * b > limit, x, jnp.log1p(jnp.exp(x * b)) / b)


@rule("softplus_backward", pointwise=True)
def softplus_backward(ctx: Context, grad_output: Any, self: Any, beta: Any, threshold: Any) -> Any:
    g, x, b, limit = _math(ctx, grad_output, self, beta, threshold)
    z = jnp.exp(x * b)
    return jnp.where(x * b > limit, g, g * z / (z + 1))


@rule("silu", pointwise=True)
def silu(ctx: Context, self: Any) -> Any:
    (x,) = _math(ctx, self)
    return x / (1 + jnp.exp(-x))


@rule("silu_backward", pointwise=True)
def silu_backward(ctx: Context, grad_output: Any, self: Any) -> Any:
    g, x = _math(ctx, grad_output, self)
    s = _sigmoid(x)
    return g * s * (1 + x * (1 - s))


@rule("mish", pointwise=True)
def mish(ctx: Context, self: Any) -> Any:
    (x,) = _math(ctx, self)
    return x * jnp.tanh(jnp.log1p(jnp.exp(x)))


@rule("mish_backward", pointwise=True)
def mish_backward(ctx: Context, grad_output: Any, self: Any) -> Any:
    g, x = _math(ctx, grad_output, self)
    t = jnp.tanh(jnp.log1p(jnp.exp(x)))
    return g * (t + x * _sigmoid(x) * (1 - t * t))


@rule("log_sigmoid_forward")
def log_sigmoid(ctx: Context, self: Any) -> Any:
    (x,) = _math(ctx, self)
    z = jnp.exp(-jnp.abs(x))
    return jnp.minimum(x, 0) - jnp.log1p(z), z


@rule("log_sigmoid_backward", pointwise=True)
def log_sigmoid_backward(ctx: Context, grad_output: Any, self: Any, buffer: Any) -> Any:
    g, x = _math(ctx, grad_output, self)
    z = jnp.exp(-jnp.abs(x))
    fraction = z / (1 + z)
    return g * jnp.where(x < 0, 1 - fraction, fraction)


@rule("sigmoid_backward", pointwise=True)
def sigmoid_backward(ctx: Context, grad_output: Any, output: Any) -> Any:
    g, y = _math(ctx, grad_output, output)
    return g * _conj((1 - y) * y)


@rule("tanh_backward", pointwise=True)
def tanh_backward(ctx: Context, grad_output: Any, output: Any) -> Any:
    g, y = _math(ctx, grad_output, output)
    return g * _conj(1 - y * y)


@rule("logit_backward", pointwise=True)
def logit_backward(ctx: Context, grad_output: Any, self: Any, eps: float | None) -> Any:
    g, x = _math(ctx, grad_output, self)
    low, high, outside = (0.0, 1.0, jnp.nan) if eps is None else (eps, 1 - eps, 0.0)
    return jnp.where((x >= low) & (x <= high), g / (x * (1 - x)), outside)


# Gaussian error


_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715
"""The coefficient of gelu's approximation by a hyperbolic tangent."""


@rule("gelu", pointwise=True)
def gelu(ctx: Context, self: Any, approximate: str) -> Any:
    (x,) = _math(ctx, self)
    if approximate == "tanh":
        return 0.5 * x * (1 + jnp.tanh(_SQRT_2_OVER_PI * (x + _CUBIC * x * x * x)))
    return x * 0.5 * (1 + lax.erf(x * _SQRT_HALF))


@rule("gelu_backward", pointwise=True)
def gelu_backward(ctx: Context, grad_output: Any, self: Any, approximate: str) -> Any:
    g, x = _math(ctx, grad_output, self)
    if approximate == "tanh":
        t = jnp.tanh(_SQRT_2_OVER_PI * (x + _CUBIC * x * x * x))
        inner = _SQRT_2_OVER_PI * (1 + 3 * _CUBIC * x * x)
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)
    area = 0.5 * (1 + lax.erf(x * _SQRT_HALF))
    density = jnp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return g * (area + x * density)


# Gated


@rule("glu")
def glu(ctx: Context, self: Any, dim: int) -> Any:
    a, b = jnp.split(_math(ctx, self)[0], 2, axis=dim)
    return a * _sigmoid(b)


@rule("glu_backward")
def glu_backward(ctx: Context, grad_output: Any, self: Any, dim: int) -> Any:
    g, x = _math(ctx, grad_output, self)
    a, b = jnp.split(x, 2, axis=dim)
    s = _sigmoid(b)
    return jnp.concatenate([g * s, g * s * (1 - s) * a], axis=dim)
