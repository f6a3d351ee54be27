"""The trace being recorded, and when it is cut.

One trace serves the whole process, since any thread may use any tensor; ``lock`` is held while it
changes. A cut hands the trace to ``lazytpu.launch`` and starts a new one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from lazytpu import counts, notices
from lazytpu.cache import templates
from lazytpu.ir import NUMBER_FLOAT, NUMBER_INT, Signature, Source, TensorType, Trace, Value
from lazytpu.ir.source import is_library_code, user_source
from lazytpu.ir.source import library_code as _library_code

_getframe = sys._getframe
lock: Any = threading.RLock()
"""Held while the trace is read or changed."""

trace = Trace()
"""The trace being recorded."""

last: Trace | None = None
"""The trace that was cut last, without its buffers."""

_eager_depth = 1 if os.environ.get("LAZYTPU_EAGER", "0") not in ("", "0") else 0
_warned: set[Any] = set()
_seen: dict[tuple[Any, ...], int] = {}
_ZEROS: dict[TensorType, Signature] = {}

LOOP_NODES = int(os.environ.get("LAZYTPU_MAX_LOOP_OPS", "1000"))
"""A trace of more than this many ops is watched for a loop, and cut at twice as many."""
_PIECE_NODES = 100
MAX_BYTES = int(os.environ.get("LAZYTPU_MAX_PENDING_BYTES", str(8 << 30)))
"""A trace whose results would take this many bytes, were all of them kept, is cut."""


class NeedsSync(RuntimeError):
    """A value is needed on the host while the body of a function is recorded."""


class _ForkedLock:
    """Stands in for the lock in a forked child, where the device's threads do not exist."""

    def __enter__(self) -> None:
        raise RuntimeError(
            "Cannot use 'tpu' in a forked subprocess: the device belongs to the parent process. Keep DataLoader "
            "workers and other forked children on CPU tensors and move batches to 'tpu' in the parent, or start "
            "the child with the 'spawn' method."
        )

    def __exit__(self, *exc: object) -> None:
        return None


forked = False
"""Whether this process is a forked child of one that had started the device."""


def after_fork() -> None:
    """In a forked child: a device that the parent had started raises when used, one it had not is the child's own."""
    global lock, forked, trace
    from lazytpu.runtime.client import started

    if started():
        lock, forked, trace = _ForkedLock(), True, Trace()
    else:
        lock = threading.RLock()


def trace_with(value: Value) -> Trace:
    """The current trace, with ``value`` among its ids."""
    if value.epoch != trace.epoch:
        _bind_leaf(value)
    return trace


def _bind_leaf(value: Value) -> int:
    if _captures:
        return _captures[-1].take(value)
    if value.buffer is not None:
        return trace.add_leaf(value)
    if value.error is not None:
        raise value.error
    if value.host is not None:
        return _upload(value)
    (result,) = _append(trace, _zeros(value.type), (), *(user_source(3) or (None, 0)))
    return trace.rebind(value, result)


def _upload(value: Value) -> int:
    """Move content that is only on the host to the device, which then owns the memory."""
    from lazytpu.runtime import buffers

    value.buffer, value.host = buffers.put(value.host), None
    return trace.add_leaf(value)


def _zeros(type: TensorType) -> Signature:
    """The signature that gives memory nobody has written to its content."""
    found = _ZEROS.get(type)
    if found is None:
        found = _ZEROS[type] = Signature("lazytpu::zeros", (), (), (type,), ())
    return found


def record(signature: Signature, inputs: Sequence[Value | float | int]) -> list[Value]:
    """Record one op; ``inputs`` are values and numbers in the order of ``signature.inputs``."""
    current = trace
    epoch = current.epoch
    ids = []
    x: Any
    for x in inputs:
        kind = type(x)
        if kind is Value:
            ids.append(x.id if x.epoch == epoch else _bind_leaf(x))
        elif kind is float:
            current.floats.append(x)
            ids.append(NUMBER_FLOAT)
        else:
            current.ints.append(x)
            ids.append(NUMBER_INT)
    frame: FrameType | None = _getframe(2)
    while frame is not None:
        code = frame.f_code
        library = _library_code.get(code)
        if library is None:
            library = is_library_code(code)
        if not library:
            break
        frame = frame.f_back
    place = (code, frame.f_lasti) if frame is not None else (None, 0)
    results = _append(current, signature, tuple(ids), *place)
    if _captures or current.replaying:
        return results
    if _eager_depth:
        cut("eager")
        _raise_checks()
    elif current.count >= LOOP_NODES or current.nbytes > MAX_BYTES:
        _bound(current)
    return results


def _append(
    current: Trace, signature: Signature, inputs: tuple[int, ...], code: CodeType | None, instruction: int
) -> list[Value]:
    """Take one op into the trace: by repeating a template where it goes on so, else as a new row."""
    counts.counters["ops_recorded"] += 1
    if current.replaying:
        ops, position = current.ops, current.count
        if (
            position < len(ops.signatures)
            and ops.signatures[position] is signature
            and ops.inputs[position] == inputs
            and ops.sources[2 * position] is code
            and ops.sources[2 * position + 1] == instruction
        ):
            return current.add_results(signature)
        if not templates.begin(current, signature, inputs, code, instruction):
            current.leave_replay()
    elif current.count == 0 and not _eager_depth and not _captures:
        templates.begin(current, signature, inputs, code, instruction)
    if current.replaying:
        return current.add_results(signature)
    return current.add_node(signature, inputs, code, instruction)


