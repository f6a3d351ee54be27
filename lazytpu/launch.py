"""Running a cut trace: liveness, donation, the cached program, and what happens when it fails."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lazytpu import counts, dtypes
from lazytpu.cache import LRU, Key, key_of, why
from lazytpu.errors import DeviceError
from lazytpu.ir import NUMBER_FLOAT, NUMBER_INT, Node, Trace, Value
from lazytpu.ir.source import user_source
from lazytpu.lowering.module import compose
from lazytpu.runtime import buffers, program
from lazytpu.runtime.client import client

programs: LRU[Key, program.Program] = LRU(1024)
"""The programs compiled so far, by key."""


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
    donated = _donated(trace)
    try:
        compiled = program_for(trace, trace.outputs, donated, site=str(user_source()))
    except Exception as error:
        _run_one_by_one(trace, live, error)
        return
    arguments = _arguments(trace)
    outputs = compiled.launch(arguments)
    counts.counters["executions"] += 1
    if compiled.checks:
        _unread.append((compiled, outputs.pop()))
        if len(_unread) > 64:
            raise_failed_checks()
    for value, buffer in zip(live, outputs):
        value.buffer = buffer
        value.epoch = 0


class _Check(NamedTuple):
    """What one flag of a program checks: the op that was recorded and what it demands."""

    node: Node
    message: str


_unread: list[tuple[program.Program, buffers.Buffer]] = []


def raise_failed_checks() -> None:
    """Raise what the flags of launched programs say, the first failure first; waits for those programs."""
    while _unread:
        compiled, flags = _unread.pop(0)
        held = np.asarray(flags.array)
        if not held.all():
            check = compiled.checks[int(held.argmin())]
            _unread.clear()
            raise IndexError(f"{check.message} (in {check.node.signature.op}, recorded at {check.node.source})")


def program_for(
    trace: Trace, outputs: Sequence[int], donated: Sequence[int], site: str | None = None
) -> program.Program:
    """The program of ``trace``, from the cache or compiled now; ``site`` is the user's line that cut it."""
    where = client()
    key = key_of(trace, outputs, donated, (where.platform, where.devices[0].id))
    found = programs.get(key)
    if found is not None:
        counts.counters["cache_hits"] += 1
        return found
    counts.counters["cache_misses"] += 1
    if site is not None:
        why.note_miss(trace, key, site)
    started = time.perf_counter()
    module = compose(trace, outputs, donated, where.platform)
    types = [(trace.types[id].shape, dtypes.to_numpy(trace.types[id].dtype)) for id in outputs]
    if module.checks:
        types.append(((len(module.checks),), np.dtype(bool)))
    arguments = len(trace.leaves) + bool(trace.floats) + bool(trace.ints)
    compiled = program.compile_text(module.text, types, arguments)
    compiled.checks = [_Check(trace.nodes[position], message) for position, message in module.checks]
    counts.counters["compiles"] += 1
    counts.counters["compile_seconds"] += time.perf_counter() - started
    programs.put(key, compiled)
    return compiled


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


def _run_one_by_one(trace: Trace, live: list[Value], error: Exception) -> None:
    """Find the op that fails by running each alone; everything that does not need it still gets done."""
    ready: dict[int, buffers.Buffer] = {id: buffer for id, buffer in trace.leaves}
    failed: dict[int, DeviceError] = {}
    first: DeviceError | None = None
    taken = {NUMBER_FLOAT: 0, NUMBER_INT: 0}
    for node in trace.nodes:
        alone = _alone(trace, node, ready, taken)
        cause = next((failed[id] for id in node.inputs if id in failed), None)
        ids = range(node.first, node.first + len(node.signature.outputs))
        if cause is None:
            try:
                local = range(len(alone.leaves), len(alone.leaves) + len(ids))
                results = program_for(alone, local, ()).launch(_arguments(alone))
                ready.update(zip(ids, results))
                continue
            except Exception as reason:
                cause = DeviceError.of(node, reason)
                first = first or cause
        failed.update(dict.fromkeys(ids, cause))
    for value in live:
        value.epoch = 0
        value.buffer = ready.get(value.id)
        value.error = failed.get(value.id)
    raise first or error


def _alone(trace: Trace, node: Node, ready: dict[int, Any], taken: dict[int, int]) -> Trace:
    """A trace of this one op, its inputs as leaves."""
    alone = Trace()
    inputs = []
    for id in node.inputs:
        if id == NUMBER_FLOAT:
            alone.floats.append(trace.floats[taken[id]])
            taken[id] += 1
        elif id == NUMBER_INT:
            alone.ints.append(trace.ints[taken[id]])
            taken[id] += 1
        elif id in ready:
            id = alone.add_leaf(Value(trace.types[id], 0, -1, ready[id]))
        inputs.append(id)
    alone.add_node(node.signature, tuple(inputs), *(node.source or (None, 0)))
    return alone


def to_numpy(value: Value) -> np.ndarray:
    """The content of a value that has a buffer; waits for it.

    Raises:
        IndexError: an op launched so far met an index out of range.
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
