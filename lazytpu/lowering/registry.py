"""The table of lowering rules: one Python function per ATen op, in ``jax.lax`` and ``jax.numpy``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """How an op is lowered, and which of its arguments are runtime inputs.

    ``lower(ctx, *args)`` gets the op's arguments in the schema's order: JAX arrays for tensors and
    for runtime numbers (0-d, float64 or int64, or the dtype of a CPU scalar tensor), plain Python
    values for static arguments. It returns an array or a tuple of arrays; the harness casts each to
    the dtype that PyTorch's meta kernel gives and checks the shape.
    """

    lower: Callable[..., Any]
    numbers: frozenset[str]
    static: frozenset[str]
    random: bool
    pointwise: bool


RULES: dict[str, Rule] = {}
"""Rules by qualified op name, such as ``aten::add.Tensor``."""


def rule(
    *ops: str,
    numbers: Iterable[str] = (),
    static: Iterable[str] = (),
    random: bool = False,
    pointwise: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the rule of ``ops`` (``aten::`` is implied).

    Args:
        numbers: arguments of schema type ``float`` or ``int`` to pass at run time. Arguments of
            type ``Scalar`` are passed at run time without being named.
        static: arguments of type ``Scalar`` to bake into the program (exponents and the like).
        random: the op draws random numbers; ``ctx.key`` is then a fresh JAX key, and the op's
            ``generator`` argument is None.
        pointwise: results follow the strides of the inputs as PyTorch's TensorIterator would.
    """

    def register(lower: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            name = op if "::" in op else f"aten::{op}"
            if name in RULES:
                raise ValueError(f"two lowering rules for {name}")
            RULES[name] = Rule(lower, frozenset(numbers), frozenset(static), random, pointwise)
        return lower

    return register
