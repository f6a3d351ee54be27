"""There is one device: what an index may be."""

from __future__ import annotations

from typing import Any

import torch


def check_index(device: Any) -> int:
    """The index that ``device`` means: 0, or -1 for an index below zero, which means none.

    Raises:
        ValueError: ``device`` is on another kind of device.
        RuntimeError: ``device`` names a chip other than the first.
    """
    if device is None:
        return 0
    if isinstance(device, int):
        index = device
    else:
        device = torch.device(device)
        if device.type != "tpu":
            raise ValueError(f"Expected a tpu device, but got: {device}")
        index = device.index or 0
    if index > 0:
        raise RuntimeError(
            f"tpu:{index}: there is one device, 'tpu' (or 'tpu:0'): it stands for all chips of the mesh together. "
            "Chips are not indexed one by one."
        )
    return max(index, -1)
