"""``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``: one op for each layer and direction, however long the sequences.

PyTorch's composite kernels would record every time step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

from lazytpu import recorder
from lazytpu.dispatch import cells, infer
from lazytpu.dispatch.fixed import record, values
from lazytpu.ir import tensor_type

_ATEN = torch.ops.aten
_linear = torch.nn.functional.linear

_Tensor = torch.Tensor


# One layer in one direction


def _forward(
    kind: str, reverse: bool, sizes: Any, by_input: _Tensor, hidden: _Tensor, cell: Any, *weights: Any
) -> tuple[Any, Any]:
    """The hidden states of all steps, and the cell states of an LSTM."""
    steps, batch = by_input.shape[:2]
    outputs = tuple(tensor_type((steps, batch, t.size(1)), t.dtype) for t in (hidden, cell) if t is not None)
    with recorder.lock:
        inputs = values(by_input, hidden, cell, *weights, sizes)
        results = record("lazytpu::recurrence", inputs, (kind, reverse), outputs)
        return cells.new(results[0]), None if cell is None else cells.new(results[1])


def _unrolled(
    kind: str, reverse: bool, sizes: Any, by_input: _Tensor, hidden: _Tensor, cell: Any, *weights: Any
) -> tuple[Any, Any]:
    """As ``_forward``, step by step of ops whose derivatives PyTorch knows."""
    weight, bias, projection = weights
    places = torch.arange(by_input.size(1), device=by_input.device).unsqueeze(1)
    steps = range(by_input.size(0))
    states: list[Any] = [None] * len(steps)
    cell_states: list[Any] = [None] * len(steps)
    for t in reversed(steps) if reverse else steps:
        x, gates = by_input[t], _linear(hidden, weight, bias)
        new_cell = cell
        if kind == "lstm":
            i, f, g, o = (x + gates).chunk(4, 1)
            new_cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            new_hidden = o.sigmoid() * new_cell.tanh()
        elif kind == "gru":
            (reset, update, new), (reset_h, update_h, new_h) = x.chunk(3, 1), gates.chunk(3, 1)
            new = (new + (reset + reset_h).sigmoid() * new_h).tanh()
            new_hidden = new + (update + update_h).sigmoid() * (hidden - new)
        else:
            new_hidden = (x + gates).tanh() if kind == "rnn_tanh" else (x + gates).relu()
        if projection is not None:
            new_hidden = _linear(new_hidden, projection)
        if sizes is not None:
            running = places < sizes[t]
            new_hidden = torch.where(running, new_hidden, hidden)
            new_cell = None if cell is None else torch.where(running, new_cell, cell)
        hidden, cell = new_hidden, new_cell
        states[t], cell_states[t] = hidden, cell
    return torch.stack(states), None if cell is None else torch.stack(cell_states)


class _Layer(torch.autograd.Function):
    """A layer whose backward is one op as well; a derivative of that is taken through the steps."""

    @staticmethod
    def forward(ctx: Any, kind: str, reverse: bool, sizes: Any, *tensors: Any) -> tuple[Any, Any]:
        states, cell_states = _forward(kind, reverse, sizes, *tensors)
        ctx.how = (kind, reverse)
        ctx.save_for_backward(sizes, states, cell_states, *tensors)
        return states, cell_states

    @staticmethod
    def backward(ctx: Any, grad_states: Any, grad_cells: Any) -> Any:
        kind, reverse = ctx.how
        sizes, states, cell_states, *tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            return (None, None, None, *_gradients_by_steps(ctx, grad_states, grad_cells, sizes, tensors))
        outputs = tuple(tensor_type(tuple(t.shape), t.dtype) for t in tensors if t is not None)
        with recorder.lock:
            read = values(grad_states, grad_cells, *tensors, sizes, states, cell_states)
            results = iter(record("lazytpu::recurrence_backward", read, (kind, reverse), outputs))
            return (None, None, None, *(None if t is None else cells.new(next(results)) for t in tensors))


def _gradients_by_steps(ctx: Any, grad_states: Any, grad_cells: Any, sizes: Any, tensors: Sequence[Any]) -> list[Any]:
    given = [t for t, wanted in zip(tensors, ctx.needs_input_grad[3:]) if wanted]
    results = [r for r in _unrolled(*ctx.how, sizes, *tensors) if r is not None]
    grads = [g for g, _ in zip((grad_states, grad_cells), results)]
    found = iter(torch.autograd.grad(results, given, grads, create_graph=True, allow_unused=True))
    return [next(found) if wanted else None for wanted in ctx.needs_input_grad[3:]]


# Whole modules


def _network(
    kind: str,
    input: _Tensor,
    sizes: Any,
    hidden: _Tensor,
    cell: Any,
    params: list[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Any, ...]:
    """Output, last hidden and (for an LSTM) last cell states; input is (step, sequence, feature)."""
    projected = cell is not None and cell.size(2) != hidden.size(2)
    directions = 2 if bidirectional else 1
    each = (4 if has_biases else 2) + projected
    if input.size(0) == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    if len(params) != each * directions * num_layers or hidden.size(0) != directions * num_layers:
        raise RuntimeError("the numbers of parameters and of hidden states do not fit the layers and directions")
    for t in (hidden, cell, *params):
        if t is not None and t.dtype != input.dtype:
            raise RuntimeError(f"expected all tensors of a recurrent layer to be {input.dtype}, got {t.dtype}")
    last: list[list[_Tensor]] = [[], []]
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            weight_in, weight, *rest = params[place * each : (place + 1) * each]
            bias_in, bias = rest[:2] if has_biases else (None, None)
            weights = (weight, bias, rest[-1] if projected else None)
            start = (hidden[place], None if cell is None else cell[place])
            run = partial(_Layer.apply if torch.is_grad_enabled() else _forward, kind, direction == 1, sizes)
            states, cell_states = run(_linear(input, weight_in, bias_in), *start, *weights)
            end = 0 if direction else -1
            for kept, sequence in zip(last, (states, cell_states)):
                if sequence is not None:
                    kept.append(sequence[end])
            outputs.append(states)
        input = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout and train and layer < num_layers - 1:
            input = torch.dropout(input, dropout, True)
    return (input, *(torch.stack(kept) for kept in last if kept))


def _whole(op: OpOverload, kind: str, args: tuple[Any, ...]) -> Any:
    """A call on sequences of one length."""
    input, state, *rest, batch_first = args
    if not cells.has_cell(input):
        return op.decompose(*args)
    hidden, cell = state if kind == "lstm" else (state, None)
    output, *last = _network(kind, input.transpose(0, 1) if batch_first else input, None, hidden, cell, *rest)
    return (output.transpose(0, 1) if batch_first else output, *last)


def _packed(op: OpOverload, kind: str, args: tuple[Any, ...]) -> Any:
    """A call on packed sequences: they are padded, and the loop leaves those that have ended alone."""
    data, batch_sizes, state, *rest = args
    if not cells.has_cell(data):
        return op.decompose(*args)
    sizes = batch_sizes.cpu()
    batch = int(sizes[0])
    running = torch.arange(batch, device="cpu") < sizes.unsqueeze(1)
    places = (sizes.cumsum(0) - sizes).unsqueeze(1) + torch.arange(batch, device="cpu")
    padded = data.index_select(0, places.where(running, 0).flatten().to(data.device)).unflatten(0, (-1, batch))
    hidden, cell = state if kind == "lstm" else (state, None)
    output, *last = _network(kind, padded, sizes.to(data.device), hidden, cell, *rest)
    kept = running.flatten().nonzero().squeeze(1).to(data.device)
    return (output.flatten(0, 1).index_select(0, kept), *last)


def _kernel(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    kind, _, form = name.partition(".")
    op = getattr(getattr(_ATEN, kind), form)

    def kernel(*args: Any) -> Any:
        return run(op, kind, args)

    return kernel


def _lstm_cell(
    input_gates: _Tensor, hidden_gates: _Tensor, cx: _Tensor, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[_Tensor, ...]:
    """Recorded by hand: PyTorch's meta kernel does not take cells without biases."""
    infer.check_same_device(_ATEN._thnn_fused_lstm_cell.default, [input_gates, hidden_gates, cx, input_bias, hidden_bias])
    with recorder.lock:
        inputs = values(input_gates, hidden_gates, cx, input_bias, hidden_bias)
        state, gates = (tensor_type(tuple(t.shape), t.dtype) for t in (cx, input_gates))
        return tuple(map(cells.new, record("aten::_thnn_fused_lstm_cell", inputs, (), (state, state, gates))))


