"""Registering every kernel with PyTorch, when the device is first used.

In order of preference an op has a kernel written by hand, a lowering rule, PyTorch's own composite
kernel (which calls other ops), PyTorch's Python decomposition, and at last the CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from lazytpu.dispatch.fallback import on_cpu
from lazytpu.dispatch.schema import functional_form, name_of, overload, schema_of

_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_KEPT: list[torch.library.Library] = []
_lock = threading.Lock()
_decompositions: dict[OpOverload, Callable[..., Any]] = {}
installed = False
"""Whether the kernels are registered."""


def install() -> None:
    """Register all kernels; does nothing the second time."""
    global installed
    with _lock:
        if installed:
            return
        _install()
        installed = True


def _install() -> None:
    import torch._decomp  # fills the table of decompositions
    import torch._refs  # and so does this

    from lazytpu import lowering
    from lazytpu.device import autocast
    from lazytpu.dispatch import (
        attention,
        control_flow,
        copies,
        counting,
        creation,
        foreach,
        indexing,
        kernels,
        layers,
        norms,
        randoms,
        rnn,
        solvers,
        views,
    )
    from lazytpu.lowering.registry import RULES

    lowering.load_rules()
    library = torch.library.Library("aten", "IMPL")
    _KEPT.append(library)
    autocast.install(library)
    functional: dict[OpOverload, Callable[..., Any]] = {}
    done: set[OpOverload] = set()

    def register(op: OpOverload, kernel: Callable[..., Any]) -> None:
        library.impl(op, foreach.guarded(op, randoms.guarded(op, kernel)), "PrivateUse1")
        done.add(op)

    hand_written = (views, copies, creation, counting, indexing, randoms, solvers, layers, norms, attention, rnn)
    for table in (module.KERNELS for module in hand_written):
        for name, kernel in table.items():
            op = overload(f"aten::{name}")
            if op is not None:
                register(op, kernel)
                functional[op] = kernel
    for table in (attention.AUTOGRAD_KERNELS, rnn.AUTOGRAD_KERNELS):
        for name, kernel in table.items():
            library.impl(name, kernel, "AutogradPrivateUse1")
    for name, kernel in rnn.META_KERNELS.items():
        library.impl(name, kernel, "Meta")
    for name, rule in RULES.items():
        op = overload(name)
        if op is None or op in done or not name.startswith("aten::"):
            continue
        if op._schema.is_mutable:
            register(op, kernels.mutating_kernel(op, rule))
        else:
            functional[op] = kernels.functional_kernel(op, rule)
            register(op, functional[op])
    for key, decomposition in torch._decomp.decomposition_table.items():
        op = key if isinstance(key, OpOverload) else None
        if op is None or op.namespace != "aten" or op in done or not _lacks_kernel(op):
            continue
        if not op._schema.is_mutable and not _draws_random_numbers(op):
            kernel = _decomposed(op, decomposition)
            _decompositions[op] = functional[op] = kernel
            register(op, kernel)
    _register_written_forms(register, done, functional)
    control_flow.register()


_running = threading.local()


def _decomposed(op: OpOverload, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that runs PyTorch's decomposition of ``op`` on lazy tensors.

    Some decompositions end in a primitive that calls the op itself again: that call goes to the CPU.
    """

    def kernel(*args: Any, **kwargs: Any) -> Any:
        active = _running.__dict__.setdefault("ops", set())
        if op in active:
            return on_cpu(op, *args, **kwargs)
        active.add(op)
        try:
            return decomposition(*args, **kwargs)
        finally:
            active.discard(op)

    return kernel


def _register_written_forms(
    register: Callable[[OpOverload, Callable[..., Any]], None],
    done: set[OpOverload],
    functional: dict[OpOverload, Callable[..., Any]],
) -> None:
    """Register the in-place and ``out=`` forms of every op that has a functional kernel."""
    from lazytpu.dispatch import kernels
    from lazytpu.lowering.registry import RULES

    for full_name in torch._C._dispatch_get_all_op_names():
        if not full_name.startswith("aten::"):
            continue
        op = overload(full_name)
        if op is None or op in done or not op._schema.is_mutable or _is_implicit(full_name):
            continue
        form = functional_form(op)
        if form is None or form not in functional:
            continue
        rule = RULES.get(name_of(form))
        out = bool(schema_of(op).out_names)
        if rule is not None and not out and len(schema_of(op).written) == 1 and form in done:
            register(op, kernels.mutating_kernel(op, rule, name_of(form)))
        else:
            register(op, kernels.writeback_kernel(op, form))


def _is_implicit(name: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def _lacks_kernel(op: OpOverload) -> bool:
    """Whether nothing of PyTorch's own would serve ``op`` on this device."""
    name = name_of(op)
    return not (
        _is_implicit(name) or torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutograd")
    )


def _draws_random_numbers(op: OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


def last_resort(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """What the boxed fallback does with an op nobody registered."""
    schema = op._schema
    if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
        return op.redispatch(_META, *args, **kwargs)
    form = functional_form(op) if schema.is_mutable else None
    if form is not None and form in _decompositions:
        from lazytpu.dispatch import kernels

        return kernels.writeback_kernel(op, form)(*args, **kwargs)
    return on_cpu(op, *args, **kwargs)
