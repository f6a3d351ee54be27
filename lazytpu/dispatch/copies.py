"""Kernels that make, copy, convert and fill tensors, in every direction between host and device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lazytpu import dtypes, recorder
from lazytpu.device.index import check_index
from lazytpu.dispatch import cells, host, overlap
from lazytpu.ir import TensorType, Value, tensor_type
from lazytpu.storage import LazyStorage

_storage_of: Callable[[torch.Tensor], Any] = torch._C.TensorBase.untyped_storage
_PRESERVE = torch.preserve_format
_STRIDED = (None, torch.strided)
_DEVICES = (None, torch.device("tpu", 0), torch.device("tpu"))
_EMPTY_TYPES: dict[tuple[Any, ...], TensorType] = {}


def check_device(device: Any) -> None:
    """Raise where ``device`` names a chip: to PyTorch all chips of the mesh are one device."""
    if device is not None and torch.device(device).type == "tpu":
        check_index(device)


def check_factory(dtype: torch.dtype, layout: Any, device: Any, pin_memory: Any) -> None:
    """Raise where a tensor of this kind cannot be made on ``tpu``."""
    check_device(device)
    dtypes.to_numpy(dtype)
    if layout is not None and layout != torch.strided:
        raise RuntimeError(f"only dense (strided) tensors can be made on 'tpu', not layout {layout}")
    if pin_memory:
        raise RuntimeError("Only dense CPU tensors can be pinned")


def _empty(
    size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None
) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    key = (tuple(size), dtype)
    known = _EMPTY_TYPES.get(key)
    if known is not None and memory_format is None and not pin_memory and layout in _STRIDED and device in _DEVICES:
        return cells.new(Value(known, 0, -1))
    check_factory(dtype, layout, device, pin_memory)
    size = tuple(size)
    if any(dim < 0 for dim in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {list(size)}")
    _EMPTY_TYPES[key] = tensor_type(size, dtype)
    with recorder.lock:
        if memory_format not in (None, torch.contiguous_format, _PRESERVE):
            stride = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format).stride()
            return _strided(size, stride, dtype)
        return cells.new(cells.undefined(size, dtype))


def _empty_strided(
    size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    check_factory(dtype, layout, device, pin_memory)
    with recorder.lock:
        return _strided(tuple(size), tuple(stride), dtype)


def _strided(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if tensor_type(size, dtype).strides() == stride:
        return cells.new(cells.undefined(size, dtype))
    extent = 1 + sum((dim - 1) * step for dim, step in zip(size, stride)) if all(size) else 0
    base = cells.new(cells.undefined((extent,), dtype))
    cells.storage_of(base).viewed = True
    return cells.strided_view(base, size, stride, 0)


def _copied_stride(tensor: torch.Tensor, memory_format: Any) -> tuple[int, ...]:
    """The strides of a copy of ``tensor`` in this memory format, as CPU gives them."""
    like = torch.empty_strided(tuple(tensor.shape), tensor.stride(), device="meta")
    return torch.empty_like(like, memory_format=_PRESERVE if memory_format is None else memory_format).stride()


def _converted(tensor: torch.Tensor, dtype: torch.dtype, memory_format: Any) -> torch.Tensor:
    """A tensor on a fresh cell with the content of ``tensor``, which is on ``tpu``."""
    with recorder.lock:
        value = cells.cast(cells.read(tensor), dtype)
        if memory_format is None and tensor.is_contiguous():
            return cells.new(value)
        return cells.new_strided(value, _copied_stride(tensor, memory_format))


def _clone(self: torch.Tensor, memory_format: Any = None) -> torch.Tensor:
    return _converted(self, self.dtype, None if memory_format is _PRESERVE else memory_format)


def _to_copy(
    self: torch.Tensor,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> torch.Tensor:
    dtype = dtype or self.dtype
    target = torch.device(device) if device is not None else self.device
    memory_format = None if memory_format is _PRESERVE else memory_format
    if layout is not None and layout != torch.strided:
        raise RuntimeError(f"only dense (strided) tensors live on 'tpu', not layout {layout}")
    check_device(target)
    if self.device.type == "tpu" and target.type == "tpu":
        dtypes.to_numpy(dtype)
        return _converted(self, dtype, memory_format)
    if self.device.type == "tpu":
        on_host = host.download(self)
        if target.type == "meta":
            return torch.empty_like(on_host, dtype=dtype, device="meta")
        copied = on_host.to(dtype=dtype, device=target)
        return copied.contiguous(memory_format=memory_format) if memory_format is not None else copied
    return _upload(self.to(dtype), self, memory_format)


def _upload(source: torch.Tensor, like: torch.Tensor, memory_format: Any) -> torch.Tensor:
    with recorder.lock:
        value = host.upload(source.to("cpu"))
        stride = _copied_stride(like, memory_format)
        return cells.new_strided(value, stride)


def _copy_(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if self is src:
        return self
    if type(_storage_of(self)) is LazyStorage and _is_scalar(src, self):
        # A scalar fills the window, as in x[i] = 1: the write broadcasts it, so its expanded view is never read.
        with recorder.lock:
            cells.write(self, cells.cast(_storage_of(src).value, self.dtype))
        return self
    if self.device.type != "tpu":
        if self.device.type == "meta":
            return self
        return self.copy_(host.download(src))
    with recorder.lock:
        if src.device.type != "tpu":
            if src.device.type == "meta":
                raise NotImplementedError("Cannot copy out of meta tensor; no data!")
            if src.dim() == 0 and not src.dtype.is_complex and not self.dtype.is_complex:
                overlap.check_distinct(self)
                return _fill_scalar(self, src.item())
            src = cells.new(host.upload(src.to("cpu", self.dtype)))
        overlap.check_partial_overlap(self, (src,))
        if src.shape != self.shape:
            src = _broadcast(src, self)
        cells.write(self, cells.cast(cells.read(src), self.dtype))
    return self


def _is_scalar(src: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether ``src`` is a 0-d tensor on ``tpu``, or one expanded to the shape of ``target``."""
    storage = _storage_of(src)
    if type(storage) is not LazyStorage or storage is _storage_of(target):
        return False
    type_ = storage.value.type
    return (
        type_.shape == ()
        and src.dtype is type_.dtype
        and (src.shape == target.shape or src.dim() == 0)
        and not cells.has_pending_bits(src)
    )


