"""``torch.tpu``, ``torch.accelerator``, registration, forks, streams, printing and the backward pass."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import python

import lazytpu
from lazytpu import LazyTensor


def test_names_of_torch_cuda_are_there() -> None:
    tpu = torch.tpu
    assert tpu.is_available() and tpu.device_count() == 1 and tpu.current_device() == 0
    tpu.init()
    assert tpu.is_initialized()
    tpu.set_device(0), tpu.set_device("tpu:0"), tpu.empty_cache(), tpu.ipc_collect()
    assert "TPU" in tpu.get_device_name()
    properties = tpu.get_device_properties("tpu")
    assert properties.total_memory > 0 and properties.name == tpu.get_device_name()
    assert tpu.get_device_capability() == (0, 0)
    assert tpu.is_bf16_supported() and torch.bfloat16 in tpu.get_amp_supported_dtype()
    with tpu.device("tpu"), tpu.device(None), tpu.device_of(torch.ones(1)), tpu.device_of(torch.ones(1, device="tpu")):
        assert tpu.current_device() == 0
    for wrong in (lambda: tpu.set_device(1), lambda: tpu.device("tpu:2"), lambda: torch.Generator("tpu:1")):
        with pytest.raises(RuntimeError, match="there is one device"):
            wrong()
    with pytest.raises(ValueError, match="Expected a tpu device"):
        tpu.set_device("cpu")
    import importlib

    assert importlib.import_module("torch.tpu") is tpu


def test_memory_counts_bytes() -> None:
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    x = torch.randn(1000, device="tpu")
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before + 4000
    del x
    assert torch.tpu.memory_allocated() == before
    assert torch.tpu.max_memory_allocated() >= before + 4000
    assert torch.tpu.memory_reserved() >= 0 and torch.tpu.max_memory_reserved() >= before
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] == before <= stats["allocated_bytes.all.peak"]
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total
    assert "held by values" in torch.tpu.memory_summary()
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() == before


def test_random_state_can_be_saved_and_forked() -> None:
    def draw() -> list[float]:
        return torch.rand(4, device="tpu").tolist()

    torch.manual_seed(11)
    assert torch.tpu.initial_seed() == 11
    first = draw()
    state = torch.tpu.get_rng_state()
    second = draw()
    torch.tpu.set_rng_state(state)
    assert draw() == second
    torch.tpu.set_rng_state_all(torch.tpu.get_rng_state_all())
    with torch.random.fork_rng(device_type="tpu"):
        torch.tpu.manual_seed(5)
        inner = draw()
        torch.tpu.manual_seed_all(5)
        assert draw() == inner
    third = draw()
    torch.manual_seed(11)
    assert [draw(), draw(), draw()] == [first, second, third]
    (generator,) = torch.tpu.default_generators
    generator.manual_seed(11)
    assert draw() == first
    assert torch.tpu.seed() == torch.tpu.initial_seed() != 11
    assert torch.tpu.seed_all() == torch.tpu.initial_seed()


def test_accelerator_finds_the_device() -> None:
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.device_count() == 1
    assert accelerator.current_accelerator() == torch.device("tpu")
    assert accelerator.current_device_index() == 0
    x = torch.ones(10, device=accelerator.current_accelerator()) + 1
    accelerator.synchronize()
    assert not LazyTensor.is_pending(x)
    accelerator.empty_cache(), accelerator.empty_host_cache(), accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    assert accelerator.memory_allocated() == torch.tpu.memory_allocated() >= 40
    assert accelerator.max_memory_allocated() >= 40 and accelerator.memory_reserved() >= 40
    assert accelerator.max_memory_reserved() >= 40
    assert accelerator.memory_stats()["allocated_bytes.all.current"] == accelerator.memory_allocated()
    assert accelerator.get_memory_info()[1] > 0
    assert torch.bfloat16 in accelerator.get_device_capability()["supported_dtypes"]
    assert accelerator.current_stream() is torch.tpu.current_stream()
    accelerator.set_stream(accelerator.current_stream())
    accelerator.set_device_index(0)
    with accelerator.device_index(0), accelerator.device_index(None):
        pass
    with pytest.raises(RuntimeError, match="there is one device"):
        accelerator.set_device_index(1)
    with pytest.raises(RuntimeError, match="there is one device"), accelerator.device_index(1):
        pass


def test_index_of_a_chip_is_an_error_wherever_a_tensor_is_made() -> None:
    on_host, on_chip = torch.ones(2), torch.ones(2, device="tpu")
    calls: list[Callable[[], Any]] = [
        lambda: torch.zeros(2, device="tpu:3"),
        lambda: torch.empty(2, device="tpu:3"),
        lambda: torch.full((2,), 1, device="tpu:3"),
        lambda: torch.rand(2, device="tpu:3"),
        lambda: torch.arange(2, device="tpu:3"),
        lambda: torch.tensor([1], device="tpu:3"),
        lambda: torch.zeros_like(on_chip, device="tpu:3"),
        lambda: on_chip.new_zeros(2, device="tpu:3"),
        lambda: on_host.to("tpu:3"),
        lambda: on_chip.to("tpu:3"),
        lambda: on_host.tpu(3),
        lambda: torch.nn.Linear(2, 2).to("tpu:3"),
        lambda: torch.UntypedStorage(4, device="tpu:3"),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="there is one device"):
            call()


def test_default_device_and_moving_methods() -> None:
    try:
        torch.set_default_device("tpu")
        assert torch.get_default_device() == torch.device("tpu", 0)
        made = [torch.ones(2), torch.tensor([1]), torch.arange(3), torch.randn(2), torch.nn.Linear(2, 2).weight]
        assert all(t.is_tpu for t in made)
    finally:
        torch.set_default_device(None)
    with torch.device("tpu"):
        assert torch.zeros(2).is_tpu
    x = torch.ones(2).tpu()
    assert x.is_tpu and isinstance(x, LazyTensor) and not torch.ones(2).is_tpu and not isinstance(torch.ones(2), LazyTensor)
    assert x.tpu() is x and x.type() == "torch.tpu.FloatTensor"
    assert x.record_stream(torch.tpu.current_stream()) is None
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]).tpu()
    assert packed.is_tpu
    with pytest.raises(TypeError, match="make one with"):
        LazyTensor([1.0])


def test_streams_and_events_follow_the_queue() -> None:
    stream = torch.tpu.Stream()
    assert isinstance(stream, torch.Stream) and isinstance(torch.Stream("tpu"), torch.tpu.Stream)
    start, end = torch.tpu.Event(enable_timing=True), torch.Event("tpu", enable_timing=True)
    assert isinstance(end, torch.tpu.Event) and end.query()
    start.record()
    with torch.tpu.stream(stream):
        assert torch.tpu.current_stream() is stream
        x = torch.full((300, 300), 0.01, device="tpu")
        for _ in range(4):
            x = x @ x
    stream.record_event(end)
    assert not LazyTensor.is_pending(x)
    end.wait(), stream.wait_event(end), stream.wait_stream(torch.tpu.default_stream())
    end.synchronize()
    assert end.query() and start.elapsed_time(end) > 0
    with stream:
        assert torch.tpu.current_stream() is stream
    assert torch.tpu.current_stream() is torch.tpu.default_stream()
    stream.synchronize()
    assert stream.query()
    with pytest.raises(ValueError, match="enable_timing"):
        torch.tpu.Event().elapsed_time(end)
    with pytest.raises(ValueError, match="recorded"):
        torch.tpu.Event(enable_timing=True).elapsed_time(end)


def test_printing_is_one_copy() -> None:
    x = torch.randn(40, 50, device="tpu")
    lazytpu.sync(wait=True)
    lazytpu.reset_metrics()
    text = repr(x)
    counts = lazytpu.metrics()
    assert counts["executions"] == counts["compiles"] == counts["ops_recorded"] == 0 and counts["host_reads"] == 1
    assert text == repr(x.cpu())[:-1] + ",\n       device='tpu:0')"
    scalar = torch.tensor(1.25, device="tpu", requires_grad=True)
    assert f"{scalar:.1f} {scalar * 2:.2f}" == "1.2 2.50"
    assert repr(scalar * 2).startswith("tensor(2.5000, device='tpu:0', grad_fn=<MulBackward0>)")
    assert repr(torch.zeros(0, 2, device="tpu")) == "tensor([], device='tpu:0', size=(0, 2))"


def test_a_debugger_does_not_run_what_is_pending() -> None:
    x = torch.ones(2, 3, device="tpu", dtype=torch.int32) + 1
    seen = eval("[repr(x), repr([x])]", {"__name__": "_pydevd_bundle.pydevd_safe_repr", "x": x})
    assert seen[0] == "tensor(<pending>, size=(2, 3), device='tpu:0', dtype=torch.int32)" and seen[1] == f"[{seen[0]}]"
    assert LazyTensor.is_pending(x)
    assert Path(__file__).name in str(LazyTensor.recorded_at(x))
    assert "int32 2x3 on tpu:0: pending" in LazyTensor.describe(x)
    assert LazyTensor.is_pending(x)
    assert "2, 2, 2" in repr(x)
    assert not LazyTensor.is_pending(x) and LazyTensor.recorded_at(x) is None
    assert eval("repr(x)", {"__name__": "pdb", "x": x}) == repr(x)


def test_backward_after_a_cpu_backward_in_any_thread() -> None:
    host = torch.ones(3, requires_grad=True)
    (host * host).sum().backward()
    results: list[Any] = []

    def train() -> None:
        x = torch.ones(3, device="tpu", requires_grad=True)
        (x * x).sum().backward()
        results.append(x.grad.tolist())
        results.append(torch.autograd.grad((x * x * x).sum(), x)[0].tolist())

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    train()
    assert sorted(results) == sorted([[2.0] * 3, [3.0] * 3] * 4)
    mixed = torch.ones(3, device="tpu", requires_grad=True)
    (mixed.cpu() * host).sum().backward()
    assert mixed.grad.tolist() == [1.0] * 3


def test_accumulated_backwards_stay_programs_of_their_own() -> None:
    weight = torch.ones(4, device="tpu", requires_grad=True)
    lazytpu.sync()
    lazytpu.reset_metrics()
    for i in range(6):
        (weight * weight * i).sum().backward()
    assert lazytpu.metrics()["cuts.backward"] == 3
    assert weight.grad.tolist() == [30.0] * 4
    lazytpu.reset_metrics()
    for _ in range(3):
        torch.autograd.grad((weight * weight).sum(), weight)
    (weight**2).sum().backward(create_graph=True)
    torch.ones(2, requires_grad=True).sum().backward()
    assert "cuts.backward" not in lazytpu.metrics()
    weight.grad = None


def test_checkpoint_recomputes_with_the_same_mask() -> None:
    for reentrant in (False, True):
        x = torch.ones(256, device="tpu", requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(lambda t: torch.nn.functional.dropout(t, 0.5), x, use_reentrant=reentrant)
        torch.rand(3, device="tpu")
        y.sum().backward()
        assert torch.equal(y.detach(), x.grad)


def test_pinning_and_loading() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    batch = torch.arange(8.0)
    assert batch.pin_memory().tolist() == batch.tolist() and batch.pin_memory("tpu").device.type == "cpu"
    assert batch.is_pinned() is False and torch.ones(2, device="tpu").is_pinned() is False
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.ones(2, device="tpu").pin_memory()
    assert batch.tpu(non_blocking=True).to("cpu", non_blocking=True).tolist() == batch.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for options in ({"pin_memory": True}, {"pin_memory": True, "pin_memory_device": "tpu"}):
            loader = DataLoader(TensorDataset(batch), 4, **options)
            assert [x.to("tpu", non_blocking=True).sum().item() for (x,) in loader] == [6.0, 22.0]


def test_forked_children() -> None:
    """Row 24's neighbour: CPU work goes on in workers, the device raises, and an unstarted device is the child's own."""
    output = python(
        """
        import os, torch
        from torch.utils.data import DataLoader, TensorDataset

        def child(work):
            pid = os.fork()
            if pid == 0:
                try:
                    print("child:", work(), flush=True)
                except RuntimeError as error:
                    print("child:", str(error)[:39], flush=True)
                os._exit(0)
            os.waitpid(pid, 0)

        child(lambda: (torch.ones(2, device="tpu") + 1).tolist())
        x = torch.ones(2, device="tpu")
        x.tolist()
        y = x + 1
        for work in (lambda: x + 1, lambda: y.tolist(), torch.tpu.synchronize, lambda: torch.ones(2).tpu()):
            child(work)
        child(lambda: torch.manual_seed(0) and torch.ones(2).add(1).tolist())
        data = DataLoader(TensorDataset(torch.ones(8, 2)), 4, num_workers=2, pin_memory=True)
        print([batch.tpu().sum().item() for (batch,) in data])
        try:
            list(DataLoader([1, 2], 2, num_workers=1, collate_fn=lambda items: torch.tensor(items, device="tpu")))
        except RuntimeError as error:
            print("worker:", "Cannot use 'tpu' in a forked subprocess" in str(error))
        """
    )
    lines = [line for line in output.splitlines() if line.startswith(("child", "worker", "["))]
    refusal = "child: Cannot use 'tpu' in a forked subprocess"
    assert lines[0] == "child: [2.0, 2.0]"
    assert lines[1:5] == [refusal] * 4
    assert lines[5:] == ["child: [2.0, 2.0]", "[8.0, 8.0]", "worker: True"]
    assert "os.fork() was called" not in output


def test_importing_is_cheap_and_lazy() -> None:
    """Row 30."""
    output = python(
        """
        import sys, time
        import torch
        started = time.process_time()
        import lazytpu
        torch.device("tpu"), torch.tpu.is_available(), torch.tpu.memory_allocated(), torch.manual_seed(0)
        print("seconds", time.process_time() - started)
        print("heavy", [m for m in sys.modules if m.split(".")[0] in ("jax", "jaxlib", "ml_dtypes") or "lazytpu.dispatch" in m])
        torch.nn.Linear(2, 2)(torch.ones(2)).sum().backward()
        print("heavy", [m for m in sys.modules if m.split(".")[0] in ("jax", "jaxlib", "ml_dtypes") or "lazytpu.dispatch" in m])
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    lines = output.splitlines()
    assert float(lines[0].split()[1]) < 0.1
    assert lines[1:] == ["heavy []"] * 2


