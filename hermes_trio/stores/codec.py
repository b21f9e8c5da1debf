"""The stored form of records, whatever the engine: JSON texts and compressed blobs, and back.

Encoding is complete before the database is touched, so a value that cannot be encoded changes
nothing. Decoding names the record that is corrupt.
"""

from __future__ import annotations

import json
import operator
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from attrs import frozen

from hermes_trio.core.dialects.responses import response_item_ids
from hermes_trio.core.log_codec import (
    DecodeError,
    as_dict,
    compress,
    decode_items,
    decode_outcome,
    encode_items,
    is_value,
)
from hermes_trio.core.messages import Message, transcript
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.records import EndedRun, LogBatch, RunHeader
from hermes_trio.core.sessions import Counters, count_run
from hermes_trio.stores.base import CorruptRecord, StoreError
from hermes_trio.stores.retention import MESSAGE_BYTES, RUN_BYTES

T = TypeVar("T")

MAX_INT = 2**62
"""The largest number that is passed to a database."""

_SCALARS = frozenset({str, int, float, bool})
_CANNOT_ENCODE = (TypeError, ValueError, KeyError, OverflowError, RecursionError)
_CANNOT_DECODE = (
    DecodeError,
    ValueError,
    TypeError,
    RecursionError,
    zlib.error,
    msgspec.MsgspecError,
)


# -- JSON --


def _to_builtin(value: Any) -> object:
    if is_value(value.__class__):
        return as_dict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENCODER = json.JSONEncoder(default=_to_builtin, separators=(",", ":"))
_FAST_ENCODER = msgspec.json.Encoder(enc_hook=_to_builtin)


def encode_json(value: object) -> str:
    """Encode a value as ASCII-only JSON, so that even a lone surrogate survives the round trip.

    Raises:
        StoreError: The value contains something that JSON cannot express.
    """
    try:
        return _ENCODER.encode(value)
    except _CANNOT_ENCODE as error:
        raise _encoding_error(error) from error


def encode_plain_json(value: object) -> str:
    """Encode a value known to consist of texts, numbers and the like; faster than ``encode_json``.

    The caller vouches for the contents: msgspec would silently accept sets and bytes. Text outside
    ASCII takes the slow path.

    Raises:
        StoreError: The value contains something that JSON cannot express.
    """
    try:
        encoded = _FAST_ENCODER.encode(value)
    except _CANNOT_ENCODE:
        return encode_json(value)
    # msgspec writes null for NaN and the infinities, which the strict encoder keeps.
    return (
        encoded.decode("ascii")
        if encoded.isascii() and b"null" not in encoded
        else encode_json(value)
    )


def _encoding_error(error: Exception) -> StoreError:
    return StoreError(f"the value cannot be encoded as JSON: {error}")


def decode_json(body: bytes | str, kind: type[T], place: str) -> T:
    """Decode JSON into a value of the given type.

    Raises:
        CorruptRecord: The text does not describe such a value; the message names ``place``.
    """
    with _reporting(place):
        # Given bytes, json.loads would guess at UTF-16; only ASCII was ever written.
        return msgspec.convert(
            json.loads(body if isinstance(body, str) else body.decode("ascii")), kind
        )


def decode_message(body: bytes | str, n: int, owner: str) -> Message:
    """Decode message ``n`` of ``owner``, which names a run or session in the error."""
    return decode_json(body, Message, f"message {n} of {owner}")