def _raise_checks() -> None:
    from lazytpu import launch

    launch.raise_failed_checks()


def _bound(current: Trace) -> None:
    """Run a trace that has grown past its bound; a loop's turns become one program, run turn by turn.

    Past ``LOOP_NODES`` ops the places of recording are watched. The outermost one that comes round
    again is where a turn of the loop begins.
    """
    nodes = len(current)
    frames = _user_depth()
    if frames is not None:
        place = (*current.ops.sources[-2:], frames)
        _seen[place] = _seen.get(place, 0) + 1
    if nodes < 2 * LOOP_NODES and current.nbytes <= MAX_BYTES:
        return
    again = [place for place, count in _seen.items() if count > 1]
    _seen.clear()
    mark = min(again, key=lambda place: place[2], default=None)
    source = current.source(nodes - 1) if mark is None else Source(mark[0], mark[1])
    if source is None or source.code not in _warned:
        if source is not None:
            _warned.add(source.code)
        notices.warn(
            f"{nodes} ops ({current.nbytes / 2**20:.0f} MiB of results) recorded with no sync point; they are run here to "
            "bound memory. Put lazytpu.sync() at the end of the loop body to choose the place yourself.",
            source,
        )
    if mark is None:
        cut("bound")
        return
    turns = [i for i in range(1, nodes) if current.ops.sources[2 * i : 2 * i + 2] == list(mark[:2])]
    step = max(1, -(-_PIECE_NODES // max(1, nodes // (len(turns) or 1))))
    cut("bound", turns[::step])


def _user_depth() -> int | None:
    """How many frames are on the stack; None in a backward, whose ops all come from one line."""
    frame: FrameType | None = _getframe(3)
    depth = 0
    while frame is not None:
        if frame.f_code.co_name == "run_backward":
            return None
        depth += 1
        frame = frame.f_back
    return depth


def cut(reason: str, turns: Sequence[int] = ()) -> None:
    """Launch what has been recorded and start a new trace; returns without waiting.

    Where ``turns`` are positions of ops, each stretch between them is a program of its own.

    An interrupt while compiling leaves the trace as it was, to be launched by the next cut.
    """
    if not trace.count and not _captures:
        return
    with lock:
        if _captures:
            raise NeedsSync(
                f"the body of a recorded function ({_captures[-1].what}) needs a sync point ({reason}): a value cannot be "
                "read on the host while the body is recorded. Compute with tensors instead, or move the read outside."
            )
        if not trace.count:
            return
        from lazytpu import launch

        try:
            if turns:
                launch.launch_pieces(trace, turns)
            else:
                launch.launch(trace)
        except Exception:
            _retire()
            raise
        _retire()
        counts.add("cuts")
        counts.add(f"cuts.{reason}")


def _retire() -> None:
    global trace, last
    trace.retire()
    last, trace = trace, Trace()


class Capture:
    """A region of the program recorded apart, into a trace of its own, as a function of its inputs.

    Args:
        what: the construct whose body this is, for error messages.

    Values from outside that the body uses become inputs (``captured``) besides the declared ones.
    Used as a context; nothing inside may be read on the host.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.trace = Trace()
        self.captured: list[Value] = []
        self._places: list[tuple[Value, int, int]] = []

    def __enter__(self) -> Capture:
        global trace
        self._outer, trace = trace, self.trace
        _captures.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        global trace
        _captures.pop()
        trace = self._outer
        for value, epoch, id in reversed(self._places):
            value.epoch, value.id = epoch, id

    def input(self, type: TensorType) -> Value:
        """A declared input of the function."""
        value = Value(type, 0, -1)
        self.trace.add_leaf(value)
        return value

    def trace_id(self, value: Value) -> int:
        """The id of ``value`` within."""
        return value.id if value.epoch == self.trace.epoch else self.take(value)

    def take(self, value: Value) -> int:
        """Make a value from outside an input; returns its id within."""
        self._places.append((value, value.epoch, value.id))
        self.captured.append(value)
        return self.trace.add_leaf(value)


_captures: list[Capture] = []


def sync(wait: bool = False) -> None:
    """Run everything recorded so far.

    Args:
        wait: if true, return only once the device has finished.

    Errors of the device surface here when ``wait`` is true, with the user's line that recorded the op.
    """
    cut("sync")
    if wait:
        with lock:
            from lazytpu import launch

        launch.wait_all()


@contextmanager
def eager() -> Iterator[None]:
    """Within this context each op runs at once and errors are raised at the line that calls it."""
    global _eager_depth
    cut("eager")
    _eager_depth += 1
    try:
        yield
    finally:
        _eager_depth -= 1


def is_eager() -> bool:
    """Whether each op runs at once."""
    return _eager_depth > 0


def current_trace() -> Trace:
    """The trace being recorded; ``print(lazytpu.current_trace())`` shows it and runs nothing."""
    return trace


def last_trace() -> Trace | None:
    """The trace that was run last, to be printed; None before the first."""
    return last
