"""Templates: the last traces, which the next steps of a training loop repeat op by op.

While a trace repeats a template it borrows the template's ops: nothing is inferred, hashed or added.
At the cut a template gives the program at once, by the values that live on and the memory that may
be reused. Ops are compared with the place that recorded them, so that errors name the right line.
"""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from lazytpu.ir import Signature, Trace
from lazytpu.ir.ops import Ops

if TYPE_CHECKING:
    from lazytpu.runtime.program import Program

Liveness = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids that live on, and the positions of the leaves whose memory may be reused."""

MAX_TEMPLATES = 32
MAX_OPS = 1 << 17
"""Ops in all templates together, at most: some 20 MB."""
MAX_PROGRAMS = 16
"""Programs remembered for one template, at most: one for each liveness."""


class Template:
    """The ops of a trace and the programs compiled for it. It holds no value, buffer or frame."""

    __slots__ = ("ops", "programs")

    def __init__(self, ops: Ops) -> None:
        self.ops = ops
        self.programs: dict[Liveness, Program] = {}


_templates: list[Template] = []


def begin(trace: Trace, signature: Signature, inputs: tuple[int, ...], code: CodeType | None, instruction: int) -> bool:
    """Let ``trace`` repeat a template from its next op on, which is this one; false if there is none to repeat.

    The templates considered begin with what the trace has recorded so far.
    """
    count = trace.count
    for template in _templates:
        ops = template.ops
        if ops.has(count, signature, inputs, code, instruction) and (not count or ops.starts_like(trace.ops, count)):
            trace.ops, trace.replaying = ops, True
            return True
    return False


def _whole(trace: Trace) -> Template | None:
    """The template that ``trace`` repeats from its first op to its last."""
    for template in _templates:
        ops = template.ops
        if len(ops) == trace.count and (ops is trace.ops or ops.starts_like(trace.ops, trace.count)):
            return template
    return None


def find(trace: Trace, liveness: Liveness) -> Program | None:
    """The program of a trace that repeats a template in full, if one is known for this liveness."""
    if not trace.replaying:
        return None
    template = _whole(trace)
    if template is None:
        return None
    if template is not _templates[0]:
        _templates.remove(template)
        _templates.insert(0, template)
    trace.ops = template.ops
    return template.programs.get(liveness)


def add(trace: Trace, liveness: Liveness, program: Program) -> None:
    """Remember the program of ``trace``, whose ops the template keeps."""
    template = _whole(trace)
    if template is None:
        if trace.replaying:
            trace.leave_replay()
        template = Template(trace.ops)
        _templates.insert(0, template)
        while len(_templates) > MAX_TEMPLATES or (len(_templates) > 1 and sum(len(t.ops) for t in _templates) > MAX_OPS):
            _templates.pop()
    if len(template.programs) >= MAX_PROGRAMS:
        template.programs.pop(next(iter(template.programs)))
    template.programs[liveness] = program


def clear() -> None:
    """Forget all templates."""
    _templates.clear()


def count() -> tuple[int, int]:
    """How many templates there are, and how many ops they hold."""
    return len(_templates), sum(len(t.ops) for t in _templates)
