"""Kernels of indexing with masks, and of results whose shapes depend on data: they read what they must on the host.

A boolean mask that selects is read on the host and becomes the flat positions where it is set. A
mask that only says where one value goes is not read: the write is a selection on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.dispatch import cells, host, infer, overlap
from lazytpu.dispatch.checks import CHECKS
from lazytpu.dispatch.kernels import Recording
from lazytpu.dispatch.schema import overload
from lazytpu.ir import Signature, Slot, Value, tensor_type
from lazytpu.lowering.registry import RULES

_ATEN = torch.ops.aten
_MASKS = (torch.bool, torch.uint8)
_SIGNATURES: dict[tuple[Any, ...], Signature] = {}


@cache
def _recording(name: str) -> Recording:
    op = overload(f"aten::{name}")
    assert op is not None
    return Recording(op, RULES[f"aten::{name}"])


def _recorded(name: str, *args: Any) -> Value:
    """The value of one recorded call; the caller holds the lock."""
    return _recording(name).record(list(args))[1][0]


def _uploaded(tensor: torch.Tensor) -> torch.Tensor:
    return cells.new(host.upload(tensor, owned=True))


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    return host.download(tensor) if cells.is_lazy(tensor) else tensor


# Indices


def _check_mask(self: torch.Tensor, mask: torch.Tensor, axis: int, position: int) -> None:
    if mask.shape != self.shape[axis : axis + mask.dim()]:
        raise IndexError(
            f"The shape of the mask {list(mask.shape)} at index {position} does not match the shape of the indexed tensor "
            f"{list(self.shape)} at index {axis}"
        )


def _check_index(op: str, self: torch.Tensor, indices: Sequence[Any]) -> None:
    """Raise where ``indices`` cannot index ``self``."""
    used = sum(max(i.dim(), 1) if i is not None and i.dtype in _MASKS else 1 for i in indices)
    if used > self.dim():
        raise IndexError(f"too many indices for tensor of dimension {self.dim()}")
    for i in indices:
        if i is not None and i.dtype not in (*_MASKS, torch.int64, torch.int32):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if i is not None and i.device.type not in ("tpu", "cpu"):
            raise RuntimeError(f"indices should be on 'tpu', as the indexed tensor, or on the CPU, not on {i.device}")
    if not cells.is_lazy(self):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, tpu:0 and {self.device}! "
            f"(when calling aten::{op} with a {tuple(self.shape)} tensor on {self.device}; move it with .to('tpu'))"
        )


def _without_masks(self: torch.Tensor, indices: Sequence[Any]) -> tuple[torch.Tensor, list[Any]]:
    """``self`` and index tensors on ``tpu``: each mask is read, and the dimensions it covers become one."""
    found: list[Any] = []
    for position, index in enumerate(indices):
        axis = len(found)
        if index is None:
            found.append(None)
        elif index.dtype in _MASKS:
            _check_mask(self, index, axis, position)
            mask = _on_host(index).reshape(-1)
            rest = self.shape[axis + index.dim() :]
            if index.dim() != 1:
                self = self.reshape(*self.shape[:axis], mask.numel(), *rest)
            found.append(_uploaded(mask.nonzero().reshape(-1)))
        else:
            found.append(index if cells.is_lazy(index) else _uploaded(index.clone()))
    return self, found


def _index(self: torch.Tensor, indices: Sequence[Any]) -> torch.Tensor:
    _check_index("index", self, indices)
    with recorder.lock:
        self, found = _without_masks(self, indices)
        return cells.new(_recorded("index.Tensor", self, found))


def _only_mask(self: torch.Tensor, indices: Sequence[Any]) -> tuple[int, torch.Tensor] | None:
    """The axis and the mask where a mask on the device is all there is to ``indices``."""
    given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if len(given) != 1 or given[0][1].dtype not in _MASKS or not given[0][1].dim():
        return None
    axis, mask = given[0]
    _check_mask(self, mask, axis, axis)
    if not cells.is_lazy(mask):
        mask = mask.to("tpu")
    return axis, mask if mask.dtype is torch.bool else mask != 0


def _put_masked(
    self: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool
) -> torch.Tensor | None:
    """``self`` with ``values`` where a mask is set, if the same go to every place: no need to read the mask then."""
    only = _only_mask(self, indices)
    if only is None:
        return None
    axis, mask = only
    trailing = self.dim() - axis - mask.dim()
    if values.dim() > axis + 1 + trailing or (values.dim() > trailing and values.shape[-1 - trailing] != 1):
        return None
    if values.dim() > trailing:
        at = values.dim() - 1 - trailing
        values = values.reshape(*values.shape[:at], *(1,) * mask.dim(), *values.shape[at + 1 :])
    shape = tuple(self.shape)
    try:
        if torch.broadcast_shapes(tuple(values.shape), shape) != shape:
            return None
    except RuntimeError:
        return None
    mask = mask.reshape(*mask.shape, *(1,) * trailing)
    return torch.where(mask, self + values if accumulate else values, self)


def _put(self: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool) -> Value:
    """The value of ``self`` with ``values`` at ``indices``; the caller holds the lock."""
    _check_index("index_put", self, indices)
    if not accumulate and values.numel() == 1 and _is_one_mask(indices):
        values = values.to(self.dtype)  # x[mask] = one element is a masked_fill on the CPU, which casts
    _check_put_dtype(self, values)
    if not cells.is_lazy(values):
        values = values.to("tpu") if values.dim() == 0 else values
    masked = _put_masked(self, indices, values, accumulate)
    if masked is not None:
        return cells.read(masked)
    flat, found = _without_masks(self, indices)
    value = _recorded("index_put", flat, found, values, accumulate)
    return value if flat is self else cells.read(cells.new(value).reshape(self.shape))


def _is_one_mask(indices: Sequence[Any]) -> bool:
    given = [i for i in indices if i is not None]
    return len(given) == 1 and given[0].dtype in _MASKS


def _check_put_dtype(self: torch.Tensor, values: torch.Tensor) -> None:
    if self.dtype != values.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {self.dtype} for the destination and "
            f"{values.dtype} for the source."
        )


def _check_put(self: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool) -> None:
    shape = tuple(infer.call(_ATEN.index.Tensor, [self, indices]).shape)
    try:
        fits = torch.broadcast_shapes(tuple(values.shape), shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape "
            f"{list(shape)}"
        )


CHECKS["aten::index_put"] = _check_put


def _index_put(
    self: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    with recorder.lock:
        return cells.new(_put(self, indices, values, accumulate))


def _index_put_(
    self: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False, unsafe: bool = False
) -> torch.Tensor:
    with recorder.lock:
        overlap.write_merged(self, _put(self, indices, values, accumulate))
    return self


def _masked_select(self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.dtype not in _MASKS:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    infer.check_same_device(_ATEN.masked_select.default, [self, mask])
    shape = torch.broadcast_shapes(self.shape, mask.shape)
    positions = torch.arange(self.numel(), device="cpu").reshape(self.shape).expand(shape)
    with recorder.lock:
        chosen = _uploaded(positions[_on_host(mask).expand(shape).bool()])
        return cells.new(_recorded("index.Tensor", self.reshape(-1), [chosen]))


def _as_strided_scatter(
    self: torch.Tensor, src: torch.Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> torch.Tensor:
    """The window is one of the whole cell: the result is on a cell with the same content, of the same geometry."""
    if tuple(src.shape) != tuple(size):
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(size)}"
        )
    with recorder.lock:
        if cells.has_pending_bits(self):
            self = self.clone()
        value = cells.storage_of(self).value
        if value.type.dtype is not self.dtype:
            value = cells.retyped(value, tensor_type((value.type.nbytes // self.element_size(),), self.dtype))
        base = cells.new(value)
        cells.storage_of(base).viewed = True
        result = cells.strided_view(base, self.shape, self.stride(), int(self.storage_offset()))
        result.as_strided(size, stride, storage_offset).copy_(src)
    return result


# Positions and counts


def _nonzero(self: torch.Tensor) -> torch.Tensor:
    mask = self if self.dtype is torch.bool else self != 0
    with recorder.lock:
        return _uploaded(_on_host(mask).nonzero().contiguous())


def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    if repeats.dim() != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("repeats has to be Long or Int tensor")
    with recorder.lock:
        if output_size is None:
            counts = _on_host(repeats)
            if bool((counts < 0).any()):
                raise RuntimeError("repeats can not be negative")
            output_size = int(counts.sum())
        return cells.new(_recorded("repeat_interleave.Tensor", repeats, output_size))


def _one_hot(self: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if self.dtype is not torch.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got {self.dtype}")
    if num_classes == 0 or num_classes < -1:
        raise RuntimeError("num_classes should be positive")
    if self.numel() == 0 and num_classes < 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if num_classes < 0:
        num_classes = int(self.max().item()) + 1
    with recorder.lock:
        value = cells.read(self)
        signature = _signature("aten::one_hot", value, num_classes, ((*self.shape, num_classes),), (torch.int64,))
        return cells.new(recorder.record(signature, (value,))[0])


# Distinct elements


def _signature(
    op: str, value: Value, static: Any, shapes: tuple[tuple[int, ...], ...], dtypes: tuple[torch.dtype, ...]
) -> Signature:
    key = (op, value.type, static)
    found = _SIGNATURES.get(key)
    if found is None:
        outputs = tuple(tensor_type(shape, dtype) for shape, dtype in zip(shapes, dtypes))
        found = _SIGNATURES[key] = Signature(op, (value.type,), (Slot(0), static), outputs, ("tensor",))
    return found


def _distinct_rows(rows: torch.Tensor, sorts: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The distinct rows, the inverse and the counts; the number of distinct rows is read on the host."""
    count, width = rows.shape
    if count == 0:
        empty = torch.empty(0, dtype=torch.int64, device=rows.device)
        return rows.clone(), empty, empty.clone()
    with recorder.lock:
        value = cells.read(rows)
        shapes = ((count, width), (count,), (count,), ())
        signature = _signature("lazytpu::unique", value, sorts, shapes, (rows.dtype, *(torch.int64,) * 3))
        values, inverse, counts, number = recorder.record(signature, (value,))
        found = int(host.fetch(number))
        values = cells.view_of(values, (found, width), (width, 1), 0, rows.dtype)
        counts = cells.view_of(counts, (found,), (1,), 0, torch.int64)
        return cells.new(values), cells.new(inverse), cells.new(counts)


