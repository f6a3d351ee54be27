"""Row 21: files that load anywhere, sharing kept, and one batched fetch."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import python
from torch import nn

import lazytpu


def saved(x: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(x, file, **options)
    file.seek(0)
    return file


def test_every_way_to_load(tmp_path: Path) -> None:
    base = torch.arange(6.0, device="tpu")
    path = str(tmp_path / "x.pt")
    torch.save({"base": base, "part": base[1:3], "turned": base.view(2, 3).t(), "half": base.bfloat16()}, path)
    places: list[tuple[Any, str]] = [
        (None, "tpu"), ("cpu", "cpu"), ("tpu", "tpu"), ("tpu:0", "tpu"), (torch.device("tpu"), "tpu"),
        ({"tpu:0": "cpu"}, "cpu"),
        (lambda storage, location: storage, "cpu"), (lambda storage, location: storage.tpu(), "tpu"),
        (lambda storage, location: None, "tpu"),
    ]  # fmt: skip
    for place, device in places:
        for weights_only in (True, False):
            for mmap in (True, False):
                found = torch.load(path, map_location=place, weights_only=weights_only, mmap=mmap)
                assert {t.device.type for t in found.values()} == {device}
                found["base"][1] = 42
                assert found["part"].tolist() == [42.0, 2.0]
                turned, half = found["turned"], found["half"]
                assert turned.stride() == (1, 3) and turned.tolist() == [[0.0, 3.0], [42.0, 4.0], [2.0, 5.0]]
                assert half.dtype is torch.bfloat16 and half.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert torch.load(path)["base"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "loading with mmap leaves the file alone"
    assert torch.load(path, map_location="meta")["base"].is_meta
    with pytest.raises(RuntimeError, match="there is one device"):
        torch.load(path, map_location="tpu:1")


def test_the_old_format_and_plain_pickle() -> None:
    base = torch.arange(6, device="tpu")
    found = torch.load(saved([base, base[1:3]], _use_new_zipfile_serialization=False))
    found[0][1] = 42
    assert found[0].is_tpu and found[1].tolist() == [42, 2]
    assert torch.load(saved(base, _use_new_zipfile_serialization=False), map_location="cpu").tolist() == base.tolist()
    assert torch.load(saved(torch.ones(2), _use_new_zipfile_serialization=False), map_location="tpu").is_tpu
    x = torch.ones(3, device="tpu", requires_grad=True)
    (x * 2).sum().backward()
    few = [x.detach()[1:], torch.zeros(0, device="tpu"), torch.zeros(2, 0, device="tpu"), torch.tensor(True).tpu()]
    for tensor in (x, x.data, x.grad, nn.Parameter(x.detach()), *few):
        for twin in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor), copy.copy(tensor), torch.load(saved(tensor))):
            assert twin.is_tpu and type(twin) is type(tensor) and twin.requires_grad == tensor.requires_grad
            assert twin.dtype is tensor.dtype and twin.tolist() == tensor.tolist()
    assert copy.deepcopy(x).grad.tolist() == [2.0] * 3


def test_storages_in_files() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
        x = torch.ones(2, device="tpu")
        for weights_only in (True, False):
            found = torch.load(saved([x.untyped_storage(), x.int().storage()]), weights_only=weights_only)
            assert [s.tolist() for s in found] == [[0, 0, 128, 63] * 2, [1, 1]] and all(s.is_tpu for s in found)


def test_dtypes_survive() -> None:
    floats = [torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2]
    for dtype in (*floats, torch.int64, torch.uint8, torch.bool, torch.complex64):
        x = torch.tensor([0.0, 1.0, 3.0]).to(dtype)
        twin = torch.load(saved(x.tpu()))
        assert twin.dtype is dtype and torch.equal(twin.cpu().view(torch.uint8), x.view(torch.uint8))
        torch.testing.assert_close((twin.to(torch.complex64) + 1).cpu(), x.to(torch.complex64) + 1)


def test_saving_fetches_in_one_batch() -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(10)]).to("tpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    lazytpu.reset_metrics()
    torch.save(model.state_dict(), io.BytesIO())
    counts = lazytpu.metrics()
    assert counts["executions"] == counts["cuts"] == 1 and counts["host_reads"] == 20
    lazytpu.reset_metrics()
    torch.save(model.state_dict(), io.BytesIO())
    copy.deepcopy(model)
    assert lazytpu.metrics()["executions"] == lazytpu.metrics()["host_reads"] == 0


def test_loading_records_nothing() -> None:
    file = saved({str(i): torch.randn(4, 4).tpu() for i in range(10)})
    lazytpu.sync()
    lazytpu.reset_metrics()
    found = torch.load(file)
    assert lazytpu.metrics()["ops_recorded"] == 0
    model = nn.Linear(4, 4, bias=False).to("tpu")
    model.load_state_dict({"weight": found["0"]}, assign=True)
    out = model(torch.ones(1, 4, device="tpu"))
    torch.testing.assert_close(out.detach().cpu(), found["0"].cpu().sum(1)[None])
    for t in found.values():
        t.mul_(2)
    lazytpu.sync(wait=True)
    assert found["1"].tolist() == (found["1"] * 1).tolist()


def test_a_run_goes_on_from_its_files() -> None:
    def step(model: nn.Module, optimizer: Any) -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4, device="tpu")).square().sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step(model, optimizer)
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    whole = saved(model)
    expected = [step(model, optimizer) for _ in range(3)]
    for place in (None, "cpu"):
        file.seek(0)
        state = torch.load(file, map_location=place)
        twin = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).to("tpu")
        twin.load_state_dict(state["model"])
        other = torch.optim.AdamW(twin.parameters(), lr=0.1)
        other.load_state_dict(state["optimizer"])
        assert [step(twin, other) for _ in range(3)] == expected
        assert pickle.loads(pickle.dumps(other)).state_dict()["param_groups"] == other.state_dict()["param_groups"]
    twin = torch.load(whole, weights_only=False)
    assert type(twin[0].weight) is nn.Parameter and twin[0].weight.is_tpu


def test_files_load_where_lazytpu_is_absent(tmp_path: Path) -> None:
    model = nn.Linear(2, 2).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2, device="tpu")).sum().backward()
    optimizer.step()
    path = tmp_path / "x.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "grad": model.weight.grad}, path)
    output = python(
        f"""
        import sys, torch
        found = torch.load({str(path)!r}, map_location="cpu")
        print(found["grad"].tolist(), found["model"]["weight"].device, "lazytpu" in sys.modules)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert output.strip() == "[[1.0, 1.0], [1.0, 1.0]] cpu False"


def _send_back(queue: Any, tensor: torch.Tensor) -> None:
    queue.put((tensor.device.type, (tensor * 2).tolist()))


def test_a_spawned_process_gets_a_copy() -> None:
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_send_back, args=(queue, torch.arange(3.0, device="tpu")[1:]))
    child.start()
    assert queue.get(timeout=60) == ("tpu", [2.0, 4.0])
    child.join()
    assert child.exitcode == 0
