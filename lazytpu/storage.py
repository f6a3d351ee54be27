"""``LazyStorage``: the cell behind every tensor on ``tpu``.

A storage is a cell: it holds one immutable ``ir.Value`` of as many bytes as the storage has, and
every tensor on it is a window (size, stride, offset, dtype) onto that value. An in-place op
rebinds ``value``; whoever shares the storage sees the new one. The C++ storage underneath is
empty, so everything that PyTorch or a user asks of its bytes is answered here.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from lazytpu.ir import Value

_POINTERS = itertools.count(1)
_POINTER_STEP = 1 << 40


class LazyStorage(torch.UntypedStorage):
    """The storage of tensors on ``tpu``.

    ``value`` is the cell's content. ``viewed`` is False while every tensor on the storage has
    exactly the value's shape and dtype in row-major order, so that reading needs no geometry.
    """

    value: Value
    viewed = False
    _pointer = 0

    def nbytes(self) -> int:
        """Size of the content in bytes."""
        return self.value.type.nbytes

    def size(self) -> int:
        """Size of the content in bytes."""
        return self.value.type.nbytes

    def __len__(self) -> int:
        return self.value.type.nbytes

    @property
    def device(self) -> torch.device:
        return torch.device("tpu", 0)

    def data_ptr(self) -> int:
        """A number unique to this storage and stable while it lives; it is no address."""
        if not self._pointer:
            self._pointer = next(_POINTERS) * _POINTER_STEP
        return self._pointer

    def resizable(self) -> bool:
        """True: ``resize_`` gives the cell a value of another size."""
        return True

    def is_shared(self) -> bool:
        """False: device memory is never shared between processes."""
        return False

    def is_pinned(self, device: Any = "tpu") -> bool:
        """False: only host memory can be pinned."""
        return False

    def pin_memory(self, device: Any = "tpu") -> torch.UntypedStorage:
        """Raises: only host memory can be pinned."""
        raise RuntimeError("cannot pin a storage on 'tpu': only dense CPU storages can be pinned")

    def _unshareable(self) -> RuntimeError:
        return RuntimeError(
            "a storage on 'tpu' cannot be shared between processes; share a CPU copy (tensor.cpu().share_memory_()) "
            "and move it to 'tpu' in the process that trains"
        )

    def share_memory_(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: device memory is never shared between processes."""
        raise self._unshareable()

    def _share_filename_cpu_(self, *args: Any, **kwargs: Any) -> Any:
        raise self._unshareable()

    def _share_fd_cpu_(self, *args: Any, **kwargs: Any) -> Any:
        raise self._unshareable()

    def cpu(self) -> torch.UntypedStorage:
        """A CPU storage with a copy of the bytes; waits for the value."""
        from lazytpu.dispatch import host

        return host.bytes_of(self.value).untyped_storage()

    def tpu(self, device: Any = None, non_blocking: bool = False) -> LazyStorage:
        """This storage: it is on ``tpu`` already."""
        return self

    def clone(self) -> LazyStorage:
        """A new storage with the same content; values are immutable, so nothing is copied."""
        from lazytpu.dispatch import cells

        return cells.new_storage(self.value)

    def copy_(self, src: torch.UntypedStorage, non_blocking: bool | None = None) -> LazyStorage:
        """Overwrite the content with the bytes of ``src``, a storage of the same size on CPU or ``tpu``."""
        from lazytpu.dispatch import cells, host

        if src.nbytes() != self.nbytes():
            raise RuntimeError(f"cannot copy a storage of {src.nbytes()} bytes into one of {self.nbytes()} bytes on 'tpu'")
        self.value = src.value if isinstance(src, LazyStorage) else cells.retyped(host.upload_bytes(src), self.value.type)
        self.viewed = True
        return self

    def fill_(self, value: int) -> LazyStorage:
        """Set every byte to ``value``."""
        return self.copy_(torch.UntypedStorage(self.nbytes()).fill_(value))

    def resize_(self, size: int) -> LazyStorage:
        """Change the size to ``size`` bytes; what was there stays, new bytes are zero."""
        from lazytpu.dispatch import cells

        cells.resize(self, int(size))
        return self

    def tolist(self) -> list[int]:
        """The bytes, as ints; waits for the value."""
        return self.cpu().tolist()

    def __getitem__(self, index: Any) -> Any:
        return self.cpu()[index]

    def __setitem__(self, index: Any, value: int) -> None:
        changed = self.cpu()
        changed[index] = value
        self.copy_(changed)

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def _set_from_file(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a storage on 'tpu' cannot read a file: load into a CPU storage and move it with .tpu()")

    def _write_file(self, f: Any, is_real_file: bool, save_size: bool, element_size: int) -> None:
        self.cpu()._write_file(f, is_real_file, save_size, element_size)

    def __copy__(self) -> LazyStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyStorage:
        memo = memo.setdefault("torch", {})  # type: ignore[call-overload]
        key = self._cdata
        if key not in memo:
            memo[key] = self.clone()
        return memo[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return _on_tpu, (self.cpu(),)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __repr__(self) -> str:
        return f"LazyStorage(device=tpu:0, nbytes={self.nbytes()}, value={self.value.type})"

    __str__ = __repr__


def _on_tpu(storage: torch.UntypedStorage) -> LazyStorage:
    """A storage on ``tpu`` with the bytes of a CPU ``storage``: what unpickling calls."""
    from lazytpu.dispatch import cells, host

    return cells.new_storage(host.upload_bytes(storage))
