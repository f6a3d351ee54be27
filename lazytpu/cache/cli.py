"""``python -m lazytpu cache``: look at, check and empty the cache on disk. No device is started."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lazytpu.cache import entry, store


def add_to(commands: Any) -> None:
    """Add ``cache`` and its actions to an argument parser's commands."""
    cache = commands.add_parser("cache", help="the compiled programs on disk")
    actions = cache.add_subparsers(required=True, metavar="action")
    for name, run, help in (
        ("ls", _ls, "list the programs, the most recently used first"),
        ("stats", _stats, "count them"),
        ("clear", _clear, "remove them all"),
        ("verify", _verify, "check them all and remove the damaged ones; exit status 1 where there are any"),
    ):
        action = actions.add_parser(name, help=help)
        action.add_argument("--dir", type=Path, default=None, help="the directory, instead of LAZYTPU_CACHE_DIR")
        action.set_defaults(run=_on_store(run))


def _on_store(run: Any) -> Any:
    def call(options: argparse.Namespace) -> int:
        path = options.dir or store.directory()
        if path is None:
            print("the cache is switched off (LAZYTPU_CACHE_DIR); --dir names a directory", file=sys.stderr)
            return 2
        try:
            return run(store.Store(path, store.bound()))
        except (OSError, ValueError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2

    return call


def _headers(place: store.Store) -> Iterator[tuple[store.File, dict[str, Any]]]:
    """The entries with their headers, as far as they can be read."""
    for file in place.files():
        try:
            with open(place.file(file.key), "rb") as content:
                yield file, entry.read_header(content)
        except FileNotFoundError:  # evicted just now
            continue
        except entry.BadEntry as reason:
            yield file, {"first": f"damaged: {reason}"}


_COLUMNS = "{:>8} {:>9} {:>6} {:>9} {:8} {}"


def _ls(place: store.Store) -> int:
    now = time.time()
    print(_COLUMNS.format("used", "size", "ops", "compile", "platform", "lines"))
    for file, header in reversed(list(_headers(place))):
        first, last = header.get("first", ""), header.get("last", "")
        seconds = header.get("compile_seconds")
        print(
            _COLUMNS.format(
                _age(now - file.used / 1e9), _size(file.size), header.get("ops", "?"),
                "?" if seconds is None else f"{seconds:.2f} s", header.get("platform", "?"),
                first if last in ("", first) else f"{first} to {last}",
            )
        )  # fmt: skip
    return 0


def _stats(place: store.Store) -> int:
    found = list(_headers(place))
    seconds = sum(header.get("compile_seconds", 0) for _, header in found)
    print(f"directory  {place.path}")
    print(f"programs   {len(found)}")
    print(f"size       {_size(sum(file.size for file, _ in found))} of at most {_size(place.bound)}")
    print(f"compiling  {seconds:.1f} s, that a process which loads them all does not spend")
    return 0


def _clear(place: store.Store) -> int:
    files = place.files()
    for file in files:
        place.discard(file.key)
    place.sweep(every=True)
    left = len(place.files())
    print(f"{len(files) - left} programs removed" + (f", {left} could not be" if left else ""))
    return 1 if left else 0


def _verify(place: store.Store) -> int:
    bad = 0
    files = place.files()
    for file in files:
        try:
            entry.decode(file.key, place.file(file.key).read_bytes())
        except FileNotFoundError:  # evicted just now
            continue
        except entry.BadEntry as reason:
            bad += 1
            place.discard(file.key)
            print(f"{file.key}: removed, {reason}")
    print(f"{len(files)} programs, {bad} bad")
    return 1 if bad else 0


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
