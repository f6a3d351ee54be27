"""Every private name of jaxlib that lazytpu uses, feature-tested at import.

Tested with jax and jaxlib 0.10.2. A jaxlib that lacks one of these names fails here, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

try:
    import jaxlib.xla_client as xla_client
    from jax._src import core as _core
    from jaxlib import _jax
    from jaxlib.cpu import _lapack
except ImportError as error:
    raise ImportError(
        f"lazytpu needs jax and jaxlib 0.10.2 or a close relative; this one ({jax.__version__}) lacks {error.name}"
    ) from error

_NEEDED = {
    _jax: ("array_result_handler",),
    xla_client: ("CompileOptions", "DeviceAssignment", "batched_device_put"),
    _core: ("ShapedArray",),
    _lapack: ("initialize",),
}
for _module, _names in _NEEDED.items():
    for _name in _names:
        if not hasattr(_module, _name):
            raise ImportError(f"lazytpu needs {_module.__name__}.{_name}, which jaxlib {jax.__version__} lacks")


def compile_options(device_ids: Sequence[int], overrides: dict[str, Any]) -> Any:
    """Options to compile one program for these devices, one partition each.

    ``overrides`` are XLA debug options by name; a wrong name is an error when compiling.
    """
    count = len(device_ids)
    options = xla_client.CompileOptions()
    options.num_replicas = 1
    options.num_partitions = count
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = 1, count
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    options.device_assignment = xla_client.DeviceAssignment.create(np.array(device_ids).reshape(1, count))
    if overrides:
        options.env_option_overrides = list(overrides.items())
    return options


def compile_module(text: str, devices: Sequence[Any], options: Any) -> Any:
    """Compile StableHLO text to a loaded executable."""
    return devices[0].client.compile_and_load(text, tuple(devices), options)


def serialize(executable: Any) -> bytes:
    """A loaded executable as bytes, for ``deserialize`` of the same jaxlib on the same kind of machine."""
    return executable.serialize()


def deserialize(blob: bytes, devices: Sequence[Any], options: Any) -> Any:
    """The executable that ``blob`` was made from. It must be exactly those bytes: XLA checks next to nothing."""
    return devices[0].client.deserialize_executable(blob, tuple(devices), options)


def initialize_lapack() -> None:
    """Look up the LAPACK functions that linear algebra on the CPU calls; JAX does it when it lowers such an op."""
    _lapack.initialize()


def result_handler(shape: tuple[int, ...], dtype: np.dtype, sharding: Any) -> Callable[[Any], Any]:
    """What turns one output of an execution into a ``jax.Array``, 64-bit types included."""
    aval = _core.ShapedArray(shape, dtype)
    try:
        return _jax.array_result_handler(aval, sharding, True, True)
    except TypeError:
        return _jax.array_result_handler(aval, sharding, True)


def put(array: np.ndarray, sharding: Any, device: Any) -> Any:
    """A ``jax.Array`` on ``device`` with the content of ``array``, whose memory it may keep."""
    aval = _core.ShapedArray(array.shape, array.dtype)
    if array.dtype.itemsize >= 8:
        # Without this context the transfer narrows 64-bit types silently.
        with jax.enable_x64(True):
            return xla_client.batched_device_put(aval, sharding, [array], [device])
    return xla_client.batched_device_put(aval, sharding, [array], [device])


def execute(executable: Any, arguments: list[Any], handlers: list[Callable[[Any], Any]]) -> tuple[list[Any], Any]:
    """Start one execution; returns its outputs as arrays and a token that becomes ready with them."""
    results = executable.execute_sharded(arguments, with_tokens=True)
    token = results.consume_token()
    return results.consume_with_handlers(handlers), token