def test_autoload_and_its_switch() -> None:
    assert "tpu:0" in python("import torch; print(torch.zeros(1, device='tpu').device)")
    output = python(
        """
        import torch
        print(torch.accelerator.current_accelerator(), hasattr(torch, "tpu"), torch.Generator.__module__)
        x = torch.ones(2, requires_grad=True)
        (x * x).sum().backward()
        import lazytpu
        y = torch.ones(2, requires_grad=True, device="tpu")
        (y * y).sum().backward()
        print(y.grad.tolist())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert output.splitlines() == ["None False torch._C", "[2.0, 2.0]"]


@pytest.fixture
def rival(tmp_path: Path) -> Path:
    """A package that registers ``tpu`` before lazytpu does."""
    info = tmp_path / "aaa_rival-1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[torch.backends]\naaa = aaa_rival:register\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: aaa-rival\nVersion: 1\n")
    (tmp_path / "aaa_rival.py").write_text(
        "import sys, torch\n"
        "def register():\n"
        "    torch.utils.rename_privateuse1_backend('tpu')\n"
        "    torch._register_device_module('tpu', sys.modules[__name__])\n"
    )
    return tmp_path


def test_a_rival_is_named_and_does_not_break_importing_torch(rival: Path) -> None:
    """Row 37."""
    output = python(
        """
        import torch
        print("imported")
        try:
            import lazytpu
        except RuntimeError as error:
            print(error)
        """,
        directory=rival,
        PYTHONWARNINGS="default",
    )
    assert "imported" in output and "UserWarning: the device 'tpu' of lazytpu is not available" in output
    assert "already registered 'tpu'" in output and "aaa_rival.py" in output
    assert "packages that register devices: aaa-rival" in output
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in output


def test_unmet_platforms_say_what_is_missing() -> None:
    """Row 32."""
    output = python(
        """
        import os, torch
        for wish in ("gpu", "abacus", "", ""):
            os.environ["LAZYTPU_PLATFORM"] = wish
            try:
                print(torch.ones(2, device="tpu").tolist())
            except RuntimeError as error:
                print(error)
        """
    )
    assert "LAZYTPU_PLATFORM=gpu asks for a GPU, but no GPU answered" in output
    assert "'abacus' is not one of tpu, gpu, cpu" in output
    assert output.count("no TPU is attached") == 1 and output.count("[1.0, 1.0]") == 2
