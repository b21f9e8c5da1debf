"""Encode changes and items to bytes and back: the stored form of a run's log and record."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any

import attrs

from hermes_trio.core.changes import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    Ended,
    NumbersSkipped,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.events import AnsweredBy, Choice
from hermes_trio.core.messages import (
    CallItem,
    ClientCallItem,
    Item,
    MessageItem,
    ReasoningItem,
    Usage,
)
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status
from hermes_trio.core.state import CallState

_TINY = 2**9
_SMALL = 2**12
_SMALL_WINDOW, _SMALL_MEMORY = 12, 4
_FASTEST = 1


def compress(text: str) -> bytes:
    """Compress ASCII text into a zlib stream (RFC 1950).

    Most texts are short, and for those the memory that zlib allocates by default dominates the
    cost. Texts up to 512 bytes are therefore stored uncompressed, in a valid stream with a
    checksum; texts up to 4 KiB use a small window.
    """
    data = text.encode("ascii")
    length = len(data)
    if length <= _TINY:
        # One stored block of RFC 1951.
        block = length.to_bytes(2, "little") + (length ^ 0xFFFF).to_bytes(2, "little") + data
        return b"\x78\x01\x01" + block + zlib.adler32(data).to_bytes(4, "big")
    if length > _SMALL:
        return zlib.compress(data, _FASTEST)
    small = zlib.compressobj(_FASTEST, zlib.DEFLATED, _SMALL_WINDOW, _SMALL_MEMORY)
    return small.compress(data) + small.flush()


# Tags are short because every row carries one. They are stored: never change one or reuse it for
# another class.
_CHANGES: dict[str, type[Change]] = {
    "t": TextAdded,
    "r": ReasoningAdded,
    "s": CallStarted,
    "o": ToolOutputAdded,
    "e": CallEnded,
    "c": ClientToolCalled,
    "q": ApprovalRequested,
    "a": ApprovalResolved,
    "n": NumbersSkipped,
    "z": Ended,
}
_ITEMS: dict[str, type[Item]] = {
    "m": MessageItem,
    "r": ReasoningItem,
    "c": CallItem,
    "k": ClientCallItem,
}
_CHANGE_TAGS = {kind: tag for tag, kind in _CHANGES.items()}
_ITEM_TAGS = {kind: tag for tag, kind in _ITEMS.items()}
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class DecodeError(Exception):
    """The bytes were not written by this module, or are damaged."""


def encode_changes(changes: Iterable[Change]) -> bytes:
    """Encode changes as compressed JSON."""
    return _encode(_CHANGE_TAGS, changes)


def decode_changes(body: bytes) -> tuple[Change, ...]:
    """Decode what ``encode_changes`` wrote.

    Raises:
        DecodeError: the bytes are not an encoded log.
    """
    return _decode(body, _CHANGES)


def encode_items(items: Iterable[Item]) -> bytes:
    """Encode items as compressed JSON."""
    return _encode(_ITEM_TAGS, items)


def decode_items(body: bytes) -> tuple[Item, ...]:
    """Decode what ``encode_items`` wrote.

    Raises:
        DecodeError: the bytes are not encoded items.
    """
    return _decode(body, _ITEMS)


def decode_outcome(text: str) -> Outcome:
    """Decode an outcome from a JSON object of its fields.

    Raises:
        DecodeError: the text is not such an object.
    """
    try:
        return _outcome(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        raise DecodeError(str(error)) from error


def _encode(tags: Mapping[type[Any], str], values: Iterable[Any]) -> bytes:
    rows = []
    for value in values:
        kind = value.__class__
        row = [tags[kind], *(_jsonable(getattr(value, name)) for name in field_names(kind))]
        if kind is CallItem and not value.approval_id:
            del row[-2:]  # as in versions without these fields
        rows.append(row)
    return compress(_ENCODER.encode(rows))


def _jsonable(value: Any) -> Any:
    if is_value(value.__class__):
        return {name: _jsonable(getattr(value, name)) for name in field_names(value.__class__)}
    return value.value if isinstance(value, Enum) else value


def _decode(body: bytes, kinds: Mapping[str, type[Any]]) -> tuple[Any, ...]:
    decoded = []
    try:
        for tag, *values in json.loads(zlib.decompress(body)):
            kind = kinds[tag]
            for position, converter in _CONVERTERS.get(kind, ()):
                values[position] = converter(values[position])
            decoded.append(kind(*values))
    except (ValueError, TypeError, KeyError, IndexError, zlib.error) as error:
        raise DecodeError(str(error)) from error
    return tuple(decoded)


def _outcome(fields: dict[str, Any]) -> Outcome:
    return Outcome(
        Status(fields["status"]),
        Reason(fields["reason"]),
        Failure(**fields["failure"]),
        Usage(**fields["usage"]),
        fields["raised"],
        fields["session_id"],
    )


# Fields that JSON has no type for: their position in the row, and what converts them.
_CONVERTERS: Mapping[type[Any], tuple[tuple[int, Callable[[Any], Any]], ...]] = {
    Ended: ((0, _outcome),),
    CallEnded: ((3, CallState),),
    ApprovalRequested: ((4, tuple),),
    ApprovalResolved: ((2, Choice), (3, AnsweredBy)),
    CallItem: ((3, CallState),),
}


@cache
def is_value(kind: type[Any]) -> bool:
    """Return whether a class is an attrs class. Cached: it is asked for every stored value."""
    return attrs.has(kind)


@cache
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the field names of an attrs class, in order."""
    return tuple(field.name for field in attrs.fields(kind))


def as_dict(value: Any) -> dict[str, Any]:
    """Return the fields of an attrs value, without converting them."""
    return {name: getattr(value, name) for name in field_names(value.__class__)}
