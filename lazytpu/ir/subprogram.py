"""A function of the program: a recorded trace with declared outputs, used as a static argument of an op."""

from __future__ import annotations

from collections.abc import Sequence

from lazytpu.ir.trace import Node, Trace
from lazytpu.ir.types import TensorType


class Subprogram:
    """The ops of a trace as a function from its leaves and numbers to ``outputs`` (ids).

    Two subprograms are equal if they do the same: the numbers they were recorded with are inputs
    (first the leaves, then the floats, then the ints) and no part of them.
    """

    __slots__ = ("nodes", "leaves", "leaf_types", "outputs", "output_types", "floats", "ints", "_key")

    def __init__(self, trace: Trace, outputs: Sequence[int]) -> None:
        self.nodes: list[Node] = trace.nodes
        self.leaves = [id for id, _ in trace.leaves]
        self.leaf_types: list[TensorType] = [trace.types[id] for id in self.leaves]
        self.outputs = tuple(outputs)
        self.output_types = tuple(trace.types[id] for id in outputs)
        self.floats = len(trace.floats)
        self.ints = len(trace.ints)
        self._key = (trace.code(), tuple(self.leaves), tuple(self.leaf_types), self.outputs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subprogram) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<{len(self.nodes)} ops>"
