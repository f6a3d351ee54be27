"""``LazyTensor``: the type of every tensor on ``tpu``."""

from __future__ import annotations

from typing import Any

import torch


class _LazyTensorMeta(type(torch.Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.device.type == "tpu"

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("LazyTensor is the type of every tensor on 'tpu'; make one with torch.tensor(..., device='tpu')")


class LazyTensor(torch.Tensor, metaclass=_LazyTensorMeta):
    """A tensor on ``tpu``.

    Every tensor on the device is one to ``isinstance``, parameters, gradients and views included.
    Its Python class stays ``torch.Tensor`` (or ``nn.Parameter``): optimizers, ``torch.compile`` and
    user code that look at exact types see what they expect, and all lazy state is on the storage. So
    the helpers here are called as ``LazyTensor.is_pending(x)``. They run nothing.
    """

    @staticmethod
    def is_pending(tensor: torch.Tensor) -> bool:
        """Whether the content has been recorded but no program that computes it has been launched."""
        from lazytpu.device.display import is_pending

        return is_pending(tensor)

    @staticmethod
    def recorded_at(tensor: torch.Tensor) -> str | None:
        """``file:line`` of the op that computes a pending tensor; None if it is not pending or has no line."""
        from lazytpu import recorder

        if not LazyTensor.is_pending(tensor):
            return None
        with recorder.lock:
            value = tensor.untyped_storage().value  # type: ignore[attr-defined]
            trace = recorder.trace
            if value.epoch != trace.epoch:
                return None
            source = next((node.source for node in reversed(trace.nodes) if node.first <= value.id), None)
        return None if source is None else str(source)

    @staticmethod
    def describe(tensor: torch.Tensor) -> str:
        """One line on a tensor's type, place and state."""
        storage: Any = tensor.untyped_storage()
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        what = f"{str(tensor.dtype).removeprefix('torch.')} {shape} on {tensor.device}"
        if not hasattr(storage, "value"):
            return what
        where = LazyTensor.recorded_at(tensor)
        state = "pending" if LazyTensor.is_pending(tensor) else "has its content"
        window = ", a window onto" if storage.viewed else ", the whole of"
        return f"{what}: {state}{f', recorded at {where}' if where else ''}{window} a storage of {storage.nbytes()} bytes"
