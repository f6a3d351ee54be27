"""Checking that a trace is well formed."""

from __future__ import annotations

from lazytpu.ir.trace import NUMBER_FLOAT, NUMBER_INT, Trace


class MalformedTrace(AssertionError):
    """A trace breaks a rule of the representation."""


def verify(trace: Trace) -> None:
    """Check single assignment, definition before use, types, numbers and counts.

    Raises:
        MalformedTrace: with the first broken rule and the op it is broken at.
    """
    defined: dict[int, object] = {}
    for id, _ in trace.leaves:
        if id in defined:
            raise MalformedTrace(f"leaf %{id} is defined twice")
        defined[id] = trace.types[id]
    # A leaf may be numbered after the ops before its first use; it is defined from the start all the same.
    numbers = {NUMBER_FLOAT: 0, NUMBER_INT: 0}
    for node in trace.nodes:
        signature = node.signature
        if len(node.inputs) != len(signature.inputs):
            raise MalformedTrace(f"{signature.op} has {len(node.inputs)} inputs, its signature {len(signature.inputs)}")
        for id, type in zip(node.inputs, signature.inputs):
            if id in numbers:
                numbers[id] += 1
            elif id not in defined:
                raise MalformedTrace(f"{signature.op} uses %{id} before it is defined")
            elif defined[id] is not type:
                raise MalformedTrace(f"{signature.op} takes {type} but %{id} is {defined[id]}")
        for position, type in enumerate(signature.outputs):
            id = node.first + position
            if id in defined:
                raise MalformedTrace(f"%{id} is defined twice, the second time by {signature.op}")
            if trace.types[id] is not type:
                raise MalformedTrace(f"%{id} is {trace.types[id]} in the trace and {type} in {signature.op}")
            defined[id] = type
    if numbers != {NUMBER_FLOAT: len(trace.floats), NUMBER_INT: len(trace.ints)}:
        raise MalformedTrace(f"ops take {numbers} numbers, the trace packs {len(trace.floats)} and {len(trace.ints)}")
    if not trace.replaying and len(trace.ops) != trace.count:
        raise MalformedTrace(f"{len(trace.ops)} ops are recorded, {trace.count} are counted")
    if len(defined) != len(trace.refs) or len(trace.types) != len(trace.refs):
        raise MalformedTrace(f"{len(defined)} values are defined, {len(trace.refs)} are numbered")
