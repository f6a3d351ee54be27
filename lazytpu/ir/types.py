"""Interned tensor types: equal types are the same object, so a key compares them by identity."""

from __future__ import annotations

from typing import Any

_INTERNED: dict[tuple[tuple[int, ...], Any], TensorType] = {}


class TensorType:
    """The shape (a tuple of ints) and dtype (a ``torch.dtype``) of a value."""

    __slots__ = ("shape", "dtype", "numel", "nbytes")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.numel = 1
        for dim in shape:
            self.numel *= dim
        self.nbytes: int = self.numel * dtype.itemsize

    def strides(self) -> tuple[int, ...]:
        """The strides, in elements, of a row-major tensor of this shape, as PyTorch counts them."""
        strides: list[int] = []
        step = 1
        for dim in reversed(self.shape):
            strides.append(step)
            step *= max(dim, 1)
        return tuple(reversed(strides))

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{dtype}[{','.join(map(str, self.shape))}]"


def tensor_type(shape: tuple[int, ...], dtype: Any) -> TensorType:
    """Return the one ``TensorType`` for ``shape`` and ``dtype``."""
    key = (shape, dtype)
    found = _INTERNED.get(key)
    if found is None:
        found = _INTERNED.setdefault(key, TensorType(tuple(int(dim) for dim in shape), dtype))
    return found
