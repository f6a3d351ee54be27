"""Warnings that point at the user's line."""

from __future__ import annotations

import warnings

from lazytpu.ir import Source
from lazytpu.ir.source import user_source


def warn(message: str, at: Source | None = None) -> None:
    """Warn at the user's line ``at``, or at the one that is calling into the device now."""
    source = at or user_source(2)
    if source is None:
        warnings.warn(message, UserWarning, stacklevel=2)
    else:
        warnings.warn_explicit(f"{source}: {message}", UserWarning, source.file, source.line)
