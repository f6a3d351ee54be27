"""Why a trace missed: the first difference from the trace compiled before at the same line."""

from __future__ import annotations

from typing import NamedTuple

from lazytpu import notices
from lazytpu.cache.key import Key
from lazytpu.ir import Node, Signature, Source, Trace

WARN_AFTER = 3
"""Programs compiled for one line before the reason is told."""


class _Seen(NamedTuple):
    """A compiled trace, kept without its buffers."""

    nodes: list[Node]
    key: Key


_last: dict[str, _Seen] = {}
_misses: dict[str, int] = {}


def note_miss(trace: Trace, key: Key, source: Source) -> None:
    """Take note that ``trace``, cut at the user's line ``source``, had to be compiled; tell why after the third."""
    site = str(source)
    _misses[site] = count = _misses.get(site, 0) + 1
    seen = _Seen(trace.nodes, key)
    before, _last[site] = _last.get(site), seen
    if count == WARN_AFTER and before is not None:
        notices.warn(
            f"{count} programs have been compiled for the trace that ends here. The last differs from the one before: "
            f"{difference(before, seen)}",
            source,
        )


def difference(before: _Seen, now: _Seen) -> str:
    """What differs between two traces, the first op that does with its line, before and after."""
    for old, new in zip(before.nodes, now.nodes):
        if old.signature is not new.signature:
            if old.signature.op == new.signature.op:
                return f"{new.signature.op} at {new.source} had {_changes(old.signature, new.signature)}"
            return f"{new.signature.op} at {new.source} stands where {old.signature.op} at {old.source} stood"
        if old.inputs != new.inputs:
            return f"{new.signature.op} at {new.source} takes other inputs: {old.inputs} before, {new.inputs} now"
    if len(before.nodes) != len(now.nodes):
        longer, which = (now, "more") if len(now.nodes) > len(before.nodes) else (before, "fewer")
        extra = longer.nodes[min(len(before.nodes), len(now.nodes))]
        return (
            f"it has {abs(len(now.nodes) - len(before.nodes))} ops {which} ({len(before.nodes)} before, {len(now.nodes)} now), "
            f"from {extra.signature.op} at {extra.source} on"
        )
    if before.key.outputs != now.key.outputs:
        changed = sorted(set(before.key.outputs) ^ set(now.key.outputs))
        maker = _maker(now.nodes, changed[0])
        kept = "is kept now and was not before" if changed[0] in now.key.outputs else "was kept before and is not now"
        return f"other results live on: that of {maker} {kept}"
    if before.key.donated != now.key.donated:
        return "other inputs are still in use elsewhere, so the memory of others may be reused"
    return f"it is placed on {now.key.placement}, not {before.key.placement}"


def _changes(old: Signature, new: Signature) -> str:
    if old.inputs != new.inputs:
        return f"inputs {old.inputs} before, {new.inputs} now: shapes and dtypes are part of a program"
    if old.outputs != new.outputs:
        return f"results {old.outputs} before, {new.outputs} now: shapes and dtypes are part of a program"
    return f"arguments ({old.static_args()}) before, ({new.static_args()}) now: they are part of a program"


def _maker(nodes: list[Node], id: int) -> str:
    for node in nodes:
        if node.first <= id < node.first + len(node.signature.outputs):
            return f"{node.signature.op} at {node.source}"
    return f"%{id}"