def encode_item(item: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id of a conversation item and its JSON.

    Raises:
        StoreError: The item has no id, or cannot be encoded.
    """
    item_id = item.get("id")
    if not (isinstance(item_id, str) and item_id):
        raise StoreError("a conversation item needs an id")
    check_ids(item_id)
    return item_id, encode_json(item)


@contextmanager
def _reporting(place: str) -> Iterator[None]:
    """Turn a decoding failure into a ``CorruptRecord`` that names the place."""
    try:
        yield
    except _CANNOT_DECODE as error:
        raise CorruptRecord(f"{place} is damaged: {error}") from error


# -- runs --


@frozen
class EncodedRun:
    """An ended run, ready to be written to a row."""

    header: bytes
    items: bytes
    outcome: str
    messages: tuple[str, ...]  # the client's, then the agent's
    counters: Counters  # what the run adds to those of its session
    item_ids: tuple[str, ...]  # of the items that clients may refer to

    @property
    def size(self) -> int:
        """Bytes that the record takes."""
        return len(self.header) + len(self.items) + len(self.outcome) + RUN_BYTES

    @property
    def messages_size(self) -> int:
        """Bytes that the messages take in the session."""
        return sum(map(len, self.messages)) + MESSAGE_BYTES * len(self.messages)


@frozen
class RunRow:
    """The row of a visible run."""

    is_live: bool
    header: bytes
    items: bytes
    outcome: bytes | str
    ended_after: float


def encode_header(header: RunHeader) -> bytes:
    """Encode a header as compressed JSON.

    Raises:
        StoreError: The header contains something that JSON cannot express.
    """
    is_plain = (
        not header.input_items
        and all(type(message.content) is str for message in header.messages)
        and all(type(value) in _SCALARS for value in header.request.values())
    )
    return compress(encode_plain_json(header) if is_plain else encode_json(header))


def decode_header(body: bytes, run_id: str) -> RunHeader:
    """Decode a header.

    Raises:
        CorruptRecord: It is damaged.
    """
    place = f"the header of run {run_id!r}"
    with _reporting(place):
        text = zlib.decompress(body)
    return decode_json(text, RunHeader, place)


def encode_run(ended: EndedRun) -> EncodedRun:
    """Encode every part of an ended run.

    Raises:
        StoreError: The run contains something that JSON cannot express.
    """
    try:
        messages = (*ended.header.messages, *transcript(ended.items))
        items, outcome = encode_items(ended.items), encode_plain_json(ended.outcome)
        item_ids = response_item_ids(ended)
    except _CANNOT_ENCODE as error:
        raise _encoding_error(error) from error
    return EncodedRun(
        header=encode_header(ended.header),
        items=items,
        outcome=outcome,
        messages=tuple(
            encode_plain_json(message) if type(message.content) is str else encode_json(message)
            for message in messages
        ),
        counters=count_run(messages, ended.outcome.usage),
        item_ids=item_ids,
    )


def decode_run(row: RunRow, run_id: str) -> EndedRun:
    """Decode an ended run.

    Raises:
        CorruptRecord: A part of it is damaged.
    """
    header = decode_header(row.header, run_id)
    with _reporting(f"the items of run {run_id!r}"):
        items = decode_items(row.items)
    return EndedRun(header, items, *decode_end(row.outcome, row.ended_after, run_id))


def decode_end(outcome: bytes | str, ended_after: float, run_id: str) -> tuple[Outcome, float]:
    """Decode the outcome of a run and the time it took.

    Raises:
        CorruptRecord: It is damaged.
    """
    with _reporting(f"the outcome of run {run_id!r}"):
        text = outcome if isinstance(outcome, str) else outcome.decode("ascii")
        return decode_outcome(text), float(ended_after)


def decode_batch(principal: str, run_id: str, row: tuple[Any, Any, Any]) -> LogBatch:
    """Build a log batch from its first number, count and body, after verifying the checksum of the body.

    Raises:
        CorruptRecord: It is damaged.
    """
    first, count, body = row
    with _reporting(f"the log of run {run_id!r} at {first}"):
        zlib.decompress(body)
        return LogBatch(principal, run_id, operator.index(first), body, operator.index(count))


def final_session(ended: EndedRun) -> str:
    """Return the id of the session a run ended in, which may differ from the one it began in."""
    return ended.outcome.session_id or ended.header.session_id


# -- values for the driver --


def check_ids(*ids: str) -> None:
    """Refuse ids that an engine could not compare.

    Raises:
        StoreError: An id contains a lone surrogate.
    """
    for each in ids:
        try:
            each.encode()
        except UnicodeEncodeError:
            raise StoreError(f"the id {each!r} is not valid Unicode") from None


def check_header(header: RunHeader) -> None:
    """Refuse a run with an id that an engine could not compare.

    Raises:
        StoreError: An id contains a lone surrogate.
    """
    check_ids(
        header.principal,
        header.stamp.run_id,
        header.session_id,
        header.parent,
        header.conversation,
        header.kind,
    )


def check_end(ended: EndedRun, tail: tuple[LogBatch, ...], has_items: bool) -> None:
    """Refuse the end of a run whose parts do not belong together.

    Raises:
        StoreError: A batch is of another run, there are items but no conversation, or an id is not
            valid Unicode.
    """
    header = ended.header
    check_header(header)
    check_ids(final_session(ended))
    if any((batch.principal, batch.run_id) != (header.principal, header.run_id) for batch in tail):
        raise StoreError(f"the end of run {header.run_id!r} carries the log of another run")
    if has_items and not header.conversation:
        raise StoreError(f"run {header.run_id!r} has conversation items but no conversation")


def clamp_int(number: int) -> int:
    """Clamp a number from a client to the range that database drivers accept."""
    return max(0, min(number, MAX_INT))


def escape_surrogates(text: str) -> str:
    """Replace lone surrogates in free text by visible escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
