"""``tools.hlo``: what XLA makes of a recorded GPT step, beside its twin written by hand."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter

import pytest

from tools.hlo import targets
from tools.hlo.__main__ import differences, table
from tools.hlo.steps import by_hand, recorded
from tools.hlo.targets import Compiled, compiler

LIMITS = {"FLOPs": 1.01, "bytes accessed": 1.05, "temporary memory": 1.1}
"""The most that a figure of the recorded step may be, as a multiple of the twin's."""


def test_on_the_cpu_the_recorded_step_costs_what_its_twin_does() -> None:
    compile = compiler("cpu")
    ours, theirs = compile(recorded("gpt1").text("cpu")), compile(by_hand(1, "cpu", "highest"))
    for figure, limit in LIMITS.items():
        assert 0 < ours.figures[figure] <= limit * theirs.figures[figure], figure
    # The same live values: outputs differ by the loss and step counts, leaves by the packed numbers.
    assert ours.figures["output bytes"] == pytest.approx(theirs.figures["output bytes"], rel=0.01)
    assert ours.figures["reused argument bytes"] == pytest.approx(theirs.figures["reused argument bytes"], rel=0.01)
    assert ours.ops["dot"] and theirs.ops["dot"]


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed: pip install 'lazytpu[tpu]'")
def test_for_a_v5e_the_recorded_step_costs_what_its_twin_does() -> None:
    command = [sys.executable, "-m", "tools.hlo", "v5e", "--layers", "4"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for figure, limit in LIMITS.items():
        (row,) = re.findall(rf"^\| {figure} \|.*\| ([\d.]+) \|$", done.stdout, re.M)
        assert float(row) <= limit, figure


def test_text_for_a_tpu_is_composed_without_one() -> None:
    step = recorded("gpt1")
    assert "stablehlo.dot_general" in step.text("tpu")
    assert "tf.aliasing_output" in step.text("cpu") and "aliasing" not in step.text("cpu", donate=False)


def test_the_table_and_the_ops_that_differ() -> None:
    ours = Compiled({"FLOPs": 30, "argument bytes": 0}, Counter(dot=3, copy=1))
    theirs = Compiled({"FLOPs": 20, "argument bytes": 0}, Counter(dot=2, add=4))
    assert table("cpu", ours, theirs).splitlines()[2:] == ["| FLOPs | 30 | 20 | 1.500 |", "| argument bytes | 0 | 0 |  |"]
    assert differences(ours, theirs) == (
        "HLO ops lazytpu has more of: dot 1, copy 1\nHLO ops jax.jit has more of: add 4"
    )


def test_temporaries_are_read_by_memory_space() -> None:
    text = """BufferAssignment:
allocation 0: size 4096, parameter 0, shape |f32[1024]| at ShapeIndex {}:
allocation 1: size 512, color 1, preallocated-temp:
allocation 2: size 64, preallocated-temp:
allocation 3: size 32, preallocated-temp:
"""
    assert targets._temporary(text) == {0: 96, 1: 512}
