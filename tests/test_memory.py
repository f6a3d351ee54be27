"""Device memory: donation, in-place updates, flat use over steps, and the bound set by hand-written JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
import torch.nn as nn

import lazytpu
from lazytpu import launch
from lazytpu.runtime.buffers import usage

WIDTH, DEPTH, BATCH = 256, 6, 32


def mlp() -> nn.Module:
    return nn.Sequential(*(m for _ in range(DEPTH) for m in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[int]:
    """Bytes live on the device after each step."""
    seen = []
    for i in range(steps):
        x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(i)).to("tpu")
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lazytpu.sync(wait=True)
        seen.append(usage.live)
    return seen


def jax_step_bytes() -> int:
    """What the same step takes when written by hand for ``jax.jit`` and returning the same live values."""

    def loss_of(parameters: Any, x: Any) -> Any:
        for w, b in parameters:
            x = jnp.tanh(x @ w.T + b)
        return jnp.square(x).mean()

    def step(parameters: Any, first: Any, second: Any, x: Any, rate: Any, count: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
        parameters = jax.tree.map(
            lambda p, m, v: p * (1 - rate * 0.01)
            - rate / (1 - 0.9**count) * m / (jnp.sqrt(v) / jnp.sqrt(1 - 0.999**count) + 1e-8),
            parameters,
            first,
            second,
        )
        return parameters, first, second, gradients, loss

    shapes = [(jax.ShapeDtypeStruct((WIDTH, WIDTH), "float32"), jax.ShapeDtypeStruct((WIDTH,), "float32"))] * DEPTH
    number = jax.ShapeDtypeStruct((), "float32")
    x = jax.ShapeDtypeStruct((BATCH, WIDTH), "float32")
    compiled = jax.jit(step, donate_argnums=(0, 1, 2)).lower(shapes, shapes, shapes, x, number, number).compile()
    m = compiled.memory_analysis()
    return m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes - m.alias_size_in_bytes


def test_a_training_step_takes_at_most_1_3_times_what_hand_written_jax_takes() -> None:
    model = mlp().to("tpu")
    train(model, torch.optim.AdamW(model.parameters()), 4)
    newest = next(reversed(launch.programs._entries.values()))
    assert newest.peak_bytes() <= 1.3 * jax_step_bytes()


def test_live_bytes_do_not_grow_with_steps() -> None:
    model = mlp().to("tpu")
    seen = train(model, torch.optim.AdamW(model.parameters()), 30)
    assert len(set(seen[3:])) == 1
    parameters = sum(p.numel() * 4 for p in model.parameters())
    assert seen[-1] <= 4 * parameters + BATCH * WIDTH * 4 + 100_000


def test_dead_leaves_are_donated_and_live_ones_are_not() -> None:
    x = torch.zeros(1000, device="tpu")
    kept = torch.ones(1000, device="tpu")
    lazytpu.sync(wait=True)
    old_x = x.untyped_storage().value.buffer.array
    old_kept = kept.untyped_storage().value.buffer.array
    x.add_(kept)
    lazytpu.sync(wait=True)
    assert old_x.is_deleted() and not old_kept.is_deleted()
    assert x.sum().item() == 1000 and kept.sum().item() == 1000


def test_a_value_shared_by_a_clone_survives_the_writes_to_its_source() -> None:
    x = torch.arange(4.0, device="tpu")
    lazytpu.sync(wait=True)
    y, z = x.clone(), x.detach()
    x.mul_(2)
    lazytpu.sync(wait=True)
    x.mul_(2)
    assert y.tolist() == [0, 1, 2, 3] and z.tolist() == x.tolist() == [0, 4, 8, 12]


def test_memory_counters_follow_allocation_and_release() -> None:
    before = torch.tpu.memory_allocated()
    x = torch.ones(1 << 20, device="tpu")
    lazytpu.sync(wait=True)
    assert torch.tpu.memory_allocated() - before >= 4 << 20
    del x
    assert torch.tpu.memory_allocated() <= before
    assert torch.tpu.max_memory_allocated() >= before + (4 << 20)
