"""NumPy, DLPack, JAX and TorchScript."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import lazytpu


def test_numpy_asks_for_a_copy() -> None:
    x = torch.ones(3, device="tpu")
    for convert in (x.numpy, x.__array__, lambda: np.asarray(x), lambda: np.array(x), lambda: jnp.asarray(x)):
        with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\)"):
            convert()
    assert x.cpu().numpy().tolist() == x.numpy(force=True).tolist() == [1.0] * 3
    y = torch.from_numpy(array := np.arange(3.0)).to("tpu")
    array[:] = -1
    assert y.tolist() == [0.0, 1.0, 2.0]
    assert torch.as_tensor(np.ones(2), device="tpu").is_tpu
    with pytest.raises(TypeError):
        memoryview(x)  # type: ignore[arg-type]


def test_dlpack_raises() -> None:
    x = torch.ones(3, device="tpu")
    for hand_out in (
        x.__dlpack__,
        x.__dlpack_device__,
        lambda: torch.from_dlpack(x),
        lambda: torch.utils.dlpack.to_dlpack(x),
        lambda: torch.to_dlpack(x),
        lambda: np.from_dlpack(x),
        lambda: jax.dlpack.from_dlpack(x),
    ):
        with pytest.raises(BufferError, match=r"lazytpu\.to_jax"):
            hand_out()
    host = torch.ones(3)
    np.from_dlpack(host)[0] = 5
    assert torch.from_dlpack(host).tolist() == [5.0, 1.0, 1.0] and torch.from_dlpack(torch.to_dlpack(host))[0] == 5
    assert host.__dlpack_device__()[0] == 1


def test_to_jax_is_a_snapshot_without_a_copy() -> None:
    x = torch.ones(2, 3, device="tpu") * torch.arange(3.0, device="tpu")
    array = lazytpu.to_jax(x)
    pointer = array.unsafe_buffer_pointer()
    assert isinstance(array, jax.Array) and lazytpu.to_jax(x).unsafe_buffer_pointer() == pointer
    transposed = lazytpu.to_jax(x.t())
    for _ in range(3):
        x.mul_(-1)
        lazytpu.sync(wait=True)
    assert array.tolist() == [[0.0, 1.0, 2.0]] * 2 and transposed.tolist() == np.array(array).T.tolist()
    assert not array.is_deleted()
    assert lazytpu.to_jax(torch.arange(3, device="tpu")).dtype == "int64"
    assert lazytpu.to_jax(torch.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="detach"):
        lazytpu.to_jax(torch.ones(2, device="tpu", requires_grad=True))
    assert jnp.arange(3).dtype == "int32", "JAX's own configuration is untouched"


def test_from_jax_shares_and_never_donates() -> None:
    array = jnp.arange(4.0)
    x = lazytpu.from_jax(array)
    assert x.is_tpu and lazytpu.to_jax(x).unsafe_buffer_pointer() == array.unsafe_buffer_pointer()
    for _ in range(3):
        x.add_(1)
        lazytpu.sync(wait=True)
    assert x.tolist() == [3.0, 4.0, 5.0, 6.0] and array.tolist() == [0.0, 1.0, 2.0, 3.0]
    w = lazytpu.from_jax(jnp.ones(4)).requires_grad_()
    (w * x).sum().backward()
    assert w.grad.tolist() == x.tolist()
    for dtype in (jnp.bfloat16, jnp.int8, jnp.bool_, jnp.complex64):
        assert lazytpu.from_jax(jnp.ones((2, 0), dtype)).shape == (2, 0)
    assert lazytpu.from_jax(jnp.float32(2.0)).item() == 2.0
    for wrong in (np.ones(2), jax.random.key(0), [1.0]):
        with pytest.raises(TypeError):
            lazytpu.from_jax(wrong)
    with pytest.raises(TypeError, match="concrete"):
        jax.jit(lazytpu.from_jax)(jnp.ones(2))
    gone = jnp.ones(2)
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        lazytpu.from_jax(gone)


def test_script_modules() -> None:
    module = torch.nn.Linear(2, 2)
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    file.seek(0)
    loaded = torch.jit.load(file, map_location="tpu")
    x = torch.ones(1, 2)
    assert loaded.weight.is_tpu
    torch.testing.assert_close(loaded(x.tpu()).cpu(), module(x))
    scripted = torch.jit.script(module).to("tpu")
    scripted(x.tpu()).sum().backward()
    assert scripted.weight.grad.tolist() == [[1.0, 1.0]] * 2
    for save in (lambda: torch.jit.save(scripted, io.BytesIO()), lambda: scripted.save("x"), scripted.save_to_buffer):
        with pytest.raises(RuntimeError, match="TorchScript cannot save tensors on 'tpu'"):
            save()
    torch.jit.save(scripted.cpu(), io.BytesIO())
