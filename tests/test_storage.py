"""Storages on ``tpu``: made, copied, converted, resized and asked for their address."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch

from lazytpu import LazyStorage

ONE = [0, 0, 128, 63]  # the bytes of 1.0


@pytest.fixture(autouse=True)
def _no_deprecation() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
        yield


def test_making() -> None:
    for made, nbytes in (
        (torch.UntypedStorage(8, device="tpu"), 8),
        (torch.UntypedStorage(device="tpu"), 0),
        (LazyStorage(4), 4),
        (LazyStorage(), 0),
        (torch.ones(3).untyped_storage().tpu(), 12),
        (torch.ones(3).untyped_storage().to(device="tpu"), 12),
    ):
        assert type(made) is LazyStorage and made.nbytes() == made.size() == len(made) == nbytes
        assert made.is_tpu and made.device == torch.device("tpu", 0) and torch.is_storage(made)
    assert torch.UntypedStorage([1, 2, 3], device="tpu").tolist() == [1, 2, 3]
    assert torch.UntypedStorage(3).device.type == "cpu" and not torch.UntypedStorage(3).is_tpu
    with pytest.raises(RuntimeError, match="negative"):
        torch.UntypedStorage(-1, device="tpu")
    typed = torch.TypedStorage(2, device="tpu", dtype=torch.float32)
    assert typed.is_tpu and typed.tolist() == [0.0, 0.0]
    assert torch.FloatStorage([1.0, 2.0]).tpu().cpu().tolist() == [1.0, 2.0]


def test_bytes_are_the_tensors() -> None:
    x = torch.ones(2, device="tpu")
    storage = x.untyped_storage()
    assert storage is x[1:].untyped_storage() and storage.tolist() == ONE * 2 and list(storage) == ONE * 2
    assert storage[3] == 63 and storage[:4].tolist() == ONE and storage.cpu().tolist() == ONE * 2
    storage[3] = 191
    assert x.tolist() == [-1.0, 1.0]
    storage.fill_(0)
    assert x.tolist() == [0.0, 0.0]
    storage.copy_(torch.full((2,), 3.0).untyped_storage())
    assert x.tolist() == [3.0, 3.0]
    storage.copy_(torch.full((2,), 4.0, device="tpu").untyped_storage())
    assert x.tolist() == [4.0, 4.0]
    on_host = torch.UntypedStorage(8)
    on_host.copy_(storage)
    assert torch.empty(0).set_(on_host).tolist() == [4.0, 4.0]
    storage.byteswap(torch.float32)
    storage.byteswap(torch.float32)
    assert x.tolist() == [4.0, 4.0]
    with pytest.raises(RuntimeError, match="cannot copy a storage of 4 bytes"):
        storage.copy_(torch.UntypedStorage(4))
    assert x.storage().tolist() == [4.0, 4.0] and x.storage()[1] == 4.0 and x.storage().size() == 2
    assert storage.to(device="cpu").device.type == "cpu" and storage.to(device="tpu") is storage and storage.tpu() is storage
    assert storage.new().nbytes() == 0


def test_resizing() -> None:
    x = torch.arange(3.0, device="tpu")
    storage = x.untyped_storage()
    storage.resize_(20)
    assert storage.nbytes() == 20 and x.tolist() == [0.0, 1.0, 2.0]
    assert torch.empty(0, device="tpu").set_(storage).tolist() == [0.0, 1.0, 2.0, 0.0, 0.0]
    x.resize_(2, 3)
    assert x.tolist() == [[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]
    storage.resize_(0)
    assert storage.nbytes() == 0 and storage.resizable()


def test_copies() -> None:
    storage = torch.ones(2, device="tpu").untyped_storage()
    for twin in (storage.clone(), copy.copy(storage), copy.deepcopy(storage), pickle.loads(pickle.dumps(storage))):
        assert type(twin) is LazyStorage and twin is not storage and twin.tolist() == ONE * 2
        twin.fill_(0)
    assert storage.tolist() == ONE * 2
    first, second = copy.deepcopy([storage, storage])
    assert first is second
    typed = torch.ones(2, device="tpu").storage()
    for twin in (typed.clone(), copy.deepcopy(typed), pickle.loads(pickle.dumps(typed))):
        assert twin.is_tpu and twin.tolist() == [1.0, 1.0]
    base = torch.arange(4.0, device="tpu")
    whole, part = copy.deepcopy([base, base[1:3]])
    whole[1] = 9
    assert part.tolist() == [9.0, 2.0] and base.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_addresses_are_identities() -> None:
    x, y = torch.ones(4, 4, device="tpu"), torch.ones(4, 4, device="tpu")
    address = x.data_ptr()
    assert address == x.data_ptr() == x.t().data_ptr() == x.view(16).data_ptr() == x.untyped_storage().data_ptr() != 0
    assert x[1, 2:].data_ptr() == address + 6 * 4 and x.storage().data_ptr() == address
    assert not address <= y.data_ptr() < address + 64 and not address <= x.clone().data_ptr() < address + 64
    x.add_(1)
    assert x.data_ptr() == address
    assert torch.empty(0, device="tpu").data_ptr() == 0
    host = torch.ones(3)
    assert host.data_ptr() == host.untyped_storage().data_ptr() and host[1:].data_ptr() == host.data_ptr() + 4
    assert torch.nn.Parameter(y).data_ptr() == y.data_ptr()


def test_what_cannot_be_says_so() -> None:
    x = torch.ones(2, device="tpu")
    for share in (x.share_memory_, x.untyped_storage().share_memory_, torch.nn.Linear(2, 2).tpu().share_memory):
        with pytest.raises(RuntimeError, match="cannot be shared between processes"):
            share()
    assert not x.is_shared() and not x.untyped_storage().is_shared() and not x.untyped_storage().is_pinned()
    with pytest.raises(TypeError, match="cannot pin"):
        x.untyped_storage().pin_memory()
    with pytest.raises(RuntimeError, match="different device"):
        torch.ones(2).set_(x.untyped_storage())
    with pytest.raises(RuntimeError, match="move the storage first"):
        x.set_(torch.ones(2).untyped_storage())
    for target, source in ((torch.nn.Parameter(torch.ones(2)), x), (x, torch.ones(2))):
        with pytest.raises(RuntimeError, match="incompatible tensor type"):
            target.data = source
    with pytest.raises(TypeError, match="cannot be deleted"):
        del x.untyped_storage()[0]


def test_data_moves_to_another_content_and_dtype() -> None:
    x = torch.ones(2, device="tpu")
    view = x[:1]
    x.data = torch.zeros(3, device="tpu", dtype=torch.float16)
    assert x.dtype is torch.float16 and x.tolist() == [0.0] * 3 and view.tolist() == [1.0]
    x = torch.zeros(3, device="tpu")
    host = torch.ones(2)
    torch.utils.swap_tensors(x, host)
    assert x.device.type == "cpu" and host.device.type == "tpu" and host.tolist() == [0.0] * 3
