"""lazytpu: unchanged PyTorch code on TPUs.

``import lazytpu`` makes ``tpu`` a PyTorch device. Ops on it are recorded and run as whole XLA
programs; where no TPU is attached, XLA's CPU client plays the chips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch as _torch

from lazytpu.counts import metrics, reset_metrics
from lazytpu.device.register import register as _register
from lazytpu.recorder import current_trace, eager, last_trace, sync
from lazytpu.storage import LazyStorage
from lazytpu.tensor import LazyTensor

if TYPE_CHECKING:
    from lazytpu.dispatch.later import Later as _Later

__version__ = "0.1.0"

__all__ = ["LazyStorage", "LazyTensor", "current_trace", "eager", "last_trace", "later", "metrics", "reset_metrics", "sync"]


def later(tensor: _torch.Tensor) -> _Later:
    """A handle to read ``tensor`` with in a later step, without stalling this one: ``.done()``, ``.result()``."""
    from lazytpu.dispatch.later import later as make

    return make(tensor)


def _autoload() -> None:
    """What PyTorch's ``torch.backends`` entry point calls: importing this module did the work."""


_register()

