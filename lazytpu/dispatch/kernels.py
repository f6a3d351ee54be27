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
from lazytpu.dispatch import cells, host, infer, overlap
from lazytpu.dispatch.checks import CHECKS, scalar_name
from lazytpu.dispatch.schema import Schema, name_of, overload, schema_of
from lazytpu.ir import Signature, Slot, TensorType, Value, tensor_type
from lazytpu.lowering.registry import Rule
from lazytpu.storage import LazyStorage

_default_dtype = torch.get_default_dtype
_storage_of: Callable[[torch.Tensor], Any] = torch._C.TensorBase.untyped_storage
_make_tensor = torch._C._acc.create_empty_tensor

_TENSOR, _TENSORS, _NUMBER, _NUMBERS, _STATIC, _DROPPED = range(6)
_DROPPED_NAMES = frozenset({"device", "pin_memory", "generator"})
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


def _how(schema: Schema, rule: Rule) -> list[int]:
    """How each argument is passed, by its type in the schema and the rule's declarations."""
    how = []
    for name, type in zip(schema.names, schema.types):
        bare = type.removeprefix("Optional[").rstrip("]") if type.startswith("Optional[") else type
        if bare == "Tensor":
            how.append(_TENSOR)
        elif type in ("List[Tensor]", "List[Optional[Tensor]]"):
            how.append(_TENSORS)
        elif name in _DROPPED_NAMES:
            how.append(_DROPPED)
        elif bare.startswith("List[number") or type == "List[number]":
            how.append(_STATIC if name in rule.static else _NUMBERS)
        elif bare == "number":
            how.append(_STATIC if name in rule.static else _NUMBER)
        else:
            how.append(_NUMBER if name in rule.numbers else _STATIC)
    return how


def _frozen(x: Any) -> Any:
    """A hashable stand-in for a static argument that tells 1, 1.0 and True apart, and 0.0 from -0.0."""
    kind = type(x)
    if kind is float:
        return (float, x.hex())
    if kind is int or kind is bool or kind is complex:
        return (kind, repr(x))
    if kind is list or kind is tuple:
        return tuple(map(_frozen, x))
    return x


def _wrap_int(x: int) -> int:
    """``x`` as a signed 64-bit number with the same low bits."""
    return ((x + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


class Gathered:
    """A call taken apart: its values and numbers, and the key of everything else."""

    __slots__ = ("op", "inputs", "key")

    def __init__(self, op: str) -> None:
        self.op = op
        self.inputs: list[Value | float | int] = []
        self.key: list[Any] = []

    def number(self, x: Any) -> None:
        """Add a Python number as a runtime input; complex numbers are static."""
        kind = type(x)
        if kind is float:
            self.inputs.append(x)
            self.key.append(float)
        elif kind is int:
            self.inputs.append(x if -(1 << 63) <= x < (1 << 63) else _wrap_int(x))
            self.key.append(int)
        elif kind is bool:
            self.inputs.append(int(x))
            self.key.append(bool)
        elif x is None:
            self.key.append(None)
        elif isinstance(x, torch.Tensor):
            self.tensor(x)
        else:
            self.key.append(_frozen(x))

    def tensor(self, x: Any) -> None:
        """Add a tensor on ``tpu``, a CPU scalar tensor, a number, or None."""
        if isinstance(x, torch.Tensor):
            storage = _storage_of(x)
            if type(storage) is LazyStorage:
                value = cells.read(x) if storage.viewed else storage.value
                self.inputs.append(value)
                self.key.append(value.type)
            elif x.device.type == "tpu":
                cells.storage_of(x)
            elif x.dim() or x.device.type != "cpu":
                raise cells.mixed_devices(x, self.op)
            elif x.dtype.is_complex:
                value = host.upload(x)
                self.inputs.append(value)
                self.key.append(value.type)
            else:
                scalar = x.item()
                self.inputs.append(scalar if type(scalar) is float else int(scalar))
                self.key.append(("scalar", x.dtype))
        else:
            self.number(x)


def _template(
    how: list[int], args: list[Any], gathered: Gathered
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
        if kind in (_TENSOR, _NUMBER):
            template.append(slot(x))
        elif kind in (_TENSORS, _NUMBERS):
            template.append(None if x is None else [slot(item) for item in x])
        elif kind == _DROPPED:
            template.append(None)
        else:
            template.append(tuple(x) if isinstance(x, list) else x)
    return tuple(template), tuple(types), tuple(kinds)


def gather(schema: Schema, how: list[int], args: list[Any]) -> Gathered:
    """Take a call's arguments apart into runtime inputs and a key."""
    gathered = Gathered(schema.name)
    key = gathered.key
    key.append(_default_dtype())
    inputs = gathered.inputs
    for kind, x in zip(how, args):
        if kind == _TENSOR:
            if x is None:
                key.append(None)
                continue
            if isinstance(x, torch.Tensor):
                storage = _storage_of(x)
                if type(storage) is LazyStorage and not storage.viewed:
                    value = storage.value
                    inputs.append(value)
                    key.append(value.type)
                    continue
            gathered.tensor(x)
        elif kind == _STATIC:
            key.append(x if x is None else _frozen(x))
        elif kind == _NUMBER:
            gathered.number(x)
        elif kind == _TENSORS:
            key.append(len(x))
            for item in x:
                gathered.tensor(item)
        elif kind == _NUMBERS:
            key.append(None if x is None else len(x))
            for item in x or ():
                gathered.number(item)
    return gathered


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
        self.how = _how(self.schema, rule)
        self.entries: dict[tuple[Any, ...], _Entry] = {}
        self.written = self.schema.written

    def bind(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Arguments in the schema's order."""
        if kwargs or len(args) != self.count:
            return self.schema.bind(args, kwargs)
        return args

    def record(self, args: Any) -> tuple[_Entry, list[Value]]:
        """Record a call; ``args`` are in the schema's order."""
        gathered = gather(self.schema, self.how, args)
        entry = self.entries.get(tuple(gathered.key))
        if entry is None:
            entry = self.learn(args, gathered)
        if self.rule.random:
            gathered.inputs.extend(random.next_seed(self.generator(args)))
        return entry, recorder.record(entry.signature, gathered.inputs)

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

    def learn(self, args: Any, gathered: Gathered) -> _Entry:
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
        template, types, kinds = _template(self.how, args, gathered)
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
        self.entries[tuple(gathered.key)] = entry
        return entry


def functional_kernel(op: OpOverload, rule: Rule) -> Callable[..., Any]:
    """The kernel of a functional overload."""
    recording = Recording(op, rule)
    new = cells.new

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args = recording.bind(args, kwargs)
        with recorder.lock:
            entry, values = recording.record(args)
            if rule.pointwise and entry.single:
                stride = _pointwise_stride(op, args)
                if stride is not None:
                    return cells.new_strided(values[0], stride)
            if entry.single:
                return new(values[0])
            return infer.rebuild(entry.structure, map(new, values))

    return kernel


def _pointwise_stride(op: OpOverload, args: Any) -> tuple[int, ...] | None:
    """The strides that CPU would give the result; None for row-major."""
    for x in args:
        for item in x if type(x) is list else (x,):
            if isinstance(item, torch.Tensor) and item.dim() > 1 and not item.is_contiguous():
                return infer.call(op, list(args), strided=True).stride()
    return None


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
                _, values = recording.record(args)
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
            _, values = recording.record(args)
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
