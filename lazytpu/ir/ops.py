"""The ops of a trace, as parallel lists."""

from __future__ import annotations

from itertools import chain
from types import CodeType

from lazytpu.ir.signature import Signature


class Ops:
    """A row an op: its signature, the ids of its inputs, the id of its first result and its place in the user's program.

    Parallel lists, since an object an op would keep the garbage collector busy. ``sources`` has two
    entries a row: a code object (None where unknown) and an offset of an instruction.
    """

    __slots__ = ("signatures", "inputs", "firsts", "sources")

    def __init__(self) -> None:
        self.signatures: list[Signature] = []
        self.inputs: list[tuple[int, ...]] = []
        self.firsts: list[int] = []
        self.sources: list[CodeType | int | None] = []

    def __len__(self) -> int:
        return len(self.signatures)

    def prefix(self, count: int) -> Ops:
        """A copy of the first ``count`` rows."""
        part = Ops()
        part.signatures, part.inputs = self.signatures[:count], self.inputs[:count]
        part.firsts, part.sources = self.firsts[:count], self.sources[: 2 * count]
        return part

    def has(
        self, position: int, signature: Signature, inputs: tuple[int, ...], code: CodeType | None, instruction: int
    ) -> bool:
        """Whether the row at ``position`` exists and says the same."""
        return (
            position < len(self.signatures)
            and self.signatures[position] is signature
            and self.inputs[position] == inputs
            and self.sources[2 * position] is code
            and self.sources[2 * position + 1] == instruction
        )

    def starts_like(self, other: Ops, count: int) -> bool:
        """Whether the first ``count`` rows of both say the same."""
        return (
            self.signatures[:count] == other.signatures[:count]
            and self.inputs[:count] == other.inputs[:count]
            and self.sources[: 2 * count] == other.sources[: 2 * count]
        )

    def code(self, count: int) -> tuple[int, ...]:
        """What the first ``count`` rows do, as one tuple of numbers: the part of a program's key that the ops decide."""
        rows = zip(self.signatures[:count], self.inputs[:count])
        return tuple(chain.from_iterable((signature.index, *inputs) for signature, inputs in rows))
