"""Every test runs on chips that XLA's CPU client plays, without the cache on disk, and leaves no pending trace behind."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("LAZYTPU_PLATFORM", "cpu")
os.environ["LAZYTPU_CACHE_DIR"] = "off"

import pytest
import torch

import lazytpu


@pytest.fixture(autouse=True)
def clean_trace() -> Iterator[None]:
    """Each test starts from an empty trace, zero counters and the same seed."""
    lazytpu.sync(wait=True)
    lazytpu.reset_metrics()
    torch.manual_seed(0)
    yield
