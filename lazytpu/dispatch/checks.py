"""What PyTorch's meta kernels do not check but its CPU kernels do, in the CPU's words.

A check sees a call's arguments in the schema's order, the first time that a call of its kind is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_C_NAMES = {torch.float32: "float", torch.float64: "double", torch.bfloat16: "c10::BFloat16", torch.float16: "c10::Half"}
_SCALAR_NAMES = {
    torch.float32: "Float", torch.float64: "Double", torch.bfloat16: "BFloat16", torch.float16: "Half",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip


def scalar_name(dtype: torch.dtype) -> str:
    """A dtype as PyTorch's error messages call it: ``Float``, ``Long``, …"""
    return _SCALAR_NAMES.get(dtype, str(dtype))


def _not_implemented(kernel: str, dtype: torch.dtype) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{scalar_name(dtype)}'")


def _product(x: torch.Tensor, y: torch.Tensor, added: torch.Tensor | None = None) -> None:
    if x.dtype != y.dtype:
        names = (_C_NAMES.get(t.dtype, scalar_name(t.dtype)) for t in (x, y))
        raise RuntimeError("expected m1 and m2 to have the same dtype, but got: {} != {}".format(*names))
    if added is not None and added.dtype != x.dtype:
        raise RuntimeError(
            f"self and mat2 must have the same dtype, but got {scalar_name(added.dtype)} and {scalar_name(y.dtype)}"
        )
    if x.dtype == torch.bool:
        raise _not_implemented("addmm_impl_cpu_", x.dtype)


def _matrix_product(x: torch.Tensor, y: torch.Tensor, added: torch.Tensor | None = None) -> None:
    _product(x, y, added)
    if x.dim() == 2 and y.dim() == 2 and x.shape[1] != y.shape[0]:
        (a, b), (c, d) = x.shape, y.shape
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a}x{b} and {c}x{d})")


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    _product(input, weight, bias)
    if input.dim() and weight.dim() == 2 and input.shape[-1] != weight.shape[1]:
        rows = input.numel() // max(input.shape[-1], 1)
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{input.shape[-1]} and {weight.shape[1]}x{weight.shape[0]})"
        )


def _convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, *flags: bool,
) -> None:  # fmt: skip
    if input.dtype != weight.dtype:
        raise RuntimeError(f"expected scalar type {scalar_name(input.dtype)} but found {scalar_name(weight.dtype)}")
    if input.dtype == torch.bool:
        raise _not_implemented("slow_conv2d_cpu", input.dtype)
    for what, values in (("padding", padding), ("output_padding", output_padding)):
        if any(v < 0 for v in values):
            raise RuntimeError(f"negative {what} is not supported")
    for what, values in (("stride", stride), ("dilation", dilation)):
        if any(v <= 0 for v in values):
            raise RuntimeError(f"non-positive {what} is not supported")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    shape = list(weight.shape)
    if shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size "
            f"[{shape}] instead"
        )
    channels = shape[0] if transposed else shape[1] * groups
    if input.shape[1] != channels:
        raise RuntimeError(
            f"Given {f'transposed={int(transposed)}' if transposed else f'groups={groups}'}, weight of size {shape}, expected "
            f"input{list(input.shape)} to have {channels} channels, but got {input.shape[1]} channels instead"
        )
    outputs = shape[1] * groups if transposed else shape[0]
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise RuntimeError(
            f"Given {f'transposed={int(transposed)}, ' if transposed else ''}weight of size {shape}, expected bias to be "
            f"1-dimensional with {outputs} elements, but got bias of size {list(bias.shape)} instead"
        )
    if transposed:
        for axis, extra in enumerate(output_padding):
            step, spread = stride[axis % len(stride)], dilation[axis % len(dilation)]
            if extra >= step and extra >= spread:
                raise RuntimeError(
                    f"output padding must be smaller than either stride or dilation, but got output_padding: {extra} "
                    f"stride: {step} dilation: {spread} at spatial dimension {axis}"
                )


def _floating_or_byte(self: torch.Tensor, *rest: Any) -> None:
    if not self.dtype.is_floating_point and self.dtype != torch.uint8:
        raise _not_implemented("compute_indices_weights_linear", self.dtype)


def _no_bool(self: torch.Tensor, *rest: Any) -> None:
    if self.dtype == torch.bool:
        raise _not_implemented("avg_pool", self.dtype)


def _is_integral(x: Any) -> bool:
    return not (x.dtype.is_floating_point or x.dtype.is_complex) if isinstance(x, torch.Tensor) else isinstance(x, int)


def _alpha(self: Any, other: Any, alpha: Any) -> None:
    if _is_integral(self) and _is_integral(other) and not _is_integral(alpha):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")


def _integer_power(self: torch.Tensor, exponent: Any) -> None:
    if _is_integral(self) and _is_integral(exponent) and exponent < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")


def _addcdiv(self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, value: Any) -> None:
    if _is_integral(tensor1) and _is_integral(tensor2):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future release addcdiv will perform a true "
            "division of tensor1 and tensor2. Use (input + value * torch.trunc(tensor1 / tensor2)).to(input.dtype), or "
            "convert the inputs to a floating point dtype"
        )


def _class_targets(self: torch.Tensor, target: torch.Tensor, *rest: Any) -> None:
    if target.dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {scalar_name(target.dtype)}")


CHECKS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(
        [f"aten::{op}.{overload}" for op in ("add", "sub", "rsub") for overload in ("Tensor", "Scalar")], _alpha
    ),
    "aten::pow.Tensor_Scalar": _integer_power,
    "aten::addcdiv": _addcdiv,
    "aten::nll_loss_forward": _class_targets,
    "aten::nll_loss2d_forward": _class_targets,
    "aten::mm": _matrix_product,
    "aten::bmm": _product,
    "aten::mv": _product,
    "aten::dot": _product,
    "aten::vdot": _product,
    "aten::addmm": lambda self, x, y, *scalars: _matrix_product(x, y, self),
    "aten::addmv": lambda self, x, y, *scalars: _product(x, y, self),
    "aten::baddbmm": lambda self, x, y, *scalars: _product(x, y, self),
    "aten::addbmm": lambda self, x, y, *scalars: _product(x, y, self),
    "aten::linear": _linear,
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::avg_pool2d": _no_bool,
    "aten::avg_pool3d": _no_bool,
    **dict.fromkeys(
        [
            "aten::upsample_linear1d", "aten::upsample_bilinear2d", "aten::upsample_trilinear3d", "aten::upsample_bicubic2d",
            "aten::_upsample_bilinear2d_aa", "aten::_upsample_bicubic2d_aa", "aten::_upsample_lanczos2d_aa",
        ],
        _floating_or_byte,
    ),
}  # fmt: skip
"""Checks by the name of the functional overload; each raises what the CPU raises."""
