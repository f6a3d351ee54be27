"""The cache on disk: a trace's program without lowering or compiling it, in every process after the first.

It is an extra: whatever goes wrong with it turns it off, with one warning, and programs are compiled.
"""

from __future__ import annotations

import builtins
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from lazytpu import counts
from lazytpu.cache import Key, calls, entry, store
from lazytpu.cache.digest import digest_of
from lazytpu.cache.fingerprint import fingerprint, versions
from lazytpu.ir import Trace
from lazytpu.lowering.context import Check
from lazytpu.runtime import program
from lazytpu.runtime.client import Client

Types = Sequence[tuple[tuple[int, ...], np.dtype]]
"""Shapes and dtypes of a program's outputs."""


class Stored(NamedTuple):
    """A program, what its flags check (for each, the op's position in the trace and its demand), and its custom calls."""

    program: program.Program
    checks: list[tuple[int, Check]]
    calls: list[str]


class Disk:
    """The programs in a directory, and the thread that writes them there."""

    def __init__(self, place: store.Store) -> None:
        self.place = place
        self.broken = False
        # Its thread is joined when the interpreter exits, before JAX takes the client down.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="lazytpu-cache")

    def name(self, trace: Trace, key: Key, where: Client) -> str | None:
        """The name of a trace's program on disk; None where the disk cannot be used for it."""
        if self.broken:
            return None
        try:
            return digest_of(trace, key, fingerprint(where))
        except OSError as reason:
            self._break(reason)
            return None

    def load(self, name: str, outputs: Types, arguments: int) -> Stored | None:
        """The program stored under ``name``, or None; what is there and not intact is removed."""
        try:
            data = self.place.read(name)
        except OSError as reason:
            self._break(reason)
            return None
        if data is None:
            return None
        try:
            header, payload = entry.decode(name, data)
            checks = [(position, Check(message, _ERRORS[error])) for position, error, message in header["checks"]]
            types = [*outputs, *flags(len(checks))]
            if header["outputs"] != _described(types) or header["arguments"] != arguments:
                raise entry.BadEntry("it is another program")
            calls.prepare(header["calls"])
            found = Stored(program.from_bytes(payload, types, arguments), checks, header["calls"])
        except Exception:  # the entry's fault whatever it is, and compiling is always right
            counts.counters["disk_bad"] += 1
            self.place.discard(name)
            return None
        counts.counters["disk_hits"] += 1
        return found

    def save(self, name: str, trace: Trace, outputs: Types, found: Stored, seconds: float, where: Client) -> None:
        """Write a program compiled in ``seconds``, in the background."""
        compiled, checks, called = found
        if not calls.portable(called) or any(_ERRORS.get(demand.error.__name__) is not demand.error for _, demand in checks):
            return
        header = {
            "arguments": compiled.arguments,
            "outputs": _described([*outputs, *flags(len(checks))]),
            "checks": [(position, demand.error.__name__, demand.message) for position, demand in checks],
            "calls": called,
            "ops": len(trace),
            "first": str(trace.source(0) or ""),
            "last": str(trace.source(len(trace) - 1) or ""),
            "compile_seconds": round(seconds, 3),
            "platform": where.platform,
            "versions": versions(),
            "created": time.time(),
        }
        with suppress(RuntimeError):  # of an interpreter that is exiting
            self._writer.submit(self._write, name, header, compiled)

    def _write(self, name: str, header: dict[str, Any], compiled: program.Program) -> None:
        try:
            if not self.broken:
                self.place.write(name, entry.encode(name, entry.Entry(header, compiled.to_bytes())))
        except Exception as reason:  # a full disk, say, or a platform that cannot serialize programs
            self._break(reason)

    def _break(self, reason: Exception) -> None:
        """Go on without the disk, and say why, once."""
        if not self.broken:
            self.broken = True
            _warn_off(reason)


_ERRORS: dict[str, type[Exception]] = {
    name: error for name, error in vars(builtins).items() if isinstance(error, type) and issubclass(error, Exception)
}
"""The exceptions that the check of a stored program may name."""
_ERRORS[torch.linalg.LinAlgError.__name__] = torch.linalg.LinAlgError


def stored(
    trace: Trace, key: Key, outputs: Types, arguments: int, where: Client, compile: Callable[[], Stored]
) -> Stored:
    """The program of ``trace``, from the disk, or by ``compile`` and then onto it."""
    disk = _of_process()
    name = None if disk is None else disk.name(trace, key, where)
    if disk is None or name is None:
        return compile()
    found = disk.load(name, outputs, arguments)
    if found is None:
        started = time.perf_counter()
        found = compile()
        disk.save(name, trace, outputs, found, time.perf_counter() - started, where)
    return found


@lru_cache(maxsize=1)
def _of_process() -> Disk | None:
    """The cache on disk of this process; None where it is off."""
    try:
        path = store.directory()
        if path is None:
            return None
        place = store.Store(path, store.bound())
        place.prepare()
        return Disk(place)
    except (OSError, RuntimeError, ValueError) as reason:  # no such home, a bound that is no number, …
        _warn_off(reason)
        return None


def _warn_off(reason: Exception) -> None:
    warnings.warn(
        f"lazytpu's cache on disk is off for this process, so programs are compiled again: {reason}. "
        "LAZYTPU_CACHE_DIR names another directory, or 'off'.",
        UserWarning,
        stacklevel=2,
    )


def flags(count: int) -> Types:
    """The types of what a program with ``count`` checks returns last."""
    return [((count,), np.dtype(bool))] if count else []


def _described(types: Types) -> list[str]:
    return [f"{dtype.name}{list(shape)}" for shape, dtype in types]
