"""A graph recorded once for each kind of its inputs; each further call records one op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from lazytpu import notices, recorder
from lazytpu.device import random
from lazytpu.dispatch import cells
from lazytpu.ir import NUMBER_INT, Signature, Slot, TensorType, Value, tensor_type
from lazytpu.ir.expand import REGION
from lazytpu.ir.source import user_source
from lazytpu.ir.subprogram import Subprogram
from lazytpu.lowering.registry import RULES

_CONSTANTS = ("lift_fresh_copy", "lift_fresh", "detach")
"""Ops that a constant of the graph may pass through on the CPU."""
_BY_MEMORY = ("as_strided",)
"""Ops whose result depends on where in memory their input lies."""
_signatures: dict[tuple[Subprogram, tuple[TensorType, ...]], Signature] = {}


class _Recorded(NamedTuple):
    """A recorded graph: its op, the constants it takes, its numbers with the places of seeds among the ints, its results.

    ``results`` holds the strides of a tensor, or a 1-tuple of what is not one.
    """

    signature: Signature
    constants: list[Value]
    floats: list[float]
    ints: list[int]
    seeds: list[int]
    results: list[tuple[Any, bool]]


class Region:
    """A graph of ATen ops without side effects.

    What is part of a recording: the shapes, dtypes and strides of tensors, and the values of everything
    else. A graph that reads a value on the host, computes on another device or addresses memory by
    strides is recorded op by op at each call.
    """

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        self.graph = graph
        self.recorded: dict[tuple[Any, ...], _Recorded] = {}
        self.why_not = _obstacle(graph)

    def __call__(self, *arguments: Any) -> Any:
        with recorder.lock:
            taken = None if self.why_not or recorder.is_eager() else _take(arguments)
            if taken is not None:
                key, values = taken
                found = self.recorded.get(key)
                if found is None:
                    found = self._record(key, arguments, values)
                if found is not None:
                    return _splice(found, values)
        return self.graph(*arguments)

    def _record(self, key: tuple[Any, ...], arguments: Sequence[Any], values: list[Value]) -> _Recorded | None:
        try:
            found = self.recorded[key] = _record(self.graph, arguments, values)
        except recorder.NeedsSync as reason:
            self.why_not = str(reason)
            notices.warn(f"a region of torch.compile is recorded op by op: {reason}", user_source())
            return None
        return found


def _obstacle(graph: torch.fx.GraphModule) -> str:
    """Why calls of ``graph`` cannot be one op; empty where they can."""
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        name = getattr(node.target, "_opname", getattr(node.target, "__name__", ""))
        if name in _BY_MEMORY:
            return f"{name} addresses memory by strides"
        result = node.meta.get("val")
        if isinstance(result, torch.Tensor) and result.device.type != "tpu" and name not in _CONSTANTS:
            return f"{name} computes on {result.device}"
    return ""


def _take(arguments: Sequence[Any]) -> tuple[tuple[Any, ...], list[Value]] | None:
    """The key and the values of a call; None where a tensor is elsewhere, whose content would become part of the region."""
    key: list[Any] = []
    values = []
    for x in arguments:
        if not isinstance(x, torch.Tensor):
            key.append((type(x), x))
            continue
        if not cells.has_cell(x):
            return None
        value = cells.read(x)
        values.append(value)
        key.append(value.type if x.is_contiguous() else (value.type, x.stride()))
    return tuple(key), values


def _record(graph: torch.fx.GraphModule, arguments: Sequence[Any], values: Sequence[Value]) -> _Recorded:
    with recorder.Capture("torch.compile") as capture, torch.no_grad():
        inputs = [_stand_in(x, capture) if isinstance(x, torch.Tensor) else x for x in arguments]
        results: list[tuple[Any, bool]] = []
        outputs = []
        for x in graph(*inputs):
            if isinstance(x, torch.Tensor):
                outputs.append(capture.trace_id(cells.read(x)))
                results.append((None if x.is_contiguous() else x.stride(), True))
            else:
                results.append((x, False))
    trace = capture.trace
    program = Subprogram(trace, outputs)
    types = [*(v.type for v in values), *(v.type for v in capture.captured)]
    types += [tensor_type((), torch.float64)] * len(trace.floats) + [tensor_type((), torch.int64)] * len(trace.ints)
    seeds = []
    count = 0
    for node in program.nodes:
        count += node.inputs.count(NUMBER_INT)
        if RULES[node.signature.op].random:
            seeds.append(count - 2)
    return _Recorded(_signature(program, tuple(types)), capture.captured, trace.floats, trace.ints, seeds, results)


def _stand_in(x: torch.Tensor, capture: recorder.Capture) -> torch.Tensor:
    """An input of the region with the geometry of ``x``."""
    value = capture.input(tensor_type(tuple(x.shape), x.dtype))
    return cells.new(value) if x.is_contiguous() else cells.new_strided(value, x.stride())


def _signature(program: Subprogram, types: tuple[TensorType, ...]) -> Signature:
    found = _signatures.get((program, types))
    if found is None:
        args = (program, [Slot(i) for i in range(len(types))])
        found = Signature(REGION, types, args, program.output_types, ("tensor",) * len(types))
        _signatures[(program, types)] = found
    return found


def _splice(found: _Recorded, values: Sequence[Value]) -> list[Any]:
    """Record the region as one op on ``values``, with random numbers of its own."""
    ints = found.ints
    if found.seeds:
        ints = list(ints)
        for place in found.seeds:
            ints[place : place + 2] = random.next_seed(None)
    made = iter(recorder.record(found.signature, [*values, *found.constants, *found.floats, *ints]))
    return [_result(next(made), x) if tensor else x for x, tensor in found.results]


def _result(value: Value, stride: tuple[int, ...] | None) -> torch.Tensor:
    return cells.new(value) if stride is None else cells.new_strided(value, stride)
