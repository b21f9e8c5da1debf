"""Changes as bytes and back: the written form of a run's log."""

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
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.events import AnsweredBy, Choice
from hermes_trio.core.messages import CallItem, ClientCallItem, Item, MessageItem, ReasoningItem, Usage
from hermes_trio.core.outcome import Failure, Outcome, Reason, Status
from hermes_trio.core.state import CallState

_TINY = 2**9
_SMALL = 2**12
_SMALL_WINDOW, _SMALL_MEMORY = 12, 4
_QUICK = 1


def compress(text: str) -> bytes:
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


# Short names, because they stand in every row. A name that was once given is never given to another class.
_CHANGES: dict[str, type[Change]] = {
    "t": TextAdded,
    "r": ReasoningAdded,
    "s": CallStarted,
    "o": ToolOutputAdded,
    "e": CallEnded,
    "c": ClientToolCalled,
    "q": ApprovalRequested,
    "a": ApprovalResolved,
    "z": Ended,
}
_ITEMS: dict[str, type[Item]] = {
    "m": MessageItem,
    "r": ReasoningItem,
    "c": CallItem,
    "k": ClientCallItem,
}
_NAMES_OF_CHANGES = {kind: name for name, kind in _CHANGES.items()}
_NAMES_OF_ITEMS = {kind: name for name, kind in _ITEMS.items()}
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class DecodeError(Exception):
    """The bytes are no log of ours."""


def encode_changes(changes: Iterable[Change]) -> bytes:
    """Compressed JSON."""
    return _pack(_NAMES_OF_CHANGES, changes)


def decode_changes(body: bytes) -> tuple[Change, ...]:
    """The changes again.

    Raises:
        DecodeError: it is not what ``encode_changes`` wrote.
    """
    return tuple(_unpack(body, _change))


def encode_items(items: Iterable[Item]) -> bytes:
    """Compressed JSON."""
    return _pack(_NAMES_OF_ITEMS, items)


def decode_items(body: bytes) -> tuple[Item, ...]:
    """The items again.

    Raises:
        DecodeError: it is not what ``encode_items`` wrote.
    """
    return tuple(_unpack(body, _item))


def decode_outcome(text: str) -> Outcome:
    """An outcome from JSON text with its fields by name.

    Raises:
        DecodeError: it is no such text.
    """
    try:
        return _outcome(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        raise DecodeError(str(error)) from error


def _pack(names: Mapping[type[Any], str], values: Iterable[Any]) -> bytes:
    rows = [[names[type(value)], *_values(value)] for value in values]
    return compress(_ENCODER.encode(rows))


def _values(value: Any) -> list[Any]:
    return [_plain(getattr(value, name)) for name in field_names(value.__class__)]


def _plain(value: Any) -> Any:
    if is_value(value.__class__):
        return {name: _plain(getattr(value, name)) for name in field_names(value.__class__)}
    return value.value if isinstance(value, Enum) else value


def _unpack(body: bytes, make: Callable[[list[Any]], Any]) -> Iterable[Any]:
    try:
        return [make(row) for row in json.loads(zlib.decompress(body))]
    except (ValueError, TypeError, KeyError, IndexError, zlib.error) as error:
        raise DecodeError(str(error)) from error


def _change(row: list[Any]) -> Change:
    kind, values = _CHANGES[row[0]], row[1:]
    if (read := _READERS.get(kind)) is not None:
        read(values)
    return kind(*values)


def _read_end(values: list[Any]) -> None:
    values[0] = _outcome(values[0])


def _read_call_end(values: list[Any]) -> None:
    values[3] = CallState(values[3])


def _read_request(values: list[Any]) -> None:
    values[4] = tuple(values[4])


def _read_answer(values: list[Any]) -> None:
    values[2], values[3] = Choice(values[2]), AnsweredBy(values[3])


# What JSON has no type for, put right in place.
_READERS: dict[type[Change], Callable[[list[Any]], None]] = {
    Ended: _read_end,
    CallEnded: _read_call_end,
    ApprovalRequested: _read_request,
    ApprovalResolved: _read_answer,
}


def _item(row: list[Any]) -> Item:
    kind, values = _ITEMS[row[0]], row[1:]
    if kind is CallItem:
        values[3] = CallState(values[3])
    return kind(*values)


def _outcome(fields: dict[str, Any]) -> Outcome:
    return Outcome(
        Status(fields["status"]),
        Reason(fields["reason"]),
        Failure(**fields["failure"]),
        Usage(**fields["usage"]),
        fields["raised"],
        fields["session_id"],
    )


@cache
def is_value(kind: type[Any]) -> bool:
    """Whether a class is one of attrs."""
    return attrs.has(kind)


@cache
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The names of its fields, in order."""
    return tuple(field.name for field in attrs.fields(kind))


def as_dict(value: Any) -> dict[str, Any]:
    """The fields of a value, which stay what they are."""
    return {name: getattr(value, name) for name in field_names(value.__class__)}