def _broadcast(src: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    try:
        return src.expand(target.shape)
    except RuntimeError:
        raise RuntimeError(
            f"The size of tensor a {tuple(target.shape)} must match the size of tensor b {tuple(src.shape)}: "
            "the source of copy_ cannot be broadcast to its destination"
        ) from None


def _copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return _copy_(dst, self, non_blocking)


def _copy_from_and_resize(self: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    if dst.shape != self.shape:
        dst.resize_(self.shape)
    return _copy_(dst, self)


def _fill_scalar(self: torch.Tensor, value: Any) -> torch.Tensor:
    dtype = self.dtype
    with recorder.lock:
        if isinstance(value, complex) or dtype.is_complex:
            return _copy_(self, _complex_0d(value, self).expand(self.shape))
        if not dtype.is_floating_point:
            value = torch.full((), value, dtype=dtype, device="cpu").item()
        storage = cells.storage_of(self)
        if not storage.viewed:
            storage.value = cells.full(storage.value.type, value)
        else:
            # A window is filled from one element, which the write spreads.
            cells.write(overlap.distinct(self), cells.full(tensor_type((), dtype), value))
    return self


def _complex_0d(value: Any, like: torch.Tensor) -> torch.Tensor:
    return cells.new(host.upload(torch.tensor(value, dtype=like.dtype, device="cpu")))


def _fill_tensor(self: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if value.dim():
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.dim()} dimensions.")
    return _copy_(self, value)


def _zero_(self: torch.Tensor) -> torch.Tensor:
    return _fill_scalar(self, 0)


def _efficientzerotensor(
    size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> torch.Tensor:
    return _zero_(_empty(size, dtype, layout, device, pin_memory))


def _local_scalar_dense(self: torch.Tensor) -> Any:
    return host.scalar(self)


def _equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    if self.shape != other.shape:
        return False
    return bool(torch.eq(self, other).all().item())


KERNELS: dict[str, Callable[..., Any]] = {
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "clone": _clone,
    "_to_copy": _to_copy,
    "copy_": _copy_,
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "fill_.Scalar": _fill_scalar,
    "fill_.Tensor": _fill_tensor,
    "zero_": _zero_,
    "_efficientzerotensor": _efficientzerotensor,
    "_local_scalar_dense": _local_scalar_dense,
    "equal": _equal,
}
"""Kernels by overload name, for registration."""
