"""The steps written by hand in JAX are the ones that PyTorch runs: loss, gradients, parameters and statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch

from tools.bench import jax_steps, shapes, torch_steps
from tools.bench.gpt_jax import gpt
from tools.bench.jax_training import arguments, rate, step_of


def _own(t: torch.Tensor) -> np.ndarray:
    """A copy that no later step writes to."""
    return t.detach().numpy().copy()


def _pair(layer: Any, read: Callable[[torch.Tensor], np.ndarray]) -> list[np.ndarray]:
    return [read(layer.weight), read(layer.bias)]


def _mlp(model: Any, read: Any) -> Any:
    return [_pair(layer, read) for layer in model if isinstance(layer, torch.nn.Linear)]


def _cnn(model: Any, read: Any) -> Any:
    convolutions = [layer for layer in model if isinstance(layer, torch.nn.Conv2d)]
    norms = [layer for layer in model if isinstance(layer, torch.nn.BatchNorm2d)]
    layers = [
        {"kernel": read(c.weight).transpose(2, 3, 1, 0), "scale": read(n.weight), "shift": read(n.bias)}
        for c, n in zip(convolutions, norms)
    ]
    return {"layers": layers, "head": _pair(model[-1], read)}


def _lstm(model: Any, read: Any) -> Any:
    def gates(kind: str, layer: int) -> list[np.ndarray]:
        return [read(getattr(model.lstm, f"{what}_{kind}_l{layer}")) for what in ("weight", "bias")]

    layers = [{"input": gates("ih", i), "hidden": gates("hh", i)} for i in range(model.lstm.num_layers)]
    return {"embed": read(model.embed.weight), "layers": layers, "head": _pair(model.head, read)}


def _gpt(model: Any, read: Any) -> Any:
    blocks = [
        {
            "norm1": _pair(b.norm1, read), "norm2": _pair(b.norm2, read), "qkv": _pair(b.qkv, read), "out": _pair(b.out, read),
            "up": _pair(b.mlp[0], read), "down": _pair(b.mlp[2], read),
        }
        for b in model.blocks
    ]  # fmt: skip
    tables = {"tokens": read(model.tokens.weight), "positions": read(model.positions.weight)}
    return {**tables, "blocks": blocks, "norm": _pair(model.norm, read)}


def _statistics(model: Any) -> Any:
    norms = [layer for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    return [[_own(n.running_mean), _own(n.running_var)] for n in norms] or ()


def _batch(x: torch.Tensor) -> np.ndarray:
    """A batch as the twin takes it: images with channels last, ids of 32 bits."""
    if x.dim() == 4:
        x = x.permute(0, 2, 3, 1)
    return (x.int() if x.dtype == torch.int64 else x).numpy()


def _close(actual: Any, expected: Any, compared: Any = None) -> None:
    """Compare two trees, where ``compared`` is given only the elements for which it is true."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    masks = jax.tree.leaves(compared) if compared is not None else [True] * len(jax.tree.leaves(expected))
    for a, b, mask in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), masks):
        np.testing.assert_allclose(np.where(mask, a, 0), np.where(mask, b, 0), rtol=2e-4, atol=2e-5)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, dict[str, Any]] = {
        "GPT": {"vocabulary": 11, "context": 6, "width": 16, "heads": 2, "batch": 3},
        "MLP": {"layers": 3, "width": 12, "classes": 4, "batch": 5},
        "CNN": {"size": 8, "channels": 2, "widths": (4, 6), "classes": 3, "batch": 3},
        "LSTM": {"vocabulary": 9, "width": 8, "layers": 2, "length": 5, "batch": 3},
    }
    for name, size in sizes.items():
        monkeypatch.setattr(shapes, name, size)


@pytest.mark.parametrize(
    ("workload", "twin_of", "tree"),
    [
        ("mlp", jax_steps.mlp, _mlp),
        ("cnn", jax_steps.cnn, _cnn),
        ("lstm", jax_steps.lstm, _lstm),
        ("gpt2", lambda: gpt(2), _gpt),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_a_twin_takes_the_same_steps(
    small: None, monkeypatch: pytest.MonkeyPatch, workload: str, twin_of: Any, tree: Any, device: str
) -> None:
    model, batches, make_optimizer = torch_steps._workload(workload)
    for parameter in model.parameters():  # biases that begin at zero would hide a wrong place
        torch.nn.init.normal_(parameter, std=0.3)
    monkeypatch.setattr(torch_steps, "_workload", lambda name: (model, batches, make_optimizer))
    twin = twin_of()
    taken = twin._replace(
        parameters=tree(model, _own), statistics=_statistics(model), batches=[tuple(map(_batch, b)) for b in batches]
    )
    assert jax.tree.map(np.shape, taken.parameters) == jax.tree.map(np.shape, twin.parameters)
    run = torch_steps.make_run(workload, device)
    step = jax.jit(step_of(taken))
    state = arguments(taken)[:3]
    solid = jax.tree.map(lambda p: np.ones(np.shape(p), bool), taken.parameters)
    for i in range(3):
        expected_loss = run(i)
        *state, gradients, loss = step(*state, taken.batches[i], rate(taken, i), np.float32(i + 1))
        on_cpu = {name: t.cpu() for name, t in model.state_dict().items()}
        np.testing.assert_allclose(float(loss), expected_loss.item(), rtol=1e-5)
        expected_gradients = tree(model, lambda p: _own(p.grad.cpu()))
        _close(gradients, expected_gradients)
        # Adam makes a whole step of a gradient that is all rounding error, as that of a key's bias is.
        solid = jax.tree.map(lambda mask, g: mask & (abs(g) > 1e-4), solid, expected_gradients)
        _close(state[0], tree(model, lambda p: _own(p.cpu())), solid)
        if state[2] != ():
            means = [on_cpu[name].numpy() for name in on_cpu if name.endswith("running_mean")]
            _close([s[0] for s in state[2]], means)
            variances = [on_cpu[name].numpy() for name in on_cpu if name.endswith("running_var")]
            _close([s[1] for s in state[2]], variances)
