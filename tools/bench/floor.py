"""Whole training steps on a device whose kernels do nothing: the least that a Python device can take on the host.

Every kernel that lazytpu registers is wrapped. One real step notes the type of each result; from then on
the kernels return fresh empty tensors of those types and record nothing, and no program is run. What is
left is PyTorch's dispatch and autograd, the script and its optimizer, and lazytpu's hooks around
``backward`` and ``optimizer.step``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tools.bench.step import Skipped, Step

_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_VIEWS = {"aten::as_strided", "aten::view", "aten::_reshape_alias", "aten::unfold", "aten::_unsafe_view"}
_make_tensor = torch._C._acc.create_empty_tensor
_as_strided = torch.ops.aten.as_strided.default.redispatch

_Result = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Makes a result for a call's arguments."""


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


def _maker(result: Any, args: tuple[Any, ...], view: Any) -> _Result:
    """What gives a result like this one, without the work; it does not keep the result, which autograd would then copy."""
    if view is not None:
        return lambda args, kwargs: view(_META, *args, **kwargs)
    if isinstance(result, torch.Tensor):
        if args and result is args[0]:
            return _first
        shape, dtype, stride = tuple(result.shape), result.dtype, result.stride()
        if result.is_contiguous():
            return lambda args, kwargs: _make_tensor(shape, dtype)
        return lambda args, kwargs: _as_strided(_META, _make_tensor(shape, dtype), shape, stride, 0)
    if isinstance(result, (list, tuple)):
        kind, makers = type(result), [_maker(x, (), None) for x in result]
        return lambda args, kwargs: kind(make(args, kwargs) for make in makers)
    return lambda args, kwargs: result


def _recorded() -> int:
    from lazytpu import counts

    return counts.counters["ops_recorded"]


class _Shims:
    """Kernels in front of the real ones: they pass calls on, note their results, or repeat those without work.

    ``recorded`` counts the ops that the kernels recorded while their results were noted.
    """

    def __init__(self) -> None:
        self.recorded = 0
        self.makers: list[_Result] = []
        self.noting = False
        self.replies: Iterator[_Result] | None = None

    def around(self, op: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel to register for ``op`` instead of ``kernel``."""
        name = op if isinstance(op, str) else op._schema.name
        # A view made by the meta kernel keeps the storage; `_unsafe_view` makes the same as `view`.
        packet = getattr(torch.ops.aten, name.removeprefix("aten::").split(".")[0].replace("_unsafe_view", "view"), None)
        view = packet.default.redispatch if name in _VIEWS and packet is not None else None

        def shim(*args: Any, **kwargs: Any) -> Any:
            if self.replies is not None:
                return next(self.replies)(args, kwargs)
            if not self.noting:
                return kernel(*args, **kwargs)
            self.noting = False  # kernels that this one calls do not count
            before = _recorded()
            try:
                result = kernel(*args, **kwargs)
            finally:
                self.noting = True
            self.recorded += _recorded() - before
            self.makers.append(_maker(result, args, view))
            return result

        return shim


def floor(workload: str) -> Step:
    """The step of ``workload`` with kernels that do nothing; lazytpu must not have been used before.

    Raises:
        Skipped: lazytpu records a part of the step outside of kernels.
    """
    shims = _Shims()
    register = torch.library.Library.impl

    def impl(self: Any, op: Any, kernel: Any, key: str = "", **options: Any) -> Any:
        return register(self, op, shims.around(op, kernel) if key == "PrivateUse1" else kernel, key, **options)

    torch.library.Library.impl = impl
    import lazytpu  # noqa: F401
    from lazytpu import recorder
    from lazytpu.dispatch.install import install
    from tools.bench.torch_steps import make_run

    install()
    torch.library.Library.impl = register
    train = make_run(workload, "tpu")
    for i in range(3):
        train(i)
    torch.tpu.synchronize()
    before = _recorded()
    shims.noting = True
    train(3)
    shims.noting = False
    if _recorded() - before != shims.recorded:
        raise Skipped("lazytpu records a part of this step outside of kernels, where it cannot be left out")
    torch.tpu.synchronize()

    def forget(*args: Any) -> None:
        recorder.trace = type(recorder.trace)()

    recorder.cut = forget

    def run(i: int) -> None:
        shims.replies = iter(shims.makers)
        train(i)

    return Step(run, lambda: None)
