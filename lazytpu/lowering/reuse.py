"""Which output is written where a donated leaf was."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from lazytpu.ir import TensorType, Trace


def reused(trace: Trace, outputs: Sequence[int], donated: Sequence[int]) -> dict[int, int]:
    """The output that takes each donated leaf's memory: positions among the outputs by positions among the leaves.

    An output takes the memory of a leaf of its type that no later op reads, the one read last; of those
    read by the same op, in their order. So a parameter's or a moment's new value lies where the old one
    was. Left to choose by type alone, XLA crosses them over, and copies each to keep it from being overwritten.
    A leaf that is an output itself keeps its memory.
    """
    wanted = {id: i for i, id in enumerate(outputs)}
    position = {id: p for p in donated if (id := trace.leaves[p][0]) not in wanted}
    nodes = trace.nodes
    last = {id: n for n, node in enumerate(nodes) for id in node.inputs if id in position}
    free: dict[TensorType, list[deque[int]]] = defaultdict(list)
    found: dict[int, int] = {}
    for n, node in enumerate(nodes):
        spent: dict[TensorType, deque[int]] = defaultdict(deque)
        for id in dict.fromkeys(node.inputs):
            if last.get(id) == n:
                spent[trace.types[id]].append(position[id])
        for type, leaves in spent.items():
            free[type].append(leaves)
        for id in range(node.first, node.first + len(node.signature.outputs)):
            groups = free.get(trace.types[id])
            if groups and id in wanted:
                found[groups[-1].popleft()] = wanted[id]
                if not groups[-1]:
                    groups.pop()
    return found
