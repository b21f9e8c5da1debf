"""Messages as JSON text and back: the one written form, whatever the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs
import msgspec

from hermes_trio.core.messages import Message
from hermes_trio.core.record import TurnRecord
from hermes_trio.stores.contract import StoreError


def _plain(value: object) -> object:
    if attrs.has(type(value)):
        return attrs.asdict(value, recurse=False)  # type: ignore[arg-type]  # has() just said that it fits
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"))


def encode(value: object) -> str:
    """Write a value of ours as JSON in plain ASCII, so that even a lone surrogate comes back as it was.

    Raises:
        StoreError: it holds something that JSON cannot say.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"the turn cannot be written as JSON: {error}") from error


def decode(body: bytes | str, session_id: str, row: int) -> Message:
    """Read a message back.

    Raises:
        StoreError: the text is no message; it names the session and the row.
    """
    try:
        return msgspec.convert(json.loads(_text(body)), Message)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise StoreError(f"message {row} of session {session_id!r} is damaged: {error}") from error


def _text(body: bytes | str) -> str:
    # json.loads would guess at UTF-16 when given bytes; we only ever wrote ASCII.
    return body if isinstance(body, str) else body.decode("ascii")


def bodies(record: TurnRecord) -> tuple[str, ...]:
    """The messages of a turn in their written form."""
    return tuple(encode(message) for message in record.messages)


def require_keys(*keys: str) -> None:
    """Refuse identifiers that no engine could compare.

    Raises:
        StoreError: one of them has a lone surrogate.
    """
    for key in keys:
        if not _is_unicode(key):
            raise StoreError(f"the id {key!r} is not valid Unicode")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def legible(text: str) -> str:
    """Free text for people, with lone surrogates written out as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
