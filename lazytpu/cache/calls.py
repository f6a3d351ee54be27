"""Custom calls: code outside a program that it calls by name, so which must be there when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lazytpu.runtime import compat

_CALL = re.compile(r"custom_call\b(?: @([\w.$-]+))?")
_LAPACK = "lapack_"
_IN_COMPILER = {
    "ApproxTopK", "Eigh", "LuDecomposition", "ProductOfElementaryHouseholderReflectors", "Qr",
    "SPMDFullToShardShape", "SPMDShardToFullShape", "Sharding", "tpu_custom_call",
}  # fmt: skip
"""Names that XLA's own compilers replace by code."""


def calls_in(text: str) -> list[str]:
    """The names that StableHLO text calls; one that cannot be read is empty."""
    return sorted(set(_CALL.findall(text)))


def portable(calls: Iterable[str]) -> bool:
    """Whether another process can run a program with these calls: a callback into this process is not."""
    return all(name in _IN_COMPILER or name.startswith(_LAPACK) for name in calls)


def prepare(calls: Iterable[str]) -> None:
    """Make ready what a program calls, as lowering it would have: LAPACK's functions are null pointers before."""
    if any(name.startswith(_LAPACK) for name in calls):
        compat.initialize_lapack()
