"""The log of a run: append-only, with any number of subscribers while the run is live, and read from the store later.

The tracker appends. Each subscriber has a cursor and a Trio memory channel through which batches of
changes reach it; closing the send end of that channel is the only end-of-stream marker. A
subscriber whose channel is full is behind: it reads what it missed from the log, or from the store,
and goes on with the channel once it has caught up. A subscriber that applies back-pressure (the
client that started the run) slows the agent down while it is behind; the others are never waited
for.

In memory the log is bounded. Changes that every subscriber has had, or that the store has, may be
dropped.

Subscribers get changes of a stored run before the store has them, but never more than
``MAX_UNSAVED_PUBLISHED`` ahead of it. If the process dies, recovery skips the numbers of as many, so
that no number stands for two events. With ``publishes_unsaved=False`` subscribers get nothing before
the store has it, but for the end of a run that could not be stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

import trio

from hermes_trio.core.changes import (
    CallEnded,
    CallStarted,
    Change,
    ClientToolCalled,
    Ended,
    ReasoningAdded,
    TextAdded,
    ToolOutputAdded,
)
from hermes_trio.core.log_codec import DecodeError, decode_changes
from hermes_trio.core.records import LogBatch
from hermes_trio.stores.base import CorruptRecord, Store

Changes = tuple[Change, ...]
Load = Callable[[int], Awaitable[Changes]]
# Parametrised once: that costs as much as opening a channel.
_open_channel = trio.open_memory_channel[Changes]

# changes that a subscriber with back-pressure may be behind; the event queue is the buffer, and
# merges
MAX_LAG = 1
MAX_UNSAVED = 8_192  # changes that the store may be behind
# Changes that subscribers may have and the store not. Far more than MAX_UNSAVED and one batch of
# events, so nothing waits for it. Never lower it: the runs of an older version may have to be
# recovered.
MAX_UNSAVED_PUBLISHED = 16_384
# Characters in changes that are encoded or rendered in the Trio thread. What is longer is left to a
# thread, so that other runs do not have to wait for it.
MAX_INLINE_CHARS = 131_072
MEMORY_WINDOW = 4_096  # changes that stay in memory although the store has them


class LogTruncated(Exception):
    """The changes that a subscriber wants are neither in memory nor in the store."""


class WriteThrough(Protocol):
    """Takes changes in the step that appends them, in place of a subscriber that waits for some."""

    def take(self, changes: Changes) -> bool:
        """Take the changes.

        Return False if the subscriber has to be woken to finish the work. Must not raise.
        """
        ...


class RunLog:
    """Create it in a Trio task. Appending never waits; ``wait_writable`` does."""

    def __init__(self, load: Load | None = None, publishes_unsaved: bool = True) -> None:
        self._load = load
        self._publishes_unsaved = publishes_unsaved
        self._on_append: Callable[[], None] | None = None
        self._on_saved: Callable[[], None] | None = None
        self._changes: list[Change] = []
        self._last: Changes = ()  # the latest change, which may not be in memory any more
        self.base = 0  # the number of the first change in memory
        self.end = 0  # the number that the next change will have
        self.published = 0  # subscribers may have everything before this number
        self._saved = 0  # the store has everything before this number
        self._subscribers: set[Subscriber] = set()
        self._writable: trio.Event | None = None  # while the tracker waits
        self.is_closed = False

    # -- for the tracker and the store --

    def append(self, changes: Changes) -> None:
        """Add changes, and publish them to the subscribers now or when the store has them.

        A closed log stays as it is.
        """
        if self.is_closed:
            return
        self._changes += changes
        self.end += len(changes)
        self._last = changes[-1:] or self._last
        if self._on_append is not None:
            self._on_append()
        self._publish()
        self._trim()

    def close(self) -> None:
        """End the log: subscribers get what is left and published, then ``trio.EndOfChannel``."""
        self.is_closed = True
        self._on_append = None
        for subscriber in self._subscribers:
            subscriber.close_send()

    def publish_saved_only(self) -> None:
        """Publish nothing more before the store has it."""
        self._publishes_unsaved = False

    def on_append(self, callback: Callable[[], None]) -> None:
        """Call back after every append until the log is closed."""
        self._on_append = callback

    def on_saved(self, callback: Callable[[], None]) -> None:
        """Call back whenever the store has accepted more of the log, its end included."""
        self._on_saved = callback

    def mark_saved(self, end: int) -> None:
        """Note that the store has everything before a number, and publish what had to wait for that."""
        self._saved = max(self._saved, end)
        self._publish()
        self._notify_writable()
        self._trim()
        if self._on_saved is not None:
            self._on_saved()

    @property
    def has_room(self) -> bool:
        """Whether the agent may go on.

        Subscribers with back-pressure are close behind, and so is the store.
        """
        for subscriber in self._subscribers:
            if subscriber.applies_backpressure and self.published - subscriber.position > MAX_LAG:
                return False
        return not self.is_store_behind

    @property
    def is_store_behind(self) -> bool:
        """Whether so much is not in the store yet that the agent has to wait for it."""
        return self._load is not None and self.end - self._saved > MAX_UNSAVED

    async def wait_writable(self) -> None:
        """Wait until ``has_room``. For the tracker only."""
        while not self.has_room:
            self._writable = trio.Event()
            await self._writable.wait()

    # -- for readers --

    def subscribe(self, first: int = 0, applies_backpressure: bool = False) -> Subscriber:
        """Return a subscriber whose first change has this number. Its user must close it."""
        subscriber = Subscriber(self, first, applies_backpressure)
        if self.is_closed:
            subscriber.close_send()
        self._subscribers.add(subscriber)
        return subscriber

    def read(self, first: int) -> Changes:
        """Return the published changes in memory from a number on."""
        return tuple(self._changes[first - self.base : self.published - self.base])

    def read_unsaved(self, first: int) -> Changes:
        """Return all changes in memory from a number on, published or not."""
        return tuple(self._changes[first - self.base :])

    def recent(self, count: int = MEMORY_WINDOW) -> Changes:
        """Return the latest changes in memory, at most ``count``; the very last one in any case."""
        return tuple(self._changes[-count:]) or self._last

    async def load(self, first: int) -> Changes:
        """Return changes from a number on, from memory or, if they are not there any more, from the store.

        Raises:
            LogTruncated: the store does not have them either.
        """
        await trio.lowlevel.checkpoint()  # before looking: memory may be trimmed meanwhile
        if first >= self.base:
            return self.read(first)
        changes = await self._load(first) if self._load is not None else ()
        if not changes:
            raise LogTruncated
        return changes

    # -- called by subscribers --

    def advanced(self) -> None:
        """Note that a subscriber has advanced: the tracker may continue, and memory may be freed."""
        self._notify_writable()
        self._trim()

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Remove a subscriber that has been closed."""
        self._subscribers.discard(subscriber)
        self._notify_writable()
        if self._subscribers:
            self._trim()

    def _notify_writable(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def _publish(self) -> None:
        first, end = self.published, min(self.end, self._publishable_end())
        if first >= end:
            return
        self.published = end
        changes = tuple(self._changes[first - self.base : end - self.base])
        for subscriber in self._subscribers:
            subscriber.publish(first, changes)

    def _publishable_end(self) -> int:
        if self._load is None:
            return self.end
        # The end of a run is appended when it is saved, or cannot be: then clients are told that.
        is_ended = bool(self._last) and isinstance(self._last[0], Ended)
        ahead = MAX_UNSAVED_PUBLISHED if self._publishes_unsaved or is_ended else 0
        return self._saved + ahead

    def _trim(self) -> None:
        """Drop from memory what the store has, or, without a store, what every subscriber has had."""
        if self._load is not None:
            least, unneeded = MEMORY_WINDOW, min(self._saved, self.end - MEMORY_WINDOW)
        else:
            least, unneeded = 1, min(map(self._needed_from, self._subscribers), default=self.base)
        if unneeded - self.base >= least:
            del self._changes[: unneeded - self.base]
            self.base = unneeded

    def _needed_from(self, subscriber: Subscriber) -> int:
        """Return the first change that must stay in memory for a subscriber.

        One that applies no back-pressure is not waited for: changes beyond ``MEMORY_WINDOW`` are dropped.
        """
        if subscriber.applies_backpressure:
            return subscriber.position
        return max(subscriber.position, self.end - MEMORY_WINDOW)


class ChangeReader:
    """What live and stored logs have in common for their readers.

    ``async for`` over batches of changes.
    """

    async def receive(self) -> Changes:
        """Return the next changes, at least one.

        Raises:
            trio.EndOfChannel: there are no more.
            LogTruncated: they are not kept any longer.
        """
        raise trio.EndOfChannel

    def receive_nowait(self) -> Changes:
        """Return the changes that are there now.

        Raises:
            trio.WouldBlock: there are none, or they are not in memory.
        """
        raise trio.WouldBlock

    def set_write_through(self, write_through: WriteThrough) -> None:
        """Hand changes to ``write_through`` while the reader waits for some, where the log supports it."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Changes:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None


class Subscriber(ChangeReader):
    """A reader of a live log, with a cursor of its own."""

    def __init__(self, log: RunLog, first: int, applies_backpressure: bool) -> None:
        self._log, self.applies_backpressure = log, applies_backpressure
        self.position = first  # the number of the next change to receive
        self._sent = first  # the number of the next change to put into the channel
        self._is_waiting = False
        self._write_through: WriteThrough | None = None
        self._send, self._receive = _open_channel(1)

    def set_write_through(self, write_through: WriteThrough) -> None:
        """Hand changes to ``write_through`` while this subscriber waits for some."""
        self._write_through = write_through

    # -- called by the log --

    def publish(self, first: int, changes: Changes) -> None:
        """Pass on changes that were just appended, unless this subscriber is behind and reads them from the log."""
        if self._sent > first:  # it begins in the middle of these
            changes = changes[self._sent - first :]
        if self._sent < first or not changes:
            return
        # The end is never written through: the subscriber has to end the response after it anyway.
        can_write = not (isinstance(changes[-1], Ended) or is_long(changes))
        if self._write_through is not None and self._is_waiting and can_write:
            self.position = self._sent = self._log.published
            if not self._write_through.take(changes):
                self._wake(())
        elif self._wake(changes):
            self._sent = self._log.published

    def _wake(self, changes: Changes) -> bool:
        # It is scheduled to run, or about to be because of what is in the channel: what comes now
        # has to queue behind this.
        self._is_waiting = False
        try:
            self._send.send_nowait(changes)
        except trio.WouldBlock:
            return False
        return True

    def close_send(self) -> None:
        """Nothing more is published."""
        self._send.close()

    # -- called by the reader --

    async def receive(self) -> Changes:
        """Return the next changes; none if the write-through has work for the caller.

        See :meth:`ChangeReader.receive`.
        """
        if self.position == self._sent < self._log.published:  # behind, and the channel is empty
            changes = await self._log.load(self.position)
            self._sent = self.position + len(changes)
            return self._advance(changes)
        # With something in the channel, ``receive`` takes it and yields once: what is appended then
        # comes after it.
        self._is_waiting = self.position == self._sent
        try:
            changes = await self._receive.receive()
        finally:
            self._is_waiting = False
        return self._advance(changes)

    def receive_nowait(self) -> Changes:
        """Return the changes that are there now. See :meth:`ChangeReader.receive_nowait`."""
        if self.position == self._sent < self._log.published and self.position >= self._log.base:
            changes = self._log.read(self.position)
            self._sent = self._log.published
            return self._advance(changes)
        try:
            return self._advance(self._receive.receive_nowait())
        except trio.EndOfChannel:
            raise trio.WouldBlock from None

    def _advance(self, changes: Changes) -> Changes:
        self.position += len(changes)
        self._log.advanced()
        return changes

    def close(self) -> None:
        """Leave the log."""
        self._write_through = None
        self._send.close()
        self._receive.close()
        self._log.unsubscribe(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def is_long(changes: Changes) -> bool:
    """Return whether changes take so long to encode or render that a thread should do it."""
    return sum(map(_text_length, changes)) > MAX_INLINE_CHARS


def _text_length(change: Change) -> int:
    match change:
        case TextAdded() | ReasoningAdded() | ToolOutputAdded():
            return len(change.text)
        case CallStarted():
            return sum(len(value) for value in change.args.values() if isinstance(value, str))
        case CallEnded():
            return len(change.result)
        case ClientToolCalled():
            return len(change.arguments)
        case _:
            return 0


async def load_changes(store: Store, principal: str, run_id: str, first: int) -> Changes:
    """Load changes of a run from a number on.

    A bounded number at a time, none when there are no more.

    Raises:
        StoreError: the store fails.
        CorruptRecord: the stored log cannot be decoded.
    """
    batches = await store.read_log(principal, run_id, first)
    try:
        return decode_batches(batches, first)
    except DecodeError as error:
        raise CorruptRecord(f"the log of {run_id} is damaged: {error}") from error


def decode_batches(batches: Sequence[LogBatch], first: int) -> Changes:
    """Decode consecutive batches, from change ``first`` on, which the first batch contains.

    Raises:
        DecodeError: a batch is damaged.
    """
    changes = tuple(change for batch in batches for change in decode_changes(batch.body))
    return changes[first - batches[0].first :] if batches else ()


class StoredReader(ChangeReader):
    """A reader of the stored log of a run that has ended."""

    def __init__(self, store: Store, principal: str, run_id: str, first: int = 0) -> None:
        self._store, self._principal, self._run_id = store, principal, run_id
        self._position = first
        self._is_over = False

    async def receive(self) -> Changes:
        """Return the next changes.

        Raises:
            trio.EndOfChannel: there are no more.
            LogTruncated: the log has been deleted, or ends too early.
        """
        if self._is_over:
            raise trio.EndOfChannel
        changes = await load_changes(self._store, self._principal, self._run_id, self._position)
        if not changes:
            raise LogTruncated
        self._position += len(changes)
        self._is_over = isinstance(changes[-1], Ended)
        return changes
