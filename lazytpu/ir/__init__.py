"""The program representation: types, values, signatures and traces.

Nothing here knows of PyTorch's dispatcher or of JAX; a dtype is an opaque, hashable name.
"""

from lazytpu.ir.signature import Signature, Slot
from lazytpu.ir.source import Source
from lazytpu.ir.trace import NUMBER_FLOAT, NUMBER_INT, Node, Trace
from lazytpu.ir.types import TensorType, tensor_type
from lazytpu.ir.value import Value

__all__ = [
    "NUMBER_FLOAT",
    "NUMBER_INT",
    "Node",
    "Signature",
    "Slot",
    "Source",
    "TensorType",
    "Trace",
    "Value",
    "tensor_type",
]
