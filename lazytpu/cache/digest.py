"""The key of a program on disk: a digest that every process computes alike, from the trace alone."""

from __future__ import annotations

import hashlib

from lazytpu.cache.key import Key
from lazytpu.cache.text import text_of
from lazytpu.ir import Trace


def digest_of(trace: Trace, key: Key, environment: str) -> str | None:
    """The digest of ``trace`` under its key in memory and this environment; None where an op has no stable text.

    Of the key, the code holds numbers of this process. Here signatures are numbered by first use, so
    that the text of each is hashed once.
    """
    numbers: dict[str, int] = {}
    code = []
    ops = trace.ops.prefix(len(trace))
    for signature, inputs in zip(ops.signatures, ops.inputs):
        text = text_of(signature)
        if text is None:
            return None
        code.append((numbers.setdefault(text, len(numbers)), inputs))
    leaves = [(id, repr(trace.types[id])) for id, _ in trace.leaves]
    sizes = (len(trace.floats), len(trace.ints))
    whole = (environment, list(numbers), code, ops.firsts, leaves, sizes, key._replace(code=()))
    return hashlib.sha256(repr(whole).encode()).hexdigest()
