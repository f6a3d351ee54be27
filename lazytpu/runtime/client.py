"""Which chips lazytpu runs on: a TPU where one is attached, else chips that XLA's CPU client plays.

``LAZYTPU_PLATFORM`` insists on one: ``tpu``, ``gpu`` or ``cpu``. JAX's own client is shared, so JAX
programs in the same process see the same devices and the user's JAX configuration stays as it is.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Any, NamedTuple

_PLATFORMS = ("tpu", "gpu", "cpu")
_lock = threading.Lock()
_client: Client | None = None


class Client(NamedTuple):
    """The platform, its devices, and the sharding that puts an array on the first of them."""

    platform: str
    devices: tuple[Any, ...]
    sharding: Any


def client() -> Client:
    """The client in use; the first call starts JAX's back end.

    Raises:
        RuntimeError: ``LAZYTPU_PLATFORM`` asks for what this machine does not have.
    """
    global _client
    if _client is None:
        with _lock:
            if _client is None:
                _client = _start()
    return _client


def started() -> bool:
    """Whether this process has started JAX's back end, for lazytpu or for itself; starts nothing."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return _client is not None or bool(getattr(bridge, "_backends", None))


def _start() -> Client:
    wish = os.environ.get("LAZYTPU_PLATFORM", "").strip().lower()
    if wish and wish not in _PLATFORMS:
        raise RuntimeError(f"LAZYTPU_PLATFORM={wish!r} is not one of {', '.join(_PLATFORMS)}")
    first = not started()
    import jax

    if wish:
        platform = wish
        devices, failure = _devices(jax, wish)
    else:
        platform = "tpu"
        devices, failure = _devices(jax, "tpu")
        if not devices:
            platform = "cpu"
            devices, failure = _devices(jax, "cpu")
            if devices:
                print(
                    "lazytpu: no TPU is attached, so XLA's CPU client plays one chip "
                    "(LAZYTPU_PLATFORM=cpu says this is meant, LAZYTPU_PLATFORM=tpu insists on a TPU).",
                    file=sys.stderr,
                )
    if not devices:
        raise RuntimeError(_missing(wish or "cpu", bool(wish), failure))
    if first:
        os.register_at_fork(before=_quiet_jax)  # the hook registered last runs first
    return Client(platform, tuple(devices), jax.sharding.SingleDeviceSharding(devices[0]))


def _quiet_jax() -> None:
    """JAX warns of every fork; a forked child that touches the device gets lazytpu's own error."""
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)


def _devices(jax: Any, platform: str) -> tuple[list[Any], Exception | None]:
    """The devices of a platform, or why there are none."""
    try:
        return jax.local_devices(backend=platform), None
    except Exception as error:  # JAX raises RuntimeError, and AssertionError where JAX_PLATFORMS names what it lacks
        return [], error


def _missing(platform: str, wished: bool, failure: Exception | None) -> str:
    import importlib.util

    reason = {
        "tpu": "no TPU answered"
        + ("" if importlib.util.find_spec("libtpu") else ", and libtpu is not installed (pip install 'jax[tpu]')"),
        "gpu": "no GPU answered; it takes an NVIDIA or AMD card and a jax plug-in for it (pip install 'jax[cuda12]')",
        "cpu": "JAX's CPU client is off: JAX_PLATFORMS must contain cpu",
    }[platform]
    limits = os.environ.get("JAX_PLATFORMS")
    start = f"LAZYTPU_PLATFORM={platform} asks for a {platform.upper()}, but" if wished else "no TPU is attached and"
    hint = f"; JAX_PLATFORMS={limits} limits JAX to those" if limits else ""
    cause = f" (JAX said: {str(failure).splitlines()[0]})" if failure is not None and str(failure) else ""
    return f"{start} {reason}{hint}{cause}"
