"""Recurrent cells, and whole recurrent layers as one loop over the time steps.

A layer's input has been multiplied by its weights beforehand, for all steps at once. The backward
multiplies the hidden weights for all steps at once too, so that its loop has one product a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lazytpu.lowering.context import Context, opmath
from lazytpu.lowering.registry import rule
from lazytpu.lowering.rules.matmul import contract


def _wide(x: Any) -> Any:
    return None if x is None else x.astype(opmath(x.dtype))


def _sum(*terms: Any) -> Any:
    total = 0
    for x in terms:
        if x is not None:
            total = total + _wide(x)
    return total


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + jnp.exp(-x))


# One step: (input gates, hidden gates, hidden state, cell state) -> (hidden state, cell state)


def _lstm_gates(gates: Any) -> tuple[Any, Any, Any, Any]:
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    return _sigmoid(i), _sigmoid(f), jnp.tanh(g), _sigmoid(o)


def _lstm(by_input: Any, by_hidden: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
    i, f, g, o = _lstm_gates(by_input + by_hidden)
    cell = f * cell + i * g
    return o * jnp.tanh(cell), cell


def _gru(by_input: Any, by_hidden: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
    reset_in, update_in, new_in = jnp.split(by_input, 3, axis=-1)
    reset_hidden, update_hidden, new_hidden = jnp.split(by_hidden, 3, axis=-1)
    new = jnp.tanh(new_in + _sigmoid(reset_in + reset_hidden) * new_hidden)
    return new + _sigmoid(update_in + update_hidden) * (hidden - new), cell


def _rnn_tanh(by_input: Any, by_hidden: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
    return jnp.tanh(by_input + by_hidden), cell


def _rnn_relu(by_input: Any, by_hidden: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
    return jax.nn.relu(by_input + by_hidden), cell


_STEPS: dict[str, Callable[..., tuple[Any, Any]]] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _rnn_tanh, "rnn_relu": _rnn_relu}


# PyTorch's cells


@rule("_thnn_fused_lstm_cell")
def lstm_cell(ctx: Context, input_gates: Any, hidden_gates: Any, cx: Any, input_bias: Any, hidden_bias: Any) -> Any:
    i, f, g, o = _lstm_gates(_sum(input_gates, hidden_gates, input_bias, hidden_bias))
    cell = f * _wide(cx) + i * g
    return o * jnp.tanh(cell), cell, jnp.concatenate([i, f, g, o], -1)


@rule("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(ctx: Context, grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool) -> Any:
    i, f, g, o = jnp.split(_wide(workspace), 4, axis=-1)
    by_hidden = 0 if grad_hy is None else _wide(grad_hy)
    tanh = jnp.tanh(_wide(cy))
    by_cell = by_hidden * o * (1 - tanh * tanh) + (0 if grad_cy is None else _wide(grad_cy))
    slopes = (
        by_cell * g * i * (1 - i),
        by_cell * _wide(cx) * f * (1 - f),
        by_cell * i * (1 - g * g),
        by_hidden * tanh * o * (1 - o),
    )
    by_gates = jnp.concatenate(slopes, -1)
    return by_gates, by_cell * f, by_gates.sum(0) if has_bias else None


@rule("_thnn_fused_gru_cell")
def gru_cell(ctx: Context, input_gates: Any, hidden_gates: Any, hx: Any, input_bias: Any, hidden_bias: Any) -> Any:
    by_input, by_hidden, hidden = _sum(input_gates, input_bias), _sum(hidden_gates, hidden_bias), _wide(hx)
    size = hidden.shape[-1]
    reset, update = jnp.split(_sigmoid((by_input + by_hidden)[..., : 2 * size]), 2, axis=-1)
    by_new = by_hidden[..., 2 * size :]
    new = jnp.tanh(by_input[..., 2 * size :] + reset * by_new)
    return new + update * (hidden - new), jnp.concatenate([reset, update, new, hidden, by_new], -1)


@rule("_thnn_fused_gru_cell_backward")
def gru_cell_backward(ctx: Context, grad_hy: Any, workspace: Any, has_bias: bool) -> Any:
    reset, update, new, hidden, by_new = jnp.split(_wide(workspace), 5, axis=-1)
    grad = _wide(grad_hy)
    new_slope = grad * (1 - update) * (1 - new * new)
    update_slope = grad * (hidden - new) * update * (1 - update)
    reset_slope = new_slope * by_new * reset * (1 - reset)
    by_input = jnp.concatenate([reset_slope, update_slope, new_slope], -1)
    by_hidden = jnp.concatenate([reset_slope, update_slope, new_slope * reset], -1)
    biases = (by_input.sum(0), by_hidden.sum(0)) if has_bias else (None, None)
    return (by_input, by_hidden, grad * update, *biases)


# Layers


def _times(x: Any, weight: Any) -> Any:
    """``x @ weight.T``, accumulated in the dtype to compute in."""
    return contract(x.astype(weight.dtype), weight, ((x.ndim - 1,), (1,)))


def _back_through(grad: Any, weight: Any) -> Any:
    return contract(grad.astype(weight.dtype), weight, ((grad.ndim - 1,), (0,)))


def _weight_gradient(grad: Any, x: Any, weight: Any) -> Any:
    return contract(grad.astype(weight.dtype), x.astype(weight.dtype), ((0, 1), (0, 1)))


def _running(sizes: Any, steps: int, batch: int) -> Any:
    """Which sequences still run at each step, as (step, sequence, 1); the longest come first."""
    if sizes is None:
        return jnp.ones((steps, 1, 1), bool)
    return jnp.arange(batch)[None, :, None] < sizes[:, None, None]


def _before(first: Any, states: Any, reverse: bool) -> Any:
    """The state each step starts from."""
    first = first[None]
    return jnp.concatenate([states[1:], first] if reverse else [first, states[:-1]])


@rule("lazytpu::recurrence")
def recurrence(
    ctx: Context,
    by_input: Any,
    hidden: Any,
    cell: Any,
    weight: Any,
    bias: Any,
    projection: Any,
    sizes: Any,
    kind: str,
    reverse: bool,
) -> Any:
    """The hidden states of all steps, and for an LSTM the cell states; a sequence that has ended keeps its state."""
    step = _STEPS[kind]
    hidden, cell, extra = _wide(hidden), _wide(cell), 0 if bias is None else _wide(bias)

    def turn(state: Any, item: Any) -> Any:
        (old_hidden, old_cell), (x, running) = state, item
        new_hidden, new_cell = step(_wide(x), _times(old_hidden, weight) + extra, old_hidden, old_cell)
        if projection is not None:
            new_hidden = _times(new_hidden, projection)
        new_hidden = jnp.where(running, new_hidden, old_hidden)
        new_cell = None if cell is None else jnp.where(running, new_cell, old_cell)
        return (new_hidden, new_cell), (new_hidden, new_cell)

    running = _running(sizes, *by_input.shape[:2])
    _, (states, cells) = lax.scan(turn, (hidden, cell), (by_input, running), reverse=reverse)
    return (states,) if cell is None else (states, cells)


@rule("lazytpu::recurrence_backward")
def recurrence_backward(
    ctx: Context,
    grad_states: Any,
    grad_cells: Any,
    by_input: Any,
    hidden: Any,
    cell: Any,
    weight: Any,
    bias: Any,
    projection: Any,
    sizes: Any,
    states: Any,
    cells: Any,
    kind: str,
    reverse: bool,
) -> Any:
    """The gradients of input gates, hidden and cell state, hidden weights, their bias and the projection."""
    step = _STEPS[kind]
    starts = _before(_wide(hidden), _wide(states), reverse)
    cell_starts: Any = None if cell is None else _before(_wide(cell), _wide(cells), reverse)
    by_hidden = _times(starts, weight) + (0 if bias is None else _wide(bias))

    def turn(carried: Any, item: Any) -> Any:
        grad_hidden, grad_cell = carried
        grad, cell_grad, x, gates, start, cell_start, running = item
        grad_hidden = grad_hidden + _wide(grad)
        if cell is not None:
            grad_cell = grad_cell + _wide(cell_grad)
        (unprojected, _), back = jax.vjp(step, _wide(x), gates, start, cell_start)
        by_output = grad_hidden if projection is None else _back_through(grad_hidden, projection)
        grad_x, grad_gates, grad_start, grad_cell_start = back((by_output, grad_cell))
        grad_start = grad_start + _back_through(grad_gates, weight)
        grad_x, grad_gates = jnp.where(running, grad_x, 0), jnp.where(running, grad_gates, 0)
        passed = jnp.where(running, grad_start, grad_hidden)
        cell_passed = None if cell is None else jnp.where(running, grad_cell_start, grad_cell)
        projected = None if projection is None else (jnp.where(running, grad_hidden, 0), unprojected)
        return (passed, cell_passed), (grad_x, grad_gates, projected)

    running = _running(sizes, *by_input.shape[:2])
    items = (grad_states, grad_cells, by_input, by_hidden, starts, cell_starts, running)
    first = (jnp.zeros_like(starts[0]), None if cell is None else jnp.zeros_like(cell_starts[0]))
    (grad_hidden, grad_cell), (grad_x, grad_gates, projected) = lax.scan(turn, first, items, reverse=not reverse)
    by_projection = None
    if projection is not None:
        by_output, unprojected = projected
        by_projection = _weight_gradient(by_output, unprojected, projection)
    return (
        grad_x,
        grad_hidden,
        grad_cell,
        _weight_gradient(grad_gates, starts, weight),
        None if bias is None else grad_gates.sum((0, 1)),
        by_projection,
    )
