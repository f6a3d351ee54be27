"""Kernels of ops that are best recorded as other ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KERNELS: dict[str, Callable[..., Any]] = {}
"""Kernels on ``PrivateUse1`` by overload name."""

AUTOGRAD_KERNELS: dict[str, Callable[..., Any]] = {}
"""Kernels on ``AutogradPrivateUse1``: implicit ops whose inner ops carry the gradient."""
