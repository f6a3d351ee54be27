"""Whole trainings: the CPU's loss curve, no program compiled after the second step, no fallback."""

from __future__ import annotations

import models
import pytest

import lazytpu


@pytest.mark.parametrize("name", models.WORKLOADS)
def test_the_loss_curve_is_the_cpus(name: str) -> None:
    expected = models.curve(name, "cpu", 50)
    lazytpu.reset_metrics()
    actual = models.curve(name, "tpu", 50)
    assert actual == pytest.approx(expected, rel=1e-3)
    assert expected[-1] < expected[0]
    counters = lazytpu.metrics()
    assert counters["cpu_fallbacks"] == 0
    assert counters["compiles"] <= 4, counters["compiles"]
