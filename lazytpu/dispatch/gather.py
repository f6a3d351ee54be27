"""Taking a call apart: its values and numbers, and a key of everything else.

``compiled`` writes a Python function for each overload, from the types in its schema: a loop over the
arguments that asks each time how it is passed would cost more than everything else in recording.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lazytpu.dispatch import cells, host
from lazytpu.dispatch.schema import Schema
from lazytpu.ir import Value
from lazytpu.lowering.registry import Rule
from lazytpu.storage import LazyStorage

TENSOR, TENSORS, NUMBER, NUMBERS, STATIC, DROPPED = range(6)
_DROPPED_NAMES = frozenset({"device", "pin_memory", "generator"})
_PLAIN_TYPES = frozenset({"bool", "int"})
"""Schema types whose values are hashable and never equal one of another type."""
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1

Gather = Callable[..., tuple[list[Value | float | int], tuple[Any, ...], bool]]
"""From a call's arguments, in the schema's order, to its runtime inputs, the key of everything else, and
whether every tensor among them is row-major."""


def how_passed(schema: Schema, rule: Rule) -> list[int]:
    """How each argument is passed, by its type in the schema and the rule's declarations."""
    how = []
    for name, type in zip(schema.names, schema.types):
        bare = type.removeprefix("Optional[").rstrip("]") if type.startswith("Optional[") else type
        if bare == "Tensor":
            how.append(TENSOR)
        elif type in ("List[Tensor]", "List[Optional[Tensor]]"):
            how.append(TENSORS)
        elif name in _DROPPED_NAMES:
            how.append(DROPPED)
        elif bare.startswith("List[number") or type == "List[number]":
            how.append(STATIC if name in rule.static else NUMBERS)
        elif bare == "number":
            how.append(STATIC if name in rule.static else NUMBER)
        else:
            how.append(NUMBER if name in rule.numbers else STATIC)
    return how


def _frozen(x: Any) -> Any:
    """A hashable stand-in for a static argument that tells 1, 1.0 and True apart, and 0.0 from -0.0."""
    kind = type(x)
    if kind is float:
        return (float, x.hex())
    if kind is int or kind is bool or kind is complex:
        return (kind, repr(x))
    if kind is list or kind is tuple:
        return tuple(map(_frozen, x))
    return x


def _wrap_int(x: int) -> int:
    """``x`` as a signed 64-bit number with the same low bits."""
    return ((x + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def _number(x: Any, inputs: list[Any], op: str) -> Any:
    """Add a Python number to ``inputs``; returns its part of the key. Complex numbers are static."""
    kind = type(x)
    if kind is float:
        inputs.append(x)
    elif kind is int:
        inputs.append(x if _INT_MIN <= x <= _INT_MAX else _wrap_int(x))
    elif kind is bool:
        inputs.append(int(x))
    elif x is None:
        return None
    elif isinstance(x, torch.Tensor):
        return _tensor(x, inputs, op)
    else:
        return _frozen(x)
    return kind


def _tensor(x: Any, inputs: list[Any], op: str) -> Any:
    """Add a tensor on ``tpu``, a CPU scalar tensor or a number to ``inputs``; returns its part of the key."""
    if not isinstance(x, torch.Tensor):
        return _number(x, inputs, op)
    if cells.has_cell(x):
        value = cells.read(x)
    elif x.device.type == "tpu":
        cells.storage_of(x)
    elif x.dim() or x.device.type != "cpu":
        raise cells.mixed_devices(x, op)
    elif x.dtype.is_complex:
        value = host.upload(x)
    else:
        scalar = x.item()
        inputs.append(scalar if type(scalar) is float else int(scalar))
        return ("scalar", x.dtype)
    inputs.append(value)
    return value.type


def _tensors(xs: Any, inputs: list[Any], op: str) -> tuple[Any, ...]:
    return tuple([_tensor(x, inputs, op) for x in xs])


def _numbers(xs: Any, inputs: list[Any], op: str) -> tuple[Any, ...] | None:
    if xs is None:
        return None
    if set(map(type, xs)) == {float}:
        inputs.extend(xs)
        return (float,) * len(xs)
    return tuple([_number(x, inputs, op) for x in xs])


_TENSOR_LINES = """
    if isinstance({x}, T) and type(s := storage_of({x})) is Cell and not s.viewed:
        v = s.value
        add(v)
        {k} = v.type
    elif {x} is None:
        {k} = None
    else:
        {k} = tensor({x}, inputs, op)
        row_major = row_major and (not isinstance({x}, T) or {x}.is_contiguous())
"""
_TENSORS_LINES = """
    try:
        vs = [s.value for s in map(storage_of, {x}) if type(s) is Cell and not s.viewed]
    except TypeError:
        vs = ()
    if len(vs) == len({x}):
        inputs.extend(vs)
        {k} = tuple([v.type for v in vs])
    else:
        {k} = tensors({x}, inputs, op)
        row_major = row_major and all([not isinstance(x, T) or x.is_contiguous() for x in {x}])
"""
_NUMBER_LINES = """
    {k} = type({x})
    if {k} is float or ({k} is int and low <= {x} <= high):
        add({x})
    else:
        {k} = number({x}, inputs, op)
"""
_LINES = {
    TENSOR: _TENSOR_LINES,
    TENSORS: _TENSORS_LINES,
    NUMBER: _NUMBER_LINES,
    NUMBERS: "\n    {k} = numbers({x}, inputs, op)\n",
    STATIC: "\n    {k} = None if {x} is None else frozen({x})\n",
}


def compiled(schema: Schema, how: list[int]) -> Gather:
    """The function that takes a call of this overload apart; the default dtype is part of every key."""
    names = [f"x{i}" for i in range(len(how))]
    body = []
    keys = ["default_dtype()"]
    for i, (x, kind) in enumerate(zip(names, how)):
        if kind == DROPPED:
            continue
        if kind == STATIC and schema.types[i] in _PLAIN_TYPES:
            keys.append(x)
            continue
        body.append(_LINES[kind].format(x=x, k=f"k{i}"))
        keys.append(f"k{i}")
    source = (
        f"def gather({', '.join(names)}):\n    inputs = []\n    add = inputs.append\n    row_major = True\n"
        f"{''.join(body)}    return inputs, ({', '.join(keys)},), row_major\n"
    )
    scope: dict[str, Any] = {
        "T": torch.Tensor, "Cell": LazyStorage, "storage_of": torch._C.TensorBase.untyped_storage, "op": schema.name,
        "default_dtype": torch.get_default_dtype, "tensor": _tensor, "tensors": _tensors, "number": _number,
        "numbers": _numbers, "frozen": _frozen, "low": _INT_MIN, "high": _INT_MAX,
    }  # fmt: skip
    # The name lies in the package, so that a search for the user's line passes over it.
    exec(compile(source, f"{__file__}: arguments of {schema.name}", "exec"), scope)
    return scope["gather"]
