"""``torch.Generator("tpu")``: PyTorch's C++ makes none for a device like ours, so it is made here.

A ``tpu`` generator is a CPU generator to C++ (which only carries it to our kernels) and holds the
seed and counter that the kernels use.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from lazytpu.device import random
from lazytpu.device.index import check_index
from lazytpu.device.random import State

_states: weakref.WeakValueDictionary[int, TpuGenerator] = weakref.WeakValueDictionary()
_CGenerator = torch._C.Generator


class TpuGenerator(_CGenerator):
    """A stream of random numbers on ``tpu``, with the interface of ``torch.Generator``."""

    def __new__(cls) -> TpuGenerator:
        made = super().__new__(cls, device="cpu")  # type: ignore[call-arg]
        made.state = State()
        _states[made._cdata] = made  # type: ignore[attr-defined]
        return made

    state: State

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("tpu", 0)

    def manual_seed(self, seed: int) -> TpuGenerator:
        """Start over from ``seed``; returns the generator."""
        self.state.reseed(seed)
        return self

    def seed(self) -> int:
        """Start over from a seed drawn from the system; returns it."""
        self.state.reseed(super().seed())
        return self.state.seed

    def initial_seed(self) -> int:
        """The seed it was last started from."""
        return self.state.seed

    def get_state(self) -> torch.Tensor:
        """The state as a CPU tensor of bytes."""
        return self.state.get()

    def set_state(self, new_state: torch.Tensor) -> TpuGenerator:
        """Take up a state that ``get_state`` gave; returns the generator."""
        self.state.set(new_state)
        return self

    def clone_state(self) -> TpuGenerator:
        """Another generator in the same state."""
        return TpuGenerator().set_state(self.get_state())

    def __deepcopy__(self, memo: Any) -> TpuGenerator:
        return self.clone_state()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.get_state(),)


def _rebuild(state: torch.Tensor) -> TpuGenerator:
    return TpuGenerator().set_state(state)


_default: list[TpuGenerator] = []


def default() -> TpuGenerator:
    """The generator whose state ops use when they are given none."""
    if not _default:
        _default.append(TpuGenerator())
        _default[0].state = random.default
    return _default[0]


def is_tpu(generator: Any) -> bool:
    """Whether a generator that a kernel was given is one of ours; C++ hands kernels a fresh wrapper."""
    return generator is not None and generator._cdata in _states


def state_of(generator: Any) -> State:
    """The state of a ``tpu`` generator."""
    found = _states.get(generator._cdata)
    if found is None:
        raise RuntimeError(f"Expected a 'tpu' device type for generator but found '{generator.device}'")
    return found.state


class _GeneratorMeta(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, _CGenerator)

    def __call__(cls, device: Any = "cpu") -> Any:
        if torch.device(device).type == "tpu":
            check_index(device)
            return TpuGenerator()
        return _CGenerator(device=device)


class Generator(metaclass=_GeneratorMeta):
    """``torch.Generator`` as users see it once ``tpu`` is registered: the C++ class, or ours for ``tpu``."""


Generator.__doc__ = _CGenerator.__doc__
