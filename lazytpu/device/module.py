"""``torch.tpu``: what ``torch.cuda`` has that makes sense for chips behind one asynchronous runtime."""

from __future__ import annotations

import re
import types
from typing import Any, NamedTuple

import torch

from lazytpu import recorder
from lazytpu.device import memory, random, streams
from lazytpu.device.index import check_index


class TpuModule(types.ModuleType):
    """The module object behind ``torch.tpu``."""

    @property
    def default_generators(self) -> tuple[Any, ...]:
        """The generator that ops use when they are given none, in a tuple."""
        from lazytpu.device import generators

        return (generators.default(),)

    @property
    def _initialized(self) -> bool:
        """Whether an op has reached the device: checkpointing saves random states only then."""
        from lazytpu.device import backward

        return backward.in_use()


def is_available() -> bool:
    """Whether the device can be used: always, since emulated chips stand in where no TPU is attached."""
    return True


def is_initialized() -> bool:
    """Whether the device has been started; it starts when it is first used."""
    return memory._client() is not None


def init() -> None:
    """Start the device now rather than at its first use."""
    _client()


def device_count() -> int:
    """1: to PyTorch all chips of the mesh are one device."""
    return 1


def current_device() -> int:
    """The index of the current device: 0."""
    return 0


def set_device(device: Any) -> None:
    """Check that ``device`` is the one device there is."""
    check_index(device)


class device:
    """A context in which ``device`` is current: of no effect, since there is one."""

    def __init__(self, device: Any) -> None:
        self.idx = check_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = 0

    def __exit__(self, *exc: object) -> None:
        return None


class device_of(device):
    """A context in which the device of a tensor or storage is current, if that is ``tpu``."""

    def __init__(self, obj: Any) -> None:
        super().__init__(0 if obj.device.type == "tpu" else -1)


def _exchange_device(device: int) -> int:
    check_index(device)
    return 0


_maybe_exchange_device = _exchange_device


class DeviceProperties(NamedTuple):
    """What is known of the device."""

    name: str
    platform: str
    total_memory: int
    chips: int
    major: int
    minor: int


def _client() -> Any:
    with recorder.lock:
        from lazytpu.runtime.client import client
    return client()


def get_device_name(device: Any = None) -> str:
    """The chip's name, such as ``TPU v5e``; starts the device."""
    check_index(device)
    where = _client()
    name = where.devices[0].device_kind
    return name if where.platform != "cpu" else f"emulated TPU (XLA on {name})"


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The chip's generation as (major, minor); (0, 0) where it is emulated."""
    check_index(device)
    where = _client()
    found = re.search(r"v?(\d+)", where.devices[0].device_kind) if where.platform == "tpu" else None
    return (int(found.group(1)), 0) if found else (0, 0)


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, platform, memory and generation of the device; starts it."""
    name = get_device_name(device)
    where = _client()
    return DeviceProperties(name, where.platform, memory.mem_get_info()[1], 1, *get_device_capability())


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """False: there is one device."""
    check_index(device), check_index(peer_device)
    return False


def synchronize(device: Any = None) -> None:
    """Run everything recorded so far and wait until the device has finished."""
    check_index(device)
    recorder.sync(wait=True)


def manual_seed_all(seed: int) -> None:
    """Seed the device's random numbers; ``torch.manual_seed`` calls this."""
    random.default.reseed(seed)


def manual_seed(seed: int) -> None:
    """Seed the device's random numbers."""
    random.default.reseed(seed)


def seed_all() -> int:
    """Seed the device's random numbers from the system; returns the seed."""
    drawn = torch._C.Generator(device="cpu").seed()
    random.default.reseed(drawn)
    return drawn


def seed() -> int:
    """Seed the device's random numbers from the system; returns the seed."""
    return seed_all()


def initial_seed() -> int:
    """The seed that the device's random numbers were last started from."""
    return random.default.seed


def get_rng_state(device: Any = "tpu") -> torch.Tensor:
    """The state of the device's random numbers, as a CPU tensor of bytes."""
    check_index(device)
    return random.default.get()


def get_rng_state_all() -> list[torch.Tensor]:
    """``get_rng_state`` of each device, of which there is one."""
    return [random.default.get()]


def set_rng_state(new_state: torch.Tensor, device: Any = "tpu") -> None:
    """Take up a state that ``get_rng_state`` gave."""
    check_index(device)
    random.default.set(new_state)


def set_rng_state_all(new_states: Any) -> None:
    """Take up the states that ``get_rng_state_all`` gave."""
    for state in new_states:
        random.default.set(state)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: bfloat16 is what the chips compute in."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("tpu")`` accepts."""
    return [torch.bfloat16, torch.float16]


def _is_in_bad_fork() -> bool:
    return recorder.forked


_PRIVATE = ("_is_in_bad_fork", "_exchange_device", "_maybe_exchange_device")


def make() -> TpuModule:
    """The module object, with every public name of this file, ``memory`` and ``streams``."""
    module = TpuModule("torch.tpu", __doc__)
    module.__file__ = __file__
    module.__package__ = "torch"
    for source in (globals(), vars(memory)):
        for name, value in source.items():
            public = not name.startswith("_") and name not in ("TpuModule", "check_index", "make")
            own = callable(value) and str(getattr(value, "__module__", "")).startswith("lazytpu.")
            if own and (public or name in _PRIVATE):
                setattr(module, name, value)
    for name in ("stream", "current_stream", "default_stream", "set_stream"):
        setattr(module, name, getattr(streams, name))
    for name, kind in (("Stream", streams.TpuStream), ("Event", streams.TpuEvent)):
        setattr(module, name, kind)
    return module
