"""The generator behind every random rule: Threefry-2x32 in counter mode, as a JAX PRNG.

A key is two words of a seed and one that counts draws, so a draw needs no key schedule: element
``i`` of draw ``c`` is the block ``(c, i)`` enciphered under the seed. JAX's own Threefry derives a
key for each draw and runs its rounds in loops, which XLA takes several times as long to compile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_CHILD = 0x9E3779B9
"""Sets the keys that ``split`` and ``fold_in`` derive apart from the numbers that are drawn."""


def threefry(key: tuple[Any, Any], block: tuple[Any, Any]) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds: ``block`` enciphered under ``key``, all uint32."""
    schedule = (*key, key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    a, b = block[0] + schedule[0], block[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            a = a + b
            b = a ^ ((b << rotation) | (b >> (32 - rotation)))
        a = a + schedule[(group + 1) % 3]
        b = b + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return a, b


def _seed(seed: Any) -> Any:
    words = jnp.asarray(seed).astype(jnp.uint64)
    return jnp.stack([words >> 32, words & 0xFFFFFFFF, jnp.uint64(0)]).astype(jnp.uint32)


def _child(key: Any, index: Any) -> Any:
    a, b = threefry((key[0] ^ jnp.uint32(_CHILD), key[1]), (jnp.broadcast_to(key[2], index.shape), index))
    return jnp.stack([a, b, jnp.zeros_like(a)], axis=-1)


def _split(key: Any, shape: Sequence[int]) -> Any:
    return _child(key, jax.lax.iota(jnp.uint32, math.prod(shape))).reshape(*shape, 3)


def _fold_in(key: Any, data: Any) -> Any:
    return _child(key, jnp.asarray(data).astype(jnp.uint32))


def _random_bits(key: Any, width: int, shape: Sequence[int]) -> Any:
    index = jax.lax.iota(jnp.uint64, math.prod(shape)).reshape(shape)
    # Beyond 2 ** 32 elements the index spills into the key; below, the compiler folds this away.
    high = (index >> 32).astype(jnp.uint32) if math.prod(shape) > 1 << 32 else jnp.uint32(0)
    a, b = threefry((key[0], key[1] ^ high), (jnp.broadcast_to(key[2], shape), index.astype(jnp.uint32)))
    if width == 64:
        return (a.astype(jnp.uint64) << 32) | b.astype(jnp.uint64)
    return a.astype(f"uint{width}")


_IMPL = define_prng_impl(
    key_shape=(3,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="lazytpu", tag="lzt"
)


def key_of(seed: Any, draw: Any) -> Any:
    """The JAX key of one draw, from a 64-bit seed and the number of the draw, both runtime inputs."""
    seed, draw = seed.astype(jnp.uint64), draw.astype(jnp.uint64)
    words = [(seed >> 32) ^ (draw >> 32), seed & 0xFFFFFFFF, draw & 0xFFFFFFFF]
    return jax.random.wrap_key_data(jnp.stack(words).astype(jnp.uint32), impl=_IMPL)


def threefry_key(key: Any) -> Any:
    """A key of JAX's own generator, for samplers that take no other."""
    return jax.random.wrap_key_data(jax.random.bits(key, (2,), jnp.uint32), impl="threefry2x32")
