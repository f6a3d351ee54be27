"""Training written by hand for ``jax.jit``: one step that donates its state and returns what PyTorch keeps alive."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tools.bench import shapes
from tools.bench.step import Step


class Twin(NamedTuple):
    """A workload in JAX.

    ``loss(parameters, statistics, *batch)`` gives the loss and the new statistics; ``slots`` is how many
    moments ``update`` keeps; ``clip`` bounds the norm of the gradients and brings the cosine schedule.
    """

    loss: Callable[..., tuple[jax.Array, Any]]
    parameters: Any
    statistics: Any
    batches: list[tuple[np.ndarray, ...]]
    update: Callable[..., tuple[jax.Array, ...]]
    slots: int
    clip: float | None = None


def adamw(p: Any, g: Any, m: Any, v: Any, rate: Any, count: Any) -> tuple[Any, ...]:
    """AdamW with PyTorch's defaults."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    p = p * (1 - rate * 0.01)
    return p - rate / (1 - 0.9**count) * m / (jnp.sqrt(v) / jnp.sqrt(1 - 0.999**count) + 1e-8), m, v


def sgd(p: Any, g: Any, m: Any, rate: Any, count: Any) -> tuple[Any, ...]:
    """Gradient descent with a momentum of 0.9."""
    m = 0.9 * m + g
    return p - rate * m, m


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean over all positions."""
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def linear(x: jax.Array, weight: list[Any]) -> jax.Array:
    """``x`` times a weight of (outputs, inputs), plus a bias."""
    return x @ weight[0].T + weight[1]


def normal(*shape: int, std: float = 0.02) -> np.ndarray:
    """A random weight."""
    return np.random.default_rng(math.prod(shape)).normal(0, std, shape).astype(np.float32)


def new_linear(inputs: int, outputs: int) -> list[np.ndarray]:
    """The weight and bias of ``linear``, scaled to keep the variance under ReLU."""
    return [normal(outputs, inputs, std=math.sqrt(2 / inputs)), np.zeros(outputs, np.float32)]


def step_of(twin: Twin) -> Callable[..., Any]:
    """(parameters, moments, statistics, batch, rate, count) → the new three, the gradients and the loss."""

    def train(parameters: Any, moments: Any, statistics: Any, batch: Any, rate: Any, count: Any) -> Any:
        of = jax.value_and_grad(twin.loss, has_aux=True)
        (loss, statistics), gradients = of(parameters, statistics, *batch)
        if twin.clip is not None:
            norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
            factor = jnp.minimum(1.0, twin.clip / (norm + 1e-6))
            gradients = jax.tree.map(lambda g: g * factor, gradients)
        updated = jax.tree.map(lambda p, g, *m: twin.update(p, g, *m, rate, count), parameters, gradients, *moments)
        whole = jax.tree.transpose(jax.tree.structure(parameters), jax.tree.structure((0,) * (1 + twin.slots)), updated)
        return whole[0], whole[1:], statistics, gradients, loss

    return train


def rate(twin: Twin, i: int) -> np.float32:
    """The learning rate of step ``i``."""
    factor = 1.0 if twin.clip is None else 0.5 * (1 + math.cos(math.pi * i / shapes.STEPS))
    return np.float32(shapes.RATE * factor)


def arguments(twin: Twin) -> tuple[Any, ...]:
    """What the first step is called with."""
    parameters, statistics = jax.tree.map(jnp.asarray, (twin.parameters, twin.statistics))
    moments = tuple(jax.tree.map(jnp.zeros_like, parameters) for _ in range(twin.slots))
    return parameters, moments, statistics, twin.batches[0], rate(twin, 0), np.float32(1)


def compiled(twin: Twin) -> Any:
    """The step under ``jax.jit``, its state donated."""
    return jax.jit(step_of(twin), donate_argnums=(0, 1, 2))


def make_step(twin: Twin) -> Step:
    """The step for a benchmark."""
    train = compiled(twin)
    state: list[Any] = [*arguments(twin)[:3], None, None]

    def run(i: int) -> None:
        batch = twin.batches[i % len(twin.batches)]
        state[:] = train(*state[:3], batch, rate(twin, i), np.float32(i + 1))

    def figures() -> dict[str, float]:
        m = train.lower(*arguments(twin)).compile().memory_analysis()
        peak = m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes - m.alias_size_in_bytes
        return {"loss": float(state[4]), "compiles": train._cache_size(), "device_mb": peak / 2**20}

    return Step(run, lambda: jax.block_until_ready(state[0]) and None, figures)
