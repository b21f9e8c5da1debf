"""Text for the store, compressed."""

from __future__ import annotations

import zlib

_TINY = 2**9
_SMALL = 2**12
_SMALL_WINDOW, _SMALL_MEMORY = 12, 4
_QUICK = 1


def pack(text: str) -> bytes:
    """ASCII, compressed so that :func:`zlib.decompress` takes it back.

    What is compressed is mostly short, and then the memory that zlib prepares for long texts takes most of its time.
    """
    data = text.encode("ascii")
    if len(data) <= _TINY:
        return _as_it_is(data)
    if len(data) > _SMALL:
        return zlib.compress(data, _QUICK)
    small = zlib.compressobj(_QUICK, zlib.DEFLATED, _SMALL_WINDOW, _SMALL_MEMORY)
    return small.compress(data) + small.flush()


def _as_it_is(data: bytes) -> bytes:
    """In the same format (RFC 1950, with one stored block of RFC 1951) and with a checksum, but not compressed."""
    length = len(data)
    block = length.to_bytes(2, "little") + (length ^ 0xFFFF).to_bytes(2, "little") + data
    return b"\x78\x01\x01" + block + zlib.adler32(data).to_bytes(4, "big")
