"""Factories: shapes are worked out on the host, numbers are runtime inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lazytpu import recorder
from lazytpu.dispatch import cells, copies, host
from lazytpu.dispatch.schema import overload, schema_of
from lazytpu.ir import Signature, Slot, TensorType, tensor_type

_SIGNATURES: dict[tuple[Any, ...], Signature] = {}


def _record(op: str, numbers: tuple[Any, ...], output: TensorType) -> torch.Tensor:
    """Record one of our factories on Python numbers and scalar tensors."""
    with recorder.lock:
        inputs: list[Any] = []
        types = []
        kinds = []
        for x in numbers:
            if isinstance(x, complex):
                x = cells.new(host.upload(torch.tensor(x, dtype=torch.complex128, device="cpu")))
            if isinstance(x, torch.Tensor):
                x = cells.read(x) if cells.is_lazy(x) else host.upload(x)
                types.append(x.type)
                kinds.append("tensor")
            else:
                x = x if isinstance(x, float) else int(x)
                types.append(tensor_type((), torch.float64 if isinstance(x, float) else torch.int64))
                kinds.append("number")
            inputs.append(x)
        key = (op, *types, output)
        signature = _SIGNATURES.get(key)
        if signature is None:
            slots = tuple(map(Slot, range(len(types))))
            signature = _SIGNATURES[key] = Signature(op, tuple(types), slots, (output,), tuple(kinds))
        return cells.new(recorder.record(signature, inputs)[0])


def _on_meta(name: str) -> Callable[..., TensorType]:
    """The type that PyTorch's meta kernel gives a factory's result, remembered by its arguments; it raises the errors."""
    op = overload(f"aten::{name}")
    assert op is not None
    keywords = {a.name for a in op._schema.arguments if a.kwarg_only}
    known: dict[Any, TensorType] = {}

    def type_of(*args: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> TensorType:
        kind = dtype or torch.get_default_dtype()
        key = (tuple((type(x), x) for x in args), dtype, kind)
        found = known.get(key)
        copies.check_device(device)
        if found is None or layout not in (None, torch.strided) or pin_memory:
            copies.check_factory(kind, layout, device, pin_memory)
            given = {"dtype": dtype, "layout": layout, "device": torch.device("meta")}
            result = op(*args, **{k: v for k, v in given.items() if k in keywords})
            if len(known) > 4096:
                known.clear()
            found = known[key] = tensor_type(tuple(result.shape), result.dtype)
        return found

    return type_of


_arange_type = _on_meta("arange.start_step")
_linspace_type = _on_meta("linspace")
_eye_type = _on_meta("eye.m")
_OPTIONS = ("dtype", "layout", "device", "pin_memory")


def _options(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given.get(name) for name in _OPTIONS}


def _arange(end: Any, **options: Any) -> torch.Tensor:
    return _arange_start_step(0, end, 1, **options)


def _arange_start_step(start: Any, end: Any, step: Any = 1, **options: Any) -> torch.Tensor:
    return _record("lazytpu::arange", (start, step), _arange_type(start, end, step, **_options(options)))


def _range(start: Any, end: Any, step: Any = 1, **options: Any) -> torch.Tensor:
    """As ``arange`` with the end included."""
    options = _options(options)
    like = torch.range(start, end, step, dtype=options["dtype"], device="meta")
    copies.check_factory(like.dtype, options["layout"], options["device"], options["pin_memory"])
    return _record("lazytpu::arange", (start, step), tensor_type(tuple(like.shape), like.dtype))


def _space_type(start: Any, end: Any, steps: int, options: dict[str, Any]) -> TensorType:
    """The type of the result, and the checks of what may be a tensor."""
    numbers = []
    for name, x in (("start", start), ("end", end)):
        if isinstance(x, torch.Tensor):
            if x.dim():
                raise RuntimeError(
                    f"linspace only supports 0-dimensional start and end tensors, but got {name} with {x.dim()} dimension(s)."
                )
            x = 1j if x.is_complex() else 1.0
        numbers.append(1j if isinstance(x, complex) else 1.0)
    return _linspace_type(*numbers, steps, **_options(options))


def _linspace(start: Any, end: Any, steps: int, **options: Any) -> torch.Tensor:
    return _record("lazytpu::linspace", (start, end), _space_type(start, end, steps, options))


def _logspace(start: Any, end: Any, steps: int, base: float = 10.0, **options: Any) -> torch.Tensor:
    return _record("lazytpu::logspace", (start, end, float(base)), _space_type(start, end, steps, options))


def _eye(n: int, **options: Any) -> torch.Tensor:
    return _eye_m(n, n, **options)


def _eye_m(n: int, m: int, **options: Any) -> torch.Tensor:
    return _record("lazytpu::eye", (), _eye_type(n, m, **_options(options)))


def _triangle(name: str) -> Callable[..., torch.Tensor]:
    """Indices of a triangle, made on the host: they depend on no data."""
    op = overload(f"aten::{name}")
    assert op is not None
    schema = schema_of(op)

    def kernel(*args: Any, **kwargs: Any) -> torch.Tensor:
        row, column, offset, dtype, layout, device, pin_memory = schema.bind(args, kwargs)
        dtype = dtype if isinstance(dtype, torch.dtype) else torch.int64
        copies.check_factory(dtype, layout, device, pin_memory)
        made = op(row, column, offset, dtype=dtype, device=torch.device("cpu"))
        return cells.new(host.upload(made, owned=True))

    return kernel


def _into(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The ``out=`` form of a factory: it computes in the dtype of what it writes to."""

    def kernel(*args: Any, out: torch.Tensor) -> torch.Tensor:
        made = factory(*args, dtype=out.dtype)
        if out.shape != made.shape:
            out.resize_(made.shape)
        return out.copy_(made)

    return kernel


KERNELS: dict[str, Callable[..., Any]] = {
    "arange": _arange,
    "arange.start": _arange_start_step,
    "arange.start_step": _arange_start_step,
    "range": _range,
    "range.step": _range,
    "linspace": _linspace,
    "linspace.Tensor_Tensor": _linspace,
    "linspace.Tensor_Scalar": _linspace,
    "linspace.Scalar_Tensor": _linspace,
    "logspace": _logspace,
    "logspace.Tensor_Tensor": _logspace,
    "logspace.Tensor_Scalar": _logspace,
    "logspace.Scalar_Tensor": _logspace,
    "eye": _eye,
    "eye.m": _eye_m,
    "arange.start_out": _into(_arange_start_step),
    "range.out": _into(_range),
    "linspace.out": _into(_linspace),
    "linspace.Tensor_Tensor_out": _into(_linspace),
    "linspace.Tensor_Scalar_out": _into(_linspace),
    "linspace.Scalar_Tensor_out": _into(_linspace),
    "logspace.out": _into(_logspace),
    "logspace.Tensor_Tensor_out": _into(_logspace),
    "logspace.Tensor_Scalar_out": _into(_logspace),
    "logspace.Scalar_Tensor_out": _into(_logspace),
    "eye.out": _into(_eye),
    "eye.m_out": _into(_eye_m),
    "tril_indices": _triangle("tril_indices"),
    "triu_indices": _triangle("triu_indices"),
}
"""Kernels by overload name, for registration."""
