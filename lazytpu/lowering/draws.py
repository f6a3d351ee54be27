"""Drawing numbers from a key: the building blocks of the random rules.

Integers and floats are made from raw bits so that ranges are exact: a uniform number is a multiple
of the dtype's own grid and never 1, and an open one is never 0 either.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lazytpu.lowering.context import opmath

_DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def digits(dtype: np.dtype) -> int:
    """The bits of a float dtype's significand: integers up to ``2 ** digits`` are exact."""
    return _DIGITS.get(np.dtype(dtype).name, np.finfo(np.float32).nmant + 1)


def _bits(key: Any, shape: tuple[int, ...], wide: bool) -> Any:
    return jax.random.bits(key, shape, jnp.uint64 if wide else jnp.uint32)


def unit(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Uniform numbers in [0, 1) on the grid of ``dtype``, in the dtype it computes in."""
    kept = digits(dtype)
    wide = kept > 32
    bits = _bits(key, shape, wide) >> ((64 if wide else 32) - kept)
    return bits.astype(opmath(dtype)) * 2.0**-kept


def open_unit(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Uniform numbers in (0, 1), both ends left out, in the dtype that ``dtype`` computes in."""
    math = opmath(dtype)
    kept = digits(math) - 1
    wide = kept > 32
    bits = _bits(key, shape, wide) >> ((64 if wide else 32) - kept)
    return (bits * 2 + 1).astype(math) * 2.0 ** -(kept + 1)


def normal(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Standard normal numbers, in the dtype that ``dtype`` computes in; complex ones have variance 1 in all."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        real = np.finfo(dtype).dtype
        parts = jax.random.normal(key, (2, *shape), real) * (0.5**0.5)
        return jax.lax.complex(parts[0], parts[1])
    return jax.random.normal(key, shape, opmath(dtype))


def below(key: Any, shape: tuple[int, ...], span: Any, wide: bool) -> Any:
    """Uniform uint64 integers in [0, span); a ``span`` of 0 stands for ``2 ** 64``.

    The high half of the product of random bits and ``span``: where the span does not divide the
    bits evenly the excess is spread over the whole range, not piled up at its low end.

    Args:
        wide: draw 64 bits a number; 32 are enough where the span is at most ``2 ** 32``.
    """
    bits = _bits(key, shape, wide).astype(jnp.uint64)
    if not wide:
        return (bits * span) >> 32
    low = jnp.uint64(0xFFFFFFFF)
    a, b, c, d = bits >> 32, bits & low, span >> 32, span & low
    middle = a * d + ((b * d) >> 32)
    high = a * c + (middle >> 32) + (((middle & low) + b * c) >> 32)
    return jnp.where(span == 0, bits, high)


def gamma(key: Any, shape_parameter: Any) -> Any:
    """The logarithms of gamma numbers of scale 1, by Marsaglia and Tsang's rejection; float32 or float64."""
    dtype = shape_parameter.dtype
    shape = shape_parameter.shape
    boosted = shape_parameter < 1  # Gamma(a) is Gamma(a + 1) * U ** (1 / a)
    d = jnp.where(boosted, shape_parameter + 1, shape_parameter) - 1 / 3
    c = 1 / jnp.sqrt(9 * d)
    boost_key, loop_key = jax.random.split(key)

    def pending(state: tuple[Any, Any, Any]) -> Any:
        return jnp.any(~state[1])

    def turn(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        key, done, value = state
        key, x_key, u_key = jax.random.split(key, 3)
        x = jax.random.normal(x_key, shape, dtype)
        v = (1 + c * x) ** 3
        log_v = jnp.log(jnp.where(v > 0, v, 1))
        accepted = (v > 0) & (jnp.log(open_unit(u_key, shape, dtype)) < 0.5 * x * x + d * (1 - v + log_v))
        return key, done | accepted, jnp.where(done | ~accepted, value, jnp.log(d) + log_v)

    impossible = ~(shape_parameter > 0) | jnp.isinf(shape_parameter)
    _, _, value = jax.lax.while_loop(pending, turn, (loop_key, impossible, jnp.zeros(shape, dtype)))
    boost = jnp.log(open_unit(boost_key, shape, dtype)) / jnp.where(boosted, shape_parameter, 1)
    value = jnp.where(boosted, value + boost, value)
    limit = jnp.where(shape_parameter == 0, -jnp.inf, jnp.where(shape_parameter > 0, jnp.inf, jnp.nan)).astype(dtype)
    return jnp.where(impossible, limit, value)
