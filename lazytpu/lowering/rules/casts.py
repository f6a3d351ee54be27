"""Conversions of dtype."""

from __future__ import annotations

from typing import Any

from lazytpu.lowering.context import Context
from lazytpu.lowering.conversion import convert
from lazytpu.lowering.registry import rule


@rule("lazytpu::cast")
def cast(ctx: Context, x: Any) -> Any:
    return convert(x, ctx.dtype)
