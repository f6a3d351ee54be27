"""The sizes of the workloads, the same for every contender."""

from __future__ import annotations

GPT = {"vocabulary": 96, "context": 128, "width": 128, "heads": 4, "batch": 8}
MLP = {"layers": 20, "width": 256, "classes": 10, "batch": 128}
CNN = {"size": 32, "channels": 3, "widths": (32, 64, 128), "classes": 10, "batch": 32}
LSTM = {"vocabulary": 96, "width": 128, "layers": 2, "length": 64, "batch": 16}

RATE = 1e-3
"""The learning rate."""
CLIP = 1.0
"""The largest norm of a GPT's gradients."""
STEPS = 1000
"""The length of a GPT's cosine schedule."""
BATCHES = 8
"""Batches made beforehand, used in turn."""


def gpt_layers(workload: str) -> int | None:
    """The number of layers in ``gpt12`` and the like; None for another workload."""
    count = workload.removeprefix("gpt")
    return int(count) if count != workload and count.isdigit() else None
