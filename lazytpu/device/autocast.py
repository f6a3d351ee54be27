"""``torch.autocast("tpu")``: bfloat16 by default, with the casting lists of CUDA.

Every op passes the autocast key untouched but those of the lists, whose kernels cast and call the op
again without the key, above autograd so that the casts are differentiated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

DEFAULT = torch.bfloat16
"""The dtype of ``torch.autocast("tpu")`` where none is named."""

def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOWER = _names(
    "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution _convolution "
    "_convolution.deprecated prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul "
    "linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
    "scaled_dot_product_attention _scaled_dot_product_flash_attention cudnn_convolution cudnn_convolution_transpose"
)
"""Ops that compute in the autocast dtype."""

FLOAT32 = _names(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor "
    "pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim "
    "cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss "
    "smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss "
    "multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d "
    "_upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d "
    "upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d "
    "_upsample_bicubic2d_aa"
)
"""Ops that compute in float32."""

FLOAT32_RESULT = _names(
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm "
    "linalg_matrix_norm.str_ord sum sum.dim_IntList"
)
"""Ops with a ``dtype`` argument that give float32 where the caller names none."""

FLOAT32_APPENDED = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
"""Ops that give float32 through an overload with a ``dtype`` argument."""

WIDEST = _names(
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"
)
"""Ops whose inputs are brought to the widest of their dtypes."""

BANNED = frozenset({"binary_cross_entropy"})
"""Ops that are unsafe to autocast."""

_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]
_local = threading.local()
_get_dtype = torch.get_autocast_dtype
_set_dtype = torch.set_autocast_dtype


def apply() -> None:
    """Make the key harmless for every op, and the default dtype bfloat16 in every thread."""

    def get_autocast_dtype(device_type: str) -> torch.dtype:
        if device_type == "tpu" and not getattr(_local, "chosen", False):
            set_autocast_dtype("tpu", DEFAULT)
        return _get_dtype(device_type)

    def set_autocast_dtype(device_type: str, dtype: torch.dtype) -> None:
        if device_type == "tpu":
            _local.chosen = True
        _set_dtype(device_type, dtype)

    for patched, original in ((get_autocast_dtype, _get_dtype), (set_autocast_dtype, _set_dtype)):
        patched.__doc__ = original.__doc__
        patched.__module__ = "torch"
        setattr(torch, original.__name__, patched)


def fall_through(library: torch.library.Library) -> None:
    """Let every op without a casting kernel pass the key, on a library of all namespaces."""
    library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")


def install(library: torch.library.Library) -> None:
    """Register the casting kernels on an ``aten`` library."""
    for names, kernel in ((LOWER, _lower), (FLOAT32, _float32), (FLOAT32_RESULT, _float32_result), (WIDEST, _widest)):
        for name in names:
            _register(library, name, kernel)
    for name in FLOAT32_APPENDED:
        _register(library, name, _float32_appended)
    for name in BANNED:
        _register(library, name, _banned)


def _register(library: torch.library.Library, name: str, make: Callable[[Any, str], Callable[..., Any]]) -> None:
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    if op is not None:
        library.impl(name, make(op, name), "AutocastPrivateUse1")


def _eligible(x: torch.Tensor) -> bool:
    return x.device.type == "tpu" and x.is_floating_point() and x.dtype is not torch.float64


def _cast(x: Any, dtype: torch.dtype) -> Any:
    if isinstance(x, torch.Tensor):
        return x.to(dtype) if x.dtype is not dtype and _eligible(x) else x
    if isinstance(x, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in x):
        return type(x)(_cast(item, dtype) for item in x)
    return x


def _call(op: Any, args: Any, kwargs: dict[str, Any], dtype: torch.dtype | None = None) -> Any:
    """Call ``op`` below the autocast key, its eligible tensors cast to ``dtype``."""
    with torch._C._ExcludeDispatchKeyGuard(_KEY):
        if dtype is None:
            return op(*args, **kwargs)
        return op(*[_cast(x, dtype) for x in args], **{k: _cast(x, dtype) for k, x in kwargs.items()})


def _lower(op: Any, name: str) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _call(op, args, kwargs, torch.get_autocast_dtype("tpu"))

    return kernel


def _float32(op: Any, name: str) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _call(op, args, kwargs, torch.float32)

    return kernel


def _float32_result(op: Any, name: str) -> Callable[..., Any]:
    place = [a.name for a in op._schema.arguments].index("dtype")
    keyword = op._schema.arguments[place].kwarg_only

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("dtype") if keyword or len(args) <= place else args[place]
        if given is None and _eligible(args[0]):
            kwargs["dtype"] = torch.float32
            args = args if keyword else args[:place]
        return _call(op, args, kwargs)

    return kernel


def _float32_appended(op: Any, name: str) -> Callable[..., Any]:
    packet, _, overload = FLOAT32_APPENDED[name].partition(".")
    wider = getattr(getattr(torch.ops.aten, packet), overload)
    names = [a.name for a in op._schema.arguments]
    defaults = {a.name: a.default_value for a in op._schema.arguments if a.has_default_value()}

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if not _eligible(args[0]):
            return _call(op, args, kwargs)
        return _call(wider, (), {**defaults, **dict(zip(names, args)), **kwargs, "dtype": torch.float32})

    return kernel


def _widest(op: Any, name: str) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        found = {x.dtype for group in args for x in (group if isinstance(group, (list, tuple)) else (group,))
                 if isinstance(x, torch.Tensor) and _eligible(x)}  # fmt: skip
        lower = torch.get_autocast_dtype("tpu")
        if not found <= {torch.float32, lower}:
            raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
        return _call(op, args, kwargs, torch.float32 if torch.float32 in found else lower)

    return kernel


def _banned(op: Any, name: str) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
            "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
            "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
            "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
            "safe to autocast."
        )

    return kernel
