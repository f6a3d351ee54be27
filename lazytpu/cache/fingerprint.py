"""What decides a program besides its trace: sources, versions, the machine, flags and options."""

from __future__ import annotations

import hashlib
import os
import platform
from enum import Enum
from functools import lru_cache
from pathlib import Path

import jax
import jaxlib
import torch

import lazytpu
from lazytpu.runtime import program
from lazytpu.runtime.client import Client

_PACKAGE = Path(lazytpu.__file__).parent
_SOURCES = ("cache", "ir", "lowering", "runtime", "dtypes.py", "launch.py")
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC")


def versions() -> dict[str, str]:
    """The versions that an executable depends on, by name."""
    return {
        "lazytpu": lazytpu.__version__, "torch": torch.__version__,
        "jax": jax.__version__, "jaxlib": jaxlib.__version__,
    }  # fmt: skip


def fingerprint(where: Client) -> str:
    """The environment as text: two processes may share the executable of a key only where it is equal.

    Raises:
        OSError: the package's sources cannot be read.
    """
    device = where.devices[0]
    devices = (device.device_kind, len(where.devices), device.client.platform_version)
    return repr((_process(), devices, sorted(program.overrides().items()), _jax_configuration()))


@lru_cache(maxsize=1)
def _process() -> str:
    """What stays as it is while the process lives."""
    flags = [(name, os.environ.get(name)) for name in _FLAGS]
    return repr((sorted(versions().items()), _source_digest(), _processor(), os.cpu_count(), flags))


def _source_digest() -> str:
    """A digest of the sources that turn a trace into a program."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        path = _PACKAGE / name
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(_PACKAGE).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def _processor() -> str:
    """The host's processor and its features: XLA compiles for exactly these."""
    wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    found = []
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if not line.strip():  # the end of the first processor
                    break
                if line.startswith(wanted):
                    found.append(line.strip())
    except OSError:
        pass
    # What platform.processor() starts is a process of its own.
    return "\n".join([platform.machine(), *(found or [platform.processor()])])


def _jax_configuration() -> str:
    """JAX's options, any of which may change what a rule lowers to; paths only say where it writes."""
    plain = (bool, int, float, str, Enum)
    return repr(sorted((k, v) for k, v in jax.config.values.items() if isinstance(v, plain) and os.sep not in str(v)))
