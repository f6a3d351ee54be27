"""Running a cut trace: liveness, donation, the cached program, and what happens when it fails."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lazytpu import counts, dtypes
from lazytpu.cache import LRU, Key, key_of, templates, why
from lazytpu.cache.calls import calls_in
from lazytpu.cache.disk import Stored, Types, flags, stored
from lazytpu.errors import DeviceError
from lazytpu.ir import Node, Source, Trace, Value
from lazytpu.ir.expand import expand
from lazytpu.ir.source import user_source
from lazytpu.ir.split import split
from lazytpu.lowering.context import Check
from lazytpu.lowering.module import compose
from lazytpu.runtime import buffers, program
from lazytpu.runtime.client import client

programs: LRU[Key, program.Program] = LRU(1024)
"""The programs compiled so far, by key."""


def forget_programs() -> None:
    """Forget every program, as a process that starts has none."""
    programs.clear()
    templates.clear()


def launch(trace: Trace) -> None:
    """Run ``trace`` and give each live value its buffer; returns without waiting.

    Raises:
        DeviceError: an op failed. Values that do not depend on it have their buffers; the others
            raise the same error when read.
    """
    live = trace.live()
    trace.outputs = tuple(v.id for v in live)
    if not live:
        return
    outputs: Sequence[buffers.Buffer | None]
    try:
        outputs = _run(trace, trace.outputs, _donated(trace), repeats=True)
    except program.ProgramError as error:
        outputs = _run_one_by_one(trace, live, error)
    _settle(live, outputs)


def launch_pieces(trace: Trace, positions: Sequence[int]) -> None:
    """Run ``trace`` as one program for each stretch between ``positions``; returns without waiting.

    The turns of a loop are equal stretches and so one program, compiled once.
    """
    live = trace.live()
    trace.outputs = tuple(v.id for v in live)
    ready = dict(trace.leaves)
    held = {id for id, _ in trace.leaves if trace.refs[id]() is not None}
    for piece in split(trace, positions, trace.outputs):
        part, inputs = piece.trace, piece.inputs
        part.leaves = [(id, ready[outer]) for (id, _), outer in zip(part.leaves, inputs)]
        spent = [i for i in piece.last_use if inputs[i] not in held]
        donated = [i for i in spent if not ready[inputs[i]].exported]
        if piece.outputs:
            try:
                results = _run(part, [id for _, id in piece.outputs], donated)
            except program.ProgramError as reason:
                # A value without buffer or error would read as memory nobody has written to.
                failure = DeviceError(f"a loop's turn recorded at {part.source(0)} failed on the device: {reason}")
                for value in live:
                    value.error = None if value.id in ready else failure
                _settle(live, [ready.get(v.id) for v in live])
                raise failure from reason
            ready.update(zip((id for id, _ in piece.outputs), results))
        for i in spent:
            ready.pop(inputs[i])
        part.leaves = []
    _settle(live, [ready[v.id] for v in live])


def _run(trace: Trace, outputs: Sequence[int], donated: Sequence[int], repeats: bool = False) -> list[buffers.Buffer]:
    """Launch the program of ``trace``; returns the buffers of ``outputs``.

    ``repeats`` says that such a trace may come again: a template is kept of it.
    """
    liveness = (tuple(outputs), tuple(donated))
    compiled = templates.find(trace, liveness) if repeats else None
    if compiled is not None:
        counts.counters["cache_hits"] += 1
        counts.counters["replays"] += 1
    else:
        compiled = program_for(trace, outputs, donated, user_source() if repeats else None)
        if repeats:
            templates.add(trace, liveness, compiled)
    try:
        results = compiled.launch(_arguments(trace))
    except Exception as reason:
        # Refused before it started (out of memory, say): its inputs are intact.
        raise program.ProgramError(str(reason)) from reason
    counts.counters["executions"] += 1
    if compiled.checks:
        _unread.append((compiled, results.pop()))
    return results


def _settle(live: list[Value], outputs: Sequence[buffers.Buffer | None]) -> None:
    """Give each live value its buffer; only then may an old failed check be raised."""
    for value, buffer in zip(live, outputs):
        value.buffer = buffer
        value.epoch = 0
    if len(_unread) > _MAX_UNREAD:
        raise_failed_checks()


class _Check(NamedTuple):
    """What one flag of a program checks: the op that was recorded and what it demands."""

    node: Node
    demand: Check


_unread: list[tuple[program.Program, buffers.Buffer]] = []
_MAX_UNREAD = 64


def raise_failed_checks() -> None:
    """Raise what the flags of launched programs say, the first failure first; waits for those programs."""
    while _unread:
        compiled, flags = _unread.pop(0)
        held = np.asarray(flags.array)
        if not held.all():
            check = compiled.checks[int(held.argmin())]
            _unread.clear()
            raise check.demand.error(f"{check.demand.message} (in {check.node.signature.op}, recorded at {check.node.source})")


def program_for(
    trace: Trace, outputs: Sequence[int], donated: Sequence[int], site: Source | None = None
) -> program.Program:
    """The program of ``trace``, from the cache or compiled now; ``site`` is the user's line that cut it."""
    where = client()
    key = key_of(trace, outputs, donated, (where.platform, where.devices[0].id))
    found = programs.get(key)
    if found is not None:
        counts.counters["cache_hits"] += 1
        return found
    counts.counters["cache_misses"] += 1
    try:
        types = [(trace.types[id].shape, dtypes.to_numpy(trace.types[id].dtype)) for id in outputs]
        arguments = len(trace.leaves) + bool(trace.floats) + bool(trace.ints)

        def compile() -> Stored:
            if site is not None:
                why.note_miss(trace, key, site)
            return _compile(trace, key, types, arguments, where.platform)

        compiled, checks, _ = stored(trace, key, types, arguments, where, compile)
    except Exception as reason:
        raise program.ProgramError(str(reason)) from reason
    if checks:
        nodes = expand(trace, ())[0].nodes
        compiled.checks = [_Check(nodes[position], demand) for position, demand in checks]
    programs.put(key, compiled)
    return compiled


