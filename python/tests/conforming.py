"""Plugins for `python/src/conformance.rs`, which need no other package."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import sluice


def event(number: int) -> bytes:
    """An event of an LCM log."""
    head = struct.pack(">Iqqii", 0xEDA1DA01, number, 1_000_000 + number * 1000, 5, 4)
    return head + b"WHEEL" + struct.pack(">i", number)


@sluice.source
def wheels() -> Iterator[sluice.Batch]:
    log = sluice.open(b"".join(map(event, range(300))))
    yield from log.table()


@sluice.stage
def same(batch: sluice.Batch) -> sluice.Batch:
    return batch


@sluice.stage
def nothing(batch: sluice.Batch) -> None:
    return None


@sluice.sink
def ignore(batch: sluice.Batch) -> None:
    pass
