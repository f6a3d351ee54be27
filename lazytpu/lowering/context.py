"""What a lowering rule may ask about the op it lowers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from lazytpu import dtypes
from lazytpu.ir import Signature, TensorType

_WRAPPED = {torch.float64: 1.0, torch.int64: 1, torch.bool: True, torch.complex128: 1j}


class Context:
    """The signature being lowered, seen by its rule.

    Attributes:
        outs: the types of the results, as PyTorch's meta kernel gave them.
        ins: the types of the inputs, tensors and numbers alike.
        key: for a random op, a fresh JAX key.
        platform: ``"cpu"``, ``"gpu"`` or ``"tpu"``.
    """

    def __init__(self, signature: Signature, platform: str) -> None:
        self.signature = signature
        self.outs = signature.outputs
        self.ins = signature.inputs
        self.platform = platform
        self.key: Any = None
        self.checks: list[tuple[Any, str]] = []

    @property
    def out(self) -> TensorType:
        """The type of the first result."""
        return self.outs[0]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the first result."""
        return dtypes.to_numpy(self.outs[0].dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return self.outs[0].shape

    def common_dtype(self) -> np.dtype:
        """The dtype PyTorch promotes all inputs to: Python numbers and 0-d tensors give way."""
        tensors = [torch.empty(t.shape, dtype=t.dtype, device="meta") for t, k in zip(self.ins, self.kinds) if k == "tensor"]
        numbers = [_WRAPPED[t.dtype] for t, k in zip(self.ins, self.kinds) if k == "number"]
        operands: list[Any] = [*tensors, *numbers]
        # TensorIterator's rule is associative over dimensioned tensors, 0-d tensors and numbers.
        dims = [t for t in tensors if t.dim()]
        zeros = [t for t in tensors if not t.dim()]
        groups = [self._promote(dims), self._promote(zeros)]
        result = operands[0] if len(operands) == 1 else None
        if result is not None:
            return dtypes.to_numpy(torch.result_type(result, result))
        stand_ins: list[Any] = []
        if groups[0] is not None:
            stand_ins.append(torch.empty((1,), dtype=groups[0], device="meta"))
        if groups[1] is not None:
            stand_ins.append(torch.empty((), dtype=groups[1], device="meta"))
        kind: Any = torch.result_type(stand_ins[0], stand_ins[-1]) if stand_ins else None
        for number in numbers:
            if kind is None:
                kind = torch.result_type(torch.tensor(number, device="cpu"), number)
            else:
                shape = (1,) if groups[0] is not None else ()
                kind = torch.result_type(torch.empty(shape, dtype=kind, device="meta"), number)
        return dtypes.to_numpy(kind)

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.signature.kinds

    @staticmethod
    def _promote(tensors: list[torch.Tensor]) -> torch.dtype | None:
        kind = None
        for t in tensors:
            kind = t.dtype if kind is None else torch.promote_types(kind, t.dtype)
        return kind

    def require(self, ok: Any, message: str) -> None:
        """Have the program check that ``ok`` (bools of any shape) holds everywhere.

        The outcome is one flag of the program, read at the next wait, where ``message`` is raised as
        an IndexError with the op and the user's line. It costs one small reduction on the device.
        """
        self.checks.append((jnp.all(ok), message))

    def require_indices(self, index: Any, size: int) -> None:
        """Have the program check that ``index`` is in [-size, size), as CPU does at once."""
        if index.size:
            self.require((index >= -size) & (index < size), f"index out of range for dimension with size {size}")

    def promoted(self, *operands: Any) -> list[jax.Array]:
        """The operands cast to the common dtype."""
        dtype = self.common_dtype()
        return [jnp.asarray(x).astype(dtype) for x in operands]

    def cast(self, *operands: Any) -> list[jax.Array]:
        """The operands cast to the dtype of the first result."""
        return [jnp.asarray(x).astype(self.dtype) for x in operands]


def opmath(dtype: np.dtype) -> np.dtype:
    """The dtype that PyTorch's CPU kernels compute in: float32 for the half types."""
    return np.dtype(np.float32) if dtype.itemsize < 4 and jnp.issubdtype(dtype, jnp.floating) else np.dtype(dtype)
