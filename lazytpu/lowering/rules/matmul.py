"""Matrix and vector products.

Products of float32 are full float32 products on every platform; half types are accumulated in
float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule


def contract(x: Any, y: Any, contracted: Any, batched: Any = ((), ())) -> Any:
    """``lax.dot_general`` with the accumulation PyTorch users expect; halves give float32."""
    accumulated = opmath(x.dtype)
    precision = lax.Precision.HIGHEST if accumulated == x.dtype else None
    return lax.dot_general(x, y, (contracted, batched), precision=precision, preferred_element_type=accumulated)


def _matrix_product(x: Any, y: Any) -> Any:
    return contract(x, y, ((1,), (0,)))


def _batch_product(x: Any, y: Any) -> Any:
    return contract(x, y, ((2,), (1,)), ((0,), (0,)))


def _scaled_sum(ctx: Context, self: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """``beta * self + alpha * product``; a ``beta`` of zero ignores what ``self`` holds, NaN included."""
    dtype = opmath(ctx.dtype)
    x, y, b, a = (jnp.asarray(operand).astype(dtype) for operand in (self, product, beta, alpha))
    return jnp.where(b == 0, jnp.zeros((), dtype), b * x) + a * y


@rule("mm")
def mm(ctx: Context, self: Any, mat2: Any) -> Any:
    return _matrix_product(self, mat2)


@rule("_int_mm")
def int_mm(ctx: Context, self: Any, mat2: Any) -> Any:
    return _matrix_product(self.astype(jnp.int32), mat2.astype(jnp.int32))


@rule("bmm")
def bmm(ctx: Context, self: Any, mat2: Any) -> Any:
    return _batch_product(self, mat2)


@rule("mv")
def mv(ctx: Context, self: Any, vec: Any) -> Any:
    return contract(self, vec, ((1,), (0,)))


@rule("dot")
def dot(ctx: Context, self: Any, tensor: Any) -> Any:
    return contract(self, tensor, ((0,), (0,)))


@rule("vdot")
def vdot(ctx: Context, self: Any, other: Any) -> Any:
    return contract(self.conj(), other, ((0,), (0,)))


@rule("addmm")
def addmm(ctx: Context, self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    return _scaled_sum(ctx, self, _matrix_product(mat1, mat2), beta, alpha)


@rule("addmv")
def addmv(ctx: Context, self: Any, mat: Any, vec: Any, beta: Any, alpha: Any) -> Any:
    return _scaled_sum(ctx, self, contract(mat, vec, ((1,), (0,))), beta, alpha)


@rule("baddbmm")
def baddbmm(ctx: Context, self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Any:
    return _scaled_sum(ctx, self, _batch_product(batch1, batch2), beta, alpha)


@rule("addbmm")
def addbmm(ctx: Context, self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Any:
    product = contract(batch1.swapaxes(0, 1), batch2, ((1, 2), (0, 1)))
    return _scaled_sum(ctx, self, product, beta, alpha)


@rule("addr")
def addr(ctx: Context, self: Any, vec1: Any, vec2: Any, beta: Any, alpha: Any) -> Any:
    x, u, v = ctx.cast(self, vec1, vec2)
    b, a = ctx.cast(beta, alpha)
    if ctx.dtype == np.bool_:
        return (x & b) | (u[:, None] & v & a)
    product = a * u[:, None] * v
    return jnp.where(b == 0, product, b * x + product)


@rule("linear")
def linear(ctx: Context, input: Any, weight: Any, bias: Any) -> Any:
    product = contract(input, weight, ((input.ndim - 1,), (weight.ndim - 1,)))
    return product if bias is None else product + bias.astype(product.dtype)


@rule("linear_backward")
def linear_backward(ctx: Context, self: Any, grad_output: Any, weight: Any, output_mask: tuple[bool, ...]) -> Any:
    leading = tuple(range(self.ndim - 1))
    grads: list[Any] = [None, None, None]
    if output_mask[0]:
        grads[0] = contract(grad_output, weight.conj(), ((grad_output.ndim - 1,), (0,)))
    if output_mask[1]:
        grads[1] = contract(grad_output, self.conj(), (leading, leading))
    if output_mask[2]:
        grads[2] = grad_output.sum(leading, dtype=opmath(grad_output.dtype))
    return tuple(grads)
