"""Where an op was recorded: the user's file and line, kept as a code object and an offset."""

from __future__ import annotations

import os
import sys
from types import CodeType
from typing import NamedTuple

import torch

_PACKAGE_ROOTS = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (os.path.dirname(__file__), torch.__file__)
)
library_code: dict[CodeType, bool] = {}
"""What ``is_library_code`` found so far."""


class Source(NamedTuple):
    """A place in the user's program; the line is looked up only when someone asks."""

    code: CodeType
    instruction: int

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def line(self) -> int:
        """The 1-based line, or the function's first line where the offset has none."""
        for start, end, line in self.code.co_lines():
            if start <= self.instruction < end and line is not None:
                return line
        return self.code.co_firstlineno

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def is_library_code(code: CodeType) -> bool:
    """Whether ``code`` belongs to PyTorch, to this package or to the interpreter's own frozen modules."""
    known = library_code.get(code)
    if known is None:
        name = code.co_filename
        known = name.startswith((*_PACKAGE_ROOTS, "<frozen", "<eval_with_key"))
        library_code[code] = known
    return known


def user_source(depth: int = 1) -> Source | None:
    """The innermost frame that is the user's, looking outward from ``depth`` frames up."""
    frame = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        known = library_code.get(code)
        if known is None:
            known = is_library_code(code)
        if not known:
            return Source(code, frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]
    return None
