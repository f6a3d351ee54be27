"""The last resort: running an op on the CPU, counted and announced once per op."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch._ops import OpOverload

from lazytpu import counts, notices
from lazytpu.dispatch import cells, host
from lazytpu.dispatch.schema import name_of, schema_of
from lazytpu.ir.source import user_source

_announced: set[str] = set()


def _to_cpu(x: Any, moved: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if cells.is_lazy(x):
        if id(x) not in moved:
            moved[id(x)] = (x, host.download(x))
        return moved[id(x)][1]
    if isinstance(x, (list, tuple)):
        return type(x)(_to_cpu(item, moved) for item in x)
    if isinstance(x, torch.device) and x.type == "tpu":
        return torch.device("cpu")
    return x


def _to_tpu(x: Any, given: dict[int, torch.Tensor]) -> Any:
    if isinstance(x, torch.Tensor):
        if id(x) in given:
            return given[id(x)]
        return cells.new(host.upload(x)) if x.device.type == "cpu" else x
    if isinstance(x, (list, tuple)):
        return type(x)(_to_tpu(item, given) for item in x)
    return x


def announce(name: str) -> None:
    """Say once per op that it runs on the CPU, with the user's line; raise where that is forbidden."""
    source = user_source(2)
    counts.add("cpu_fallbacks")
    counts.add(f"cpu_fallback.{name}")
    if os.environ.get("LAZYTPU_FALLBACK", "warn") == "error":
        raise NotImplementedError(
            f"{source}: {name} has no lowering rule for 'tpu', and LAZYTPU_FALLBACK=error forbids the CPU"
        )
    if name not in _announced:
        _announced.add(name)
        notices.warn(
            f"{name} has no lowering rule for 'tpu' and runs on the CPU: each call waits for its inputs and moves them. "
            f"lazytpu.metrics()['cpu_fallback.{name}'] counts the calls; LAZYTPU_FALLBACK=error forbids them.",
            source,
        )


def on_cpu(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run ``op`` on CPU copies of its arguments and move the results (and what it wrote) back."""
    from lazytpu.dispatch import infer

    announce(name_of(op))
    started = time.perf_counter()
    schema = schema_of(op)
    bound = schema.bind(args, kwargs)
    infer.check_same_device(op, bound)
    moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    on_host = [_to_cpu(x, moved) for x in bound]
    if "device" in schema.names:
        on_host[schema.names.index("device")] = torch.device("cpu")
    positional = [x for a, x in zip(op._schema.arguments, on_host) if not a.kwarg_only]
    keywords = {a.name: x for a, x in zip(op._schema.arguments, on_host) if a.kwarg_only}
    result = op(*positional, **keywords)
    written = {id(t) for i in schema.written for t in (bound[i] if isinstance(bound[i], (list, tuple)) else (bound[i],))}
    for original, copy in moved.values():
        if id(original) in written:
            if original.shape != copy.shape:
                original.resize_(copy.shape)
            original.copy_(copy)
    back = _to_tpu(result, {id(copy): original for original, copy in moved.values()})
    counts.counters["cpu_fallback_seconds"] += time.perf_counter() - started
    return back
