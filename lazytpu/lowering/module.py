"""Composing a trace's module: the functions of its signatures and one call an op, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lazytpu.dtypes import to_mlir
from lazytpu.ir import NUMBER_FLOAT, NUMBER_INT, Signature, TensorType, Trace
from lazytpu.lowering.context import Check
from lazytpu.lowering.lower import Lowered, lowered
from lazytpu.lowering.reuse import reused


def mlir_type(type: TensorType) -> str:
    """``type`` as StableHLO spells it."""
    dims = "".join(f"{dim}x" for dim in type.shape)
    return f"tensor<{dims}{to_mlir(type.dtype)}>"


def _types(types: Sequence[TensorType]) -> str:
    return "(" + ", ".join(map(mlir_type, types)) + ")"


class Module(NamedTuple):
    """A module's text, and what its flags check: for each, the op's position in the trace and its demand."""

    text: str
    checks: list[tuple[int, Check]]


def compose(trace: Trace, outputs: Sequence[int], donated: Sequence[int], platform: str) -> Module:
    """The module of ``trace`` as StableHLO text.

    Its entry takes the leaves in order, then the float numbers as one ``tensor<Nxf64>`` and the
    integers as one ``tensor<Nxi64>`` where there are any, and returns the values ``outputs`` (ids).
    ``donated`` are positions among the leaves whose memory XLA may reuse. Where ops have checks,
    their flags are one more result, a ``tensor<Nxi1>``.
    """
    names: dict[int, str] = {}
    arguments = []
    places = reused(trace, outputs, donated)
    reusable = set(donated)
    for position, (id, _) in enumerate(trace.leaves):
        names[id] = f"%a{position}"
        attribute = " {jax.buffer_donor = true}" if position in reusable else ""
        if position in places:
            attribute = f" {{tf.aliasing_output = {places[position]} : i32}}"
        arguments.append(f"%a{position}: {mlir_type(trace.types[id])}{attribute}")
    if trace.floats:
        arguments.append(f"%floats: tensor<{len(trace.floats)}xf64>")
    if trace.ints:
        arguments.append(f"%ints: tensor<{len(trace.ints)}xi64>")

    lines: list[str] = []
    functions: dict[int, Lowered] = {}
    checks: list[tuple[int, Check]] = []
    flags: list[str] = []
    taken = {NUMBER_FLOAT: 0, NUMBER_INT: 0}
    for position, node in enumerate(trace.nodes):
        signature = node.signature
        function = functions.get(signature.index)
        if function is None:
            function = functions[signature.index] = lowered(signature, platform)
        operands = []
        for id, type in zip(node.inputs, signature.inputs):
            if id >= 0:
                operands.append(names[id])
            else:
                operands.append(_number(lines, id, taken[id], len(trace.floats if id == NUMBER_FLOAT else trace.ints), type))
                taken[id] += 1
        results = [mlir_type(t) for t in signature.outputs]
        if function.check is not None:
            results.append("tensor<i1>")
        result = f"%v{node.first}"
        count = len(results)
        bound = [result] if count == 1 else [f"{result}#{i}" for i in range(count)]
        names.update(zip(range(node.first, node.first + len(signature.outputs)), bound))
        if function.check is not None:
            checks.append((position, function.check))
            flags.append(bound[-1])
        left = f"{result} = " if count == 1 else f"{result}:{count} = " if count else ""
        lines.append(
            f"    {left}func.call @{function.name}({', '.join(operands)}) : "
            f"{_types(signature.inputs)} -> ({', '.join(results)}){_location(signature, node.source)}"
        )
    returned = [names[id] for id in outputs]
    types = [mlir_type(trace.types[id]) for id in outputs]
    if flags:
        lines.extend(f"    %k{i} = stablehlo.reshape {flag} : (tensor<i1>) -> tensor<1xi1>" for i, flag in enumerate(flags))
        pieces = ", ".join(f"%k{i}" for i in range(len(flags)))
        of = ", ".join(["tensor<1xi1>"] * len(flags))
        lines.append(f"    %flags = stablehlo.concatenate {pieces}, dim = 0 : ({of}) -> tensor<{len(flags)}xi1>")
        returned.append("%flags")
        types.append(f"tensor<{len(flags)}xi1>")
    end = f"    return {', '.join(returned)} : {', '.join(types)}" if returned else "    return"
    text = [
        "module @lazytpu attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {",
        f"  func.func public @main({', '.join(arguments)}) -> ({', '.join(types)}) {{",
        *lines,
        end,
        "  }",
        *(f.text for f in functions.values()),
        "}",
    ]
    return Module("\n".join(text), checks)


def _number(lines: list[str], id: int, index: int, count: int, type: TensorType) -> str:
    """Emit the extraction of one packed number; returns its name."""
    pack, element = ("floats", "f64") if id == NUMBER_FLOAT else ("ints", "i64")
    name = f"%{pack[0]}n{index}"
    lines.append(
        f"    {name}s = stablehlo.slice %{pack} [{index}:{index + 1}] : (tensor<{count}x{element}>) -> tensor<1x{element}>"
    )
    lines.append(f"    {name} = stablehlo.reshape {name}s : (tensor<1x{element}>) -> tensor<{element}>")
    wanted = to_mlir(type.dtype)
    if wanted == element:
        return name
    lines.append(f"    {name}c = stablehlo.convert {name} : (tensor<{element}>) -> tensor<{wanted}>")
    return f"{name}c"


def _location(signature: Signature, source: object) -> str:
    if source is None:
        return ""
    file = source.file.replace("\\", "\\\\").replace('"', '\\"')  # type: ignore[attr-defined]
    return f' loc("{signature.op}"("{file}":{source.line}:1))'  # type: ignore[attr-defined]
