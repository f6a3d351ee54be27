"""Which chips lazytpu runs on: a TPU where one is attached, else chips that XLA's CPU client plays.

``LAZYTPU_PLATFORM`` insists on one: ``tpu``, ``gpu`` or ``cpu``. JAX's own client is shared, so JAX
programs in the same process see the same devices and the user's JAX configuration stays as it is.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any, NamedTuple

_PLATFORMS = ("tpu", "gpu", "cpu")


class Client(NamedTuple):
    """The platform, its devices, and the sharding that puts an array on the first of them."""

    platform: str
    devices: tuple[Any, ...]
    sharding: Any


def _devices(jax: Any, platform: str) -> list[Any]:
    try:
        return jax.local_devices(backend=platform)
    except RuntimeError:
        return []


@lru_cache(maxsize=1)
def client() -> Client:
    """The client in use; the first call starts JAX's back end.

    Raises:
        RuntimeError: ``LAZYTPU_PLATFORM`` asks for what this machine does not have.
    """
    import jax

    wish = os.environ.get("LAZYTPU_PLATFORM", "").lower()
    if wish and wish not in _PLATFORMS:
        raise RuntimeError(f"LAZYTPU_PLATFORM={wish!r} is not one of {', '.join(_PLATFORMS)}")
    if wish:
        devices = _devices(jax, wish)
        if not devices:
            raise RuntimeError(_missing(wish))
        platform = wish
    else:
        platform, devices = "tpu", _devices(jax, "tpu")
        if not devices:
            platform, devices = "cpu", _devices(jax, "cpu")
            print(
                "lazytpu: no TPU is attached, so XLA's CPU client plays one chip "
                "(LAZYTPU_PLATFORM=cpu says this is meant, LAZYTPU_PLATFORM=tpu insists on a TPU).",
                file=sys.stderr,
            )
    return Client(platform, tuple(devices), jax.sharding.SingleDeviceSharding(devices[0]))


def _missing(wish: str) -> str:
    import importlib.util

    reason = {
        "tpu": "no TPU answered"
        + ("" if importlib.util.find_spec("libtpu") else ", and libtpu is not installed (pip install 'jax[tpu]')"),
        "gpu": "no GPU answered; it takes an NVIDIA or AMD card and a jax plug-in for it (pip install 'jax[cuda12]')",
        "cpu": "JAX's CPU client is off: JAX_PLATFORMS must contain cpu",
    }[wish]
    platforms = os.environ.get("JAX_PLATFORMS")
    hint = f"; JAX_PLATFORMS={platforms} limits JAX to those" if platforms else ""
    return f"LAZYTPU_PLATFORM={wish} asks for a {wish.upper()}, but {reason}{hint}"
