"""Making, reading and writing windows onto cells: PyTorch's aliasing rules, expressed once.

``read`` turns a tensor into the value it shows, ``write`` makes a tensor show another value, and
``new`` makes a tensor on a fresh cell. A window that is not the whole cell in row-major order is
read through a recorded view op and written through a recorded scatter into the cell's value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.ir import Signature, Slot, TensorType, Value, tensor_type
from lazytpu.ir.windows import Family, family
from lazytpu.storage import LazyStorage

_make_tensor = torch._C._acc.create_empty_tensor
_storage_of: Callable[[torch.Tensor], Any] = torch._C.TensorBase.untyped_storage
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_OFFSET = tensor_type((), torch.int64)
_VIEW_SIGNATURES: dict[tuple[Any, ...], Signature] = {}
_WRITES: dict[tuple[Any, ...], tuple[Signature, Family | None]] = {}
_FULL_SIGNATURES: dict[tuple[Any, ...], Signature] = {}


def new(value: Value) -> torch.Tensor:
    """A row-major tensor that shows ``value``, on a cell of its own."""
    type = value.type
    tensor = _make_tensor(type.shape, type.dtype)
    storage = _storage_of(tensor)
    storage.__class__ = LazyStorage
    storage.value = value
    return tensor


def new_storage(value: Value) -> LazyStorage:
    """A storage that holds ``value``."""
    storage = _storage_of(new(value))
    storage.viewed = True
    return storage


def storage_of(tensor: torch.Tensor) -> LazyStorage:
    """The cell of a tensor on ``tpu``."""
    storage: LazyStorage = _storage_of(tensor)
    if type(storage) is not LazyStorage:
        if tensor.device.type != "tpu":
            raise mixed_devices(tensor)
        raise RuntimeError(
            f"this tensor of shape {tuple(tensor.shape)} says it is on '{tensor.device}' but lazytpu did not make it; "
            "fake and functional tensors have no value to read"
        )
    return storage


def mixed_devices(tensor: torch.Tensor, op: str = "an op") -> RuntimeError:
    """The error of a call that mixes ``tpu`` with ``tensor``'s device, in CUDA's words."""
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, tpu:0 and {tensor.device}! "
        f"(when calling {op} with a {tuple(tensor.shape)} tensor on {tensor.device}; move it with .to('tpu'))"
    )


def has_cell(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` has a cell; fake tensors share the device's dispatch key but have none."""
    return type(_storage_of(tensor)) is LazyStorage


def is_lazy(x: Any) -> bool:
    """Whether ``x`` is a tensor on ``tpu``."""
    return isinstance(x, torch.Tensor) and x.device.type == "tpu"


def shows_whole_cell(tensor: torch.Tensor, type: TensorType) -> bool:
    """Whether ``tensor`` is the row-major window onto a whole value of ``type``, shape and dtype alike."""
    return (
        tensor.shape == type.shape
        and tensor.is_contiguous()
        and tensor.storage_offset() == 0
        and tensor.dtype is type.dtype
        and not has_pending_bits(tensor)
    )


