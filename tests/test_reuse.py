"""Which output takes the memory of which donated leaf, and that values come out right whatever is paired."""

from __future__ import annotations

import re

import torch
import torch.nn as nn
from hypothesis import given
from hypothesis import strategies as st

import lazytpu
from lazytpu import launch
from lazytpu.ir import Signature, TensorType, Trace
from lazytpu.lowering.reuse import reused

A, B = TensorType((4,), torch.float32), TensorType((4,), torch.int32)


class _Builder:
    """A trace of ops without meaning over leaves that nothing holds."""

    def __init__(self, *leaves: TensorType) -> None:
        self.trace = Trace()
        for type in leaves:
            self.trace.refs.append(lambda: None)  # type: ignore[arg-type]
            self.trace.types.append(type)
            self.trace.leaves.append((len(self.trace.leaves), None))

    def op(self, *inputs: int, out: TensorType = A) -> int:
        types = tuple(self.trace.types[i] for i in inputs)
        (value,) = self.trace.add_node(Signature.intern("test::op", types, (), (out,), ()), inputs, None, 0)
        return value.id


def test_an_output_takes_the_leaf_that_its_op_reads_last() -> None:
    b = _Builder(A, A, A)
    first = b.op(1)
    second = b.op(0)
    assert reused(b.trace, [first, second], [0, 1, 2]) == {1: 0, 0: 1}


def test_a_leaf_read_later_is_not_overwritten() -> None:
    b = _Builder(A)
    early = b.op(0)
    late = b.op(0)
    assert reused(b.trace, [early, late], [0]) == {0: 1}


def test_types_must_agree_and_only_donated_leaves_are_reused() -> None:
    b = _Builder(A, B, A)
    out = b.op(0, 1, 2, out=B)
    assert reused(b.trace, [out], [0, 2]) == {}
    assert reused(b.trace, [out], [0, 1]) == {1: 0}


def test_a_leaf_that_is_an_output_itself_keeps_its_memory() -> None:
    b = _Builder(A)
    out = b.op(0)
    assert reused(b.trace, [0, out], [0]) == {}


def test_a_value_returned_twice_takes_one_place() -> None:
    b = _Builder(A)
    out = b.op(0, 0)
    assert list(reused(b.trace, [out, out], [0])) == [0]


@given(st.data())
def test_no_leaf_and_no_output_is_paired_twice(data: st.DataObject) -> None:
    b = _Builder(*data.draw(st.lists(st.sampled_from([A, B]), min_size=1, max_size=5)))
    count = len(b.trace.leaves)
    for _ in range(data.draw(st.integers(1, 8))):
        inputs = data.draw(st.lists(st.integers(0, len(b.trace.types) - 1), max_size=3))
        b.op(*inputs, out=data.draw(st.sampled_from([A, B])))
    outputs = data.draw(st.lists(st.integers(count, len(b.trace.types) - 1), unique=True))
    donated = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    pairs = reused(b.trace, outputs, donated)
    assert len(set(pairs.values())) == len(pairs) and set(pairs) <= set(donated)
    for leaf, place in pairs.items():
        made = next(n for n, node in enumerate(b.trace.nodes) if node.first == outputs[place])
        read = [n for n, node in enumerate(b.trace.nodes) if leaf in node.inputs]
        assert b.trace.types[leaf] == b.trace.types[outputs[place]] and max(read) <= made


def test_swapped_and_crossed_values_are_right() -> None:
    x, y, z = (torch.full((8,), float(i), device="tpu") for i in range(3))
    lazytpu.sync(wait=True)
    for _ in range(3):
        old = x.clone()
        x.copy_(y * 2)
        y.copy_(z + old)
        z.copy_(old)
        lazytpu.sync(wait=True)
    a, b, c = 0.0, 1.0, 2.0
    for _ in range(3):
        a, b, c = b * 2, c + a, a
    assert (x[0].item(), y[7].item(), z[3].item()) == (a, b, c)


def test_a_step_of_adam_copies_no_parameter_or_moment() -> None:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(6))).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 16).to("tpu")
    for _ in range(3):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # the update then follows every read of a parameter
        optimizer.step()
    lazytpu.sync(wait=True)
    program = next(reversed(launch.programs._entries.values()))
    text = program.executable.hlo_modules()[0].to_string()
    assert "f32[16,16]" in text
    assert re.findall(r"= f32\[16,16\]\S* copy\(", text) == []
