"""Splitting a long trace into pieces that run one after the other, such as the turns of a loop."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from lazytpu.ir.trace import NUMBER_FLOAT, NUMBER_INT, Trace
from lazytpu.ir.types import TensorType
from lazytpu.ir.value import Value


class Piece(NamedTuple):
    """A part of a trace as a trace of its own.

    ``inputs`` are the ids, in the whole trace, of the piece's leaves in order; ``outputs`` pairs the
    ids of the results that something later needs, in the whole trace and in the piece; ``last_use``
    are the positions among the leaves that no later piece needs.
    """

    trace: Trace
    inputs: list[int]
    outputs: list[tuple[int, int]]
    last_use: list[int]


def split(trace: Trace, positions: Sequence[int], live: Sequence[int]) -> Iterator[Piece]:
    """The pieces of ``trace`` between ``positions`` (of ops), where the ids ``live`` must survive.

    Pieces that do the same are equal programs: ids within a piece start from its own leaves.
    """
    nodes = trace.nodes
    bounds = [0, *positions, len(nodes)]
    needed = [set(live)]
    for start, stop in reversed(list(pairwise(bounds))):
        needed.append(needed[-1] | {id for node in nodes[start:stop] for id in node.inputs if id >= 0})
    needed.reverse()
    floats, ints = iter(trace.floats), iter(trace.ints)
    for index, (start, stop) in enumerate(pairwise(bounds)):
        after = needed[index + 1]
        piece = Trace()
        local: dict[int, int] = {}
        inputs: list[int] = []
        outputs: list[tuple[int, int]] = []
        for node in nodes[start:stop]:
            ids = []
            for id in node.inputs:
                if id == NUMBER_FLOAT:
                    piece.floats.append(next(floats))
                elif id == NUMBER_INT:
                    piece.ints.append(next(ints))
                else:
                    if id not in local:
                        local[id] = _declare(piece, trace.types[id])
                        inputs.append(id)
                    id = local[id]
                ids.append(id)
            results = piece.add_node(node.signature, tuple(ids), *(node.source or (None, 0)))
            for offset, value in enumerate(results):
                local[node.first + offset] = value.id
                if node.first + offset in after:
                    outputs.append((node.first + offset, value.id))
        piece.outputs = tuple(id for _, id in outputs)
        yield Piece(piece, inputs, outputs, [i for i, id in enumerate(inputs) if id not in after])


def _declare(piece: Trace, type: TensorType) -> int:
    """A leaf whose buffer is not there yet."""
    id = len(piece.refs)
    piece.refs.append(weakref.ref(Value(type, 0, -1)))
    piece.types.append(type)
    piece.leaves.append((id, None))
    return id
