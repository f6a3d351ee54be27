"""Kernels that record: made from an op's schema and its lowering rule.

A kernel turns each call into a signature (looked up by the types of its inputs and its static
arguments) and a list of values and numbers, records it, and wraps the results. Python numbers are
runtime inputs or static by the declaration of the rule, never by their value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from lazytpu import dtypes, recorder
from lazytpu.device import random
from lazytpu.dispatch import cells, infer, overlap
from lazytpu.dispatch.checks import CHECKS, scalar_name
from lazytpu.dispatch.gather import DROPPED, NUMBER, NUMBERS, TENSOR, TENSORS, compiled, how_passed
from lazytpu.dispatch.schema import name_of, overload, schema_of
from lazytpu.ir import Signature, Slot, TensorType, Value, tensor_type
from lazytpu.lowering.registry import Rule

_default_dtype = torch.get_default_dtype
_storage_of: Callable[[torch.Tensor], Any] = torch._C.TensorBase.untyped_storage
_make_tensor = torch._C._acc.create_empty_tensor

_FLOAT = tensor_type((), torch.float64)
_INT = tensor_type((), torch.int64)
_BOOL = tensor_type((), torch.bool)
_NUMBER_TYPES: dict[type, TensorType] = {float: _FLOAT, int: _INT, bool: _BOOL}


class _Entry:
    """What a kernel remembers of a call: its signature and the structure of its results."""

    __slots__ = ("signature", "structure", "single")

    def __init__(self, signature: Signature, structure: Any) -> None:
        self.signature = signature
        self.structure = structure
        self.single = isinstance(structure, TensorType)


def _template(
    how: list[int], args: list[Any]
) -> tuple[tuple[Any, ...], tuple[TensorType, ...], tuple[str, ...]]:
    """The argument template of a signature, with the types and kinds of its inputs."""
    types: list[TensorType] = []
    kinds: list[str] = []

    def slot(x: Any) -> Any:
        if x is None:
            return None
        if isinstance(x, torch.Tensor):
            lazy = cells.is_lazy(x) or x.dtype.is_complex
            types.append(tensor_type(tuple(x.shape), x.dtype) if lazy else tensor_type((), x.dtype))
            kinds.append("tensor")
        elif type(x) in _NUMBER_TYPES:
            types.append(_NUMBER_TYPES[type(x)])
            kinds.append("number")
        else:
            return x
        return Slot(len(types) - 1)

    template: list[Any] = []
    for kind, x in zip(how, args):
        if kind in (TENSOR, NUMBER):
            template.append(slot(x))
        elif kind in (TENSORS, NUMBERS):
            template.append(None if x is None else [slot(item) for item in x])
        elif kind == DROPPED:
            template.append(None)
        else:
            template.append(tuple(x) if isinstance(x, list) else x)
    return tuple(template), tuple(types), tuple(kinds)


class Recording:
    """The recording of one overload: ``values(args)`` records a call and gives its results.

    Args:
        op: the overload called, whose meta kernel decides shapes and dtypes.
        rule: the lowering rule.
        rule_name: the name the rule stands under, where it is the functional form of ``op``.
    """

    def __init__(self, op: OpOverload, rule: Rule, rule_name: str | None = None) -> None:
        self.op = op
        self.rule = rule
        self.rule_name = rule_name or name_of(op)
        self.schema = schema_of(op)
        self.count = len(self.schema.names)
        self.how = how_passed(self.schema, rule)
        self.gather = compiled(self.schema, self.how)
        self.entries: dict[tuple[Any, ...], _Entry] = {}
        self.written = self.schema.written

    def bind(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Arguments in the schema's order."""
        if kwargs or len(args) != self.count:
            return self.schema.bind(args, kwargs)
        return args

    def record(self, args: Any) -> tuple[_Entry, list[Value], bool]:
        """Record a call, its arguments in the schema's order; returns also whether all its tensors are row-major."""
        inputs, key, row_major = self.gather(*args)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.learn(args, key)
        if self.rule.random:
            inputs.extend(random.next_seed(self.generator(args)))
        return entry, recorder.record(entry.signature, inputs), row_major

    def generator(self, args: Any) -> Any:
        """The call's ``generator`` argument, if the op has one."""
        names = self.schema.names
        return args[names.index("generator")] if "generator" in names else None

    def check_in_place(self, args: Any) -> None:
        """Raise as CPU does where the result would have to be narrowed to another kind of number."""
        op = overload(self.rule_name)
        assert op is not None
        computed = infer.call(op, list(args))
        target = args[self.written[0]]
        if not torch.can_cast(computed.dtype, target.dtype):
            raise _cannot_cast(computed.dtype, target.dtype)

    def learn(self, args: Any, key: tuple[Any, ...]) -> _Entry:
        """Infer the results of a call not seen before; raises PyTorch's own error on a bad one."""
        infer.check_same_device(self.op, args)
        if not self.rule.random:
            infer.check_empty(self.op, args)
        if self.rule_name in CHECKS:
            CHECKS[self.rule_name](*args)
        structure = infer.types_of(infer.call(self.op, list(args)))
        if self.written and self.rule.pointwise and self.rule_name != name_of(self.op):
            self.check_in_place(args)
        if "output_mask" in self.schema.names:
            # Some meta kernels give results that were not asked for.
            mask = args[self.schema.names.index("output_mask")]
            structure = tuple(t if wanted else None for t, wanted in zip(structure, mask))
        template, types, kinds = _template(self.how, args)
        outputs: tuple[TensorType, ...]
        if self.written:
            outputs = tuple(t for i in self.written for t in infer.flatten(infer.types_of(args[i])))
        else:
            outputs = infer.flatten(structure)
        for output in outputs:
            dtypes.to_numpy(output.dtype)
        if self.rule.random:
            types, kinds = (*types, _INT, _INT), (*kinds, "seed", "seed")
        entry = _Entry(Signature.intern(self.rule_name, types, template, outputs, kinds), structure)
        self.entries[key] = entry
        return entry


