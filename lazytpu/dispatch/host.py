"""Between host and device: uploading CPU tensors and reading values back."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch

from lazytpu import counts, dtypes, recorder
from lazytpu.ir import TensorType, Value, tensor_type
from lazytpu.ir.source import user_source

_WHOLE_READ_BYTES = 64 << 20
"""A window onto a value up to this size is cut out on the host, beyond it on the device."""


def upload(tensor: torch.Tensor, owned: bool = False) -> Value:
    """A value with the content of a CPU tensor.

    Args:
        tensor: any CPU tensor; it is copied unless ``owned``.
        owned: the caller gives the tensor up: nobody writes to its memory afterwards.
    """
    if tensor.is_sparse or tensor.is_quantized or tensor.layout != torch.strided:
        kind = "quantized ones" if tensor.is_quantized else f"layout {tensor.layout}"
        raise RuntimeError(f"only dense (strided) tensors can be moved to 'tpu', not {kind}")
    dtypes.to_numpy(tensor.dtype)
    dense = tensor.detach().resolve_conj().resolve_neg()
    copied = dense.contiguous() if owned else dense.clone(memory_format=torch.contiguous_format)
    return from_numpy(dtypes.numpy_view(copied), tensor.dtype)


def from_numpy(array: np.ndarray, dtype: torch.dtype) -> Value:
    """A value with the content of ``array``, whose memory now belongs to the device."""
    from lazytpu.runtime import buffers

    with recorder.lock:
        return Value(tensor_type(tuple(array.shape), dtype), 0, -1, buffers.put(array))


def upload_bytes(storage: torch.UntypedStorage) -> Value:
    """A uint8 value with the bytes of a CPU storage, copied; it goes to the device when a program first uses it."""
    copied = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).clone()
    return on_host(dtypes.numpy_view(copied), torch.uint8)


def on_host(array: np.ndarray, dtype: torch.dtype) -> Value:
    """A value with the content of ``array``, given up by the caller, that is moved when a program first uses it."""
    value = Value(tensor_type(tuple(array.shape), dtype), 0, -1)
    value.host = array
    return value


def retyped(value: Value, type: TensorType) -> Value:
    """The same bytes as a value of another type, for a value that is only on the host so far."""
    flat = np.ascontiguousarray(value.host).reshape(-1).view(np.uint8)
    return on_host(flat.view(dtypes.to_numpy(type.dtype)).reshape(type.shape), type.dtype)


def fetch(value: Value, reason: str = "read") -> np.ndarray:
    """The content of ``value`` on the host; cuts the trace if it is pending, and waits."""
    if value.host is None:
        with recorder.lock:
            if value.buffer is None:
                recorder.trace_with(value)
                _locate_read()
                recorder.cut(reason)
        if value.error is not None:
            raise value.error
        from lazytpu import launch

        started = time.perf_counter()
        value.host = launch.to_numpy(value)
        counts.counters["host_reads"] += 1
        counts.counters["host_read_seconds"] += time.perf_counter() - started
    return value.host


def prefetch(value: Value) -> None:
    """Cut the trace if ``value`` is pending and start moving its content to the host, without waiting."""
    if value.host is not None:
        return
    with recorder.lock:
        if value.buffer is None:
            recorder.trace_with(value)
            recorder.cut("read")
        if value.buffer is not None and not value.buffer.array.is_deleted():
            value.buffer.array.copy_to_host_async()


def _locate_read() -> None:
    source = user_source(3)
    if source is not None:
        counts.add(f"host_reads.{source}")


def tensor_of(value: Value) -> torch.Tensor:
    """A CPU tensor of the content; it shares memory with the cached copy, so it is not to be written."""
    array = fetch(value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return dtypes.tensor_view(array)


def bytes_of(value: Value) -> torch.Tensor:
    """A private CPU uint8 tensor of the content's bytes."""
    flat = tensor_of(value).reshape(-1)
    if flat.numel() == 0:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    return flat.view(torch.uint8).clone()


def download(tensor: torch.Tensor) -> torch.Tensor:
    """A private CPU copy of a tensor on ``tpu``, with the same strides where those are dense."""
    from lazytpu.dispatch import cells

    storage = cells.storage_of(tensor)
    value = storage.value
    if not storage.viewed or cells.shows_whole_cell(tensor, value.type):
        return tensor_of(value).clone()
    if tensor.numel() == 0:
        return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="cpu")
    if value.type.nbytes > _WHOLE_READ_BYTES and tensor.numel() * tensor.element_size() * 4 < value.type.nbytes:
        return tensor_of(cells.read(tensor)).clone()
    whole = tensor_of(value).reshape(-1)
    if whole.dtype is not tensor.dtype:
        raw = whole.view(torch.uint8) if whole.numel() else whole.to(torch.uint8)
        whole = raw[: raw.numel() // tensor.dtype.itemsize * tensor.dtype.itemsize].view(tensor.dtype)
    return whole.as_strided(tuple(tensor.shape), tensor.stride(), tensor.storage_offset()).clone()


def scalar(tensor: torch.Tensor) -> Any:
    """The Python number in a one-element tensor on ``tpu``."""
    return download(tensor).item()