def has_pending_bits(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is a conjugate or negative view: it shows its window with that applied."""
    return tensor.is_conj() or tensor.is_neg()


def _with_bits(value: Value, tensor: torch.Tensor) -> Value:
    """``value`` with the pending conjugation and negation of ``tensor`` applied; each undoes itself."""
    for op, pending in (("lazytpu::conj", tensor.is_conj()), ("lazytpu::neg", tensor.is_neg())):
        if pending:
            (value,) = recorder.record(_view_signature(op, (value.type,), (), value.type), (value,))
    return value


def read(tensor: torch.Tensor) -> Value:
    """The value that ``tensor`` shows."""
    storage = storage_of(tensor)
    value = storage.value
    if not storage.viewed or shows_whole_cell(tensor, value.type):
        return value
    shown = view_of(value, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.dtype)
    return _with_bits(shown, tensor) if has_pending_bits(tensor) else shown


def view_of(value: Value, size: tuple[int, ...], stride: tuple[int, ...], offset: int, dtype: torch.dtype) -> Value:
    """Record the read of a window, once for each value and geometry of a trace."""
    trace = recorder.trace_with(value)
    key = (value.id, size, stride, offset, dtype)
    known = trace.views.get(key)
    if known is not None:
        kept = trace.refs[known]()
        if kept is not None:
            return kept
    type, shown = value.type, tensor_type(size, dtype)
    window = family(type.numel, type.shape, size, stride, offset) if type.dtype is dtype and shown.numel else None
    if window is not None and window.moves(offset, writes=False):
        signature = _view_signature("lazytpu::view_at", (type, _OFFSET), (size, stride, window.anchor), shown)
        (result,) = recorder.record(signature, (value, offset))
    else:
        signature = _view_signature("lazytpu::view", (type,), (size, stride, offset), shown)
        (result,) = recorder.record(signature, (value,))
    if value.epoch == result.epoch:
        trace.views[key] = result.id
    return result


def cast(value: Value, dtype: torch.dtype) -> Value:
    """``value`` converted to ``dtype`` by PyTorch's rules."""
    if value.type.dtype is dtype:
        return value
    signature = _view_signature("lazytpu::cast", (value.type,), (), tensor_type(value.type.shape, dtype))
    return recorder.record(signature, (value,))[0]


def full(type: TensorType, number: float | int) -> Value:
    """A value of ``type`` with ``number``, a runtime input, everywhere."""
    kind = float if isinstance(number, float) else int
    key = (type, kind)
    signature = _FULL_SIGNATURES.get(key)
    if signature is None:
        wrapped = tensor_type((), torch.float64 if kind is float else torch.int64)
        signature = _FULL_SIGNATURES[key] = Signature("lazytpu::full", (wrapped,), (Slot(0),), (type,), ("number",))
    return recorder.record(signature, (number if kind is float else int(number),))[0]


def undefined(size: tuple[int, ...], dtype: torch.dtype) -> Value:
    """Memory nobody has written to: it reads as zeros and costs nothing until then."""
    return Value(tensor_type(size, dtype), 0, -1)


def _view_signature(op: str, inputs: tuple[TensorType, ...], static: tuple[Any, ...], output: TensorType) -> Signature:
    key = (op, inputs, static, output)
    found = _VIEW_SIGNATURES.get(key)
    if found is None:
        slots = tuple(Slot(i) for i in range(len(inputs)))
        found = Signature(op, inputs, (*slots, *static), (output,), ("tensor",) * len(inputs))
        _VIEW_SIGNATURES[key] = found
    return found


def write(tensor: torch.Tensor, value: Value) -> None:
    """Make ``tensor`` show ``value``; every alias sees it.

    The value has the tensor's dtype and its shape, or is 0-d and fills the window.
    """
    storage = storage_of(tensor)
    cell = storage.value
    type = value.type
    if type is cell.type and not storage.viewed:
        storage.value = value
        return
    size = tuple(tensor.shape)
    fills = type.shape != size
    if not storage.viewed:
        storage.value = filled(value, cell.type) if fills else value
        return
    if has_pending_bits(tensor):
        value = _with_bits(value, tensor)
    offset = int(tensor.storage_offset())
    dtype = type.dtype
    if offset == 0 and tensor.numel() * dtype.itemsize == cell.type.nbytes and tensor.is_contiguous():
        storage.value = filled(value, tensor_type(size, dtype)) if fills else value
        return
    stride = tensor.stride()
    key = (cell.type, type, size, stride, offset)
    known = _WRITES.get(key)
    if known is None:
        signature = _write_signature(cell.type, type, size, stride, offset)
        same = cell.type.dtype is dtype and 0 not in size
        window = family(cell.type.numel, cell.type.shape, size, stride, offset) if same else None
        known = _WRITES[key] = signature, window
    signature, window = known
    if 0 in size:
        return
    if window is not None and window.moves(offset, writes=True):
        signature = _view_signature(
            "lazytpu::view_write_at", (cell.type, type, _OFFSET), (size, stride, window.anchor), cell.type
        )
        (result,) = recorder.record(signature, (cell, value, offset))
    else:
        (result,) = recorder.record(signature, (cell, value))
    storage.value = result
    if not fills and value.epoch == result.epoch:
        recorder.trace.views[(result.id, size, stride, offset, dtype)] = value.id


def _write_signature(
    cell: TensorType, update: TensorType, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> Signature:
    """The signature of a write of ``update`` through a window; raises where the window overlaps itself.

    The cell takes the dtype of the writer where the bytes divide evenly: later reads need no bitcast.
    """
    check_no_internal_overlap(size, stride)
    itemsize = update.dtype.itemsize
    same = cell.dtype is update.dtype or cell.nbytes % itemsize
    output = cell if same else tensor_type((cell.nbytes // itemsize,), update.dtype)
    return _view_signature("lazytpu::view_write", (cell, update), (size, stride, offset), output)


def filled(value: Value, type: TensorType) -> Value:
    """A value of ``type`` with the one element of ``value`` everywhere."""
    return view_of(value, type.shape, (0,) * len(type.shape), 0, type.dtype)


def check_no_internal_overlap(size: Sequence[int], stride: Sequence[int]) -> None:
    """Raise as CPU does where one element of memory would be written more than once."""
    for dim, step in zip(size, stride):
        if step == 0 and dim > 1 and 0 not in size:
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single "
                "memory location. Please clone() the tensor before performing the operation."
            )


def retyped(value: Value, type: TensorType) -> Value:
    """The same bytes as a value of ``type``."""
    if value.type is type:
        return value
    if value.host is not None and value.buffer is None:
        from lazytpu.dispatch import host

        return host.retyped(value, type)
    return view_of(value, type.shape, type.strides(), 0, type.dtype)


def resize(storage: LazyStorage, nbytes: int) -> None:
    """Give a cell ``nbytes`` bytes; what was there stays, new bytes are zero."""
    old = storage.value
    if nbytes == old.type.nbytes:
        return
    dtype = old.type.dtype if nbytes % old.type.dtype.itemsize == 0 else torch.uint8
    flat = retyped(old, tensor_type((old.type.nbytes // dtype.itemsize,), dtype))
    output = tensor_type((nbytes // dtype.itemsize,), dtype)
    signature = _view_signature("lazytpu::resize", (flat.type,), (), output)
    (storage.value,) = recorder.record(signature, (flat,))
    storage.viewed = True


def as_window(tensor: torch.Tensor, storage: Any, offset: int, size: Sequence[int], stride: Sequence[int]) -> None:
    """Point the tensor object at ``storage`` with this geometry (``aten::set_`` without its bounds check)."""
    torch.ops.aten.set_.source_Storage_storage_offset.redispatch(_META, tensor, storage, offset, size, stride)


def strided_view(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    """A view of ``tensor``'s storage with this geometry, unchecked."""
    return torch.ops.aten.as_strided.default.redispatch(_META, tensor, size, stride, offset)


def new_strided(value: Value, stride: Sequence[int]) -> torch.Tensor:
    """A dense tensor that shows ``value`` with the given strides (a permutation of row-major ones)."""
    type = value.type
    if tuple(stride) == type.strides():
        return new(value)
    order = sorted(range(len(type.shape)), key=lambda d: (-stride[d], d))
    physical = tensor_type(tuple(type.shape[d] for d in order), type.dtype)
    strides = type.strides()
    signature = _view_signature(
        "lazytpu::view", (type,), (physical.shape, tuple(strides[d] for d in order), 0), physical
    )
    (stored,) = recorder.record(signature, (value,))
    base = new(stored)
    _storage_of(base).viewed = True
    return strided_view(base, type.shape, stride, 0)