def _compile(trace: Trace, key: Key, types: Types, arguments: int, platform: str) -> Stored:
    started = time.perf_counter()
    module = compose(*expand(trace, key.outputs), key.donated, platform)
    compiled = program.compile_text(module.text, [*types, *flags(len(module.checks))], arguments)
    counts.counters["compiles"] += 1
    counts.counters["compile_seconds"] += time.perf_counter() - started
    return Stored(compiled, module.checks, calls_in(module.text))


def _donated(trace: Trace) -> list[int]:
    """Positions of the leaves whose memory XLA may reuse: nothing holds them any longer."""
    return [i for i in trace.dead_leaves() if not trace.leaves[i][1].exported]


def _arguments(trace: Trace) -> list[Any]:
    arguments = [buffer.array for _, buffer in trace.leaves]
    if trace.floats:
        arguments.append(buffers.put(np.array(trace.floats, dtype=np.float64)).array)
    if trace.ints:
        arguments.append(buffers.put(np.array(trace.ints, dtype=np.int64)).array)
    return arguments


def _run_one_by_one(trace: Trace, live: list[Value], error: Exception) -> list[buffers.Buffer | None]:
    """Find the op that fails by running each alone; everything that does not need it still gets done.

    Raises:
        DeviceError: of the first op that failed, once all others have run and ``live`` is settled.
    """
    ready = dict(trace.leaves)
    failed: dict[int, DeviceError] = {}
    first: DeviceError | None = None
    nodes = trace.nodes
    for node, piece in zip(nodes, split(trace, range(1, len(nodes)), [v.id for v in live])):
        cause = next((failed[id] for id in piece.inputs if id in failed), None)
        if cause is None:
            part = piece.trace
            part.leaves = [(id, ready[outer]) for (id, _), outer in zip(part.leaves, piece.inputs)]
            try:
                results = _run(part, [id for _, id in piece.outputs], ())
                ready.update(zip((id for id, _ in piece.outputs), results))
                continue
            except Exception as reason:
                cause = DeviceError.of(node, reason)
                first = first or cause
        failed.update(dict.fromkeys((id for id, _ in piece.outputs), cause))
    outputs = [ready.get(v.id) for v in live]
    if first is None:
        return outputs
    for value in live:
        value.error = failed.get(value.id)
    _settle(live, outputs)
    raise first from error


def to_numpy(value: Value) -> np.ndarray:
    """The content of a value that has a buffer; waits for it.

    Raises:
        IndexError, RuntimeError: an op launched so far met an index out of range, a division by zero, …
    """
    raise_failed_checks()
    try:
        return np.asarray(value.buffer.array)
    except Exception as reason:
        value.error = DeviceError(f"the device failed before a {value.type} value was ready: {reason}")
        raise value.error from reason


def wait_all() -> None:
    """Wait for every launched program; raises the first error met."""
    try:
        program.wait_all()
    except Exception as reason:
        raise DeviceError(f"a program failed on the device: {reason}") from reason
    raise_failed_checks()
