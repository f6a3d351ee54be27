"""The example GPT and AdamW written by hand for ``jax.jit``: the contender that lazytpu is measured against."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _parameters(s: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    width = s["width"]

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.02, shape).astype(np.float32)

    def norm() -> list[np.ndarray]:
        return [np.ones(width, np.float32), np.zeros(width, np.float32)]

    def linear(inputs: int, outputs: int) -> list[np.ndarray]:
        return [normal(outputs, inputs), np.zeros(outputs, np.float32)]

    blocks = [
        {
            "norm1": norm(), "norm2": norm(), "qkv": linear(width, 3 * width), "out": linear(width, width),
            "up": linear(width, 4 * width), "down": linear(4 * width, width),
        }
        for _ in range(s["layers"])
    ]  # fmt: skip
    return {
        "tokens": normal(s["vocabulary"], width),
        "positions": normal(s["context"], width),
        "blocks": blocks,
        "norm": norm(),
    }


def _norm(x: jax.Array, weight: list[Any]) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * weight[0] + weight[1]


def _linear(x: jax.Array, weight: list[Any]) -> jax.Array:
    return x @ weight[0].T + weight[1]


def _loss(parameters: dict[str, Any], ids: jax.Array, heads: int) -> jax.Array:
    x = parameters["tokens"][ids[:, :-1]] + parameters["positions"][: ids.shape[1] - 1]
    batch, length, width = x.shape
    mask = jnp.tril(jnp.ones((length, length), bool))
    for block in parameters["blocks"]:
        q, k, v = _linear(_norm(x, block["norm1"]), block["qkv"]).reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
        scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / math.sqrt(width // heads), -jnp.inf)
        y = (jax.nn.softmax(scores) @ v).swapaxes(1, 2).reshape(batch, length, width)
        x = x + _linear(y, block["out"])
        x = x + _linear(jax.nn.gelu(_linear(_norm(x, block["norm2"]), block["up"]), approximate=False), block["down"])
    logits = _norm(x, parameters["norm"]) @ parameters["tokens"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], -1)
    return -picked.mean()


def make_step(s: dict[str, int]) -> tuple[Callable[[int], None], Callable[[], None], Callable[[], float], Callable[[], int]]:
    """The step, a wait for it, its last loss, and the number of programs compiled."""
    parameters = jax.tree.map(jnp.asarray, _parameters(s))
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    rng = np.random.default_rng(1)
    batches = [rng.integers(s["vocabulary"], size=(s["batch"], s["context"] + 1)).astype(np.int32) for _ in range(8)]

    def update(p: Any, m: Any, v: Any, g: Any, rate: Any, count: Any) -> tuple[Any, Any, Any]:
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        p = p * (1 - rate * 0.01)
        return p - rate / (1 - 0.9**count) * m / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8), m, v

    def train(parameters: Any, first: Any, second: Any, ids: Any, rate: Any, count: Any) -> Any:
        loss, gradients = jax.value_and_grad(_loss)(parameters, ids, s["heads"])
        updated = jax.tree.map(lambda p, m, v, g: update(p, m, v, g, rate, count), parameters, first, second, gradients)
        parts = jax.tree.transpose(jax.tree.structure(parameters), jax.tree.structure((0, 0, 0)), updated)
        return (*parts, gradients, loss)

    compiled = jax.jit(train, donate_argnums=(0, 1, 2))
    state: list[Any] = [parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), None, None]
    count = [0.0]

    def step(i: int) -> None:
        count[0] += 1
        state[:] = compiled(state[0], state[1], state[2], batches[i % 8], 1e-3, count[0])

    return step, lambda: jax.block_until_ready(state[0]) and None, lambda: float(state[4]), lambda: compiled._cache_size()
