"""``LazyStorage``: the cell behind every tensor on ``tpu``.

A storage is a cell: it holds one immutable ``ir.Value`` of as many bytes as the storage has, and
every tensor on it is a window (size, stride, offset, dtype) onto that value. An in-place op
rebinds ``value``; whoever shares the storage sees the new one. The C++ storage underneath is
empty, so everything that PyTorch or a user asks of its bytes is answered here.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from lazytpu.ir import Value

_ALIGNMENT = 512
_lock = threading.Lock()
_next_address = 1 << 56  # beyond every address a host pointer can have


class LazyStorage(torch.UntypedStorage):
    """The storage of tensors on ``tpu``.

    ``value`` is the cell's content. ``viewed`` is False while every tensor on the storage has
    exactly the value's shape and dtype in row-major order, so that reading needs no geometry.
    """

    value: Value
    viewed = False
    _address = 0
    _reserved = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> LazyStorage:
        kwargs.setdefault("device", "tpu")
        return make(*args, **kwargs)

    def nbytes(self) -> int:
        """Size of the content in bytes."""
        return self.value.type.nbytes

    def size(self) -> int:
        """Size of the content in bytes."""
        return self.value.type.nbytes

    def __len__(self) -> int:
        return self.value.type.nbytes

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("tpu", 0)

    def data_ptr(self) -> int:
        """A number unique to this storage and stable while it lives and does not grow; it is no address."""
        global _next_address
        nbytes = self.nbytes()
        if nbytes > self._reserved or not self._address:
            with _lock:
                self._address = _next_address
                self._reserved = nbytes
                _next_address += (nbytes // _ALIGNMENT + 1) * _ALIGNMENT
        return self._address

    def resizable(self) -> bool:
        """True: ``resize_`` gives the cell a value of another size."""
        return True

    def is_shared(self) -> bool:
        """False: device memory is never shared between processes."""
        return False

    _is_shared = is_shared

    def is_pinned(self, device: Any = None) -> bool:
        """False: only host memory can be pinned."""
        return False

    def pin_memory(self, device: Any = None) -> torch.UntypedStorage:
        """Raises: only host memory can be pinned."""
        raise TypeError("cannot pin a storage on 'tpu': only dense CPU storages can be pinned")

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

    def to(self, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:
        """This storage, or a copy of its bytes on another device."""
        target = torch.device(device)
        if target.type == "tpu":
            return self
        return self.cpu() if target.type == "cpu" else self.cpu().to(device=target, non_blocking=non_blocking)

    def new(self) -> LazyStorage:
        """An empty storage on ``tpu``."""
        return make(0)

    def byteswap(self, dtype: torch.dtype) -> None:
        """Swap the bytes of each element of ``dtype``."""
        swapped = self.cpu()
        swapped.byteswap(dtype)
        self.copy_(swapped)

    def clone(self) -> LazyStorage:
        """A new storage with the same content; values are immutable, so nothing is copied."""
        from lazytpu.dispatch import cells

        return cells.new_storage(self.value)

    def copy_(self, src: Any, non_blocking: bool | None = None) -> Any:
        """Overwrite the content with the bytes of ``src``, a storage of the same size on CPU or ``tpu``."""
        from lazytpu.dispatch import cells, host

        if src.nbytes() != self.nbytes():
            raise RuntimeError(f"cannot copy a storage of {src.nbytes()} bytes into one of {self.nbytes()} bytes on 'tpu'")
        self.value = src.value if isinstance(src, LazyStorage) else cells.retyped(host.upload_bytes(src), self.value.type)
        self.viewed = True
        return self

    def fill_(self, value: int) -> LazyStorage:
        """Set every byte to ``value``."""
        return self.copy_(torch.UntypedStorage(self.nbytes()).fill_(value))  # type: ignore[attr-defined]

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

    def __delitem__(self, index: Any) -> None:
        raise TypeError("a storage's bytes cannot be deleted")

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def _set_from_file(self, *args: Any, **kwargs: Any) -> Any:
        read = torch.UntypedStorage(self.nbytes())
        read._set_from_file(*args, **kwargs)
        self.copy_(read)

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
        return _on_tpu, (torch.empty(0, dtype=torch.uint8, device="cpu").set_(self.cpu()),)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __repr__(self) -> str:
        return f"LazyStorage(device=tpu:0, nbytes={self.nbytes()}, value={self.value.type})"

    __str__ = __repr__


def make(*args: Any, device: Any = "tpu", allocator: Any = None) -> LazyStorage:
    """What ``torch.UntypedStorage`` called with ``device="tpu"`` returns: of a size, or with the bytes of a sequence."""
    from lazytpu.device.index import check_index
    from lazytpu.dispatch import cells, host

    check_index(device)
    if allocator is not None:
        raise RuntimeError("a storage on 'tpu' takes no allocator")
    if not args or isinstance(args[0], int):
        size = args[0] if args else 0
        if size < 0:
            raise RuntimeError(f"Trying to create a storage of negative size {size}")
        return cells.new_storage(cells.undefined((size,), torch.uint8))
    return cells.new_storage(host.upload_bytes(torch.UntypedStorage(*args)))


def reduce_to_bytes(storage: LazyStorage) -> tuple[Any, ...]:
    """A pickle of ``storage`` that holds its bytes and shares nothing with this process."""
    from lazytpu.dispatch import host

    return _from_bytes, (host.bytes_of(storage.value).numpy().tobytes(),)


def _from_bytes(content: bytes) -> LazyStorage:
    return _on_tpu(torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8))


def _on_tpu(content: torch.Tensor) -> LazyStorage:
    """A storage on ``tpu`` with the bytes of a CPU tensor: what unpickling calls."""
    from lazytpu.dispatch import cells, host

    return cells.new_storage(host.upload_bytes(content.untyped_storage()))
