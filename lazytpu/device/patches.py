"""The places where PyTorch must be told of ``tpu`` in Python, since its C++ has no hook for them.

Each patch looks at the device first: tensors and modules elsewhere take PyTorch's own path.
"""

from __future__ import annotations

from typing import Any

import torch


def apply() -> None:
    """Apply every patch, once."""
    from lazytpu.device import generators

    torch.Generator = generators.Generator  # type: ignore[misc]
    _step_hook()


def _step_hook() -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        from lazytpu import recorder

        recorder.cut("optimizer.step")

    register_optimizer_step_post_hook(after_step)
