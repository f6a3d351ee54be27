"""Streams and events on ``tpu``: names for the one queue in which its programs run, in order.

Work recorded on the host is launched before an event is put behind it, so that an event means what
it means on other devices. A thread of its own notes when the device gets to each event.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lazytpu import recorder

_CStream = torch.Stream
_CEvent = torch.Event
_local = threading.local()


def _is_tpu(device: Any) -> bool:
    """Whether a constructor's device argument means ``tpu``, the default accelerator."""
    if device is None or isinstance(device, int):
        return torch._C._accelerator_getAccelerator().type == "tpu"
    return torch.device(device).type == "tpu"


class _StreamMeta(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, _CStream) if cls is Stream else type.__instancecheck__(cls, x)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        device = args[0] if args else kwargs.get("device")
        if cls is Stream and "stream_id" not in kwargs:
            return type.__call__(TpuStream, *args, **kwargs) if _is_tpu(device) else _CStream(*args, **kwargs)
        return _CStream(*args, **kwargs) if cls is Stream else type.__call__(cls, *args, **kwargs)


class Stream(_CStream, metaclass=_StreamMeta):
    """``torch.Stream`` as users see it once ``tpu`` is registered: the C++ class, or ours for ``tpu``."""


Stream.__doc__ = _CStream.__doc__


class TpuStream(Stream):
    """A name for the device's one queue: work put on any stream runs in the order it was recorded."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> TpuStream:
        return _CStream.__new__(cls, device="tpu" if device is None or isinstance(device, int) else device)

    def synchronize(self) -> None:
        """Run everything recorded so far and wait until the device has finished."""
        recorder.sync(wait=True)

    def query(self) -> bool:
        """Whether the device has finished everything recorded so far, which this launches."""
        event = TpuEvent().record_now()
        assert event._done is not None
        return event._done.wait(0.001)  # the watching thread needs a moment to notice

    def wait_event(self, event: Any) -> None:
        """Nothing to do: later work is behind the event already."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing to do: later work is behind the stream's already."""

    def record_event(self, event: Any = None) -> Any:
        """Put ``event``, or a new one, behind everything recorded so far; returns it."""
        event = TpuEvent() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> TpuStream:
        _stack().append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _stack().pop()

    def __repr__(self) -> str:
        return f"<torch.tpu.Stream device={self.device} of one queue>"


class _EventMeta(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, _CEvent) if cls is Event else type.__instancecheck__(cls, x)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Event:
            return type.__call__(cls, *args, **kwargs)
        device = args[0] if args else kwargs.get("device")
        if not _is_tpu(device):
            return _CEvent(*args, **kwargs)
        return TpuEvent(*args[1:], **{k: v for k, v in kwargs.items() if k != "device"})


class Event(_CEvent, metaclass=_EventMeta):
    """``torch.Event`` as users see it once ``tpu`` is registered: the C++ class, or ours for ``tpu``."""


Event.__doc__ = _CEvent.__doc__


class TpuEvent(Event):
    """A mark behind the work recorded before it.

    Args:
        enable_timing: whether ``elapsed_time`` may be asked.
        blocking: accepted and of no effect.
        interprocess: must be false: events are not shared between processes.
    """

    enable_timing: bool
    _done: threading.Event | None
    _finished_at: float
    _error: BaseException | None

    def __new__(cls, enable_timing: bool = False, *, blocking: bool = False, interprocess: bool = False) -> TpuEvent:
        if interprocess:
            raise ValueError("an event on 'tpu' cannot be shared between processes")
        made = _CEvent.__new__(cls, device="tpu", enable_timing=enable_timing)
        made.enable_timing = enable_timing
        made._done = None
        made._finished_at = 0.0
        made._error = None
        return made

    def record(self, stream: Any = None) -> None:
        """Launch everything recorded so far and put the event behind it."""
        self.record_now()

    def record_now(self) -> TpuEvent:
        """``record``, returning the event."""
        recorder.cut("event")
        token = _newest_token()
        self._error = None
        self._done = threading.Event()
        if token is None:
            self._finished_at = time.perf_counter()
            self._done.set()
        else:
            _watch(token, self._note, self._done)
        return self

    def _note(self, error: BaseException | None, done: threading.Event) -> None:
        if done is self._done:
            self._finished_at, self._error = time.perf_counter(), error
        done.set()

    def wait(self, stream: Any = None) -> None:
        """Nothing to do: work on any stream is behind the event already."""

    def query(self) -> bool:
        """Whether the device has got to the event; true before it was recorded."""
        return self._done is None or self._done.is_set()

    def synchronize(self) -> None:
        """Wait until the device has got to the event; raises if the work before it failed."""
        if self._done is not None:
            self._done.wait()
        if self._error is not None:
            raise RuntimeError(f"work before this event failed on the device: {self._error}") from self._error

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds between the device getting to this event and to ``end_event``; waits for both."""
        for event in (self, end_event):
            if not isinstance(event, TpuEvent) or not event.enable_timing:
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if event._done is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
        self.synchronize()
        end_event.synchronize()
        return (end_event._finished_at - self._finished_at) * 1e3

    def ipc_handle(self) -> Any:
        """Raises: events are not shared between processes."""
        raise RuntimeError("an event on 'tpu' cannot be shared between processes")

    def __repr__(self) -> str:
        state = "not recorded" if self._done is None else "done" if self.query() else "pending"
        return f"<torch.tpu.Event {state}>"


def _newest_token() -> Any:
    import sys

    program = sys.modules.get("lazytpu.runtime.program")
    return None if program is None else program.newest_token()


_jobs: queue.SimpleQueue[tuple[Any, Callable[..., None], threading.Event]] = queue.SimpleQueue()
_watcher: threading.Thread | None = None


def _watch(token: Any, note: Callable[[BaseException | None, threading.Event], None], done: threading.Event) -> None:
    """Call ``note`` from the watching thread once ``token`` is ready."""
    global _watcher
    if _watcher is None:
        _watcher = threading.Thread(target=_watch_all, name="lazytpu-events", daemon=True)
        _watcher.start()
    _jobs.put((token, note, done))


def _watch_all() -> None:
    while True:
        token, note, done = _jobs.get()
        error: BaseException | None = None
        try:
            token.block_until_ready()
        except Exception as reason:
            error = reason
        note(error, done)


_default: TpuStream | None = None


def default_stream(device: Any = None) -> TpuStream:
    """The stream in use where none was named."""
    global _default
    if _default is None:
        _default = TpuStream()
    return _default


def _stack() -> list[TpuStream]:
    if not hasattr(_local, "stack"):
        _local.stack = []
    return _local.stack


def current_stream(device: Any = None) -> TpuStream:
    """The stream of the innermost ``torch.tpu.stream`` context of this thread."""
    stack = _stack()
    return stack[-1] if stack else default_stream()


def set_stream(stream: TpuStream | None) -> None:
    """Make ``stream`` the current one of this thread."""
    if stream is not None:
        stack = _stack()
        stack[-1:] = [stream]


@contextmanager
def stream(stream: TpuStream | None) -> Iterator[TpuStream | None]:
    """Make ``stream`` current within the context; all streams are one queue."""
    if stream is None:
        yield None
        return
    with stream:
        yield stream
