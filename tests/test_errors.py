"""Errors: PyTorch's own words at the call, and the op and line for what fails later."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from typing import Any

import pytest
import torch

import lazytpu
from lazytpu.errors import DeviceError
from lazytpu.lowering import registry


def message(fn: Any) -> str:
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as caught:
        fn()
    return str(caught.value)


@pytest.mark.parametrize(
    "program",
    [
        lambda d: torch.ones(2, 3, device=d) + torch.ones(4, device=d),
        lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
        lambda d: torch.ones(2, 3, device=d).view(7),
        lambda d: torch.ones(2, 3, device=d)[5],
        lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)]),
        lambda d: torch.ones(3, dtype=torch.int64, device=d).add_(0.5),
        lambda d: torch.ones(3, device=d).sum(4),
        lambda d: torch.nn.functional.cross_entropy(
            torch.ones(2, 3, device=d), torch.tensor([0, 1], dtype=torch.int32, device=d)
        ),
        lambda d: torch.nn.functional.linear(torch.ones(2, 3, device=d), torch.ones(4, 5, device=d)),
    ],
)
def test_host_errors_are_raised_at_the_call_with_pytorchs_type(program: Any) -> None:
    with pytest.raises(Exception) as on_cpu:
        program("cpu")
    with pytest.raises(type(on_cpu.value)):
        program("tpu")
    x = torch.ones(2, device="tpu") + 1
    assert x.tolist() == [2, 2]


def test_mixing_devices_errs_as_cuda_does_but_cpu_scalars_are_fine() -> None:
    x = torch.ones(4, device="tpu")
    assert "tpu:0 and cpu" in message(lambda: x + torch.ones(4))
    assert "tpu:0 and cpu" in message(lambda: torch.ones(2, 4) @ x)
    assert "tpu:0 and cpu" in message(lambda: torch.nn.functional.linear(x, torch.ones(2, 4)))
    assert "tpu:0 and cpu" in message(lambda: torch.ones(4).add_(x))
    assert "tpu:0 and cpu" in message(lambda: torch.tensor(1.0).add_(x[0]))
    assert "tpu:0 and cpu" in message(lambda: torch.add(x, x, out=torch.empty(4)))
    assert "tpu:0 and cpu" in message(lambda: torch.exp(torch.ones(4), out=x))
    assert (x + torch.tensor(2.0)).tolist() == [3.0] * 4 and x.tolist() == [1.0] * 4


def test_an_index_out_of_range_is_an_error_at_the_next_wait_or_at_once_when_eager() -> None:
    x = torch.arange(3.0, device="tpu")
    far = torch.tensor([1, 7], device="tpu")
    added = x.clone()
    uses = (lambda: x[far], lambda: x.gather(0, far), lambda: x.index_select(0, far), lambda: added.index_add_(0, far, x[:2]))
    line = test_an_index_out_of_range_is_an_error_at_the_next_wait_or_at_once_when_eager.__code__.co_firstlineno + 4
    for use in uses:
        y = use()
        with pytest.raises((IndexError, RuntimeError), match=f"out of range.*{__file__}:{line}"):
            torch.tpu.synchronize()
        del y
    with lazytpu.eager(), pytest.raises(IndexError, match="out of range"):
        x[far]
    embedding = torch.nn.Embedding(3, 2).to("tpu")
    kept = embedding(far)
    with pytest.raises(IndexError, match="embedding"):
        kept.cpu()
    assert x.tolist() == [0, 1, 2]


def test_running_out_of_memory_names_the_op_and_spares_the_rest() -> None:
    x = torch.ones(3, device="tpu") * 2
    other = x + 1
    text = message(lambda: (torch.ones(1 << 20, 1 << 20, device="tpu") * 2).sum(0).tolist())
    assert "RESOURCE_EXHAUSTED" in text and __file__ in text
    assert other.tolist() == [3, 3, 3] and (x + 2).tolist() == [4, 4, 4]


@pytest.fixture
def broken_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """``aten::sinh`` fails when it is lowered."""

    def fail(*args: Any) -> Any:
        raise ValueError("no lowering today")

    monkeypatch.setitem(registry.RULES, "aten::sinh", registry.RULES["aten::sinh"]._replace(lower=fail))


def test_a_late_error_names_the_op_and_line_and_spares_other_tensors(broken_op: None) -> None:
    size = 7 + int(time.time() * 1e6) % 1000
    x = torch.ones(size, device="tpu") * 2
    before = x + 1
    bad = torch.sinh(x)
    line = test_a_late_error_names_the_op_and_line_and_spares_other_tensors.__code__.co_firstlineno + 4
    after = bad + 1
    other = before * 2
    text = message(lazytpu.sync)
    assert "aten::sinh" in text and f"{__file__}:{line}" in text and "no lowering today" in text
    assert before[0].item() == 3 and other[0].item() == 6
    for dead in (bad, after):
        with pytest.raises(DeviceError, match="aten::sinh"):
            dead.cpu()
    with pytest.raises(DeviceError, match="aten::sinh"):
        _ = after + 1
    assert (x + 1)[0].item() == 3


def test_eager_raises_at_the_line_itself(broken_op: None) -> None:
    x = torch.ones(3 + int(time.time() * 1e6) % 1000, device="tpu")
    with lazytpu.eager(), pytest.raises(DeviceError, match="aten::sinh"):
        torch.sinh(x)


def test_an_interrupt_while_compiling_leaves_a_usable_process() -> None:
    # In a process of its own, whose handler of interrupts is Python's.
    code = """
        import signal, threading, time
        import torch, lazytpu
        from lazytpu.runtime import compat

        real = compat.compile_module

        def slow(*args):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(1.0)
            return real(*args)

        x = torch.ones(5, device="tpu")
        y = x * 3
        compat.compile_module = slow
        try:
            lazytpu.sync()
        except KeyboardInterrupt:
            compat.compile_module = real
            assert y[0].item() == 3 and (y + x)[0].item() == 4
            print("usable")
    """
    done = run_python(code)
    assert done.stdout.strip() == "usable", done.stderr


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_fallbacks_are_announced_once_counted_and_can_be_forbidden() -> None:
    code = """
        import warnings, torch, lazytpu
        from lazytpu.dispatch.fallback import announce
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                announce("aten::invented")
        assert len(caught) == 1 and "<string>:" in str(caught[0].message), [str(w.message) for w in caught]
        assert "aten::invented" in str(caught[0].message)
        assert lazytpu.metrics()["cpu_fallbacks"] == 3 and lazytpu.metrics()["cpu_fallback.aten::invented"] == 3
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    forbidden = run_python(code, LAZYTPU_FALLBACK="error")
    assert "NotImplementedError" in forbidden.stderr and "aten::invented" in forbidden.stderr
