"""The benchmark's own arithmetic: intervals, tables, claims, and contenders that cannot run."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.bench import __main__ as bench
from tools.bench import claims
from tools.bench.step import Step, measure
from tools.bench.summary import interval, table

times = st.lists(st.floats(0.001, 1000), min_size=1, max_size=9)


@given(times)
def test_an_interval_holds_the_median_within_the_values(values: list[float]) -> None:
    low, high = interval(values, resamples=200)
    assert min(values) <= low <= statistics.median(values) <= high <= max(values)
    assert (low, high) == interval(values, resamples=200)


def test_an_interval_follows_the_spread() -> None:
    assert interval([3.0] * 5) == (3.0, 3.0)
    near, far = interval([9.9, 10, 10.1] * 3), interval([1.0, 10, 19] * 3)
    assert far[0] < near[0] < 10 < near[1] < far[1]


def test_a_table_has_a_row_a_contender_and_says_why_others_have_none() -> None:
    rows = {"a": [{"step_ms": 1.0, "compiles": 2}, {"step_ms": 3.0, "compiles": 2}], "b": [{"step_ms": 5.0}]}
    lines = table("mlp", rows, {"c": "it needs a tail"}).splitlines()
    assert lines == [
        "| mlp | step ms | programs |",
        "|---|---|---|",
        "| a | 2 [1, 3] | 2 |",
        "| b | 5 |  |",
        "",
        "- c was not measured: it needs a tail",
    ]


def _rounds(ours: list[float], theirs: list[float]) -> dict[str, claims.Rows]:
    return {"cnn": {"lazytpu": [{"step_ms": t} for t in ours], "jax.jit by hand": [{"step_ms": t} for t in theirs]}}


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        # A machine that slows down by the round slows down both: the ratio stays.
        ([10, 20, 40, 80, 160], [10, 20, 40, 80, 160], "holds"),
        ([12, 24, 48, 96, 192], [10, 20, 40, 80, 160], "fails"),
        ([9, 12, 9, 12, 9], [10, 10, 10, 10, 10], "undecided"),
    ],
)
def test_a_claim_is_judged_by_its_whole_interval(ours: list[float], theirs: list[float], verdict: str) -> None:
    everything = _rounds(ours, theirs)
    (ratio,) = claims.ratios(everything)
    assert ratio.verdict == verdict
    assert ratio.low <= ratio.median <= ratio.high
    assert claims.ratio_table(everything).count(f"| {verdict} |") == 1


def test_a_claim_without_both_contenders_is_left_out() -> None:
    assert claims.ratio_table({"cnn": {"lazytpu": [{"step_ms": 1.0}]}}) == ""


def test_time_in_which_the_call_ran_the_program_is_no_host_time() -> None:
    spent = [0.0]

    def run(i: int) -> None:
        spent[0] += 1000.0

    figures = measure(Step(run, lambda: None, dict, lambda: spent[0]), 3)
    assert figures["host_ms"] < 0 <= figures["step_ms"]


def test_a_contender_that_cannot_run_says_why_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(workload: str, contender: str, steps: int) -> dict[str, float] | str:
        return {"step_ms": 1.0} if contender == "lazytpu" else "it is not here"

    monkeypatch.setattr(bench, "run_once", once)
    rows, skipped = bench.run_all("mlp", ["lazytpu", "CPU eager"], 3, 1)
    assert rows == {"lazytpu": [{"step_ms": 1.0}] * 3} and skipped == {"CPU eager": "it is not here"}


def test_without_its_environment_pytorch_xla_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(bench, "XLA_PYTHON", tmp_path / "python")
    reason = bench.run_once("mlp", "PyTorch/XLA 2.9", 1)
    assert isinstance(reason, str) and "tools.bench.setup_xla" in reason


def test_a_contender_that_fails_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = bench.run_once("mlp", "nobody", 1)
    assert isinstance(reason, str) and "KeyError: 'nobody'" in reason


def test_the_floor_runs_whole_steps_and_no_program() -> None:
    program = """
import json
from tools.bench.floor import floor
step = floor("gpt1")
import lazytpu
lazytpu.reset_metrics()
for i in range(4):
    step.run(i)
print(json.dumps(lazytpu.metrics()))
"""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "LAZYTPU_PLATFORM": "cpu"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout.splitlines()[-1])
    assert metrics["ops_recorded"] == metrics["executions"] == metrics["compiles"] == 0
