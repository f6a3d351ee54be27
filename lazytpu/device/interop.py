"""Handing tensors on ``tpu`` to other libraries: JAX arrays by reference, everything else by copy.

A tensor on ``tpu`` has no memory that another library could write to, so protocols that hand out an
address (DLPack) raise, and ``data_ptr`` is an identity, not an address.
"""

from __future__ import annotations

from typing import Any

import torch

from lazytpu.storage import LazyStorage

_storage_of = torch._C.TensorBase.untyped_storage
_KIND = "tpu"
_HOST = 1 << 44
"""An address from here on is real: it spares most tensors the look at their device."""


def apply() -> None:
    """Patch the methods of ``torch.Tensor`` that hand out memory."""
    _data_ptr()
    _dlpack()


def _data_ptr() -> None:
    pointer = torch.Tensor.data_ptr

    def data_ptr(self: torch.Tensor) -> int:
        address = pointer(self)
        if address >= _HOST or self.device.type != _KIND:
            return address
        storage = _storage_of(self)
        if type(storage) is not LazyStorage:
            return address
        return storage.data_ptr() + int(self.storage_offset()) * self.element_size() if self.numel() else 0

    data_ptr.__doc__ = pointer.__doc__
    data_ptr.__qualname__ = "Tensor.data_ptr"
    torch.Tensor.data_ptr = data_ptr  # type: ignore[method-assign, assignment]


def _no_address() -> BufferError:
    return BufferError(
        "a tensor on 'tpu' has no address to share through DLPack. Use Tensor.cpu() to copy it to host memory first, "
        "or lazytpu.to_jax(tensor) to share it with JAX."
    )


def _dlpack() -> None:
    method, device_method = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__

    def __dlpack__(self: torch.Tensor, **kwargs: Any) -> Any:
        if self.device.type == _KIND:
            raise _no_address()
        return method(self, **kwargs)

    def __dlpack_device__(self: torch.Tensor) -> Any:
        if self.device.type == _KIND:
            raise _no_address()
        return device_method(self)

    for patched, original in ((__dlpack__, method), (__dlpack_device__, device_method)):
        patched.__doc__ = original.__doc__
        patched.__qualname__ = original.__qualname__
        setattr(torch.Tensor, original.__name__, patched)

    def guarded(function: Any) -> Any:
        def checked(tensor: Any, **kwargs: Any) -> Any:
            if isinstance(tensor, torch.Tensor) and tensor.device.type == _KIND:
                raise _no_address()
            return function(tensor, **kwargs)

        checked.__doc__ = function.__doc__
        checked.__name__ = checked.__qualname__ = function.__name__.lstrip("_")
        return checked

    torch._C._to_dlpack = guarded(torch._C._to_dlpack)
    torch._C._to_dlpack_versioned = guarded(torch._C._to_dlpack_versioned)
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = torch._C._to_dlpack  # type: ignore[attr-defined]


def to_jax(tensor: torch.Tensor) -> Any:
    """The content of a tensor on ``tpu`` as a ``jax.Array``; runs what is pending, without waiting.

    A tensor that shows its whole storage is not copied; a view is cut out first.

    The array is a snapshot: later in-place ops on the tensor do not change it. 64-bit types stay what they
    are whatever the JAX configuration. A tensor elsewhere is moved to ``tpu`` first.
    """
    if tensor.requires_grad:
        raise RuntimeError("Can't call to_jax() on Tensor that requires grad. Use lazytpu.to_jax(tensor.detach()) instead.")
    if tensor.device.type != _KIND:
        tensor = tensor.to(_KIND)
    from lazytpu import recorder
    from lazytpu.dispatch import cells

    with recorder.lock:
        value = cells.read(tensor.resolve_conj().resolve_neg())
        if value.buffer is None:
            recorder.trace_with(value)
            recorder.cut("to_jax")
        if value.error is not None:
            raise value.error
        value.buffer.exported = True
        return value.buffer.array


def from_jax(array: Any) -> torch.Tensor:
    """A tensor on ``tpu`` with the content of a ``jax.Array``, without a copy where it is on the same chip already.

    In-place ops on the tensor do not change the array. Deleting or donating the array in JAX takes the
    tensor's content away.
    """
    import jax

    from lazytpu import dtypes, recorder
    from lazytpu.dispatch import cells
    from lazytpu.ir import Value, tensor_type
    from lazytpu.runtime import buffers
    from lazytpu.runtime.client import client

    if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array):
        raise TypeError(f"from_jax takes a concrete jax.Array, not {type(array).__name__}")
    if array.is_deleted():
        raise RuntimeError("from_jax was given an array that has been deleted or donated")
    try:
        dtype = dtypes.to_torch(array.dtype)
    except (KeyError, TypeError):
        raise TypeError(f"a jax.Array of dtype {array.dtype} has no counterpart on 'tpu'") from None
    with recorder.lock:
        where = client()
        if array.devices() != {where.devices[0]} or not _row_major(array):
            array = jax.device_put(_on_host(array), where.devices[0])
        buffer = buffers.Buffer(array, array.nbytes)
        buffer.exported = True
        buffers.usage.note()
        return cells.new(Value(tensor_type(tuple(array.shape), dtype), 0, -1, buffer))


def _row_major(array: Any) -> bool:
    layout = array.format.layout
    order = getattr(layout, "major_to_minor", None)
    return order is None or tuple(order) == tuple(range(array.ndim))


def _on_host(array: Any) -> Any:
    import numpy as np

    return np.array(array)
