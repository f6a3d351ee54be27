"""The trace: a linear list of recorded ops in single-assignment form."""

from __future__ import annotations

import itertools
import weakref
from types import CodeType
from typing import Any, NamedTuple

from lazytpu.ir.ops import Ops
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
    """Recorded ops since the last cut: the first ``count`` rows of ``ops``, which ``nodes`` reads.

    While ``replaying``, the ops repeat those of an earlier trace and ``ops`` is that trace's own list,
    which must not change.

    Ids number leaves (values that have a device buffer) by first use and results of ops by
    position, in one sequence. Numbers have no id: an input id of ``NUMBER_FLOAT`` or
    ``NUMBER_INT`` takes the next entry of ``floats`` or ``ints``. ``outputs`` is set once the trace
    has been cut: the ids that were live then.
    """

    __slots__ = (
        "epoch", "ops", "count", "replaying", "refs", "types",
        "leaves", "floats", "ints", "nbytes", "views", "backwards", "outputs",
    )  # fmt: skip

    _epochs = itertools.count(1)

    def __init__(self) -> None:
        self.epoch = next(Trace._epochs)
        self.ops = Ops()
        self.count = 0
        self.replaying = False
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
        return self.count

    @property
    def nodes(self) -> list[Node]:
        """The recorded ops, in order."""
        rows = zip(range(self.count), self.ops.signatures, self.ops.inputs, self.ops.firsts)
        return [Node(signature, inputs, first, self.source(i)) for i, signature, inputs, first in rows]

    def code(self) -> tuple[int, ...]:
        """What the ops do, as one tuple of numbers."""
        return self.ops.code(self.count)

    def source(self, position: int) -> Source | None:
        """The user's line that recorded the op at ``position``."""
        code, instruction = self.ops.sources[2 * position : 2 * position + 2]
        return None if code is None else Source(code, instruction)  # type: ignore[arg-type]

    def add_leaf(self, value: Value) -> int:
        """Give a value that has a buffer its place among the inputs; returns the id."""
        id = len(self.refs)
        value.epoch = self.epoch
        value.id = id
        self.refs.append(_ref(value))
        self.types.append(value.type)
        self.leaves.append((id, value.buffer))
        return id

    def add_node(
        self, signature: Signature, inputs: tuple[int, ...], code: CodeType | None, instruction: int
    ) -> list[Value]:
        """Record one op, called from this place in the user's program; returns its results, in order."""
        ops = self.ops
        ops.signatures.append(signature)
        ops.inputs.append(inputs)
        ops.firsts.append(len(self.refs))
        ops.sources.append(code)
        ops.sources.append(instruction)
        self.nbytes += signature.nbytes
        return self.add_results(signature)

    def add_results(self, signature: Signature) -> list[Value]:
        """Take the next row of ``ops`` as done; returns its results, in order."""
        self.count += 1
        refs, outputs, epoch = self.refs, signature.outputs, self.epoch
        id = len(refs)
        self.types.extend(outputs)
        if len(outputs) == 1:
            value = Value(outputs[0], epoch, id)
            refs.append(_ref(value))
            return [value]
        results = [Value(type, epoch, i) for i, type in enumerate(outputs, id)]
        refs.extend(map(_ref, results))
        return results

    def leave_replay(self) -> None:
        """Go on with ops of its own, after those that it repeated."""
        self.ops = self.ops.prefix(self.count)
        self.replaying = False
        self.nbytes = sum(signature.nbytes for signature in self.ops.signatures)

    def rebind(self, value: Value, result: Value) -> int:
        """Make ``value``, which has no content yet, stand for ``result`` of the last op; returns its id."""
        value.epoch, value.id = result.epoch, result.id
        self.refs[result.id] = _ref(value)
        return result.id

    def live(self) -> list[Value]:
        """The results of ops that something still holds, by id."""
        return [value for ref in self.refs if (value := ref()) is not None and value.buffer is None]

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
