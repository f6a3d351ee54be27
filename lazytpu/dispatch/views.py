"""Kernels of views: they move a window over its cell and record nothing.

A view is turned into IR only when something reads it. Fake tensors share the dispatch key and have
no cell: for them these kernels are plain metadata ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lazytpu.dispatch import cells
from lazytpu.storage import LazyStorage

_aten = torch.ops.aten
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_as_strided_meta = _aten.as_strided.default.redispatch
_storage_of: Callable[[torch.Tensor], Any] = torch._C.TensorBase.untyped_storage


def _mark(tensor: torch.Tensor) -> None:
    storage = _storage_of(tensor)
    if type(storage) is LazyStorage:
        storage.viewed = True


def _as_strided(self: torch.Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> torch.Tensor:
    storage = _storage_of(self)
    if type(storage) is LazyStorage:
        storage.viewed = True
        last = self.storage_offset() if storage_offset is None else storage_offset
        for dim, step in zip(size, stride):
            last += (dim - 1) * step
        if (last + 1) * self.element_size() > storage.value.type.nbytes and 0 not in size:
            _out_of_bounds(storage.nbytes(), self.element_size(), size, stride, int(last))
    return _as_strided_meta(_META, self, size, stride, storage_offset)


def _as_strided_(self: torch.Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> torch.Tensor:
    """The end of ``unsqueeze_``, ``transpose_`` and their like: the object itself moves."""
    if not cells.has_cell(self):
        return _aten.as_strided_.default.redispatch(_META, self, size, stride, storage_offset)
    view = _as_strided(self, size, stride, storage_offset)
    cells.as_window(self, cells.storage_of(self), int(view.storage_offset()), size, stride)
    return self


def _out_of_bounds(nbytes: int, itemsize: int, size: Any, stride: Any, last: int) -> None:
    """Raise, in PyTorch's words: a window whose last element is ``last`` reaches past its storage."""
    raise RuntimeError(
        f"setStorage: sizes {list(size)}, strides {list(stride)}, and itemsize {itemsize} requiring a storage size of "
        f"{(last + 1) * itemsize} are out of bounds for storage of size {nbytes}"
    )


def _view(self: torch.Tensor, size: Any) -> torch.Tensor:
    _mark(self)
    return _aten.view.default.redispatch(_META, self, size)


def _unsafe_view(self: torch.Tensor, size: Any) -> torch.Tensor:
    return _aten.view.default(self, size)


def _reshape_alias(self: torch.Tensor, size: Any, stride: Any) -> torch.Tensor:
    _mark(self)
    return _aten._reshape_alias.default.redispatch(_META, self, size, stride)


def _view_dtype(self: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    _mark(self)
    return _aten.view.dtype.redispatch(_META, self, dtype)


def _unfold(self: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    _mark(self)
    return _aten.unfold.default.redispatch(_META, self, dimension, size, step)


def _view_as_real(self: torch.Tensor) -> torch.Tensor:
    _mark(self)
    return _aten.view_as_real.default.redispatch(_META, self)


def _view_as_complex(self: torch.Tensor) -> torch.Tensor:
    _mark(self)
    return _aten.view_as_complex.default.redispatch(_META, self)


def _set_source(self: torch.Tensor, source: Any, offset: int, size: Any, stride: Any = ()) -> torch.Tensor:
    if not hasattr(source, "value"):
        raise RuntimeError(f"cannot set a tensor on 'tpu' to a storage on '{source.device}': move the storage first")
    stride = list(stride) or list(_row_major(size))
    needed = 1 + offset + sum((dim - 1) * step for dim, step in zip(size, stride)) if all(size) else 0
    if needed * self.dtype.itemsize > source.nbytes():
        source.resize_(needed * self.dtype.itemsize)
    source.viewed = True
    if all(size) and source.value.type.dtype is torch.uint8 and self.dtype.itemsize > 1:
        _retype(source, self.dtype)
    cells.as_window(self, source, offset, size, stride)
    return self


def _retype(source: Any, dtype: torch.dtype) -> None:
    """Give a cell of raw bytes the dtype of its first user, on the host where the bytes came from there."""
    nbytes = source.nbytes()
    if nbytes % dtype.itemsize == 0:
        from lazytpu.ir import tensor_type

        source.value = cells.retyped(source.value, tensor_type((nbytes // dtype.itemsize,), dtype))


def _row_major(size: Any) -> tuple[int, ...]:
    from lazytpu.ir import tensor_type

    return tensor_type(tuple(size), torch.uint8).strides()


def _set_source_storage(self: torch.Tensor, source: Any) -> torch.Tensor:
    return _set_source(self, source, 0, [source.nbytes() // self.dtype.itemsize], [1])


def _set_source_tensor(self: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return _set_source(self, cells.storage_of(source), int(source.storage_offset()), list(source.shape), list(source.stride()))


def _set_empty(self: torch.Tensor) -> torch.Tensor:
    fresh = _aten.empty.memory_format([0], dtype=self.dtype, device=self.device)
    return _set_source(self, cells.storage_of(fresh), 0, [0], [1])


def _resize_(self: torch.Tensor, size: Any, memory_format: Any = None) -> torch.Tensor:
    if memory_format is not None and memory_format is not torch.contiguous_format:
        stride = torch.empty(list(size), device="meta", memory_format=memory_format).stride()
    else:
        stride = _row_major(size)
    if tuple(size) == tuple(self.shape) and memory_format is None:
        return self
    return _set_source(self, cells.storage_of(self), int(self.storage_offset()), list(size), stride)


def _conj(self: torch.Tensor) -> torch.Tensor:
    _mark(self)
    return _aten._conj.default.redispatch(_META, self)


def _neg_view(self: torch.Tensor) -> torch.Tensor:
    _mark(self)
    return _aten._neg_view.default.redispatch(_META, self)


KERNELS: dict[str, Callable[..., Any]] = {
    "as_strided": _as_strided,
    "as_strided_": _as_strided_,
    "view": _view,
    "_unsafe_view": _unsafe_view,
    "_reshape_alias": _reshape_alias,
    "view.dtype": _view_dtype,
    "unfold": _unfold,
    "view_as_real": _view_as_real,
    "view_as_complex": _view_as_complex,
    "_conj": _conj,
    "_neg_view": _neg_view,
    "set_.source_Storage_storage_offset": _set_source,
    "set_.source_Storage": _set_source_storage,
    "set_.source_Tensor": _set_source_tensor,
    "set_": _set_empty,
    "resize_": _resize_,
}
"""Kernels by overload name, for registration."""
