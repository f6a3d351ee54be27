"""The example GPT written by hand for JAX: the contender that lazytpu is measured against."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tools.bench import shapes
from tools.bench.jax_training import Twin, adamw, cross_entropy, linear, normal


def _parameters(s: dict[str, int], layers: int) -> dict[str, Any]:
    width = s["width"]

    def norm() -> list[np.ndarray]:
        return [np.ones(width, np.float32), np.zeros(width, np.float32)]

    def projection(inputs: int, outputs: int) -> list[np.ndarray]:
        return [normal(outputs, inputs), np.zeros(outputs, np.float32)]

    blocks = [
        {
            "norm1": norm(), "norm2": norm(), "qkv": projection(width, 3 * width), "out": projection(width, width),
            "up": projection(width, 4 * width), "down": projection(4 * width, width),
        }
        for _ in range(layers)
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


def _attention(x: jax.Array, block: dict[str, Any], heads: int) -> jax.Array:
    batch, length, width = x.shape
    q, k, v = linear(x, block["qkv"]).reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    mask = jnp.tril(jnp.ones((length, length), bool))
    scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / math.sqrt(width // heads), -jnp.inf)
    y = (jax.nn.softmax(scores) @ v).swapaxes(1, 2).reshape(batch, length, width)
    return linear(y, block["out"])


def _loss(parameters: dict[str, Any], statistics: Any, ids: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
    x = parameters["tokens"][ids] + parameters["positions"][: ids.shape[1]]
    for block in parameters["blocks"]:
        x = x + _attention(_norm(x, block["norm1"]), block, shapes.GPT["heads"])
        x = x + linear(jax.nn.gelu(linear(_norm(x, block["norm2"]), block["up"]), approximate=False), block["down"])
    return cross_entropy(_norm(x, parameters["norm"]) @ parameters["tokens"].T, targets), statistics


def gpt(layers: int) -> Twin:
    """The twin with ``layers`` layers: AdamW, clipped gradients and a cosine schedule."""
    s = shapes.GPT
    rng = np.random.default_rng(1)
    ids = [rng.integers(s["vocabulary"], size=(s["batch"], s["context"] + 1)).astype(np.int32) for _ in range(shapes.BATCHES)]
    batches = [(x[:, :-1], x[:, 1:]) for x in ids]
    return Twin(_loss, _parameters(s, layers), (), batches, adamw, 2, shapes.CLIP)
