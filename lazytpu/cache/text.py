"""Signatures as text that is the same in every process: what the key on disk is made of."""

from __future__ import annotations

from typing import Any

import torch

from lazytpu.ir import Signature, Slot, TensorType
from lazytpu.ir.subprogram import Subprogram
from lazytpu.lowering.registry import RULES

_NAMED = (torch.dtype, torch.layout, torch.memory_format, torch.device)


class _Unstable(TypeError):
    """Something has no text that another process would give it too."""


def text_of(signature: Signature) -> str | None:
    """The text of ``signature``, made once; None where there is none that other processes would agree on."""
    if signature.text is None:
        try:
            signature.text = _signature(signature)
        except _Unstable:
            signature.text = ""
    return signature.text or None


def _signature(signature: Signature) -> str:
    rule = RULES.get(signature.op)
    if rule is None or not rule.lower.__module__.startswith("lazytpu."):
        # Its source is no part of the fingerprint.
        raise _Unstable(signature.op)
    arguments = ",".join(map(_argument, signature.args))
    return f"{signature.op}({arguments}):{signature.inputs}{signature.kinds}->{signature.outputs}"


def _argument(x: Any) -> str:
    """A static argument, exact, with types told apart: ``1``, ``0x1.0000000000000p+0`` and ``True`` differ."""
    kind = type(x)
    if x is None or kind in (int, bool, str, TensorType):
        return repr(x)
    if kind is float:
        return x.hex()
    if kind is complex:
        return f"{x.real.hex()}+{x.imag.hex()}j"
    if kind is Slot:
        return f"%{x.index}"
    if kind is list:
        return "[" + ",".join(map(_argument, x)) + "]"
    if kind is tuple or kind is torch.Size:
        return "(" + ",".join(map(_argument, x)) + ")"
    if kind in _NAMED:
        return repr(x)
    if kind is Subprogram:
        return _subprogram(x)
    raise _Unstable(kind)


def _subprogram(program: Subprogram) -> str:
    ops = []
    for node in program.nodes:
        text = text_of(node.signature)
        if text is None:
            raise _Unstable(node.signature.op)
        ops.append(f"{node.first}={text}{node.inputs}")
    leaves = list(zip(program.leaves, program.leaf_types))
    return f"{{{';'.join(ops)};{leaves},{program.floats},{program.ints}->{program.outputs}}}"
