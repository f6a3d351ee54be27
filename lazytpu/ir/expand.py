"""Regions spliced into a trace as one op, written out as the ops they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from lazytpu.ir.ops import Ops
from lazytpu.ir.signature import Signature
from lazytpu.ir.source import Source
from lazytpu.ir.subprogram import Subprogram
from lazytpu.ir.trace import Trace

REGION = "lazytpu::region"
"""An op whose first argument is the ``Subprogram`` it stands for; its inputs are the leaves, floats and ints of that."""


def expand(trace: Trace, outputs: Sequence[int]) -> tuple[Trace, list[int]]:
    """``trace`` with every region written out, and the ids of ``outputs`` in it; the trace itself where it has none.

    The results of what is written out get ids after all others, so the ids of leaves and other ops stay.
    Numbers keep their order, since a region takes its own in the order in which its ops do.
    """
    if all(signature.op != REGION for signature in trace.ops.signatures[: trace.count]):
        return trace, list(outputs)
    flat = Trace()
    flat.types, flat.leaves, flat.floats, flat.ints = list(trace.types), trace.leaves, trace.floats, trace.ints
    renamed: dict[int, int] = {}
    for node in trace.nodes:
        inputs = tuple([renamed.get(id, id) for id in node.inputs])
        if node.signature.op != REGION:
            _append(flat.ops, node.signature, inputs, node.first, node.source)
            continue
        program: Subprogram = node.signature.args[0]
        inner = dict(zip(program.leaves, inputs))
        for part in program.nodes:
            first = len(flat.types)
            flat.types.extend(part.signature.outputs)
            given = tuple([inner[id] if id >= 0 else id for id in part.inputs])
            _append(flat.ops, part.signature, given, first, part.source or node.source)
            inner.update(zip(range(part.first, part.first + len(part.signature.outputs)), range(first, len(flat.types))))
        renamed.update(zip(range(node.first, node.first + len(program.outputs)), [inner[id] for id in program.outputs]))
    flat.count = len(flat.ops)
    return expand(flat, [renamed.get(id, id) for id in outputs])


def _append(ops: Ops, signature: Signature, inputs: tuple[int, ...], first: int, source: Source | None) -> None:
    ops.signatures.append(signature)
    ops.inputs.append(inputs)
    ops.firsts.append(first)
    ops.sources.extend(source or (None, 0))
