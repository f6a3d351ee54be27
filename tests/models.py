"""Small models and data for whole-training tests: the examples' shapes, made cheap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

from examples.digits import network
from examples.gpt import GPT


class Residual(nn.Module):
    """Two convolutions with batch norm and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        shortcut = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.shortcut = nn.Sequential(*shortcut) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class Recurrent(nn.Module):
    """A two-layer LSTM over embedded tokens with a head on each step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(20, 16), nn.LSTM(16, 24, 2, batch_first=True), nn.Linear(24, 20)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(ids))[0])


def resnet() -> nn.Module:
    """A ResNet for 1×8×8 images, 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def tokens(kinds: int, length: int) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    """Batches of a learnable sequence: each token is the sum of the two before it."""

    def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.randint(kinds, (8, 2), generator=torch.Generator().manual_seed(step))
        for _ in range(length - 1):
            ids = torch.cat([ids, ids[:, -2:].sum(1, keepdim=True) % kinds], 1)
        return ids[:, :-1], ids[:, 1:]

    return batch


def digits(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of scikit-learn's digits."""
    data = load_digits()
    pick = torch.randint(len(data.target), (32,), generator=torch.Generator().manual_seed(step))
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    return images[pick], torch.tensor(data.target)[pick]


WORKLOADS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any], Callable[[Any], Any]]] = {
    "gpt": (lambda: GPT(20, 16, 2, 32, 4, 0.0), tokens(20, 16), lambda p: torch.optim.AdamW(p, 1e-3)),
    "digits": (lambda: network(0.0), digits, lambda p: torch.optim.SGD(p, 0.02, momentum=0.9)),
    "lstm": (Recurrent, tokens(20, 12), lambda p: torch.optim.Adam(p, 3e-3)),
    "resnet": (resnet, digits, lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, weight_decay=1e-4)),
}
"""Model, batches and optimizer by name."""


def curve(name: str, device: str, steps: int) -> list[float]:
    """The losses of ``steps`` training steps on ``device``, from the same weights and batches."""
    make, batches, optimizer_of = WORKLOADS[name]
    torch.manual_seed(0)
    model = make().to(device)
    optimizer = optimizer_of(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for step in range(steps):
        x, y = batches(step)
        logits = model(x.to(device))
        loss = F.cross_entropy(logits.flatten(0, -2), y.to(device).flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return [float(x) for x in losses]