def _unique_elements(self: torch.Tensor, sorts: bool, inverse: bool, counts: bool) -> tuple[torch.Tensor, ...]:
    values, places, occurrences = _distinct_rows(self.reshape(-1, 1), sorts)
    none = torch.empty(0, dtype=torch.int64, device=self.device)
    return values.reshape(-1), places.reshape(self.shape) if inverse else none, occurrences if counts else none.clone()


def _unique(self: torch.Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[torch.Tensor, ...]:
    return _unique_elements(self, True, return_inverse, False)[:2]


def _unique2(
    self: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    return _unique_elements(self, True, return_inverse, return_counts)


def _unique_consecutive(
    self: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[torch.Tensor, ...]:
    if dim is None:
        return _unique_elements(self, False, return_inverse, return_counts)
    return _unique_dim_consecutive(self, dim, return_inverse, return_counts)


def _unique_along(self: torch.Tensor, dim: int, sorts: bool) -> tuple[torch.Tensor, ...]:
    rank = self.dim()
    if not rank:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    moved = self.movedim(dim, 0)
    if 0 in moved.shape[1:]:
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    values, inverse, counts = _distinct_rows(moved.reshape(len(moved), -1) if len(moved) else moved.reshape(0, 1), sorts)
    return values.reshape(len(values), *moved.shape[1:]).movedim(0, dim), inverse, counts


def _unique_dim(
    self: torch.Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    return _unique_along(self, dim, True)


def _unique_dim_consecutive(
    self: torch.Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, ...]:
    return _unique_along(self, dim, False)


KERNELS: dict[str, Callable[..., Any]] = {
    "index.Tensor": _index,
    "index_put": _index_put,
    "index_put_": _index_put_,
    "_unsafe_index.Tensor": _index,
    "_unsafe_index_put": _index_put,
    "_index_put_impl_": _index_put_,
    "as_strided_scatter": _as_strided_scatter,
    "masked_select": _masked_select,
    "nonzero": _nonzero,
    "repeat_interleave.Tensor": _repeat_interleave,
    "one_hot": _one_hot,
    "_unique": _unique,
    "_unique2": _unique2,
    "unique_dim": _unique_dim,
    "unique_consecutive": _unique_consecutive,
    "unique_dim_consecutive": _unique_dim_consecutive,
}
"""Kernels by overload name, for registration."""
