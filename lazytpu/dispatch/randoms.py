"""Kernels that draw random numbers: what they check, and how they honour a CPU generator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch._ops import OpOverload

from lazytpu import recorder
from lazytpu.device import generators
from lazytpu.dispatch import cells, host
from lazytpu.dispatch.kernels import Recording
from lazytpu.dispatch.schema import name_of, overload, schema_of
from lazytpu.lowering.registry import RULES

_ATEN = torch.ops.aten
_UPDATES = frozenset({"aten::rrelu_with_noise_", "aten::rrelu_with_noise"})
"""Ops that read what they write; samplers only fill."""
_DRAWING_OUT = frozenset({"aten::randperm.generator_out"})
"""``out=`` forms with a kernel of their own; the others call the functional form, which is guarded."""
_CHECKED_ELSEWHERE = frozenset({"aten::multinomial", *_DRAWING_OUT, *_UPDATES, "aten::rrelu_with_noise_functional"})


def guarded(op: OpOverload, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``kernel`` with its parameters checked as CPU checks them, and drawing on the CPU for a CPU generator.

    An op without a ``generator`` argument keeps its kernel.
    """
    schema = schema_of(op)
    if "generator" not in schema.names or (schema.out_names and name_of(op) not in _DRAWING_OUT):
        return kernel
    place = schema.names.index("generator")
    checked = name_of(op) not in _CHECKED_ELSEWHERE

    def draw(*args: Any, **kwargs: Any) -> Any:
        bound = schema.bind(args, kwargs)
        generator = bound[place]
        if generator is not None and not generators.is_tpu(generator):
            return _draw_on_cpu(op, bound)
        if checked:
            _check(op, tuple(x.dtype if isinstance(x, torch.Tensor) else x for x in bound[:place]))
        return kernel(*args, **kwargs)

    return draw


@lru_cache(maxsize=4096)
def _check(op: OpOverload, parameters: tuple[Any, ...]) -> None:
    """Raise what CPU raises for these dtypes and parameters, by drawing one number there."""
    filled = [torch.ones(1, dtype=x, device="cpu") if isinstance(x, torch.dtype) else x for x in parameters]
    names = schema_of(op).names
    keywords = {names[i]: x for i, x in enumerate(filled) if op._schema.arguments[i].kwarg_only}
    positional = [x for i, x in enumerate(filled) if not op._schema.arguments[i].kwarg_only]
    op(*positional, generator=_SCRATCH, **keywords)


_SCRATCH = torch._C.Generator(device="cpu")


def _draw_on_cpu(op: OpOverload, bound: list[Any]) -> Any:
    """Draw with the CPU generator the caller gave, as CPU PyTorch would, and upload the result."""
    written = schema_of(op).written
    moved: dict[int, torch.Tensor] = {}
    on_host = []
    for i, x in enumerate(bound):
        if cells.is_lazy(x):
            if i in written and name_of(op) not in _UPDATES:
                cells.check_no_internal_overlap(tuple(x.shape), x.stride())
                copy = torch.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device="cpu")
            else:
                copy = host.download(x)
            moved[i] = copy
            x = copy
        on_host.append(x)
    arguments = op._schema.arguments
    positional = [x for a, x in zip(arguments, on_host) if not a.kwarg_only]
    result = op(*positional, **{a.name: x for a, x in zip(arguments, on_host) if a.kwarg_only})
    for i in written:
        if bound[i].shape != moved[i].shape:
            bound[i].resize_(moved[i].shape)
        bound[i].copy_(moved[i])
    back = {id(moved[i]): bound[i] for i in written}

    def returned(x: torch.Tensor) -> torch.Tensor:
        return back[id(x)] if id(x) in back else cells.new(host.upload(x, owned=True))

    return tuple(map(returned, result)) if isinstance(result, tuple) else returned(result)


@cache
def _recording(name: str) -> Recording:
    op = overload(name)
    assert op is not None
    return Recording(op, RULES[name])


def _multinomial(self: torch.Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> torch.Tensor:
    _check_multinomial(self, num_samples, replacement)
    with recorder.lock:
        _, (drawn,), _ = _recording("aten::multinomial").record([self, num_samples, replacement, generator])
        return cells.new(drawn)


def _check_multinomial(self: torch.Tensor, num_samples: int, replacement: bool) -> None:
    categories = self.size(-1) if self.dim() else 1
    if not 0 < self.dim() <= 2:
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not self.is_floating_point():
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {self.dtype}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > categories:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")


def _randperm_out(n: int, *, generator: Any = None, out: torch.Tensor) -> torch.Tensor:
    _check_randperm(n, out.dtype)
    if out.shape != (n,):
        out.resize_((n,))
    with recorder.lock:
        _, (drawn,), _ = _recording("aten::randperm.generator_out").record([n, generator, out])
        cells.write(out, drawn)
    return out


def _check_randperm(n: int, dtype: torch.dtype) -> None:
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got{n}")
    torch.scalar_tensor(max(n - 1, 0), dtype=dtype, device="cpu")  # raises where the dtype cannot hold it
    if dtype.is_floating_point and n > 2 / torch.finfo(dtype).eps + 1:
        raise RuntimeError(f"n cannot be greater than {int(2 / torch.finfo(dtype).eps) + 1} for {dtype}")


def _rrelu_with_noise(
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: Any = 1 / 8,
    upper: Any = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> torch.Tensor:
    result, slopes = _ATEN.rrelu_with_noise_functional(self, noise, lower, upper, training, generator)
    if training:
        noise.copy_(slopes)
    return result


def _rrelu_with_noise_(
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: Any = 1 / 8,
    upper: Any = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> torch.Tensor:
    return self.copy_(_rrelu_with_noise(self, noise, lower, upper, training, generator))


KERNELS: dict[str, Callable[..., Any]] = {
    "multinomial": _multinomial,
    "randperm.generator_out": _randperm_out,
    "rrelu_with_noise": _rrelu_with_noise,
    "rrelu_with_noise_": _rrelu_with_noise_,
}
"""Kernels by overload name, for registration."""
