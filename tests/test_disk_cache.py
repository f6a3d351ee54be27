"""The cache on disk: a second process compiles nothing, nothing damaged is trusted, many processes share a directory."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import python
from torch._higher_order_ops.cond import cond_op

import lazytpu
from lazytpu import __main__ as command
from lazytpu import launch, recorder
from lazytpu.cache import disk, entry, key_of, store, why
from lazytpu.cache.calls import calls_in, portable
from lazytpu.cache.digest import digest_of
from lazytpu.cache.text import text_of
from lazytpu.ir import Signature, Slot, tensor_type
from lazytpu.lowering import load_rules, registry
from lazytpu.runtime import compat

ROOT = str(Path(lazytpu.__file__).parent.parent)
KEY = "ab" * 32
FLOATS = tensor_type((4,), torch.float32)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[disk.Disk]:
    """A cache on disk for this test, which starts with no program in memory."""
    found = disk.Disk(store.Store(tmp_path / "cache", 1 << 30))
    found.place.prepare()
    monkeypatch.setattr(disk, "_of_process", lambda: found)
    monkeypatch.setattr(why, "WARN_AFTER", 10**9)
    launch.forget_programs()
    yield found
    launch.forget_programs()


def written(kept: disk.Disk) -> list[store.File]:
    """The entries, once all that was saved is written."""
    kept._writer.submit(int).result()
    return kept.place.files()


def again(kept: disk.Disk) -> None:
    """Forget the programs in memory, as another process would start, and the counts."""
    written(kept)
    launch.forget_programs()
    lazytpu.reset_metrics()


def compute() -> list[float]:
    """One small program of its own."""
    x = torch.arange(6.0).to("tpu")
    return (x.reshape(2, 3) @ x.reshape(3, 2)).tanh().add(0.25).flatten().tolist()


def counted(*names: str) -> list[float]:
    return [lazytpu.metrics()[name] for name in names]


# Between processes


TRAIN = """
import json, sys
import torch, torch.nn as nn, torch.nn.functional as F
import lazytpu
from lazytpu.lowering import lower

lower._lower_really, calls = lower._lower, []
lower._lower = lambda *a: calls.append(a) or lower._lower_really(*a)
torch.manual_seed(3)
model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 16), nn.Dropout(0.2), nn.Linear(16, 12)).to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for step in range(5):
    ids = (torch.arange(8) * (step + 1) % 12).to("tpu")
    x = torch.cond(ids.sum() % 2 == 0, lambda a: a * 2.0, lambda a: a.sin() + 1, (model(ids),))
    loss = F.cross_entropy(x, ids) + (0.1 if step < 3 else 0.7)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item().hex())
weights = [x.hex() for p in model.parameters() for x in p.flatten().tolist()]
errors = []
for run in (lambda: model[0](torch.tensor([3, 12]).to("tpu")).sum().item(),
            lambda: torch.linalg.cholesky(-torch.eye(3, device="tpu")).tolist()):
    try:
        run()
    except (IndexError, torch.linalg.LinAlgError) as error:
        errors.append(f"{type(error).__name__}: {error}")
print(json.dumps({"losses": losses, "weights": weights, "errors": errors, "lowered": len(calls), **lazytpu.metrics()}))
"""


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ROOT, "LAZYTPU_PLATFORM": "cpu", "LAZYTPU_CACHE_DIR": str(cache), **more}


def start(tmp_path: Path, **more: str) -> subprocess.Popen[str]:
    """A process that trains, with the cache in ``tmp_path``."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    return subprocess.Popen(
        [sys.executable, str(script)], env=environment(tmp_path / "cache", **more), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


RESULTS = ("losses", "weights", "errors")


