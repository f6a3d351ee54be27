"""lazytpu: unchanged PyTorch code on TPUs.

``import lazytpu`` makes ``tpu`` a PyTorch device. Ops on it are recorded and run as whole XLA
programs; where no TPU is attached, XLA's CPU client plays the chips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any as _Any

import torch as _torch

from lazytpu.counts import metrics, reset_metrics
from lazytpu.device.register import register as _register
from lazytpu.recorder import current_trace, eager, last_trace, sync
from lazytpu.storage import LazyStorage
from lazytpu.tensor import LazyTensor

if TYPE_CHECKING:
    from lazytpu.dispatch.later import Later as _Later

__version__ = "0.1.0"

__all__ = [
    "LazyStorage",
    "LazyTensor",
    "current_trace",
    "eager",
    "from_jax",
    "last_trace",
    "later",
    "metrics",
    "reset_metrics",
    "sync",
    "to_jax",
]


def later(tensor: _torch.Tensor) -> _Later:
    """A handle to read ``tensor`` with in a later step, without stalling this one: ``.done()``, ``.result()``."""
    from lazytpu.dispatch.later import later as make

    return make(tensor)


def to_jax(tensor: _torch.Tensor) -> _Any:
    """The content of a tensor as a ``jax.Array``: a snapshot that later ops do not change, no copy."""
    from lazytpu.device.interop import to_jax as make

    return make(tensor)


def from_jax(array: _Any) -> _torch.Tensor:
    """A tensor on ``tpu`` with the content of a ``jax.Array``, without a copy where it is on the same chip."""
    from lazytpu.device.interop import from_jax as make

    return make(array)


# While ``import torch`` is still running, its entry point registers the device, and never fails.
if not getattr(_torch.__spec__, "_initializing", False):
    _register()

