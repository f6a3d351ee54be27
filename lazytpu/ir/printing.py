"""A trace as readable text and as a DOT graph."""

from __future__ import annotations

from lazytpu.ir.signature import Slot
from lazytpu.ir.trace import NUMBER_FLOAT, NUMBER_INT, Node, Trace


def _operands(trace: Trace) -> list[list[str]]:
    """For each node, its inputs as text; numbers are shown with the value of this run."""
    floats, ints = iter(trace.floats), iter(trace.ints)
    rows = []
    for node in trace.nodes:
        row = []
        for id in node.inputs:
            if id == NUMBER_FLOAT:
                row.append(f"{next(floats)!r}")
            elif id == NUMBER_INT:
                row.append(f"{next(ints)!r}")
            else:
                row.append(f"%{id}")
        rows.append(row)
    return rows


def _argument(template: object, operands: list[str]) -> str:
    if isinstance(template, Slot):
        return operands[template.index]
    if isinstance(template, list):
        return "[" + ", ".join(_argument(item, operands) for item in template) + "]"
    return repr(template)


def _call(node: Node, operands: list[str]) -> str:
    arguments = ", ".join(_argument(a, operands) for a in node.signature.args)
    return f"{node.signature.op}({arguments})"


def _live(trace: Trace) -> set[int]:
    return {value.id for value in trace.live()} if trace.outputs is None else set(trace.outputs)


def to_text(trace: Trace, sources: bool = True) -> str:
    """One line a leaf and one line an op; live results are marked with ``*``."""
    live = _live(trace)
    lines = [f"%{id} = leaf : {trace.types[id]}" for id, _ in trace.leaves]
    for node, operands in zip(trace.nodes, _operands(trace)):
        ids = range(node.first, node.first + len(node.signature.outputs))
        results = ", ".join(f"%{id}{'*' if id in live else ''}" for id in ids)
        types = ", ".join(map(repr, node.signature.outputs))
        where = f"  # {node.source}" if sources and node.source else ""
        lines.append(f"{results} = {_call(node, operands)} : {types}{where}")
    return "\n".join(lines) if lines else "(empty trace)"


def to_dot(trace: Trace) -> str:
    """The trace as a graph in Graphviz's DOT language; boxes are ops, ellipses leaves."""
    live = _live(trace)
    owner: dict[int, str] = {}
    lines = ["digraph trace {", "  rankdir=TB;", '  node [fontname="monospace", fontsize=10];']
    for id, _ in trace.leaves:
        owner[id] = f"leaf{id}"
        lines.append(f'  leaf{id} [shape=ellipse, label="%{id}\\n{trace.types[id]}"];')
    for position, node in enumerate(trace.nodes):
        name = f"op{position}"
        ids = range(node.first, node.first + len(node.signature.outputs))
        owner.update(dict.fromkeys(ids, name))
        label = "\\n".join([node.signature.op, *(f"%{id}: {trace.types[id]}" for id in ids)])
        style = ', style=bold, color="#1a73e8"' if any(id in live for id in ids) else ""
        lines.append(f'  {name} [shape=box, label="{label}"{style}];')
        lines.extend(f"  {owner[id]} -> {name};" for id in node.inputs if id >= 0)
    return "\n".join([*lines, "}"])
