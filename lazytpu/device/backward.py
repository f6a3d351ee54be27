"""Backward passes: on the calling thread, and counted so that accumulated ones stay programs of their own.

Autograd normally runs the nodes of a device on a thread made when the process first runs a backward;
a device registered later has none. On the calling thread there is also the user's line for each op.

What a hook raises is still pending in the interpreter while C++ leaves the node, and Python code that C++
calls on the way (the device guard) would end the process: ``keep_pending`` takes it out of the way.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from typing import Any

import torch

from lazytpu import recorder

_local = threading.local()
# ctypes raises what is pending after a call.
_raise_pending: Any = ctypes.PYFUNCTYPE(None)(("PyErr_Occurred", ctypes.pythonapi))


def keep_pending() -> None:
    """Put aside an exception that is pending as C++ calls; the backward that is running raises it at its end."""
    try:
        _raise_pending()
    except BaseException as error:
        _local.kept = error


def apply() -> None:
    """Wrap the one function through which Python starts autograd's engine, under each of its names."""
    original = torch.autograd.graph._engine_run_backward

    @functools.wraps(original)
    def run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not in_use():
            return original(t_outputs, *args, **kwargs)
        depth = getattr(_local, "depth", 0)
        before, length = recorder.trace.epoch, len(recorder.trace)
        _local.depth = depth + 1
        _local.kept = kept = result = None
        try:
            with torch.autograd.set_multithreading_enabled(False):
                result = original(t_outputs, *args, **kwargs)
        except BaseException:
            kept, _local.kept = _local.kept, None
            if kept is None:
                raise
        finally:
            _local.depth = depth
        if kept is not None:
            raise kept
        if depth == 0 and _accumulates(args, kwargs):
            _finished(before, length)
        return result

    torch.autograd.graph._engine_run_backward = run_backward
    torch.autograd._engine_run_backward = run_backward  # type: ignore[attr-defined]


def in_use() -> bool:
    """Whether an op has reached the device in this process."""
    install = sys.modules.get("lazytpu.dispatch.install")
    return install is not None and install.installed


def _accumulates(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this is ``.backward()`` without ``create_graph``: ``grad_tensors, keep_graph, create_graph, …``."""
    create_graph = args[2] if len(args) > 2 else kwargs.get("create_graph", False)
    return bool(kwargs.get("accumulate_grad", False)) and not create_graph


def _finished(epoch: int, length: int) -> None:
    """Count a backward that recorded ops; the second in one trace ends the program."""
    with recorder.lock:
        trace = recorder.trace
        if trace.epoch == epoch and len(trace) == length:
            return
        trace.backwards += 1
        if trace.backwards >= 2:
            recorder.cut("backward")
