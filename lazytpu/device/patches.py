"""The places where PyTorch must be told of ``tpu`` in Python, since its C++ has no hook for them.

Each patch looks at the device first: tensors and modules elsewhere take PyTorch's own path.
"""

from __future__ import annotations

from typing import Any

import torch


def apply() -> None:
    """Apply every patch, once."""
    from lazytpu.device import (
        accelerator,
        autocast,
        backward,
        display,
        generators,
        interop,
        modules,
        scripting,
        storages,
        streams,
    )
    from lazytpu.regions import backend as regions

    torch.Generator = generators.Generator  # type: ignore[misc, assignment]
    torch.Stream = streams.Stream  # type: ignore[misc]
    torch.Event = streams.Event  # type: ignore[misc]
    for part in (accelerator, autocast, backward, display, interop, modules, regions, scripting, storages):
        part.apply()
    _step_hook()


def _step_hook() -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from lazytpu import recorder

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder.cut("optimizer.step")

    register_optimizer_step_post_hook(after_step)
