"""The smaller workloads written by hand for JAX, without a library of layers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tools.bench import shapes
from tools.bench.gpt_jax import gpt
from tools.bench.jax_training import Twin, adamw, cross_entropy, linear, make_step, new_linear, normal, sgd
from tools.bench.step import Step


def _labelled(shape: tuple[int, ...], classes: int) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(1)
    return [
        (rng.normal(size=shape).astype(np.float32), rng.integers(classes, size=shape[0]).astype(np.int32))
        for _ in range(shapes.BATCHES)
    ]


def _mlp_loss(parameters: Any, statistics: Any, x: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
    for layer in parameters[:-1]:
        x = jax.nn.relu(linear(x, layer))
    return cross_entropy(linear(x, parameters[-1]), targets), statistics


def mlp() -> Twin:
    """A multi-layer perceptron with AdamW."""
    s = shapes.MLP
    widths = [s["width"]] * s["layers"] + [s["classes"]]
    parameters = [new_linear(inputs, outputs) for inputs, outputs in pairwise(widths)]
    return Twin(_mlp_loss, parameters, (), _labelled((s["batch"], s["width"]), s["classes"]), adamw, 2)


def _batch_norm(x: jax.Array, layer: dict[str, Any], running: list[Any]) -> tuple[jax.Array, list[Any]]:
    mean = x.mean((0, 1, 2))
    variance = jnp.square(x - mean).mean((0, 1, 2))
    count = x.size // x.shape[-1]
    new = [0.9 * running[0] + 0.1 * mean, 0.9 * running[1] + 0.1 * variance * (count / (count - 1))]
    return (x - mean) * lax.rsqrt(variance + 1e-5) * layer["scale"] + layer["shift"], new


def _cnn_loss(parameters: Any, statistics: Any, x: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
    moved = []
    for layer, running in zip(parameters["layers"], statistics):
        x = lax.conv_general_dilated(x, layer["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x, new = _batch_norm(x, layer, running)
        x = lax.reduce_window(jax.nn.relu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        moved.append(new)
    return cross_entropy(linear(x.mean((1, 2)), parameters["head"]), targets), moved


def cnn() -> Twin:
    """Convolutions with batch norm and pooling, channels last as XLA likes them, with momentum."""
    s: dict[str, Any] = shapes.CNN
    widths = (s["channels"], *s["widths"])
    layers = [
        {
            "kernel": normal(3, 3, inputs, outputs, std=math.sqrt(2 / (9 * inputs))),
            "scale": np.ones(outputs, np.float32),
            "shift": np.zeros(outputs, np.float32),
        }
        for inputs, outputs in pairwise(widths)
    ]
    running = [[np.zeros(w, np.float32), np.ones(w, np.float32)] for w in s["widths"]]
    parameters = {"layers": layers, "head": new_linear(widths[-1], s["classes"])}
    return Twin(
        _cnn_loss, parameters, running, _labelled((s["batch"], s["size"], s["size"], s["channels"]), s["classes"]), sgd, 1
    )


def _lstm_layer(x: jax.Array, layer: dict[str, Any]) -> jax.Array:
    """One layer over (time, batch, feature); the products with the inputs are done for all steps at once."""
    projected = linear(x, layer["input"])

    def cell(state: tuple[jax.Array, jax.Array], here: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, memory = state
        i, f, g, o = jnp.split(here + linear(hidden, layer["hidden"]), 4, -1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    zero = jnp.zeros((x.shape[1], layer["hidden"][0].shape[1]), x.dtype)
    return lax.scan(cell, (zero, zero), projected)[1]


def _lstm_loss(parameters: Any, statistics: Any, ids: jax.Array, targets: jax.Array) -> tuple[jax.Array, Any]:
    x = parameters["embed"][ids.T]
    for layer in parameters["layers"]:
        x = _lstm_layer(x, layer)
    return cross_entropy(linear(x, parameters["head"]), targets.T), statistics


def lstm() -> Twin:
    """A language model of LSTM layers with AdamW."""
    s = shapes.LSTM
    width = s["width"]

    def gates() -> list[np.ndarray]:
        return [normal(4 * width, width, std=1 / math.sqrt(3 * width)), np.zeros(4 * width, np.float32)]

    parameters = {
        "embed": normal(s["vocabulary"], width, std=1.0),
        "layers": [{"input": gates(), "hidden": gates()} for _ in range(s["layers"])],
        "head": new_linear(width, s["vocabulary"]),
    }
    rng = np.random.default_rng(1)
    ids = [rng.integers(s["vocabulary"], size=(s["batch"], s["length"] + 1)).astype(np.int32) for _ in range(shapes.BATCHES)]
    return Twin(_lstm_loss, parameters, (), [(x[:, :-1], x[:, 1:]) for x in ids], adamw, 2)


_TWINS = {"mlp": mlp, "cnn": cnn, "lstm": lstm}


def by_hand(workload: str) -> Step:
    """The step of ``workload`` under ``jax.jit``."""
    layers = shapes.gpt_layers(workload)
    return make_step(_TWINS[workload]() if layers is None else gpt(layers))
