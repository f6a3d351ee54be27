"""The ``torch.backends`` entry point: PyTorch calls ``autoload`` at the end of ``import torch``.

A module of its own, since ``import lazytpu`` may be what imports PyTorch, and is then half done.
"""

from __future__ import annotations

import sys
import warnings


def autoload() -> None:
    """Register the device; where that cannot be, warn: ``import torch`` goes on without it."""
    try:
        from lazytpu.device.register import register

        register()
    except Exception as error:
        warnings.warn(f"the device 'tpu' of lazytpu is not available: {error}", stacklevel=2)
        package = sys.modules.get("lazytpu")
        if package is not None and not getattr(package.__spec__, "_initializing", False):
            del sys.modules["lazytpu"]  # so that a later import raises the error