_SEQUENCES: dict[str, Callable[..., Any]] = {
    f"{kind}.{form}": _kernel(f"{kind}.{form}", run)
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    for form, run in (("input", _whole), ("data", _packed))
}

KERNELS: dict[str, Callable[..., Any]] = {**_SEQUENCES, "_thnn_fused_lstm_cell": _lstm_cell}
"""Kernels by overload name, for registration."""

AUTOGRAD_KERNELS = _SEQUENCES
"""The same under autograd: the composite kernels would come first otherwise."""


def _gru_cell_types(
    input_gates: _Tensor, hidden_gates: _Tensor, hx: _Tensor, input_bias: Any = None, hidden_bias: Any = None
) -> Any:
    return torch.empty_like(hx), hx.new_empty((hx.size(0), 5 * hx.size(1)))


def _gru_cell_backward_types(grad_hy: _Tensor, workspace: _Tensor, has_bias: bool) -> Any:
    batch, size = grad_hy.shape
    gates = workspace.new_empty((batch, 3 * size))
    biases = (workspace.new_empty((3 * size,)), workspace.new_empty((3 * size,))) if has_bias else (None, None)
    return (gates, torch.empty_like(gates), torch.empty_like(grad_hy), *biases)


META_KERNELS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_gru_cell": _gru_cell_types,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward_types,
}
"""Meta kernels that PyTorch lacks."""
