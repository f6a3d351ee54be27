"""Device buffers, and a count of the bytes they take.

A ``Buffer`` owns one ``jax.Array``. The count of live bytes follows the lifetime of these objects,
so it needs no walk over the heap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazytpu.runtime import compat
from lazytpu.runtime.client import client


class Usage:
    """Bytes on the device: now, at the highest, and what programs needed for temporaries."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0

    def note(self, extra: int = 0) -> None:
        """Take ``extra`` bytes on top of what is live into the peak."""
        self.peak = max(self.peak, self.live + extra)


usage = Usage()
"""The device's memory, as far as lazytpu allocated it."""


class Buffer:
    """One array on the device. ``exported`` says that someone outside may hold its memory."""

    __slots__ = ("array", "nbytes", "exported")

    def __init__(self, array: Any, nbytes: int) -> None:
        self.array = array
        self.nbytes = nbytes
        self.exported = False
        usage.live += nbytes

    def __del__(self, usage: Usage = usage) -> None:
        usage.live -= self.nbytes


def put(array: np.ndarray) -> Buffer:
    """Move a NumPy array to the device; the memory may be kept, so the caller gives it up."""
    where = client()
    buffer = Buffer(compat.put(array, where.sharding, where.devices[0]), array.nbytes)
    usage.note()
    return buffer
