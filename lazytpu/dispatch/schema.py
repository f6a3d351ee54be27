"""What an op's schema says: its arguments, what it mutates, and which functional op it is a form of."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

_NO_DEFAULT = object()


class Schema:
    """An overload's arguments in order, with defaults, and the positions it writes to."""

    def __init__(self, op: OpOverload) -> None:
        self.op = op
        self.name = op._schema.name
        arguments = op._schema.arguments
        self.names = [a.name for a in arguments]
        self.types = [str(a.type) for a in arguments]
        self.defaults = [a.default_value if a.has_default_value() else _NO_DEFAULT for a in arguments]
        self.written = [i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
        self.out_names = {a.name for a in arguments if a.is_out}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """All arguments in the schema's order, defaults filled in."""
        bound = list(args)
        for i in range(len(args), len(self.names)):
            name = self.names[i]
            if name in kwargs:
                bound.append(kwargs[name])
            else:
                default = self.defaults[i]
                bound.append(None if default is _NO_DEFAULT else default)
        return bound


@cache
def schema_of(op: OpOverload) -> Schema:
    """The parsed schema of ``op``."""
    return Schema(op)


def overload(name: str) -> OpOverload | None:
    """The overload called ``name``, such as ``aten::add.Tensor``; None where this PyTorch lacks it."""
    namespace, _, rest = name.partition("::")
    packet_name, _, overload_name = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    return None if packet is None else getattr(packet, overload_name or "default", None)


def name_of(op: OpOverload) -> str:
    """The name of ``op`` as schemas spell it: ``aten::add.Tensor``, ``aten::relu``."""
    return op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")


def _shape_of(op: OpOverload) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]


@cache
def functional_form(op: OpOverload) -> OpOverload | None:
    """The functional overload that an in-place or ``out=`` overload is a form of, or None.

    The pair has the same name (less a trailing underscore) and the same arguments, ``out`` aside.
    """
    schema = op._schema
    namespace, _, name = schema.name.partition("::")
    in_place = name.endswith("_") and not name.endswith("__") and not any(a.is_out for a in schema.arguments)
    packet = getattr(getattr(torch.ops, namespace), name[:-1] if in_place else name, None)
    if packet is None:
        return None
    wanted = _shape_of(op)
    candidates = [getattr(packet, o) for o in packet.overloads()]
    candidates.sort(key=lambda c: c._schema.overload_name != schema.overload_name)
    for candidate in candidates:
        if candidate is not op and not candidate._schema.is_mutable and _shape_of(candidate) == wanted:
            return candidate
    return None
