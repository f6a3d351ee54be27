"""The trace: text, DOT, verification, numbers as inputs, and where ops were recorded."""

from __future__ import annotations

import pytest
import torch

import lazytpu
from lazytpu.ir import Trace, Value, tensor_type
from lazytpu.ir.printing import to_dot, to_text
from lazytpu.ir.verify import MalformedTrace, verify


def record_something() -> torch.Tensor:
    x = torch.ones(2, 3, device="tpu")
    y = x + 1.5
    y[0, 1] = 7
    return y


def test_a_trace_prints_before_and_after_it_is_run() -> None:
    y = record_something()
    before = lazytpu.metrics()["executions"]
    text = str(lazytpu.current_trace())
    assert lazytpu.metrics()["executions"] == before
    assert "aten::add.Tensor(%" in text and "1.5" in text and "float32[2,3]" in text
    assert "test_trace.py:" in text
    lazytpu.sync()
    assert str(lazytpu.last_trace()) == text
    assert str(lazytpu.current_trace()) == "(empty trace)"
    assert y[0, 1].item() == 7


def test_live_results_are_marked() -> None:
    y = record_something()
    marked = [line for line in to_text(lazytpu.current_trace()).splitlines() if "* =" in line]
    assert len(marked) == 1 and "view_write" in marked[0]
    del y
    assert "* =" not in to_text(lazytpu.current_trace())


def test_dot_has_a_box_an_op_and_an_edge_an_input() -> None:
    y = record_something()
    trace = lazytpu.current_trace()
    dot = to_dot(trace)
    assert dot.count("shape=box") == len(trace)
    assert dot.count("->") == sum(1 for node in trace.nodes for id in node.inputs if id >= 0)
    del y


def test_the_line_recorded_is_the_users() -> None:
    x = torch.ones(2, device="tpu")
    line = test_the_line_recorded_is_the_users.__code__.co_firstlineno + 3
    y = torch.nn.functional.relu(x)
    source = lazytpu.current_trace().nodes[-1].source
    assert source is not None and source.file == __file__ and source.line == line
    del y


def test_backward_ops_carry_the_line_of_the_backward_call() -> None:
    x = torch.ones(2, device="tpu", requires_grad=True)
    y = (x * x).sum()
    line = test_backward_ops_carry_the_line_of_the_backward_call.__code__.co_firstlineno + 4
    y.backward()
    lines = {n.source.line for n in lazytpu.current_trace().nodes if n.source and n.source.file == __file__}
    assert line in lines


def test_verify_accepts_what_is_recorded() -> None:
    y = record_something()
    z = (y @ y.t()).softmax(-1).sum()
    verify(lazytpu.current_trace())
    del z


def break_order(trace: Trace) -> None:
    trace.ops.inputs[1] = (len(trace.refs) + 5, *trace.ops.inputs[1][1:])


def break_types(trace: Trace) -> None:
    trace.types[trace.ops.firsts[0]] = tensor_type((9, 9), torch.float32)


def break_numbers(trace: Trace) -> None:
    trace.floats.append(1.0)


def break_count(trace: Trace) -> None:
    trace.count -= 1


def break_assignment(trace: Trace) -> None:
    trace.ops.firsts[1] = trace.ops.firsts[0]


def break_values(trace: Trace) -> None:
    value = Value(tensor_type((1,), torch.float32), 0, -1, object())
    trace.refs.append(__import__("weakref").ref(value))


@pytest.mark.parametrize("spoil", [break_order, break_types, break_numbers, break_count, break_assignment, break_values])
def test_verify_rejects_a_malformed_trace(spoil: object) -> None:
    y = record_something()
    trace = lazytpu.current_trace()
    spoil(trace)  # type: ignore[operator]
    with pytest.raises(MalformedTrace):
        verify(trace)
    lazytpu.recorder.trace = Trace()
    del y


def test_numbers_are_inputs_and_never_part_of_the_key() -> None:
    codes = []
    for number in (0.5, 1.0, -3.25):
        x = torch.ones(3, device="tpu")
        y = torch.add(x, x, alpha=number) * number
        codes.append(lazytpu.current_trace().code())
        lazytpu.sync()
        assert y.tolist() == [(1 + number) * number] * 3
    assert len(set(codes)) == 1


def test_equal_looking_numbers_of_other_types_are_other_programs() -> None:
    x = torch.tensor([1, 2, 3], device="tpu")
    results = [x * n for n in (1, 1.0, True)]
    assert [r.dtype for r in results] == [torch.int64, torch.float32, torch.int64]