def test_a_second_process_lowers_and_compiles_nothing_and_computes_the_same(tmp_path: Path) -> None:
    first, second = result(start(tmp_path)), result(start(tmp_path))
    assert first["compiles"] > 3 and first["lowered"] > 10 and first["disk_hits"] == first["disk_bad"] == 0
    assert second["compiles"] == second["lowered"] == second["lowerings"] == second["disk_bad"] == 0
    assert second["disk_hits"] == first["compiles"] and second["cache_hits"] == first["cache_hits"] > 0
    assert [first[name] for name in RESULTS] == [second[name] for name in RESULTS]
    index, matrix = second["errors"]
    line = next(i for i, text in enumerate(TRAIN.splitlines(), 1) if "[3, 12]" in text)
    assert index.startswith("IndexError: index out of range")
    assert f"(in aten::embedding, recorded at {tmp_path}/train.py:{line})" in index
    assert matrix.startswith("_LinAlgError: linalg.cholesky: The factorization could not be completed")
    other = result(start(tmp_path, LAZYTPU_XLA_OPTIONS="xla_cpu_enable_fast_min_max=true"))
    assert other["disk_hits"] == 0 and other["compiles"] == first["compiles"]


def test_many_processes_share_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [result(process) for process in [start(tmp_path) for _ in range(3)]]
    for one in results:
        assert one["disk_bad"] == 0 and [one[name] for name in RESULTS] == [results[0][name] for name in RESULTS]
    assert run_command("verify", tmp_path / "cache") == 0
    assert f"{int(results[0]['cache_misses'])} programs, 0 bad" in capsys.readouterr().out


WRITERS = """
import os, random, signal, sys, time
from pathlib import Path
from lazytpu.cache import entry, store

place = store.Store(Path(sys.argv[1]), 6 << 20)
place.prepare()
keys = [f"{i:02d}" * 32 for i in range(16)]

def work(seed, turns):
    draw = random.Random(seed)
    for _ in range(turns):
        key = draw.choice(keys)
        place.write(key, entry.encode(key, entry.Entry({"ops": 1}, draw.randbytes(draw.choice([100, 10_000, 1_000_000])))))
        key = draw.choice(keys)
        data = place.read(key)
        if data is not None:
            entry.decode(key, data)

def fork(seed, turns):
    child = os.fork()
    if not child:
        status = 1
        try:
            work(seed, turns)
            status = 0
        finally:
            os._exit(status)
    return child

def check():
    for file in place.files():
        data = place.read(file.key)
        if data is not None:
            entry.decode(file.key, data)

if sys.argv[2] == "together":
    for child in [fork(seed, 40) for seed in range(8)]:
        assert os.waitpid(child, 0)[1] == 0
    assert sum(file.size for file in place.files()) <= place.bound
else:
    draw = random.Random(int(sys.argv[2]))
    for turn in range(int(sys.argv[2])):
        child = fork(turn, 10**9)
        time.sleep(draw.uniform(0.0, 0.08))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        check()
check()
place.sweep()
assert not [name for name in os.listdir(place.path) if not name.endswith(store.SUFFIX)]
print(len(place.files()), "entries")
"""


