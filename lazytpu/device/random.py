"""The random state of ``tpu``: a seed and a counter, both runtime inputs of every program that draws."""

from __future__ import annotations

import threading
from typing import Any

import torch

_INITIAL_SEED = 67280421310721  # the default of PyTorch's own generators


class State:
    """A seed and the number of draws made with it."""

    __slots__ = ("lock", "offset", "seed")

    def __init__(self, seed: int = _INITIAL_SEED) -> None:
        self.seed = seed
        self.offset = 0
        self.lock = threading.Lock()

    def draw(self) -> tuple[int, int]:
        """The seed and counter for one draw."""
        with self.lock:
            self.offset += 1
            return _signed(self.seed), self.offset

    def reseed(self, seed: int) -> None:
        """Start over from ``seed``."""
        with self.lock:
            self.seed = int(seed)
            self.offset = 0

    def get(self) -> torch.Tensor:
        """The state as a CPU tensor of 16 bytes."""
        return torch.tensor([_signed(self.seed), self.offset], dtype=torch.int64, device="cpu").view(torch.uint8).clone()

    def set(self, state: torch.Tensor) -> None:
        """Take up a state that ``get`` gave."""
        if state.dtype != torch.uint8 or state.numel() != 16:
            raise RuntimeError(f"a random state of 'tpu' is 16 bytes of uint8, not {state.numel()} of {state.dtype}")
        seed, offset = state.cpu().clone().view(torch.int64).tolist()
        with self.lock:
            self.seed, self.offset = seed, offset


def _signed(seed: int) -> int:
    return ((int(seed) + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


default = State()
"""The state that ops use when they are given no generator."""


def next_seed(generator: Any) -> tuple[int, int]:
    """The seed and counter of the next draw from ``generator`` (a ``tpu`` generator, or None)."""
    from lazytpu.device import generators

    return (default if generator is None else generators.state_of(generator)).draw()
