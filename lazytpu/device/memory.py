"""How much memory ``tpu`` holds, in the words of ``torch.cuda``.

Bytes allocated are those of the device buffers that lazytpu holds; the peak counts the temporaries
of programs too. Nothing here starts the device.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any


def _usage() -> Any:
    """The device's usage, or None before the first buffer."""
    buffers = sys.modules.get("lazytpu.runtime.buffers")
    return None if buffers is None else buffers.usage


def _client() -> Any:
    """The client, or None if the device has not been started."""
    module = sys.modules.get("lazytpu.runtime.client")
    return module.client() if module is not None and module._client is not None else None


def memory_allocated(device: Any = None) -> int:
    """Bytes held by values on the device."""
    usage = _usage()
    return 0 if usage is None else usage.live


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes held at once, temporaries of programs included, since the last ``reset_peak_memory_stats``."""
    usage = _usage()
    return 0 if usage is None else max(usage.peak, usage.live)


def memory_reserved(device: Any = None) -> int:
    """Bytes the runtime has taken from the device, or the bytes allocated where it does not say."""
    return int(_device_stats().get("bytes_reserved") or memory_allocated())


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes reserved at once, or allocated where the runtime does not say."""
    return int(_device_stats().get("peak_bytes_reserved") or max_memory_allocated())


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start the peaks over from what is held now."""
    usage = _usage()
    if usage is not None:
        usage.peak = usage.live


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Nothing to do: no counts of past allocations are kept."""


reset_max_memory_allocated = reset_peak_memory_stats


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """Statistics under the keys that ``torch.cuda.memory_stats`` uses, as far as they have a meaning here."""
    stats: OrderedDict[str, int] = OrderedDict()
    for what, current, peak in (
        ("allocated_bytes", memory_allocated(), max_memory_allocated()),
        ("reserved_bytes", memory_reserved(), max_memory_reserved()),
    ):
        stats[f"{what}.all.current"] = current
        stats[f"{what}.all.peak"] = peak
    return stats


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of ``memory_stats`` and of the memory the device has."""
    free, total = mem_get_info()
    rows = [
        ("held by values", memory_allocated(), max_memory_allocated()),
        ("reserved", memory_reserved(), max_memory_reserved()),
    ]
    lines = ["tpu:0 memory", f"{'':16}{'now':>14}{'peak':>14}"]
    lines += [f"{name:16}{now / 2**20:>10.1f} MiB{peak / 2**20:>10.1f} MiB" for name, now, peak in rows]
    lines.append(f"{'free of total':16}{free / 2**20:>10.1f} MiB{total / 2**20:>10.1f} MiB")
    return "\n".join(lines)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes: of the device where its runtime says, else of the host, whose memory plays the chip's."""
    stats = _device_stats()
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0), stats["bytes_limit"]
    import os

    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def empty_cache() -> None:
    """Nothing to do: the runtime gives memory back as values die."""


def ipc_collect() -> None:
    """Nothing to do: device memory is never shared between processes."""


def _device_stats() -> dict[str, int]:
    client = _client()
    stats = None if client is None else client.devices[0].memory_stats()
    return stats or {}