def write_entries(directory: Path, how: str) -> None:
    script = directory.parent / "writers.py"
    script.write_text(WRITERS)
    done = subprocess.run(
        [sys.executable, str(script), str(directory), how],
        env=environment(directory), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert run_command("verify", directory) == 0


def test_writers_evict_under_each_other_and_readers_see_whole_entries(tmp_path: Path) -> None:
    write_entries(tmp_path / "cache", "together")


def test_a_writer_killed_at_any_moment_leaves_no_bad_entry(tmp_path: Path) -> None:
    write_entries(tmp_path / "cache", "20")


@pytest.mark.sweep
def test_writers_killed_at_two_hundred_moments_leave_no_bad_entry(tmp_path: Path) -> None:
    write_entries(tmp_path / "cache", "200")


@pytest.mark.sweep
def test_trainings_killed_at_random_moments_leave_no_bad_entry(tmp_path: Path) -> None:
    draw = random.Random(0)
    for _ in range(12):
        process = start(tmp_path)
        try:
            process.communicate(timeout=draw.uniform(3, 12))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        assert run_command("verify", tmp_path / "cache") == 0
    assert result(start(tmp_path))["disk_bad"] == 0


# Entries that are not what they should be


def flipped(data: bytes) -> bytes:
    return data[:-200] + bytes([data[-200] ^ 4]) + data[-199:]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "a byte short": lambda data: data[:-1],
    "a byte long": lambda data: data + b"x",
    "one bit of the program flipped": flipped,
    "one bit of the header flipped": lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
    "empty": lambda data: b"",
    "garbage": lambda data: random.Random(0).randbytes(len(data)),
    "another version": lambda data: data[:8] + b"\x09" + data[9:],
    "a text file": lambda data: b"hello\n" * 100,
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_removed_and_compiled_again(kept: disk.Disk, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = compute()
    for file in written(kept):
        path = kept.place.file(file.key)
        path.write_bytes(DAMAGE[how](path.read_bytes()))
    again(kept)
    monkeypatch.setattr(compat, "deserialize", lambda *a: pytest.fail("XLA was given bytes that did not match"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compute() == expected
    bad, compiled = counted("disk_bad", "compiles")
    assert bad == compiled > 0
    monkeypatch.undo()
    for file in written(kept):
        entry.decode(file.key, kept.place.file(file.key).read_bytes())


def test_an_entry_under_another_key_is_removed(kept: disk.Disk) -> None:
    def double() -> list[float]:
        return (torch.ones(3, device="tpu") * 2).tolist()

    compute()
    assert double() == [2, 2, 2]
    files = written(kept)
    contents = [kept.place.file(file.key).read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1]):
        kept.place.file(file.key).write_bytes(content)
    again(kept)
    assert double() == [2, 2, 2]
    assert counted("disk_hits", "disk_bad", "compiles") == [0, 1, 1]


def test_an_intact_entry_that_xla_refuses_is_compiled_again(kept: disk.Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = compute()
    again(kept)

    def refuse(*args: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setattr(compat, "deserialize", refuse)
    assert compute() == expected
    assert counted("disk_bad") == counted("compiles") != [0]


def test_every_truncation_and_every_flipped_bit_is_noticed() -> None:
    data = entry.encode(KEY, entry.Entry({"ops": 3}, b"payload"))
    assert entry.decode(KEY, data) == ({"ops": 3, "key": KEY}, b"payload")
    wrong = [data[:i] for i in range(len(data))]
    wrong += [data[:i] + bytes([data[i] ^ (1 << bit)]) + data[i + 1 :] for i in range(len(data)) for bit in range(8)]
    for content in [*wrong, data + b"\0", data + data]:
        with pytest.raises(entry.BadEntry):
            entry.decode(KEY, content)
    with pytest.raises(entry.BadEntry, match="another key"):
        entry.decode("cd" * 32, data)


# What comes back


def test_a_loaded_program_still_reuses_donated_memory(kept: disk.Disk) -> None:
    def steps() -> tuple[list[float], Any]:
        x = torch.zeros(1024, device="tpu")
        lazytpu.sync()
        for i in range(6):
            y = x[:512].sum()
            x.mul_(1.5).add_(i)
            x[3:5] += y
            lazytpu.sync()
        return x.tolist(), [p.memory.alias_size_in_bytes for p in launch.programs._entries.values()]

    expected, aliased = steps()
    assert 4096 in aliased
    again(kept)
    assert steps() == (expected, aliased)
    assert counted("compiles") == [0] and counted("disk_hits")[0] > 0


def test_programs_with_cond_are_told_apart_by_their_branches(kept: disk.Disk) -> None:
    def run(on_true: Callable[..., Any]) -> list[float]:
        x = torch.arange(3.0).to("tpu")
        return cond_op(x.sum() > 2, on_true, lambda a: (a - 1,), (x,))[0].tolist()

    branches = [lambda a: (a.sin(),), lambda a: (a.cos() + a,), lambda a: (a.pow(2),), lambda a: (a.pow(3),)]
    expected = [run(branch) for branch in branches]
    assert expected[2:] == [[0, 1, 4], [0, 1, 8]]
    again(kept)
    assert [run(branch) for branch in reversed(branches)] == expected[::-1]
    assert counted("compiles") == [0]


def test_a_program_whose_check_raises_an_unknown_error_is_not_kept(kept: disk.Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    compose = launch.compose

    class Strange(Exception):
        pass

    def strange(*args: Any) -> Any:
        module = compose(*args)
        return module._replace(checks=[(at, check._replace(error=Strange)) for at, check in module.checks])

    monkeypatch.setattr(launch, "compose", strange)
    x = torch.arange(3.0).to("tpu")
    lazytpu.sync()
    before = len(written(kept))
    with pytest.raises(Strange):
        x[torch.tensor([5]).to("tpu")].tolist()
    assert len(written(kept)) == before


def test_a_program_with_a_rule_from_outside_is_not_kept(kept: disk.Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = registry.RULES["aten::atan"]
    monkeypatch.setitem(registry.RULES, "aten::atan", rule._replace(lower=lambda ctx, x: rule.lower(ctx, x) * 0))
    x = torch.ones(7, 11, device="tpu")
    lazytpu.sync()
    before = len(written(kept))
    x.atan().tolist()
    assert len(written(kept)) == before


def test_a_program_that_calls_back_into_the_process_is_not_kept() -> None:
    text = """%1 = stablehlo.custom_call @{}(%0) : (tensor<f32>) -> tensor<f32>"""
    kept, dropped = calls_in(text.format("lapack_spotrf_ffi")), calls_in(text.format("xla_ffi_python_cpu_callback"))
    assert kept == ["lapack_spotrf_ffi"] and portable(kept) and portable([])
    assert not portable(dropped) and not portable(kept + dropped)
    assert not portable(calls_in('"stablehlo.custom_call"(%0) {call_target_name = "anything"}'))


# The key


def signature(*args: Any, op: str = "aten::add.Tensor") -> Signature:
    return Signature(op, (FLOATS,), (Slot(0), *args), (FLOATS,), ("tensor",))


def test_the_text_of_a_signature_tells_types_apart_and_is_exact() -> None:
    load_rules()
    different = [
        1, 1.0, True, None, "1", "True", 0.1, 0.1 + 2**-56, 0.0, -0.0, float("inf"), "inf", 1j, (1,), [1], (1, 1), [[1], 1],
        torch.float32, "torch.float32", torch.strided, torch.contiguous_format, torch.device("cpu"), Slot(0), FLOATS,
    ]  # fmt: skip
    texts = [text_of(signature(x)) for x in different]
    assert None not in texts and len(set(texts)) == len(different)
    assert text_of(signature(0.1)) == text_of(signature(0.1))
    assert text_of(signature(lambda x: x)) is None and text_of(signature([object()])) is None


def test_the_key_depends_on_liveness_donation_and_environment() -> None:
    x = torch.ones(4, device="tpu")
    y = x.sin() + 1
    trace = recorder.trace
    ids = [len(trace.refs) - 2, len(trace.refs) - 1]
    key = key_of(trace, ids, (), ("cpu", 0))
    variants = [
        key, key._replace(outputs=(ids[1],)), key._replace(donated=(0,)), key._replace(placement=("cpu", 1)),
    ]  # fmt: skip
    digests = [digest_of(trace, variant, "here") for variant in variants] + [digest_of(trace, key, "there")]
    assert None not in digests and len(set(digests)) == 5
    assert digest_of(trace, key._replace(code=(7,)), "here") == digests[0]
    del x, y


# The directory


def data(size: int) -> bytes:
    return bytes(size)


def test_the_least_recently_used_entries_are_evicted(tmp_path: Path) -> None:
    place = store.Store(tmp_path / "cache", 3000)
    for i, key in enumerate("abc"):
        place.write(key, data(1000))
        os.utime(place.file(key), (i, i))
    assert place.read("a") == data(1000)
    place.write("d", data(1000))
    assert sorted(file.key for file in place.files()) == ["a", "c", "d"]
    place.write("e", data(2500))
    assert [file.key for file in place.files()] == ["e"]
    place.write("huge", data(3001))
    assert [file.key for file in place.files()] == ["e"]


def test_directory_and_files_are_the_users_alone(tmp_path: Path) -> None:
    place = store.Store(tmp_path / "deep" / "cache", 1 << 20)
    place.write("a", b"x")
    assert place.path.stat().st_mode & 0o777 == 0o700 and place.file("a").stat().st_mode & 0o777 == 0o600


def off_with_one_warning(monkeypatch: pytest.MonkeyPatch, match: str, **variables: str) -> None:
    """The process's cache is off under these variables, says so once, and programs run."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    disk._of_process.cache_clear()
    launch.forget_programs()
    try:
        with pytest.warns(UserWarning, match=match) as caught:
            first = compute()
            launch.forget_programs()
            assert compute() == first
        assert len(caught) == 1
    finally:
        monkeypatch.undo()
        disk._of_process.cache_clear()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    tmp_path.chmod(mode)
    off_with_one_warning(monkeypatch, "can be written to by others", LAZYTPU_CACHE_DIR=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_directory_of_someone_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
    off_with_one_warning(monkeypatch, "belongs to another user", LAZYTPU_CACHE_DIR=str(tmp_path))


def test_what_is_no_directory_or_no_number_turns_the_cache_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for path in ("file", "file/below"):
        off_with_one_warning(monkeypatch, "off for this process", LAZYTPU_CACHE_DIR=str(tmp_path / path))
    off_with_one_warning(
        monkeypatch, "invalid literal", LAZYTPU_CACHE_DIR=str(tmp_path / "new"), LAZYTPU_CACHE_MAX_BYTES="2G"
    )


@pytest.mark.parametrize("name", ["open", "replace"])
def test_a_full_or_read_only_disk_turns_the_cache_off(kept: disk.Disk, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    really = getattr(os, name)

    def fail(*args: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return really(*args)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, name, fail)
    with pytest.warns(UserWarning, match="No space left on device") as caught:
        expected = compute()
        assert written(kept) == []
        launch.forget_programs()
        assert compute() == expected
    assert len(caught) == 1 and kept.broken and not list(kept.place.path.iterdir())


def test_a_directory_removed_under_way_is_made_again(kept: disk.Disk) -> None:
    compute()
    for file in written(kept):
        kept.place.discard(file.key)
    kept.place.path.rmdir()
    again(kept)
    compute()
    assert written(kept) and not kept.broken


def test_what_dead_writers_left_is_removed(tmp_path: Path) -> None:
    place = store.Store(tmp_path / "cache", 1 << 20)
    place.prepare()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    prefix, host = store._TEMPORARY, store._host()
    dead, alive, fresh, old = (
        place.path / f"{prefix}{name}-0" for name in (f"{host}-{ended.pid}", f"{host}-{os.getpid()}", "other-1", "other-2")
    )
    for path in (dead, alive, fresh, old):
        path.touch()
    os.utime(old, (0, 0))
    place.write("a", b"x")
    assert sorted(path for path in place.path.iterdir() if path.suffix != store.SUFFIX) == sorted([alive, fresh])


def test_where_the_directory_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.directory() is None
    monkeypatch.setenv("LAZYTPU_CACHE_DIR", "")
    assert store.directory() is None
    monkeypatch.delenv("LAZYTPU_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert store.directory() == Path("/somewhere/lazytpu")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert store.directory() == Path.home() / ".cache" / "lazytpu"


# The commands


def run_command(action: str, directory: Path) -> int:
    """``python -m lazytpu cache``, in this process."""
    arguments, sys.argv = sys.argv, ["lazytpu", "cache", action, "--dir", str(directory)]
    try:
        return command.main()
    finally:
        sys.argv = arguments


def test_the_commands_list_verify_and_clear(kept: disk.Disk, capsys: pytest.CaptureFixture[str]) -> None:
    compute()
    files, path = written(kept), kept.place.path
    assert run_command("ls", path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(files) and all("cpu" in line and __file__ in line for line in lines[1:])
    assert run_command("stats", path) == 0 and f"programs   {len(files)}" in capsys.readouterr().out
    assert run_command("verify", path) == 0
    broken = kept.place.file(files[0].key)
    broken.write_bytes(broken.read_bytes()[:-5])
    (path / ("ff" * 32 + store.SUFFIX)).write_bytes(b"?")
    assert run_command("ls", path) == 0 and "damaged: it is too short" in capsys.readouterr().out
    assert run_command("verify", path) == 1 and "2 bad" in capsys.readouterr().out
    assert run_command("verify", path) == 0 and not broken.exists()
    (path / "notes.txt").write_text("the user's own")
    (path / f"{store._TEMPORARY}other-1-0").touch()
    assert run_command("clear", path) == 0
    assert [file.name for file in path.iterdir()] == ["notes.txt"]


def test_the_commands_start_no_device(tmp_path: Path) -> None:
    program = f"""
        import runpy, sys
        sys.argv = ["lazytpu", "cache", "verify", "--dir", {str(tmp_path / "none")!r}]
        try:
            runpy.run_module("lazytpu", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            print("status", end.code, "jax" in sys.modules)
    """
    assert "0 programs, 0 bad\nstatus 0 False" in python(program, PYTHONPATH=ROOT)
