"""The key of a program: the ingredients that decide it, apart as well as hashed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lazytpu.ir import Trace


class Key(NamedTuple):
    """What decides a program.

    ``code`` is the ops with their signatures and input ids; ``outputs`` the ids that live on;
    ``donated`` the leaves whose memory may be reused; ``placement`` the platform and devices.
    Types of leaves follow from the signatures, and numbers are no part of the program.
    """

    code: tuple[int, ...]
    outputs: tuple[int, ...]
    donated: tuple[int, ...]
    placement: tuple[object, ...]


def key_of(trace: Trace, outputs: Sequence[int], donated: Sequence[int], placement: tuple[object, ...]) -> Key:
    """The key of ``trace`` with this liveness and placement."""
    return Key(trace.code(), tuple(outputs), tuple(donated), placement)
