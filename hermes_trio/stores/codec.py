"""Values as JSON text and back: the one written form, whatever the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from hermes_trio.core.log_codec import as_dict, is_value
from hermes_trio.core.messages import Message
from hermes_trio.stores.base import CorruptRecord, StoreError

T = TypeVar("T")


def _plain(value: Any) -> object:
    if is_value(value.__class__):
        return as_dict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"))
_QUICK = msgspec.json.Encoder(enc_hook=_plain)
_UNQUICK = (TypeError, ValueError, OverflowError, RecursionError)


def encode(value: object) -> str:
    """Write a value of ours as JSON in plain ASCII, so that even a lone surrogate comes back as it was.

    Raises:
        StoreError: it holds something that JSON cannot say.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise not_json(error) from error


def encode_quickly(value: object) -> str:
    """The same for what consists of texts, numbers and the like: msgspec would write sets and bytes, too, without a word.

    What is not ASCII takes longer.

    Raises:
        StoreError: as above.
    """
    try:
        written = _QUICK.encode(value)
    except _UNQUICK:
        return encode(value)
    # Where msgspec writes null, we may have had a number that is none.
    return written.decode("ascii") if written.isascii() and b"null" not in written else encode(value)


def not_json(error: Exception) -> StoreError:
    """The error for something that cannot be written."""
    return StoreError(f"it cannot be written as JSON: {error}")


def decode(body: bytes | str, kind: type[T], place: str) -> T:
    """Read a value back.

    Raises:
        StoreError: the text is no such value; it names the place.
    """
    try:
        return msgspec.convert(json.loads(_text(body)), kind)
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise damaged(place, error) from error


def damaged(place: str, error: Exception) -> CorruptRecord:
    """The error for something that cannot be read back."""
    return CorruptRecord(f"{place} is damaged: {error}")


def _text(body: bytes | str) -> str:
    # json.loads would guess at UTF-16 when given bytes; we only ever wrote ASCII.
    return body if isinstance(body, str) else body.decode("ascii")


def message(body: bytes | str, n: int, owner: str) -> Message:
    """Read a message back; ``owner`` says whose it is, should it be damaged."""
    return decode(body, Message, f"message {n} of {owner}")


def item_body(item: Mapping[str, Any]) -> tuple[str, str]:
    """The id of a conversation's item and its written form.

    Raises:
        StoreError: it has no id, or cannot be written.
    """
    item_id = item.get("id")
    if not (isinstance(item_id, str) and item_id):
        raise StoreError("an item of a conversation needs an id")
    require_keys(item_id)
    return item_id, encode(item)


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


def clamped(number: int) -> int:
    """A number that the driver takes: it refuses larger ones, and clients may ask for anything."""
    return max(0, min(number, 2**62))


def legible(text: str) -> str:
    """Free text for people, with lone surrogates written out as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
