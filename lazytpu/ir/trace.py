"""The trace: a linear list of recorded ops in single-assignment form."""

from __future__ import annotations

import itertools
import weakref
from types import CodeType
from typing import Any, NamedTuple

from lazytpu.ir.signature import Signature
from lazytpu.ir.source import Source
from lazytpu.ir.types import TensorType
from lazytpu.ir.value import Value

_ref = weakref.ref

NUMBER_FLOAT = -1
"""Input id of the next number in ``Trace.floats``."""
NUMBER_INT = -2
"""Input id of the next number in ``Trace.ints``."""


class Node(NamedTuple):
    """One recorded op: results are the ids ``first``, ``first + 1``, …, one per output."""

    signature: Signature
    inputs: tuple[int, ...]
    first: int
    source: Source | None


class Trace:
    """Recorded ops since the last cut.

    An op is a row over ``signatures``, ``inputs``, ``firsts`` and ``sources`` (two entries a row):
    parallel lists, since an object an op would keep the garbage collector busy. ``nodes`` reads them.

    Ids number leaves (values that have a device buffer) by first use and results of ops by
    position, in one sequence. Numbers have no id: an input id of ``NUMBER_FLOAT`` or
    ``NUMBER_INT`` takes the next entry of ``floats`` or ``ints``. ``code`` is the same program as
    a flat list of ints, the part of the cache key that grows while recording. ``outputs`` is set
    once the trace has been cut: the ids that were live then.
    """

    __slots__ = (
        "epoch", "signatures", "inputs", "firsts", "sources", "code", "refs", "types",
        "leaves", "floats", "ints", "nbytes", "views", "backwards", "outputs",
    )  # fmt: skip

    _epochs = itertools.count(1)

    def __init__(self) -> None:
        self.epoch = next(Trace._epochs)
        self.signatures: list[Signature] = []
        self.inputs: list[tuple[int, ...]] = []
        self.firsts: list[int] = []
        self.sources: list[CodeType | int | None] = []
        self.code: list[int] = []
        self.refs: list[weakref.ref[Value]] = []
        self.types: list[TensorType] = []
        self.leaves: list[tuple[int, Any]] = []
        self.floats: list[float] = []
        self.ints: list[int] = []
        self.nbytes = 0
        self.views: dict[tuple[Any, ...], int] = {}
        self.backwards = 0
        self.outputs: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.signatures)

    @property
    def nodes(self) -> list[Node]:
        """The recorded ops, in order."""
        return [Node(*row, self.source(i)) for i, row in enumerate(zip(self.signatures, self.inputs, self.firsts))]

    def source(self, position: int) -> Source | None:
        """The user's line that recorded the op at ``position``."""
        code, instruction = self.sources[2 * position : 2 * position + 2]
        return None if code is None else Source(code, instruction)  # type: ignore[arg-type]

    def add_leaf(self, value: Value) -> int:
        """Give a value that has a buffer its place among the inputs; returns the id."""
        id = len(self.refs)
        value.epoch = self.epoch
        value.id = id
        self.refs.append(weakref.ref(value))
        self.types.append(value.type)
        self.leaves.append((id, value.buffer))
        return id

    def add_node(
        self, signature: Signature, inputs: tuple[int, ...], code: CodeType | None, instruction: int
    ) -> list[Value]:
        """Record one op, called from this place in the user's program; returns its results, in order."""
        refs, types, epoch = self.refs, self.types, self.epoch
        id = len(refs)
        self.signatures.append(signature)
        self.inputs.append(inputs)
        self.firsts.append(id)
        self.sources.append(code)
        self.sources.append(instruction)
        self.code.append(signature.index)
        self.code.extend(inputs)
        results = []
        for type in signature.outputs:
            value = Value(type, epoch, id)
            refs.append(_ref(value))
            types.append(type)
            self.nbytes += type.nbytes
            results.append(value)
            id += 1
        return results

    def define(self, value: Value, signature: Signature, source: Source | None) -> int:
        """Make ``value``, which has no content yet, the one result of a new node; returns its id."""
        (result,) = self.add_node(signature, (), *(source or (None, 0)))
        value.epoch, value.id = result.epoch, result.id
        self.refs[result.id] = weakref.ref(value)
        return result.id

    def live(self) -> list[Value]:
        """The results of ops that something still holds, by id."""
        found = []
        for ref in self.refs:
            value = ref()
            if value is not None and value.buffer is None:
                found.append(value)
        return found

    def retire(self) -> None:
        """Let go of the device's buffers once the trace has been run; it can still be printed."""
        self.leaves = [(id, None) for id, _ in self.leaves]
        self.views.clear()

    def __str__(self) -> str:
        from lazytpu.ir.printing import to_text

        return to_text(self)

    def dead_leaves(self) -> list[int]:
        """Positions in ``leaves`` whose value nothing holds any longer."""
        return [i for i, (id, _) in enumerate(self.leaves) if self.refs[id]() is None]
