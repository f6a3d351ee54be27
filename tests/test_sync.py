"""When a trace is cut, what is run, and what is never run again."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
import torch.nn as nn

import lazytpu
from lazytpu import recorder


def executions() -> float:
    return lazytpu.metrics()["executions"]


def test_nothing_runs_before_a_sync_point() -> None:
    x = torch.ones(4, device="tpu")
    y = (x + 1) * 2
    assert executions() == 0
    lazytpu.sync()
    assert executions() == 1
    assert y.tolist() == [4.0] * 4
    assert executions() == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.cpu().numpy(),
        lambda x: repr(x),
        lambda x: bool(x.sum() > 0),
        lambda x: float(x[0]),
        lambda x: f"{x[0]:.2f}",
    ],
)
def test_a_read_cuts_once_and_is_counted(read: object) -> None:
    x = torch.ones(4, device="tpu") * 3
    read(x)  # type: ignore[operator]
    assert lazytpu.metrics()["host_reads"] >= 1
    assert executions() == 1
    assert any(k.startswith(f"host_reads.{__file__}") for k in lazytpu.metrics())


def test_what_a_read_has_run_is_not_run_again() -> None:
    """PyTorch/XLA runs a step with a read in the middle twice; here each op runs once."""
    model = nn.Linear(4, 1).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.ones(2, 4)
    for step in range(4):
        loss = model(data.to("tpu")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if step == 1:
            lazytpu.sync(wait=True)
            before = lazytpu.metrics()
        loss.item()
        optimizer.step()
    after = lazytpu.metrics()
    recorded = after["ops_recorded"] - before["ops_recorded"]
    ran = after["executions"] - before["executions"]
    assert ran <= 2 * 3 and recorded > 0
    assert lazytpu.last_trace() is not None


def test_a_read_after_the_steps_own_cut_runs_no_second_program() -> None:
    model = nn.Linear(4, 1).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.ones(2, 4)
    counts = []
    for _ in range(5):
        loss = model(data.to("tpu")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        counts.append(executions())
    assert counts[4] - counts[2] == 2


def test_the_end_of_an_optimizer_step_cuts() -> None:
    model = nn.Linear(2, 2).to("tpu")
    model(torch.ones(1, 2, device="tpu")).sum().backward()
    optimizer = torch.optim.AdamW(model.parameters())
    before = executions()
    optimizer.step()
    assert executions() == before + 1
    assert len(lazytpu.current_trace()) == 0


def test_a_loop_without_sync_points_stays_bounded_and_warns_once_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LOOP_NODES", 100)
    x = torch.zeros(4, device="tpu")
    longest, compiled = 0, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(1500):
            x = x + 1
            compiled.append(lazytpu.metrics()["compiles"])
            longest = max(longest, len(lazytpu.current_trace()))
    messages = [str(w.message) for w in caught if "no sync point" in str(w.message)]
    line = test_a_loop_without_sync_points_stays_bounded_and_warns_once_with_its_line.__code__.co_firstlineno + 7
    assert len(messages) == 1 and f"{__file__}:{line}" in messages[0]
    assert longest <= 200
    assert x.tolist() == [1500.0] * 4
    assert compiled[-1] == compiled[700] <= 5


def test_pending_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LOOP_NODES", 30)
    monkeypatch.setattr(recorder, "MAX_BYTES", 50 * 4096)
    x = torch.zeros(1024, device="tpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(200):
            x = x * 1 + i
            assert lazytpu.current_trace().nbytes <= 51 * 4096
    assert x[0].item() == sum(range(200))


def test_deep_traces_do_not_recurse() -> None:
    x = torch.zeros(2, device="tpu")
    with lazytpu_bound(1 << 60):
        for _ in range(3000):
            x = x + 1
        str(lazytpu.current_trace())
    recorder.trace = type(recorder.trace)()


class lazytpu_bound:
    """Within it traces are bounded by ``nodes`` ops."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes

    def __enter__(self) -> None:
        self.saved = recorder.LOOP_NODES
        recorder.LOOP_NODES = self.nodes

    def __exit__(self, *exc: object) -> None:
        recorder.LOOP_NODES = self.saved


def test_eager_runs_each_op_at_once() -> None:
    with lazytpu.eager():
        x = torch.ones(3, device="tpu") * 2
        before = executions()
        y = x + 1
        assert executions() == before + 1
        y[1:] = 5
        assert len(lazytpu.current_trace()) == 0
    assert y.tolist() == [3.0, 5.0, 5.0]


def test_gradient_accumulation_cuts_so_that_memory_does_not_grow_with_micro_batches() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to("tpu")
    longest = 0
    for _ in range(10):
        model(torch.ones(4, 8).to("tpu")).sum().backward()
        longest = max(longest, len(lazytpu.current_trace()))
    once = len(lazytpu.last_trace() or ())
    assert longest <= 2 * once + 5
    assert lazytpu.metrics()["compiles"] <= 3


def test_threads_may_record_at_once() -> None:
    results: dict[int, list[float]] = {}

    def work(k: int) -> None:
        x = torch.full((8,), float(k), device="tpu")
        for i in range(60):
            x = x + 1
            if i % 20 == k % 20:
                x.sum().item()
        results[k] = x.tolist()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {k: [k + 60.0] * 8 for k in range(4)}


def test_values_that_nobody_holds_are_not_computed() -> None:
    x = torch.ones(4, device="tpu")
    y = x + 1
    del y
    lazytpu.sync()
    trace = lazytpu.last_trace()
    assert trace is not None and trace.outputs is not None and len(trace.outputs) == 1


def test_a_turn_that_fails_leaves_an_error_and_never_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    from lazytpu.errors import DeviceError
    from lazytpu.lowering import registry

    def fail(*args: object) -> object:
        raise ValueError("no lowering today")

    monkeypatch.setitem(registry.RULES, "aten::cosh", registry.RULES["aten::cosh"]._replace(lower=fail))
    monkeypatch.setattr(recorder, "LOOP_NODES", 100)
    x = torch.ones(4, 9, 7, device="tpu")
    with warnings.catch_warnings(), pytest.raises(DeviceError, match="no lowering today"):
        warnings.simplefilter("ignore")
        for _ in range(300):
            x = torch.cosh(x)
    with pytest.raises(DeviceError):
        x.cpu()
    assert torch.ones(3, device="tpu").tolist() == [1, 1, 1]
