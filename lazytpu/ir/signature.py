"""Signatures: what an op is, apart from which values feed it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from lazytpu.ir.types import TensorType


class Slot:
    """The place of input ``index`` among an op's arguments."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"%{self.index}"


class Signature:
    """An op with the types of its inputs and outputs and its static arguments.

    Args:
        op: the qualified name of the rule, such as ``aten::add.Tensor``.
        inputs: the types of the tensor and number inputs, in order.
        args: the op's arguments in the schema's order; each is a ``Slot``, a list of them, or a
            static Python value.
        outputs: the types of the results.
        kinds: for each input, what PyTorch's type promotion must know: ``"tensor"`` for a tensor,
            ``"number"`` for a Python number.

    ``index`` numbers the signatures of the process; a trace's key is made of these numbers. ``nbytes``
    is the size of the results, ``text`` what the key on disk is made of, once asked for.
    """

    __slots__ = ("op", "inputs", "args", "outputs", "kinds", "index", "nbytes", "lowered", "text")

    _count = itertools.count()
    _interned: ClassVar[dict[tuple[Any, ...], Signature]] = {}

    def __init__(
        self,
        op: str,
        inputs: tuple[TensorType, ...],
        args: tuple[Any, ...],
        outputs: tuple[TensorType, ...],
        kinds: tuple[str, ...],
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.args = args
        self.outputs = outputs
        self.kinds = kinds
        self.index = next(Signature._count)
        self.nbytes = sum(type.nbytes for type in outputs)
        self.lowered: dict[str, Any] = {}
        self.text: str | None = None

    @staticmethod
    def intern(
        op: str,
        inputs: tuple[TensorType, ...],
        args: tuple[Any, ...],
        outputs: tuple[TensorType, ...],
        kinds: tuple[str, ...],
    ) -> Signature:
        """The one signature with these parts; static arguments are compared as they print."""
        key = (op, inputs, repr(args), outputs, kinds)
        found = Signature._interned.get(key)
        if found is None:
            found = Signature._interned[key] = Signature(op, inputs, args, outputs, kinds)
        return found

    def static_args(self) -> str:
        """The static arguments as readable text, ``%i`` standing for input ``i``."""
        return ", ".join(map(repr, self.args))

    def __repr__(self) -> str:
        return f"{self.op}({self.static_args()}) : {self.inputs} -> {self.outputs}"
