"""Runs in their written form and back. Whatever is damaged is named."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from attrs import frozen

from hermes_trio.core.log_codec import DecodeError, compress, decode_items, decode_outcome, encode_items
from hermes_trio.core.messages import Message, transcript
from hermes_trio.core.outcome import Outcome
from hermes_trio.core.records import EndedRun, LogBatch, RunHeader
from hermes_trio.core.sessions import Counters, counters
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import damaged, decode, encode, encode_quickly, not_json, require_keys

_UNWRITABLE = (TypeError, ValueError, KeyError, RecursionError)
_SCALARS = frozenset({str, int, float, bool})
_UNREADABLE = (DecodeError, ValueError, TypeError, RecursionError, zlib.error, msgspec.MsgspecError)


@frozen
class WrittenRun:
    """An ended run, ready for a row."""

    header: bytes
    items: bytes
    outcome: str
    messages: tuple[str, ...]  # the client's and then the agent's
    counters: Counters  # what its session gains

    @property
    def size(self) -> int:
        """What it takes in the record; its messages belong to the session."""
        return len(self.header) + len(self.items) + len(self.outcome)


@frozen
class RunRow:
    """What a row says of a visible run."""

    is_live: bool
    header: bytes
    items: bytes
    outcome: bytes
    ended_after: float


def write_header(header: RunHeader) -> bytes:
    """Compressed JSON.

    Raises:
        StoreError: it holds something that JSON cannot say.
    """
    return compress(encode_quickly(header) if _is_flat(header) else encode(header))


def _is_flat(header: RunHeader) -> bool:
    """Whether nothing in it holds anything of which only JSON's own encoder says whether it is JSON."""
    is_said_plainly = not header.input_items and all(map(_is_plain, header.messages))
    return is_said_plainly and all(type(value) in _SCALARS for value in header.request.values())


def _is_plain(message: Message) -> bool:
    return type(message.content) is str


def _write_message(message: Message) -> str:
    return encode_quickly(message) if _is_plain(message) else encode(message)


def read_header(body: bytes, run_id: str) -> RunHeader:
    """The header again.

    Raises:
        StoreError: it is damaged.
    """
    place = f"the header of run {run_id!r}"
    with _naming(place):
        text = zlib.decompress(body)
    return decode(text, RunHeader, place)


def write_run(ended: EndedRun) -> WrittenRun:
    """All of it at once: a run that cannot be written must not touch the database.

    Raises:
        StoreError: it holds something that JSON cannot say.
    """
    try:
        said = (*ended.header.messages, *transcript(ended.items))
        items, outcome = encode_items(ended.items), encode_quickly(ended.outcome)
    except _UNWRITABLE as error:
        raise not_json(error) from error
    added = counters(said, ended.outcome.usage)
    return WrittenRun(write_header(ended.header), items, outcome, tuple(map(_write_message, said)), added)


def read_run(row: RunRow, run_id: str) -> EndedRun:
    """The run again.

    Raises:
        StoreError: some of it is damaged.
    """
    header = read_header(row.header, run_id)
    with _naming(f"the items of run {run_id!r}"):
        items = decode_items(row.items)
    return EndedRun(header, items, *read_end(row.outcome, row.ended_after, run_id))


def read_end(outcome: bytes, ended_after: float, run_id: str) -> tuple[Outcome, float]:
    """The outcome again, and when it was.

    Raises:
        StoreError: it is damaged.
    """
    with _naming(f"the outcome of run {run_id!r}"):
        return decode_outcome(outcome.decode("ascii")), float(ended_after)


def read_batch(principal: str, run_id: str, row: tuple[Any, Any, Any]) -> LogBatch:
    """A batch from its number, count and body, after a look that it is whole: unpacking verifies a checksum.

    Raises:
        StoreError: it is damaged.
    """
    first, count, body = row
    with _naming(f"the log of run {run_id!r} at {first}"):
        zlib.decompress(body)
        return LogBatch(principal, run_id, operator.index(first), body, operator.index(count))


@contextmanager
def _naming(place: str) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise damaged(place, error) from error


def session_of(ended: EndedRun) -> str:
    """The session that a run ended in."""
    return ended.outcome.session_id or ended.header.session_id


def require_header(header: RunHeader) -> None:
    """Refuse a run whose ids no engine could compare.

    Raises:
        StoreError: one of them has a lone surrogate.
    """
    require_keys(
        header.principal, header.run_id, header.session_id, header.parent, header.conversation, header.kind
    )


def require_end(ended: EndedRun, tail: tuple[LogBatch, ...], has_items: bool) -> None:
    """Refuse an end whose parts do not belong together.

    Raises:
        StoreError: they do not, or an id is not valid Unicode.
    """
    require_header(ended.header)
    require_keys(session_of(ended))
    own = (ended.header.principal, ended.header.run_id)
    if any((batch.principal, batch.run_id) != own for batch in tail):
        raise StoreError(f"the end of run {ended.header.run_id!r} carries the log of another run")
    if has_items and not ended.header.conversation:
        raise StoreError(f"run {ended.header.run_id!r} has items for a conversation and no conversation")
