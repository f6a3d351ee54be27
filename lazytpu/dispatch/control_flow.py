"""Kernels of ``torch.cond``, ``torch.while_loop`` and ``scan``: their bodies are recorded as subprograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.dispatch import cells, host
from lazytpu.ir import Signature, Slot, TensorType, Value, tensor_type
from lazytpu.ir.subprogram import Subprogram

_SIGNATURES: dict[tuple[Any, ...], Signature] = {}


class _Body:
    """A function recorded as a subprogram, and the runtime inputs it needs after its declared ones."""

    def __init__(self, what: str, fn: Callable[..., Any], types: Sequence[TensorType]) -> None:
        with recorder.Capture(what) as capture:
            arguments = [cells.new(capture.input(type)) for type in types]
            with torch.no_grad():
                result = fn(*arguments)
            self.results = list(result) if isinstance(result, (tuple, list)) else [result]
            outputs = [capture.trace_id(_value_of(r)) for r in self.results if r is not None]
            self.program = Subprogram(capture.trace, outputs)
        self.extra: list[Value | float | int] = [*capture.captured, *capture.trace.floats, *capture.trace.ints]
        self.extra_types = [v.type for v in capture.captured]
        self.extra_types += [tensor_type((), torch.float64)] * len(capture.trace.floats)
        self.extra_types += [tensor_type((), torch.int64)] * len(capture.trace.ints)


def _value_of(x: Any) -> Value:
    if isinstance(x, torch.Tensor) and cells.is_lazy(x):
        return cells.read(x)
    if isinstance(x, torch.Tensor):
        return host.upload(x)
    return cells.full(tensor_type((), torch.bool if isinstance(x, bool) else torch.int64), x)


def _signature(op: str, inputs: list[TensorType], args: tuple[Any, ...], key: tuple[Any, ...], outputs: Any) -> Signature:
    whole = (op, tuple(inputs), key, tuple(outputs))
    found = _SIGNATURES.get(whole)
    if found is None:
        found = _SIGNATURES[whole] = Signature(op, tuple(inputs), args, tuple(outputs), ("tensor",) * len(inputs))
    return found


def _slots(first: int, count: int) -> list[Slot]:
    return [Slot(i) for i in range(first, first + count)]


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any) -> Any:
    """``torch.cond`` on ``tpu``: both branches are recorded, the device chooses; nothing is read on the host."""
    if not isinstance(pred, torch.Tensor):
        return (true_fn if pred else false_fn)(*operands)
    tensors, fixed = _split(operands)
    with recorder.lock:
        predicate, values = _value_of(pred), [cells.read(t) for t in tensors]
        types = [v.type for v in values]
        on_true, on_false = (_Body("torch.cond", _place(fn, fixed), types) for fn in (true_fn, false_fn))
        if on_true.program.output_types != on_false.program.output_types:
            raise RuntimeError(
                "the branches of torch.cond must return tensors of the same shapes and dtypes; true_fn returns "
                f"{on_true.program.output_types}, false_fn {on_false.program.output_types}"
            )
        count, extra = len(values), len(on_true.extra)
        inputs = [predicate.type, *types, *on_true.extra_types, *on_false.extra_types]
        shared = _slots(1, count)
        args = (
            Slot(0), on_true.program, on_false.program,
            [*shared, *_slots(1 + count, extra)], [*shared, *_slots(1 + count + extra, len(on_false.extra))],
        )  # fmt: skip
        key = (on_true.program, on_false.program)
        signature = _signature("lazytpu::cond", inputs, args, key, on_true.program.output_types)
        results = recorder.record(signature, [predicate, *values, *on_true.extra, *on_false.extra])
        return _results(on_true.results, results)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any, additional_inputs: Any) -> Any:
    """``torch.while_loop`` on ``tpu``: one program, however many turns it takes."""
    with recorder.lock:
        carried = [_value_of(x) for x in carried_inputs]
        additional, operands = _split(additional_inputs)
        values = [*carried, *(cells.read(t) for t in additional)]
        types = [v.type for v in values]
        # Loop state keeps its type, so integers in it are 0-d tensors inside the body.
        every = [*map(cells.new, carried), *operands]
        condition = _Body("torch.while_loop", _place(cond_fn, every), types)
        body = _Body("torch.while_loop", _place(body_fn, every), types)
        state = tuple(v.type for v in carried)
        if body.program.output_types != state:
            raise RuntimeError(
                f"body_fn of torch.while_loop must return {state}, like its inputs, not {body.program.output_types}"
            )
        count, shared = len(carried), len(values)
        more = _slots(count, shared - count)
        args = (
            condition.program, body.program, _slots(0, count),
            [*more, *_slots(shared, len(condition.extra))], [*more, *_slots(shared + len(condition.extra), len(body.extra))],
        )  # fmt: skip
        inputs = [*types, *condition.extra_types, *body.extra_types]
        signature = _signature("lazytpu::while_loop", inputs, args, (condition.program, body.program), state)
        results = recorder.record(signature, [*values, *condition.extra, *body.extra])
        return tuple(map(cells.new, results))


def scan(combine_fn: Callable[..., Any], init: Any, xs: Any, additional_inputs: Any) -> Any:
    """``scan`` on ``tpu`` along the first dimension of ``xs``: one program, however long the sequences."""
    with recorder.lock:
        carried, sequences = [cells.read(t) for t in init], [cells.read(t) for t in xs]
        additional, operands = _split(additional_inputs)
        more = [cells.read(t) for t in additional]
        items = [tensor_type(v.type.shape[1:], v.type.dtype) for v in sequences]
        every = [*init, *xs, *operands]
        body = _Body("scan", _place(combine_fn, every), [*(v.type for v in carried), *items, *(v.type for v in more)])
        state = [v.type for v in carried]
        if list(body.program.output_types[: len(state)]) != state:
            raise RuntimeError(
                f"combine_fn of scan must return its carry as {state}, not {body.program.output_types[: len(state)]}"
            )
        length = sequences[0].type.shape[0]
        outputs = [*state, *(tensor_type((length, *t.shape), t.dtype) for t in body.program.output_types[len(state) :])]
        a, b = len(carried), len(carried) + len(sequences)
        args = (body.program, _slots(0, a), _slots(a, b - a), _slots(b, len(more) + len(body.extra)))
        values = [*carried, *sequences, *more]
        signature = _signature("lazytpu::scan", [*(v.type for v in values), *body.extra_types], args, (body.program,), outputs)
        return _results(body.results, recorder.record(signature, [*values, *body.extra]))


def _split(operands: Any) -> tuple[list[torch.Tensor], list[Any]]:
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    return [t if cells.is_lazy(t) else t.to("tpu") for t in tensors], list(operands)


def _place(fn: Callable[..., Any], operands: list[Any]) -> Callable[..., Any]:
    """``fn`` taking only the tensors among ``operands``."""

    def call(*tensors: torch.Tensor) -> Any:
        remaining = iter(tensors)
        return fn(*[next(remaining) if isinstance(x, torch.Tensor) else x for x in operands])

    return call


def _results(shape: list[Any], values: list[Value]) -> Any:
    remaining = iter(values)
    return tuple(None if x is None else cells.new(next(remaining)) for x in shape)


def register() -> None:
    """Register the kernels with PyTorch's higher-order ops."""
    from torch._higher_order_ops.cond import cond_op
    from torch._higher_order_ops.scan import scan_op
    from torch._higher_order_ops.while_loop import while_loop_op

    key = torch._C.DispatchKey.PrivateUse1
    cond_op.py_impl(key)(cond)
    while_loop_op.py_impl(key)(while_loop)
    scan_op.py_impl(key)(scan)
