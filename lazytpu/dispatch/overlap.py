"""Tensors whose elements share memory: what PyTorch refuses to write, and what it writes all the same."""

from __future__ import annotations

from typing import Any

import torch

from lazytpu.dispatch import cells
from lazytpu.ir import Value

MERGED = frozenset({"aten::masked_fill", "aten::index_fill", "aten::index_put"})
"""Ops that CPU lets write to an expanded tensor: an element is written if any of its appearances is."""


def repeats(tensor: torch.Tensor) -> list[int]:
    """The dimensions along which ``tensor`` shows the same memory again."""
    return [d for d, (size, step) in enumerate(zip(tensor.shape, tensor.stride())) if step == 0 and size > 1]


def distinct(tensor: torch.Tensor) -> torch.Tensor:
    """The view of ``tensor`` that shows each element of its memory once."""
    if not cells.storage_of(tensor).viewed or not repeats(tensor):
        return tensor
    size = [1 if step == 0 else dim for dim, step in zip(tensor.shape, tensor.stride())]
    return cells.strided_view(tensor, size, tensor.stride(), int(tensor.storage_offset()))


def check_distinct(tensor: torch.Tensor) -> None:
    """Raise as CPU does where ``tensor`` shows the same memory more than once."""
    cells.check_no_internal_overlap(tuple(tensor.shape), tensor.stride())


def write_merged(tensor: torch.Tensor, value: Value) -> None:
    """Write ``value`` to a tensor that may be expanded: of an element's appearances a changed one wins."""
    dims = repeats(tensor) if cells.storage_of(tensor).viewed else []
    if not dims:
        cells.write(tensor, value)
        return
    new, old = cells.new(value), cells.new(cells.read(tensor))
    changed = new != old
    for dim in dims:
        new = new.gather(dim, changed.to(torch.int8).argmax(dim, keepdim=True))
        changed = changed.any(dim, keepdim=True)
    cells.write(distinct(tensor), cells.read(new))


def check_partial_overlap(target: torch.Tensor, others: Any) -> None:
    """Raise as CPU does where an in-place op reads memory that it writes, but not the same window."""
    storage = cells.storage_of(target)
    if not storage.viewed:
        return
    for other in others:
        if not isinstance(other, torch.Tensor) or other is target or other.untyped_storage() is not storage:
            continue
        if target.numel() == 0 or other.numel() == 0 or not _dense(target) or not _dense(other):
            continue
        a, b = _extent(target), _extent(other)
        same = a == b and target.stride() == other.stride()
        if not same and a[0] < b[1] and b[0] < a[1]:
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                "memory location. Please clone() the tensor before performing the operation."
            )


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    start = int(tensor.storage_offset()) * tensor.element_size()
    return start, start + tensor.numel() * tensor.element_size()


def _dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill a stretch of memory, each place once."""
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(tensor.shape, tensor.stride()) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True
