"""What a lowering rule may ask about the op it lowers."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from lazytpu import dtypes
from lazytpu.ir import Signature, Slot, TensorType
from lazytpu.lowering.conversion import convert

_WRAPPED = {torch.float64: 1.0, torch.int64: 1, torch.bool: True, torch.complex128: 1j}


class Check(NamedTuple):
    """What an op demands of its inputs, and the exception to raise where they break it."""

    message: str
    error: type[Exception]


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
        self.checks: list[tuple[Any, Check]] = []

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

    def common_dtype(self, *positions: int) -> np.dtype:
        """The dtype PyTorch promotes inputs to: Python numbers and 0-d tensors give way.

        ``positions`` are those of the arguments that count, in the schema's order; all inputs by default.
        """
        dims: list[torch.dtype] = []
        zeros: list[torch.dtype] = []
        numbers: list[Any] = []
        args = self.signature.args
        for x in [args[i] for i in positions] if positions else [Slot(i) for i in range(len(self.ins))]:
            if isinstance(x, Slot):
                type, kind = self.ins[x.index], self.kinds[x.index]
                if kind == "tensor":
                    (dims if type.shape else zeros).append(type.dtype)
                elif kind == "number":
                    numbers.append(_WRAPPED[type.dtype])
            elif x is not None:
                numbers.append(x)
        operands: list[Any] = []
        for shape, group in (((1,), dims), ((), zeros)):
            if group:
                operands.append(torch.empty(shape, dtype=reduce(torch.promote_types, group), device="meta"))
        operands += numbers
        common: torch.dtype = torch.result_type(operands[0], operands[0])
        for x in operands[1:]:
            if dims or zeros:
                so_far: Any = torch.empty((1,) if dims else (), dtype=common, device="meta")
            else:
                so_far = torch.ones((), dtype=common, device="cpu").item()
            common = torch.result_type(so_far, x)
        return dtypes.to_numpy(common)

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.signature.kinds

    def require(self, ok: Any, message: str, error: type[Exception] = IndexError) -> None:
        """Have the program check that ``ok`` (bools of any shape) holds everywhere.

        The outcome is one flag of the program, read at the next wait, where ``message`` is raised as
        an ``error`` with the op and the user's line. It costs one small reduction on the device.
        """
        self.checks.append((jnp.all(ok), Check(message, error)))

    def require_indices(self, index: Any, size: int) -> None:
        """Have the program check that ``index`` is in [-size, size), as CPU does at once."""
        if index.size:
            self.require((index >= -size) & (index < size), f"index out of range for dimension with size {size}")

    def promoted(self, *operands: Any) -> list[jax.Array]:
        """The operands cast to the common dtype."""
        dtype = self.common_dtype()
        return [convert(jnp.asarray(x), dtype) for x in operands]

    def cast(self, *operands: Any) -> list[jax.Array]:
        """The operands cast to the dtype of the first result."""
        return [convert(jnp.asarray(x), self.dtype) for x in operands]


def opmath(dtype: np.dtype) -> np.dtype:
    """The dtype that PyTorch's CPU kernels compute in: float32 for the half types."""
    return np.dtype(np.float32) if dtype.itemsize < 4 and jnp.issubdtype(dtype, jnp.floating) else np.dtype(dtype)
