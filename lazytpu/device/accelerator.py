"""``torch.accelerator`` for ``tpu``: its C++ functions have no hook for a device written in Python.

PyTorch's Python reaches them as ``torch._C._accelerator_<name>``, so each is replaced there, once.
"""

from __future__ import annotations

from typing import Any

import torch


def apply() -> None:
    """Replace the functions that raise, or answer wrongly, for ``tpu``."""
    from lazytpu.device import memory, module, streams
    from lazytpu.device.index import check_index

    def set_device_index(index: int) -> None:
        check_index(index)

    def exchange_device(index: int) -> int:
        check_index(index)
        return 0

    def capability(index: int) -> dict[str, Any]:
        from lazytpu import dtypes

        return {"supported_dtypes": set(dtypes.SUPPORTED)}

    def device_stats(index: int) -> dict[str, Any]:
        nested: dict[str, Any] = {}
        for key, value in memory.memory_stats().items():
            *path, last = key.split(".")
            place = nested
            for part in path:
                place = place.setdefault(part, {})
            place[last] = value
        return nested

    replaced = {
        "synchronizeDevice": module.synchronize,
        "setDeviceIndex": set_device_index,
        "exchangeDevice": exchange_device,
        "maybeExchangeDevice": exchange_device,
        "getDeviceCapability": capability,
        "getStream": streams.current_stream,
        "setStream": streams.set_stream,
        "isAllocatorInitialized": module.is_initialized,
        "emptyCache": memory.empty_cache,
        "emptyHostCache": memory.empty_cache,
        "getDeviceStats": device_stats,
        "getMemoryInfo": memory.mem_get_info,
        "resetPeakStats": memory.reset_peak_memory_stats,
        "resetAccumulatedStats": memory.reset_accumulated_memory_stats,
    }
    for name, function in replaced.items():
        if hasattr(torch._C, f"_accelerator_{name}"):
            setattr(torch._C, f"_accelerator_{name}", function)
