"""Compiling StableHLO text for a chip, present or not, and reading what the compiler says of the result."""

from __future__ import annotations

import os
import pathlib
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

CHIPS = {"v5e": ("v5e:1x1", [1, 1, 1])}
"""TPU chips that can be compiled for without one: the name of a topology of one chip, and its chips per host."""

_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu", "LAZYTPU_PLATFORM": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0", "TPU_LOG_DIR": "disabled", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}  # fmt: skip
_SILENT = frozenset({"parameter", "tuple", "get-tuple-element", "bitcast", "constant"})
_OPCODE = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\([^=]*?\)|\S+) ([a-z][a-z\-]*)\(", re.M)
_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), (?:color (\d+), )?preallocated-temp", re.M)
_HBM, _VMEM = 0, 1


def quiet() -> None:
    """Keep libtpu from looking for a TPU; before JAX is imported."""
    os.environ.update(_ENVIRONMENT)


class Compiled(NamedTuple):
    """A compiled program: its figures by name, and how often each HLO op occurs in it, fused ones included."""

    figures: dict[str, float]
    ops: Counter[str]


def compiler(target: str) -> Callable[[str], Compiled]:
    """What compiles a module's text for ``target``: ``cpu`` or one of ``CHIPS``.

    Raises:
        RuntimeError: a TPU is asked for and libtpu is not installed.
    """
    return _for_cpu() if target == "cpu" else _for_chip(target)


def _for_cpu() -> Callable[[str], Compiled]:
    from lazytpu.runtime import compat
    from lazytpu.runtime.client import client

    devices = client().devices[:1]
    return _reading(lambda text, options: compat.compile_module(text, devices, options), devices[0].id)


def _for_chip(chip: str) -> Callable[[str], Compiled]:
    from jax._src.interpreters import mlir
    from jax.experimental import topologies
    from jaxlib import _jax
    from jaxlib.mlir import ir

    name, bounds = CHIPS[chip]
    try:
        topology = topologies.get_topology_desc(platform="tpu", topology_name=name, chips_per_host_bounds=bounds)
    except Exception as reason:
        raise RuntimeError(f"no compiler for a {chip}: pip install 'lazytpu[tpu]' brings libtpu") from reason
    device = topology.devices[0]

    def compile(text: str, options: Any) -> Any:
        with mlir.make_ir_context():
            return device.client.compile(ir.Module.parse(text), _jax.DeviceList((device,)), options)

    return _reading(compile, device.id)


def _reading(compile: Callable[[str, Any], Any], device: int) -> Callable[[str], Compiled]:
    from lazytpu.runtime import compat

    def compiled(text: str) -> Compiled:
        with tempfile.TemporaryDirectory() as folder:
            options = compat.compile_options([device], {"xla_dump_to": folder, "xla_dump_hlo_as_text": True})
            executable = compile(text, options)
            # The executable's own figure for temporaries counts code and on-chip memory in for a TPU.
            (assignment,) = pathlib.Path(folder).glob("*buffer-assignment.txt")
            temporary = _temporary(assignment.read_text())
        return _read(executable, temporary)

    return compiled


def _temporary(assignment: str) -> Counter[int]:
    """Bytes of temporaries by memory space, from the text of a buffer assignment."""
    found: Counter[int] = Counter()
    for size, space in _TEMPORARY.findall(assignment):
        found[int(space or _HBM)] += int(size)
    return found


def _read(executable: Any, temporary: Counter[int]) -> Compiled:
    cost = executable.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    memory = executable.get_compiled_memory_stats()
    text = executable.hlo_modules()[0].to_string()
    figures = {
        "FLOPs": cost["flops"],
        "bytes accessed": cost["bytes accessed"],
        "temporary memory": temporary[_HBM] + temporary[_VMEM],
        "of it on the chip": temporary[_VMEM],
        "argument bytes": memory.argument_size_in_bytes,
        "output bytes": memory.output_size_in_bytes,
        "reused argument bytes": memory.alias_size_in_bytes,
        "kernels, their FLOPs not counted": text.count('custom_call_target="tpu_custom_call"'),
    }
    return Compiled(figures, Counter(op for op in _OPCODE.findall(text) if op not in _SILENT))
