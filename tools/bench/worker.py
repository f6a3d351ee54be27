"""What a fresh process of a benchmark does: one contender, one workload; prints one line of JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

SHAPE = {"vocabulary": 96, "context": 128, "layers": 4, "width": 128, "heads": 4, "batch": 8}


def _steps(step: Callable[[int], Any], finish: Callable[[], Any], warmup: int, count: int) -> dict[str, float]:
    """Host time is what calling the step takes, step time what it takes until the device is done."""
    started = time.perf_counter()
    step(0)
    finish()
    first = time.perf_counter() - started
    started = time.perf_counter()
    step(1)
    finish()
    second = time.perf_counter() - started
    for i in range(warmup):
        step(i)
    finish()
    host, whole = [], []
    for i in range(count):
        started = time.perf_counter()
        step(i)
        host.append(time.perf_counter() - started)
        finish()
        whole.append(time.perf_counter() - started)
    host.sort()
    whole.sort()
    return {
        "first_s": first,
        "second_s": second,
        "host_ms": 1e3 * host[len(host) // 2],
        "step_ms": 1e3 * whole[len(whole) // 2],
    }


def gpt_torch(device: str) -> dict[str, float]:
    """The example GPT with AdamW in plain PyTorch on ``device``."""
    import torch
    import torch.nn.functional as F

    from examples.gpt import GPT

    torch.manual_seed(0)
    s = SHAPE
    model = GPT(s["vocabulary"], s["context"], s["layers"], s["width"], s["heads"], 0.0).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = [torch.randint(s["vocabulary"], (s["batch"], s["context"] + 1)) for _ in range(8)]
    last: list[Any] = [None]

    def step(i: int) -> None:
        ids = batches[i % 8].to(device)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last[0] = loss

    def finish() -> None:
        if device == "tpu":
            torch.tpu.synchronize()

    result = _steps(step, finish, 5, 20)
    result["loss"] = float(last[0])
    if device == "tpu":
        import lazytpu

        result["compiles"] = lazytpu.metrics()["compiles"]
    return result


def gpt_jax() -> dict[str, float]:
    """The same model and optimizer written by hand for ``jax.jit``, returning the gradients as well."""
    from tools.bench.gpt_jax import make_step

    step, finish, loss, compiles = make_step(SHAPE)
    result = _steps(step, finish, 5, 20)
    result["loss"] = loss()
    result["compiles"] = compiles()
    return result


def _best(f: Callable[[], Any], reset: Callable[[], Any], count: int = 2000, rounds: int = 7) -> float:
    best = float("inf")
    for _ in range(rounds):
        reset()
        started = time.perf_counter()
        for _ in range(count):
            f()
        best = min(best, time.perf_counter() - started)
    return 1e6 * best / count


def recording(nothing: bool) -> dict[str, float]:
    """Microseconds to record ``x + y``, ``add_`` and ``y[1:3] = 1``, with our kernels or with ones that do nothing."""
    import torch

    if nothing:
        from tools.bench.nothing import register

        register()
    else:
        import lazytpu  # noqa: F401
        from lazytpu import recorder

        recorder.LOOP_NODES = 1 << 60
    x, y, z, w = (torch.ones(8, 8, device="tpu") for _ in range(4))

    def reset() -> None:
        nonlocal z, w
        if not nothing:
            from lazytpu import recorder

            recorder.sync(wait=True)
            recorder.trace = type(recorder.trace)()
        z, w = torch.ones(8, 8, device="tpu"), torch.ones(8, 8, device="tpu")
        x + y
        z.add_(x)
        w[1:3] = 1

    def fresh() -> None:
        if not nothing:
            from lazytpu import recorder

            # The ops recorded in a round are thrown away, not run: only recording is timed.
            recorder.trace = type(recorder.trace)()
        nonlocal z, w
        z, w = torch.ones(8, 8, device="tpu"), torch.ones(8, 8, device="tpu")
        z.add_(1)
        w.add_(1)

    reset()

    def assign() -> None:
        w[1:3] = 1

    return {
        "add_us": _best(lambda: x + y, fresh),
        "add_inplace_us": _best(lambda: z.add_(x), fresh),
        "setitem_us": _best(assign, fresh),
    }


CONTENDERS: dict[str, dict[str, Callable[[], dict[str, float]]]] = {
    "gpt4": {
        "CPU eager": lambda: gpt_torch("cpu"),
        "lazytpu": lambda: gpt_torch("tpu"),
        "jax.jit": gpt_jax,
    },
    "recording": {
        "do-nothing kernels": lambda: recording(True),
        "lazytpu": lambda: recording(False),
    },
}
"""Contenders by workload."""


if __name__ == "__main__":
    print(json.dumps(CONTENDERS[sys.argv[1]][sys.argv[2]]()))
