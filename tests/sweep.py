"""A differential sweep: many calls on the CPU and on ``tpu``, a single program for all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from support import TOLERANCE, leaves

import lazytpu

Call = tuple[str, Callable[..., Any], tuple[Any, ...]]
"""A name to report, a function, and its arguments: CPU tensors and Python values."""


def move(x: Any, moved: dict[int, torch.Tensor]) -> Any:
    """``x`` with its tensors moved to ``tpu``, each once."""
    if isinstance(x, torch.Tensor):
        if id(x) not in moved:
            moved[id(x)] = x.to("tpu")
        return moved[id(x)]
    if isinstance(x, (list, tuple)):
        return type(x)(move(item, moved) for item in x)
    return x


def disagreements(calls: Sequence[Call], tolerance: dict[torch.dtype, tuple[float, float]] | None = None) -> list[str]:
    """What differs between the two devices, a line for each call that does.

    A call that raises on the CPU is skipped: what CPU refuses for a dtype is not ours to test.
    """
    tolerances = {**TOLERANCE, **(tolerance or {})}
    moved: dict[int, torch.Tensor] = {}
    expected: list[tuple[str, list[torch.Tensor], list[torch.Tensor]]] = []
    failures: list[str] = []
    before = lazytpu.metrics()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, fn, args in calls:
            try:
                want = leaves(fn(*args))
            except (RuntimeError, NotImplementedError, TypeError):
                continue
            try:
                got = leaves(fn(*move(list(args), moved)))
            except Exception as error:
                failures.append(f"{name}: raises {type(error).__name__}: {error}")
                continue
            expected.append((name, want, got))
        lazytpu.sync()
    for name, want, got in expected:
        failures.extend(f"{name}: {line}" for line in _compare(want, got, tolerances))
    after = lazytpu.metrics()
    failures.extend(f"{k} fell back" for k in after if k.startswith("cpu_fallback.") and after[k] != before.get(k, 0))
    return failures


def _compare(
    want: list[torch.Tensor], got: list[torch.Tensor], tolerances: dict[torch.dtype, tuple[float, float]]
) -> list[str]:
    lines = []
    for x, y in zip(want, got, strict=True):
        if x.dtype != y.dtype or x.shape != y.shape or y.device.type != "tpu":
            lines.append(f"{y.dtype}{tuple(y.shape)} on {y.device} instead of {x.dtype}{tuple(x.shape)}")
            continue
        if x.stride() != y.stride() and x.numel() > 1:
            lines.append(f"strides {y.stride()} instead of {x.stride()}")
        rtol, atol = tolerances.get(x.dtype, (0, 0))
        y = y.cpu()
        if x.dtype.itemsize == 1 and x.dtype.is_floating_point:
            x, y = x.float(), y.float()
        wrong = ~torch.isclose(y, x, rtol=rtol, atol=atol, equal_nan=True)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            lines.append(f"{int(wrong.sum())} of {x.numel()} differ, first at {at}: {y[at].item()} instead of {x[at].item()}")
    return lines
