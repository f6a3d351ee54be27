"""Compiled programs: compiling StableHLO text and launching the result.

The raw execution path checks only byte sizes, so what reaches it is checked here or follows from
the trace it was compiled from: as many arguments as leaves, each with the leaf's shape and dtype.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lazytpu.runtime import compat
from lazytpu.runtime.buffers import Buffer, usage
from lazytpu.runtime.client import client

MAX_IN_FLIGHT = 8
"""Programs launched and not finished, at most: an emulated mesh deadlocks with more than 32."""

_in_flight: deque[Any] = deque()


class ProgramError(RuntimeError):
    """A program could not be lowered, compiled or started."""


class Program:
    """One executable and what is needed to launch it.

    ``checks`` describe the flags that its last output holds, if there are any.
    """

    __slots__ = ("executable", "handlers", "sizes", "arguments", "memory", "checks")

    def __init__(self, executable: Any, outputs: Sequence[tuple[tuple[int, ...], np.dtype]], arguments: int) -> None:
        sharding = client().sharding
        self.executable = executable
        self.handlers = [compat.result_handler(shape, dtype, sharding) for shape, dtype in outputs]
        self.sizes = [int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in outputs]
        self.arguments = arguments
        self.checks: list[Any] = []
        self.memory = executable.get_compiled_memory_stats()

    def temporary_bytes(self) -> int:
        """Bytes the program takes on the device beyond its arguments and outputs; reused arguments count against it."""
        return int(self.memory.temp_size_in_bytes - self.memory.alias_size_in_bytes)

    def peak_bytes(self) -> int:
        """Bytes on the device while the program runs: arguments, outputs and temporaries less what is reused."""
        return int(self.memory.argument_size_in_bytes + self.memory.output_size_in_bytes) + self.temporary_bytes()

    def to_bytes(self) -> bytes:
        """The executable as bytes, for ``from_bytes`` in another process."""
        return compat.serialize(self.executable)

    def launch(self, arguments: list[Any]) -> list[Buffer]:
        """Start one execution; returns its outputs, which may not be ready yet."""
        if len(arguments) != self.arguments:
            raise RuntimeError(f"internal error: a program of {self.arguments} arguments was given {len(arguments)}")
        while len(_in_flight) >= MAX_IN_FLIGHT:
            _in_flight.popleft().block_until_ready()
        outputs, token = compat.execute(self.executable, arguments, self.handlers)
        _in_flight.append(token)
        buffers = [Buffer(array, size) for array, size in zip(outputs, self.sizes)]
        usage.note(self.temporary_bytes())
        return buffers


def newest_token() -> Any:
    """What becomes ready when the program launched last has finished; None when all are known to be done."""
    return _in_flight[-1] if _in_flight else None


def wait_all() -> None:
    """Wait until every launched program has finished; raises the first error met."""
    while _in_flight:
        _in_flight.popleft().block_until_ready()


@lru_cache(maxsize=1)
def overrides() -> dict[str, bool | int | str]:
    """XLA options from ``LAZYTPU_XLA_OPTIONS``: ``name=value`` pairs apart by semicolons, such as
    ``xla_backend_optimization_level=0``. A wrong name is an error when the first program is compiled."""
    pairs = [pair.partition("=") for pair in os.environ.get("LAZYTPU_XLA_OPTIONS", "").split(";") if pair]
    words: dict[str, bool] = {"true": True, "false": False}
    return {name: words.get(value, int(value) if value.isdigit() else value) for name, _, value in pairs}


def compile_text(text: str, outputs: Sequence[tuple[tuple[int, ...], np.dtype]], arguments: int) -> Program:
    """Compile StableHLO text; Ctrl-C is answered at once, the compile then ends in the background."""
    devices, options = _target()
    executable = _interruptible(lambda: compat.compile_module(text, devices, options))
    return Program(executable, outputs, arguments)


def from_bytes(blob: bytes, outputs: Sequence[tuple[tuple[int, ...], np.dtype]], arguments: int) -> Program:
    """The program that ``Program.to_bytes`` gave ``blob`` for; donation and all comes back as it was compiled."""
    devices, options = _target()
    return Program(compat.deserialize(blob, devices, options), outputs, arguments)


def _target() -> tuple[Sequence[Any], Any]:
    """The devices that programs run on, and the options to compile for them."""
    devices = client().devices[:1]
    return devices, compat.compile_options([device.id for device in devices], overrides())


def _interruptible(work: Callable[[], Any]) -> Any:
    """Run ``work`` on a thread of its own, so that the caller can be interrupted while it waits."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:  # the waiting thread raises it
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="lazytpu-compile", daemon=True)
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
