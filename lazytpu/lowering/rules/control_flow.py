"""``torch.cond``, ``while_loop`` and ``scan`` as XLA's own control flow."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from lazytpu.ir.subprogram import Subprogram
from lazytpu.lowering.context import Context
from lazytpu.lowering.registry import rule
from lazytpu.lowering.subprograms import as_function


@rule("lazytpu::cond")
def cond(ctx: Context, predicate: Any, on_true: Subprogram, on_false: Subprogram, true_inputs: Any, false_inputs: Any) -> Any:
    true, false = as_function(on_true, ctx.platform), as_function(on_false, ctx.platform)
    return lax.cond(predicate.reshape(()) != 0, lambda: true(*true_inputs), lambda: false(*false_inputs))


@rule("lazytpu::region")
def region(ctx: Context, body: Subprogram, inputs: Any) -> Any:
    """A compiled region inside another function's body; elsewhere regions are written out before lowering."""
    return as_function(body, ctx.platform)(*inputs)


@rule("lazytpu::while_loop")
def while_loop(
    ctx: Context, condition: Subprogram, body: Subprogram, carried: Any, condition_inputs: Any, body_inputs: Any
) -> Any:
    test, turn = as_function(condition, ctx.platform), as_function(body, ctx.platform)
    return lax.while_loop(
        lambda state: test(*state, *condition_inputs)[0].reshape(()) != 0,
        lambda state: turn(*state, *body_inputs),
        tuple(carried),
    )


@rule("lazytpu::scan")
def scan(ctx: Context, body: Subprogram, carried: Any, sequences: Any, inputs: Any) -> Any:
    turn = as_function(body, ctx.platform)
    count = len(carried)

    def step(state: Any, items: Any) -> Any:
        results = turn(*state, *items, *inputs)
        return results[:count], results[count:]

    state, outputs = lax.scan(step, tuple(carried), [jnp.asarray(s) for s in sequences])
    return (*state, *outputs)
