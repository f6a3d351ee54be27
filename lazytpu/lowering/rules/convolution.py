"""Convolutions of one to three dimensions and their gradients.

A transposed convolution is the input gradient of a plain one, and the reverse; so three functions
serve all directions. All three are single XLA convolutions, but for one case on the CPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering import taps
from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule


class _Geometry(NamedTuple):
    """Stride, padding and dilation for each spatial axis, and the number of groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def _geometry(rank: int, stride: Any, padding: Any, dilation: Any, groups: int) -> _Geometry:
    """The geometry over ``rank`` axes; a single number stands for all of them."""
    stride, padding, dilation = (tuple(v) * rank if len(v) == 1 else tuple(v) for v in (stride, padding, dilation))
    return _Geometry(stride, padding, dilation, groups)


def _accumulated(x: Any) -> dict[str, Any]:
    accumulated = opmath(x.dtype)
    precision = lax.Precision.HIGHEST if accumulated == x.dtype else None
    return {"precision": precision, "preferred_element_type": accumulated}


def _letters(rank: int) -> str:
    return "DHW"[3 - rank :]


def _forward(x: Any, weight: Any, g: _Geometry) -> Any:
    space = _letters(x.ndim - 2)
    return lax.conv_general_dilated(
        x, weight, g.stride, [(p, p) for p in g.padding], rhs_dilation=g.dilation,
        dimension_numbers=(f"NC{space}", f"OI{space}", f"NC{space}"), feature_group_count=g.groups, **_accumulated(x),
    )  # fmt: skip


def _input_gradient(grad: Any, weight: Any, g: _Geometry, size: tuple[int, ...]) -> Any:
    """The gradient of ``_forward`` by its input, whose spatial shape is ``size``."""
    space = _letters(grad.ndim - 2)
    outputs, inputs, *kernel = weight.shape
    swapped = weight.reshape(g.groups, outputs // g.groups, inputs, *kernel).swapaxes(1, 2)
    swapped = swapped.reshape(g.groups * inputs, outputs // g.groups, *kernel)
    padding = []
    for n, k, out, s, p, d in zip(size, kernel, grad.shape[2:], g.stride, g.padding, g.dilation):
        reach = d * (k - 1)
        low = reach - p
        padding.append((low, n + reach - ((out - 1) * s + 1) - low))
    return lax.conv_general_dilated(
        grad, lax.rev(swapped, range(2, swapped.ndim)), (1,) * len(size), padding, lhs_dilation=g.stride,
        rhs_dilation=g.dilation, dimension_numbers=(f"NC{space}", f"OI{space}", f"NC{space}"),
        feature_group_count=g.groups, **_accumulated(grad),
    )  # fmt: skip


def _weight_gradient(grad: Any, x: Any, g: _Geometry, kernel: tuple[int, ...], platform: str) -> Any:
    """The gradient of ``_forward`` by its weight, whose spatial shape is ``kernel``."""
    if platform == "cpu" and g.groups > 1 and not x.shape[1] == grad.shape[1] == g.groups:
        return _weight_gradient_by_windows(grad, x, g, kernel)
    space = _letters(x.ndim - 2)
    padding = []
    for n, k, out, s, p, d in zip(x.shape[2:], kernel, grad.shape[2:], g.stride, g.padding, g.dilation):
        padding.append((p, (k - 1) * d + (out - 1) * s + 1 - n - p))
    return lax.conv_general_dilated(
        x, grad, g.dilation, padding, rhs_dilation=g.stride,
        dimension_numbers=(f"CN{space}", f"IO{space}", f"CN{space}"), batch_group_count=g.groups, **_accumulated(x),
    )  # fmt: skip


def _weight_gradient_by_windows(grad: Any, x: Any, g: _Geometry, kernel: tuple[int, ...]) -> Any:
    """The same as one batched matrix product: XLA's CPU client runs batch-grouped convolutions as naive loops,
    unless each group has one input and one output channel."""
    batch, channels = x.shape[:2]
    x = jnp.pad(x, [(0, 0), (0, 0), *((p, p) for p in g.padding)])
    for axis, (k, out, s, d) in enumerate(zip(kernel, grad.shape[2:], g.stride, g.dilation)):
        x = taps.windows(x, 2 + 2 * axis, np.arange(k)[:, None] * d + np.arange(out) * s)
    rank = len(kernel)
    output_axes = range(4, 4 + 2 * rank, 2)
    x = x.reshape(batch, g.groups, channels // g.groups, *x.shape[2:])
    grad = grad.reshape(batch, g.groups, grad.shape[1] // g.groups, *grad.shape[2:])
    contracted = ((0, *range(3, 3 + rank)), (0, *output_axes))
    result = lax.dot_general(grad, x, (contracted, ((1,), (1,))), **_accumulated(x))
    return result.reshape(-1, *result.shape[2:])


def _output(ctx: Context, x: Any, weight: Any, bias: Any, g: _Geometry, transposed: bool) -> Any:
    if 0 in x.shape or 0 in weight.shape or 0 in ctx.shape:
        result = jnp.zeros(ctx.shape, opmath(x.dtype))
    elif transposed:
        result = _input_gradient(x, weight, g, ctx.shape[2:])
    else:
        result = _forward(x, weight, g)
    if bias is not None:
        result = result + bias.astype(result.dtype).reshape(-1, *(1,) * (x.ndim - 2))
    return result


@rule("convolution")
def convolution(
    ctx: Context, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    g = _geometry(input.ndim - 2, stride, padding, dilation, groups)
    return _output(ctx, input, weight, bias, g, transposed)


@rule("_convolution")
def convolution_with_backend_flags(
    ctx: Context, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, *flags: bool,
) -> Any:  # fmt: skip
    g = _geometry(input.ndim - 2, stride, padding, dilation, groups)
    return _output(ctx, input, weight, bias, g, transposed)


@rule("convolution_backward")
def convolution_backward(
    ctx: Context, grad_output: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: tuple[bool, ...],
) -> Any:  # fmt: skip
    g = _geometry(input.ndim - 2, stride, padding, dilation, groups)
    empty = 0 in input.shape or 0 in weight.shape or 0 in grad_output.shape
    grads: list[Any] = [None, None, None]
    if output_mask[0]:
        if empty:
            grads[0] = jnp.zeros(input.shape, input.dtype)
        elif transposed:
            grads[0] = _forward(grad_output, weight, g)
        else:
            grads[0] = _input_gradient(grad_output, weight, g, input.shape[2:])
    if output_mask[1]:
        coarse, fine = (input, grad_output) if transposed else (grad_output, input)
        if empty:
            grads[1] = jnp.zeros(weight.shape, weight.dtype)
        else:
            grads[1] = _weight_gradient(coarse, fine, g, weight.shape[2:], ctx.platform)
    if output_mask[2]:
        axes = (0, *range(2, grad_output.ndim))
        grads[2] = grad_output.sum(axes, dtype=opmath(grad_output.dtype))
    return tuple(grads)
