"""From a trace to its executable: the key, and the programs compiled so far."""

from lazytpu.cache.key import Key, key_of
from lazytpu.cache.memory import LRU

__all__ = ["LRU", "Key", "key_of"]
