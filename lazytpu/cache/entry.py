"""The file format of a cached program: bytes in, bytes out, and nothing trusted that does not match its digest.

``MAGIC``, format version, length of the header, header (JSON), payload (the executable), SHA-256 of
all of it. The header holds the key, so a file under another name is no entry either.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any, BinaryIO, NamedTuple

MAGIC = b"LAZYTPU\0"
VERSION = 1
_PREFIX = struct.Struct("<8sII")
_DIGEST = hashlib.sha256().digest_size
_MAX_HEADER = 16 << 20


class BadEntry(ValueError):
    """A file is not the entry it should be: truncated, altered, foreign or of another format version."""


class Entry(NamedTuple):
    """What describes a program, and its serialized executable."""

    header: dict[str, Any]
    payload: bytes


def encode(key: str, entry: Entry) -> bytes:
    """The content of the file for ``key``."""
    header = json.dumps({**entry.header, "key": key}).encode()
    body = _PREFIX.pack(MAGIC, VERSION, len(header)) + header + entry.payload
    return body + hashlib.sha256(body).digest()


def decode(key: str, data: bytes) -> Entry:
    """The entry for ``key`` in a file's content.

    Raises:
        BadEntry: it is not intact, or not of this key.
    """
    start = _start_of_payload(data)
    body = memoryview(data)[:-_DIGEST]
    if start > len(body) or hashlib.sha256(body).digest() != data[-_DIGEST:]:
        raise BadEntry("the digest does not match")
    header = _header(data[_PREFIX.size : start])
    if header.get("key") != key:
        raise BadEntry("it belongs to another key")
    return Entry(header, bytes(body[start:]))


def read_header(file: BinaryIO) -> dict[str, Any]:
    """The header alone, unverified: enough to be shown.

    Raises:
        BadEntry: there is none.
    """
    prefix = file.read(_PREFIX.size)
    return _header(file.read(_start_of_payload(prefix) - _PREFIX.size))


def _start_of_payload(data: bytes) -> int:
    if len(data) < _PREFIX.size:
        raise BadEntry("it is too short")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != MAGIC or version != VERSION or length > _MAX_HEADER:
        raise BadEntry("it is not of this format")
    return _PREFIX.size + length


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except ValueError as error:
        raise BadEntry("its header is not JSON") from error
    if not isinstance(header, dict):
        raise BadEntry("its header is not an object")
    return header
