"""A value: one immutable array, either on the device already or the result of a recorded op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazytpu.ir.types import TensorType


class Value:
    """One immutable array.

    ``epoch`` and ``id`` say where the value stands in the trace of that epoch (a number, so that
    a value keeps no trace alive); ``buffer`` is the device buffer once there is one;
    ``host`` is a copy on the host, or the content itself until a program first uses it; a value with none
    of these is memory that nobody has written to yet; ``error`` is the exception that kept it from existing.
    The object itself is the liveness token: a trace holds only weak references to it, so a value
    is an output of the program exactly while a storage still holds it.
    """

    __slots__ = ("type", "epoch", "id", "buffer", "host", "error", "__weakref__")

    def __init__(self, type: TensorType, epoch: int, id: int, buffer: Any = None) -> None:
        self.type = type
        self.epoch = epoch
        self.id = id
        self.buffer = buffer
        self.host: Any = None
        self.error: BaseException | None = None
