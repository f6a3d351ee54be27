"""The workloads in plain PyTorch, written once for every device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

from tools.bench import shapes
from tools.bench.step import Skipped, Step


class _Recurrent(nn.Module):
    """An LSTM over embedded tokens with a head on each step."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(ids))[0])


def _gpt(layers: int) -> nn.Module:
    # The example imports lazytpu for its counters alone; the other contenders run without it.
    sys.modules.setdefault("lazytpu", ModuleType("lazytpu"))
    from examples.gpt import GPT

    s = shapes.GPT
    return GPT(s["vocabulary"], s["context"], layers, s["width"], s["heads"], 0.0)


def _mlp() -> nn.Module:
    s = shapes.MLP
    hidden = [layer for _ in range(s["layers"] - 1) for layer in (nn.Linear(s["width"], s["width"]), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(s["width"], s["classes"]))


def _cnn() -> nn.Module:
    s: dict[str, Any] = shapes.CNN
    layers: list[nn.Module] = []
    for inputs, outputs in zip((s["channels"], *s["widths"]), s["widths"]):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(s["widths"][-1], s["classes"]))


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=shapes.RATE)


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=shapes.RATE, momentum=0.9)


def _sequences(vocabulary: int, batch: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of token ids and of the ids that follow them."""
    ids = [torch.randint(vocabulary, (batch, length + 1)) for _ in range(shapes.BATCHES)]
    return [(x[:, :-1], x[:, 1:]) for x in ids]


def _labelled(shape: tuple[int, ...], classes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(shape), torch.randint(classes, shape[:1])) for _ in range(shapes.BATCHES)]


def _workload(name: str) -> tuple[nn.Module, list[Any], Callable[[Any], torch.optim.Optimizer]]:
    """The model, its batches and what makes its optimizer."""
    torch.manual_seed(0)
    layers = shapes.gpt_layers(name)
    if layers is not None:
        s: dict[str, Any] = shapes.GPT
        return _gpt(layers), _sequences(s["vocabulary"], s["batch"], s["context"]), _adamw
    if name == "mlp":
        s = shapes.MLP
        return _mlp(), _labelled((s["batch"], s["width"]), s["classes"]), _adamw
    if name == "cnn":
        s = shapes.CNN
        return _cnn(), _labelled((s["batch"], s["channels"], s["size"], s["size"]), s["classes"]), _sgd
    s = shapes.LSTM
    model = _Recurrent(s["vocabulary"], s["width"], s["layers"])
    return model, _sequences(s["vocabulary"], s["batch"], s["length"]), _adamw


def make_run(workload: str, device: Any, backend: str = "", after: Callable[[], None] | None = None) -> Callable[[int], Any]:
    """The training step of ``workload`` on ``device``, as its users would write it; it returns the loss.

    Args:
        backend: compile the model with this backend of ``torch.compile``.
        after: what the device wants called once a step.
    """
    model, batches, make_optimizer = _workload(workload)
    model = model.to(device)
    optimizer = make_optimizer(model.parameters())
    clipped = shapes.gpt_layers(workload) is not None
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, shapes.STEPS) if clipped else None
    forward: Any = torch.compile(model, backend=backend) if backend else model

    def run(i: int) -> torch.Tensor:
        inputs, targets = (x.to(device) for x in batches[i % len(batches)])
        loss = F.cross_entropy(forward(inputs).flatten(0, -2), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        if clipped:
            nn.utils.clip_grad_norm_(model.parameters(), shapes.CLIP)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        if after is not None:
            after()
        return loss

    return run


def _kept(run: Callable[[int], Any]) -> tuple[Callable[[int], None], Callable[[], float]]:
    """A step that keeps its loss, as a training loop does, and what reads it."""
    last: list[Any] = [None]

    def step(i: int) -> None:
        last[0] = run(i)

    return step, lambda: float(last[0].detach())


def on_cpu(workload: str, backend: str = "") -> Step:
    """Eager on the CPU, or with a backend of ``torch.compile``."""
    step, loss = _kept(make_run(workload, "cpu", backend))
    return Step(step, lambda: None, lambda: {"loss": loss()})


def on_tpu(workload: str, backend: str = "") -> Step:
    """On lazytpu, or with its backend of ``torch.compile``."""
    import lazytpu

    if backend and backend not in torch.compiler.list_backends():
        raise Skipped(f"this lazytpu has no torch.compile backend named {backend!r}")
    step, loss = _kept(make_run(workload, "tpu", backend))

    def figures() -> dict[str, float]:
        return {
            "loss": loss(),
            "compiles": lazytpu.metrics()["compiles"],
            "device_mb": torch.tpu.max_memory_allocated() / 2**20,
        }

    return Step(step, torch.tpu.synchronize, figures)


def on_torch_xla(workload: str) -> Step:
    """On PyTorch/XLA, with the call after each step that its documentation asks for.

    On the CPU its client mostly runs the program within that call.
    """
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.metrics as counters

    step, loss = _kept(make_run(workload, torch_xla.device(), after=torch_xla.sync))

    def figures() -> dict[str, float]:
        compiles = counters.metric_data("CompileTime")
        return {"loss": loss(), "compiles": compiles[0] if compiles else 0}

    def executed() -> float:
        times = counters.metric_data("ExecuteTime")
        return times[1] / 1e9 if times else 0.0

    return Step(step, xm.wait_device_ops, figures, executed)
