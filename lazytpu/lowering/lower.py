"""Lowering one signature to StableHLO functions, once, whatever trace it appears in."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp

from lazytpu import counts, dtypes
from lazytpu.ir import Signature, Slot
from lazytpu.lowering.context import Check, Context
from lazytpu.lowering.conversion import convert
from lazytpu.lowering.prng import key_of
from lazytpu.lowering.registry import RULES

_FUNCTION = re.compile(r"func\.func (?:public |private )?@([\w.$-]+)")
_SYMBOL = re.compile(r"@([\w.$-]+)")


class Lowered:
    """The StableHLO functions of one signature: ``name`` is the entry among those in ``text``.

    Where there is a ``check``, the entry has one more result: a flag that is false where the
    op's inputs break what it demands.
    """

    __slots__ = ("name", "text", "check")

    def __init__(self, name: str, text: str, check: Check | None) -> None:
        self.name = name
        self.text = text
        self.check = check


def lowered(signature: Signature, platform: str) -> Lowered:
    """The functions of ``signature`` for ``platform``, lowered at the first call."""
    found: Lowered | None = signature.lowered.get(platform)
    if found is None:
        found = signature.lowered[platform] = _lower(signature, platform)
        counts.counters["lowerings"] += 1
    return found


def _fill(template: Any, arrays: list[Any]) -> Any:
    if isinstance(template, Slot):
        return arrays[template.index]
    if isinstance(template, list):
        return [_fill(item, arrays) for item in template]
    return template


def function_of(signature: Signature, platform: str, checks: list[Check] | None = None) -> Any:
    """A JAX function from the signature's inputs to a tuple of its outputs.

    Where ``checks`` is a list, a check of the rule is appended to it, and its flag is one more output.
    """
    rule = RULES[signature.op]

    def apply(*arrays: Any) -> tuple[Any, ...]:
        context = Context(signature, platform)
        operands = list(arrays)
        if rule.random:
            context.key = key_of(*operands[-2:])
        results = rule.lower(context, *[_fill(item, operands) for item in signature.args])
        if not isinstance(results, (tuple, list)):
            results = (results,)
        results = [r for r in results if r is not None]
        if len(results) != len(signature.outputs):
            raise TypeError(f"the rule of {signature.op} gave {len(results)} results, not {len(signature.outputs)}")
        outputs = tuple(_conform(signature, r, out) for r, out in zip(results, signature.outputs))
        if checks is None or not context.checks:
            return outputs
        checks.append(context.checks[0][1])
        return (*outputs, jnp.stack([flag for flag, _ in context.checks]).all())

    return apply


def _conform(signature: Signature, result: Any, out: Any) -> Any:
    result = jnp.asarray(result)
    if result.shape != out.shape:
        raise TypeError(f"the rule of {signature} gave shape {result.shape}")
    return convert(result, dtypes.to_numpy(out.dtype))


def _lower(signature: Signature, platform: str) -> Lowered:
    arguments = [jax.ShapeDtypeStruct(t.shape, dtypes.to_numpy(t.dtype)) for t in signature.inputs]
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision(None):
        checks: list[Check] = []
        program = jax.jit(function_of(signature, platform, checks), keep_unused=True)
        text = program.trace(*arguments).lower(lowering_platforms=(_XLA_PLATFORM[platform],)).as_text()
    prefix = f"f{signature.index}"
    names = {name: f"{prefix}_{name}" for name in _FUNCTION.findall(text)}
    names["main"] = prefix
    body = text[text.index("func.func") : text.rindex("}")]
    body = _SYMBOL.sub(lambda m: "@" + names.get(m.group(1), m.group(1)), body)
    return Lowered(prefix, body.replace("func.func public", "func.func private", 1), checks[0] if checks else None)


_XLA_PLATFORM = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
