"""The directory of cached programs: atomic writes, eviction, and who may write to it.

Loading a program is running code, so the directory must be the user's own and closed to others. A
file appears under its name only when it is complete, whenever a writer is killed. Any number of
processes may share a directory without locks: the last writer of a key wins, all wrote the same.
"""

from __future__ import annotations

import os
import platform
import secrets
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".program"
_TEMPORARY = ".writing-"
_ABANDONED = 3600.0
"""Seconds after which an unfinished file of another machine or container counts as left behind."""


def directory() -> Path | None:
    """Where programs are kept: ``LAZYTPU_CACHE_DIR``, else below the user's cache directory; None where it is off.

    It is off where files have no owners and permissions to tell whose they are.
    """
    if os.name != "posix":
        return None
    wish = os.environ.get("LAZYTPU_CACHE_DIR")
    if wish is not None:
        return None if wish.strip().lower() in ("", "off") else Path(wish).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "lazytpu"


def bound() -> int:
    """The bytes that the directory may take: ``LAZYTPU_CACHE_MAX_BYTES``, 2 GiB by default."""
    return int(os.environ.get("LAZYTPU_CACHE_MAX_BYTES", str(2 << 30)))


class File(NamedTuple):
    """An entry's file: its key, its size in bytes, and when it was last used (nanoseconds)."""

    key: str
    size: int
    used: int


class Store:
    """Entries by key in the directory ``path``, at most ``bound`` bytes of them."""

    def __init__(self, path: Path, bound: int) -> None:
        self.path = path
        self.bound = bound

    def file(self, key: str) -> Path:
        """The path of the entry for ``key``."""
        return self.path / (key + SUFFIX)

    def prepare(self) -> None:
        """Make the directory, or check the one that is there.

        Raises:
            OSError: it cannot be made, or others could have put something into it.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.path.stat()
        if found.st_uid != os.geteuid():
            raise PermissionError(f"{self.path} belongs to another user")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{self.path} can be written to by others (chmod 700 closes it)")

    def read(self, key: str) -> bytes | None:
        """The content of the entry, which becomes the most recent; None where there is none."""
        try:
            descriptor = os.open(self.file(key), os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            with suppress(OSError):  # of a directory that can only be read
                os.utime(descriptor)
            return file.read()

    def write(self, key: str, data: bytes) -> None:
        """Put an entry, then evict what is beyond the bound; one that is itself beyond it is not kept.

        Raises:
            OSError: the disk is full, the directory is read-only, …
        """
        if len(data) > self.bound:
            return
        self.prepare()
        temporary = self.path / f"{_TEMPORARY}{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
            with suppress(FileNotFoundError):  # someone has cleared the directory meanwhile
                os.replace(temporary, self.file(key))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self.evict()

    def discard(self, key: str) -> None:
        """Remove an entry, if it is there and can be removed."""
        with suppress(OSError):
            self.file(key).unlink(missing_ok=True)

    def files(self) -> list[File]:
        """The entries, the least recently used first."""
        found = []
        for entry in self._scan():
            if entry.name.endswith(SUFFIX):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append(File(entry.name.removesuffix(SUFFIX), status.st_size, status.st_mtime_ns))
        return sorted(found, key=lambda file: file.used)

    def evict(self) -> None:
        """Remove the entries used least recently until the rest is within the bound, and what dead writers left."""
        self.sweep()
        files = self.files()
        excess = sum(file.size for file in files) - self.bound
        for file in files:
            if excess <= 0:
                break
            self.discard(file.key)
            excess -= file.size

    def sweep(self, every: bool = False) -> None:
        """Remove unfinished files whose writers are dead, or ``every`` one."""
        for entry in self._scan():
            if entry.name.startswith(_TEMPORARY) and (every or _abandoned(entry)):
                with suppress(OSError):
                    os.unlink(entry.path)

    def _scan(self) -> Iterator[os.DirEntry[str]]:
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            yield from entries


def _host() -> str:
    """A name for this machine without separators: process numbers mean something only within one."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _abandoned(entry: os.DirEntry[str]) -> bool:
    host, _, rest = entry.name.removeprefix(_TEMPORARY).partition("-")
    process = rest.partition("-")[0]
    if host == _host() and process.isdigit():
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except OSError:  # alive, and another user's
            pass
    with suppress(FileNotFoundError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED
    return False
