"""Subprograms as JAX functions, for ops that take functions as arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lazytpu import dtypes
from lazytpu.ir import NUMBER_FLOAT, NUMBER_INT
from lazytpu.ir.subprogram import Subprogram
from lazytpu.lowering.lower import function_of


def as_function(program: Subprogram, platform: str) -> Callable[..., tuple[Any, ...]]:
    """A JAX function from the subprogram's leaves, floats and ints, in that order, to its outputs."""

    def apply(*arguments: Any) -> tuple[Any, ...]:
        count = len(program.leaves)
        values: dict[int, Any] = dict(zip(program.leaves, arguments))
        numbers = {
            NUMBER_FLOAT: iter(arguments[count : count + program.floats]),
            NUMBER_INT: iter(arguments[count + program.floats :]),
        }
        for node in program.nodes:
            operands = [
                values[id] if id >= 0 else next(numbers[id]).astype(dtypes.to_numpy(type.dtype))
                for id, type in zip(node.inputs, node.signature.inputs)
            ]
            results = function_of(node.signature, platform)(*operands)
            values.update(zip(range(node.first, node.first + len(results)), results))
        return tuple(values[id] for id in program.outputs)

    return apply
