"""Storages on ``tpu`` where PyTorch's own code makes, copies, wraps, saves or loads one."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from lazytpu.storage import LazyStorage, make, reduce_to_bytes


def apply() -> None:
    """Teach PyTorch's storage classes and serialization of ``tpu``."""
    _constructors()
    _serialization()
    # Between processes the bytes travel in the pickle: sharing a CPU copy's memory would end with the copy.
    ForkingPickler.register(LazyStorage, reduce_to_bytes)


def _constructors() -> None:
    base = torch.UntypedStorage
    new, copy_ = torch._C.StorageBase.__new__, base.copy_
    wrapped = torch.TypedStorage._new_wrapped_storage
    is_storage = torch.is_storage

    def new_storage(cls: type, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "tpu":
            return make(*args, **kwargs)
        return new(cls, *args, **kwargs)

    def copy_from(self: Any, source: Any, non_blocking: bool | None = None) -> Any:
        return copy_(self, source.cpu() if type(source) is LazyStorage else source, non_blocking)

    def new_wrapped_storage(self: Any, untyped_storage: Any) -> Any:
        if type(untyped_storage) is LazyStorage:
            return torch.TypedStorage(wrap_storage=untyped_storage, dtype=self.dtype, _internal=True)
        return wrapped(self, untyped_storage)

    def is_any_storage(obj: Any, /) -> bool:
        return type(obj) is LazyStorage or is_storage(obj)

    is_any_storage.__doc__ = is_storage.__doc__
    is_any_storage.__name__ = is_any_storage.__qualname__ = "is_storage"
    is_any_storage.__module__ = "torch"
    torch.utils.backend_registration._generate_storage_methods_for_privateuse1_backend("tpu")
    base.__new__ = staticmethod(new_storage)  # type: ignore[method-assign, assignment]
    base.copy_ = copy_from  # type: ignore[method-assign, assignment]
    torch.TypedStorage._new_wrapped_storage = new_wrapped_storage  # type: ignore[method-assign]
    torch.is_storage = is_any_storage  # type: ignore[assignment]


def _serialization() -> None:
    serialization = torch.serialization
    normalize = serialization.normalize_storage_type

    def normalize_storage_type(storage_type: type) -> Any:
        return torch.UntypedStorage if storage_type is LazyStorage else normalize(storage_type)

    serialization.normalize_storage_type = normalize_storage_type
    serialization.register_package(15, _tag, _restore)


def _tag(storage: Any) -> str | None:
    """The location that ``torch.save`` writes; its bytes, needed soon, start on their way to the host."""
    if type(storage) is not LazyStorage:
        return None
    if not _skips_data():
        from lazytpu.dispatch import host

        host.prefetch(storage.value)
    return "tpu:0"


def _skips_data() -> bool:
    """Whether ``torch.save`` is writing sizes only."""
    return bool(torch.serialization._serialization_tls.skip_data)


def _restore(storage: Any, location: str) -> Any:
    """The storage that ``torch.load`` hands out for one that was saved from, or is mapped to, ``tpu``."""
    if location != "tpu" and not location.startswith("tpu:"):
        return None
    if type(storage) is LazyStorage:
        return storage
    if getattr(storage, "_torch_load_uninitialized", False) or storage.device.type == "meta":
        return make(storage.nbytes(), device=location)
    from lazytpu.device.index import check_index
    from lazytpu.dispatch import cells, host

    check_index(location)
    return cells.new_storage(host.upload_bytes(storage))