def functional_kernel(op: OpOverload, rule: Rule) -> Callable[..., Any]:
    """The kernel of a functional overload."""
    recording = Recording(op, rule)
    new = cells.new

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args = recording.bind(args, kwargs)
        with recorder.lock:
            entry, values, row_major = recording.record(args)
            if not row_major and rule.pointwise and entry.single:
                stride = _pointwise_stride(op, args)
                if stride is not None:
                    return cells.new_strided(values[0], stride)
            if entry.single:
                return new(values[0])
            return infer.rebuild(entry.structure, map(new, values))

    return kernel


_strides: dict[tuple[Any, ...], tuple[int, ...]] = {}


def _pointwise_stride(op: OpOverload, args: Any) -> tuple[int, ...] | None:
    """The strides that CPU would give the result; None for row-major."""
    tensors = [item for x in args for item in (x if type(x) is list else (x,)) if isinstance(item, torch.Tensor)]
    if all(t.dim() < 2 or t.is_contiguous() for t in tensors):
        return None
    key = (op, tuple([(t.shape, t.stride(), t.dtype) for t in tensors]))
    known = _strides.get(key)
    if known is None:
        known = _strides[key] = infer.call(op, list(args), strided=True).stride()
    return known


def mutating_kernel(op: OpOverload, rule: Rule, rule_name: str | None = None) -> Callable[..., Any]:
    """The kernel of an overload that writes to its arguments.

    The rule returns the new content of each written tensor, in order; the kernel's result is the
    written arguments themselves, as the schema says.
    """
    recording = Recording(op, rule, rule_name)
    written = recording.written
    returns = len(op._schema.returns)
    write = overlap.write_merged if recording.rule_name.partition(".")[0] in overlap.MERGED else cells.write
    pointwise = rule.pointwise and write is cells.write
    if written == [0]:

        def kernel(*args: Any, **kwargs: Any) -> Any:
            args = recording.bind(args, kwargs)
            target = args[0]
            with recorder.lock:
                if isinstance(target, torch.Tensor):
                    cells.storage_of(target)
                if pointwise:
                    overlap.check_partial_overlap(target, args)
                _, values, _ = recording.record(args)
                if isinstance(target, torch.Tensor):
                    write(target, values[0])
                else:
                    for tensor, value in zip(target, values):
                        cells.write(tensor, value)
            return target if returns else None

        return kernel

    def kernel_of_many(*args: Any, **kwargs: Any) -> Any:
        args = recording.bind(args, kwargs)
        with recorder.lock:
            _, values, _ = recording.record(args)
            remaining = iter(values)
            for i in written:
                for tensor in args[i] if isinstance(args[i], (list, tuple)) else (args[i],):
                    if tensor is not None:
                        cells.write(tensor, next(remaining))
        results = [args[i] for i in written]
        return None if not returns else results[0] if returns == 1 else tuple(results)

    return kernel_of_many


def writeback_kernel(op: OpOverload, functional: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place or ``out=`` form of an op, given a function that computes the functional one."""
    schema = schema_of(op)
    written = schema.written
    out_names = schema.out_names

    def kernel(*args: Any, **kwargs: Any) -> Any:
        bound = schema.bind(args, kwargs)
        targets = [t for i in written for t in (bound[i] if isinstance(bound[i], (list, tuple)) else (bound[i],))]
        result = functional(*_positional(op, bound), **_keywords(op, bound))
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        for target, computed in zip(targets, results):
            store(op, target, computed, may_resize=bool(out_names))
        if not op._schema.returns:
            return None
        returned = [bound[i] for i in written]
        return returned[0] if len(returned) == 1 else tuple(returned)

    return kernel


def _positional(op: OpOverload, bound: list[Any]) -> list[Any]:
    return [x for a, x in zip(op._schema.arguments, bound) if not a.kwarg_only]


def _keywords(op: OpOverload, bound: list[Any]) -> dict[str, Any]:
    return {a.name: x for a, x in zip(op._schema.arguments, bound) if a.kwarg_only and not a.is_out}


def store(op: OpOverload, target: torch.Tensor, computed: torch.Tensor, may_resize: bool) -> None:
    """Write ``computed`` into ``target``, casting and (for ``out=``) resizing as CPU does."""
    if target is computed:
        return
    if target.device != computed.device:
        raise cells.mixed_devices(computed if cells.is_lazy(target) else target, op._schema.name)
    if not torch.can_cast(computed.dtype, target.dtype):
        raise _cannot_cast(computed.dtype, target.dtype)
    if computed.shape != target.shape:
        if not may_resize:
            raise RuntimeError(
                f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(computed.shape)}"
            )
        target.resize_(computed.shape)
    target.copy_(computed)


def _cannot_cast(computed: torch.dtype, target: torch.dtype) -> RuntimeError:
    return RuntimeError(f"result type {scalar_name(computed)} can't be cast to the desired output type {scalar_name(target)}")
