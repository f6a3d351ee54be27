"""Kernels of layer ops that need a word before they are recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from lazytpu.dispatch import kernels
from lazytpu.lowering.registry import RULES


@cache
def _recorded_linear_backward() -> Callable[..., Any]:
    return kernels.functional_kernel(torch.ops.aten.linear_backward.default, RULES["aten::linear_backward"])


def _linear_backward(self: torch.Tensor, grad_output: torch.Tensor, weight: torch.Tensor, output_mask: Any) -> Any:
    """Record the rule; a 1-d weight, whose shapes PyTorch's meta kernel does not know, as a matrix of one row."""
    record = _recorded_linear_backward()
    if weight.dim() > 1:
        return record(self, grad_output, weight, output_mask)
    by_input, by_weight, by_bias = record(self, grad_output.unsqueeze(-1), weight.unsqueeze(0), output_mask)
    by_weight = None if by_weight is None else by_weight.squeeze(0)
    return by_input, by_weight, None if by_bias is None else by_bias.squeeze(0)


KERNELS: dict[str, Callable[..., Any]] = {"linear_backward": _linear_backward}
"""Kernels by overload name, for registration."""
