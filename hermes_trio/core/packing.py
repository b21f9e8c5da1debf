"""Text for the store, compressed."""

from __future__ import annotations

import zlib

_SMALL = 2**12
_SMALL_WINDOW, _SMALL_MEMORY = 12, 4
_QUICK = 1


def pack(text: str) -> bytes:
    """ASCII, compressed so that :func:`zlib.decompress` takes it back.

    What is compressed is mostly short, and then the memory that zlib prepares for long texts takes most of its time.
    """
    data = text.encode("ascii")
    if len(data) > _SMALL:
        return zlib.compress(data, _QUICK)
    small = zlib.compressobj(_QUICK, zlib.DEFLATED, _SMALL_WINDOW, _SMALL_MEMORY)
    return small.compress(data) + small.flush()
