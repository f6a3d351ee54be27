"""Printing tensors on ``tpu``: one copy to the host and no programs of its own.

A debugger that shows variables must not run what is pending, so its ``repr`` names shape and dtype only.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from lazytpu.storage import LazyStorage

_DEBUGGERS = frozenset({"bdb", "pdb", "ipdb", "pudb", "debugpy", "pydevd", "_pydevd_bundle", "_pydev_bundle", "pydev_ipython"})
_HELPERS = frozenset({"reprlib", "pprint", "dataclasses", "collections", "enum", "functools", "torch", "lazytpu"})


def apply() -> None:
    """Patch PyTorch's formatting of a tensor's content."""
    module = torch._tensor_str
    contents, whole = module._tensor_str, module._str

    def tensor_str(self: torch.Tensor, indent: int) -> str:
        return contents(self.detach().cpu() if _has_value(self) else self, indent)

    def string_of(self: torch.Tensor, *, tensor_contents: Any = None) -> str:
        if tensor_contents is None and self.device.type == "tpu" and is_pending(self) and _asked_by_debugger():
            tensor_contents = f"<pending>, size={tuple(self.shape)}"
        return whole(self, tensor_contents=tensor_contents)

    module._tensor_str = tensor_str
    module._str = string_of


def _has_value(tensor: torch.Tensor) -> bool:
    if tensor.device.type != "tpu" or tensor.layout is not torch.strided:
        return False
    return type(torch._C.TensorBase.untyped_storage(tensor)) is LazyStorage


def is_pending(tensor: torch.Tensor) -> bool:
    """Whether the tensor's content has been recorded and not been run; runs nothing."""
    if not _has_value(tensor):
        return False
    value = torch._C.TensorBase.untyped_storage(tensor).value  # type: ignore[attr-defined]
    return value.buffer is None and value.host is None and value.error is None and value.epoch != 0


def _asked_by_debugger() -> bool:
    """Whether the innermost frame outside PyTorch and its like is a debugger's own."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        top = name.partition(".")[0]
        if top in _DEBUGGERS or name.startswith("IPython.core.debugger"):
            return True
        if top not in _HELPERS:
            return False
        frame = frame.f_back
    return False
