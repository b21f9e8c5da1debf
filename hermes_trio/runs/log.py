"""The log of a run while it lives: append-only, with any number of readers.

The tracker appends; each reader has a cursor of its own and is woken through a memory channel that holds at most one
piece of news. Closing the send end of that channel is the only mark of the end. A reader that holds back (the client
that started the run) slows the agent down when it is behind; the others are never waited for.

In memory the log is bounded. Changes that every reader has had, or that are safe in the store, may be dropped; a
reader that is further behind than that reads from the store.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import trio
from attrs import frozen

from hermes_trio.agent.news import NOBODY_WAITS, News
from hermes_trio.core.changes import Change
from hermes_trio.runs.batches import Batches

Changes = tuple[Change, ...]
Load = Callable[[int], Awaitable[Changes]]
Pen = Callable[[], bool]

LAG = (
    1  # how many changes a reader that holds back may be behind; the agent's inbox is the buffer, and merges
)
UNSAFE = 8_192  # how many changes the store may be behind
KEPT = 4_096  # how many changes that are safe elsewhere stay in memory
BREATH = 0.001  # seconds after something was written at once, in which more of it waits for the reader's turn, to be one piece


class Lost(Exception):
    """The changes that a reader wants are neither in memory nor in the store."""


@frozen
class Feeder:
    """Where changes come from before they are in the log."""

    fetch: Callable[[], None]
    give_back: Callable[[], None]


NOBODY = Feeder(lambda: None, lambda: None)


def _no_pen() -> bool:
    return False


class RunLog:
    """Made in a Trio task. Appending never waits; ``room`` does."""

    def __init__(self, load: Load | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._load, self.clock = load, clock
        self._grew: Callable[[], None] | None = None
        self._changes: list[Change] = []
        self._last: Changes = ()  # the latest change, which may be in memory no more
        self.base = 0  # the number of the first change in memory
        self.end = 0  # the number that the next change will have
        self._safe = 0  # everything before this number is in the store
        self._readers: set[Reader] = set()
        self._feeder = NOBODY
        self._taken = NOBODY_WAITS  # for the tracker, the only one who does
        self.is_closed = False
        self.is_left = False  # nothing of the agent is there any more

    def append(self, changes: Changes) -> None:
        """Add changes, and have the readers know."""
        self._changes += changes
        self.end += len(changes)
        self._last = changes[-1:] or self._last
        if self._grew is not None:
            self._grew()
        for reader in self._readers:
            reader.tell()

    def close(self) -> None:
        """Nothing more comes."""
        self.is_closed = True
        self._grew = None
        for reader in self._readers:
            reader.hang_up()

    def read(self, first: int) -> Changes:
        """The changes in memory from a number on."""
        return tuple(self._changes[first - self.base :])

    def recent(self, count: int = KEPT) -> Changes:
        """The latest changes that are in memory, so many at most; the very last one in any case."""
        return tuple(self._changes[-count:]) or self._last

    def saved(self, end: int) -> None:
        """Everything before a number is in the store now."""
        self._safe = max(self._safe, end)
        self.took()

    def subscribe(self, first: int = 0, holds_back: bool = False) -> Reader:
        """A reader that begins at a change."""
        reader = Reader(self, first, holds_back)
        if self.is_closed:
            reader.hang_up()
        self._readers.add(reader)
        return reader

    def tell_growth(self, grew: Callable[[], None]) -> None:
        """Call somebody whenever there is more, until the end."""
        self._grew = grew

    def fed_by(self, feeder: Feeder) -> None:
        """There is more to be had for a reader that asks."""
        self._feeder = feeder

    def rouse(self, at_once: bool) -> bool:
        """Find a reader that waits, or is about to wake up, and have more fetched for it, now or in its turn; whether there is one."""
        for reader in self._readers:
            if reader.holds_back and reader.is_waiting:
                if at_once and reader.has_breath:
                    self.fetch()
                else:
                    reader.rouse()
                return True
        return False

    def fetch(self) -> None:
        """Have appended what waits elsewhere."""
        self._feeder.fetch()

    def give_back(self) -> None:
        """A reader that was roused cannot fetch after all."""
        self._feeder.give_back()

    async def room(self) -> None:
        """Return when every reader that holds back is close behind, and the store not too far."""
        while not self.has_room:
            self._taken = trio.Event()
            await self._taken.wait()

    @property
    def has_room(self) -> bool:
        """Whether nobody has to be waited for."""
        for reader in self._readers:
            if reader.holds_back and self.end - reader.position > LAG:
                return False
        return self._load is None or not self.is_store_behind

    @property
    def is_store_behind(self) -> bool:
        """Whether so much is not in the store yet that the agent has to wait for it."""
        return self._load is not None and self.end - self._safe > UNSAFE

    # -- for readers --

    async def load(self, first: int) -> Changes:
        """Changes that are not in memory any more.

        Raises:
            Lost: the store has not got them either.
        """
        changes = await self._load(first) if self._load is not None else ()
        if not changes:
            raise Lost
        return changes

    def took(self) -> None:
        """A reader, or the store, moved on.

        What nobody needs from memory is forgotten: with a store what is safe there, else what all have had.
        """
        if self._taken is not NOBODY_WAITS:
            self._make_way()
        if self._load is not None:
            least, unneeded = KEPT, min(self._safe, self.end - KEPT)
        else:
            least, unneeded = 1, min(map(self._needed_from, self._readers), default=self.base)
        if unneeded - self.base >= least:
            del self._changes[: unneeded - self.base]
            self.base = unneeded

    def _make_way(self) -> None:
        self._taken.set()
        self._taken = NOBODY_WAITS

    def leave(self, reader: Reader) -> None:
        """A reader is gone."""
        self._readers.discard(reader)
        if self._readers or self._taken is not NOBODY_WAITS:
            self.took()

    def _needed_from(self, reader: Reader) -> int:
        """A reader that nobody waits for may be behind, but not by any amount."""
        return reader.position if reader.holds_back else max(reader.position, self.end - KEPT)


class Reader(Batches):
    """One reader's place in a log."""

    def __init__(self, log: RunLog, first: int, holds_back: bool) -> None:
        self._log = log
        self.position = first
        self.holds_back = holds_back
        self.is_waiting = False  # until it has its turn again
        self._is_woken = False
        self._is_roused = False
        self._pen: Pen = _no_pen
        self._trouble: Exception | None = None  # of the pen
        self._wrote_at = -math.inf
        self._news = News()

    @property
    def has_breath(self) -> bool:
        """Whether what is new may be written at once: the reader waits, and it is no burst, which is better sent in few pieces."""
        is_writing = self._pen is not _no_pen and self.is_waiting and not self._is_woken
        return is_writing and self._log.clock() - self._wrote_at >= BREATH

    @property
    def is_left(self) -> bool:
        """Whether the end, once it is read, leaves nothing to wait for."""
        return self._log.is_left

    def wake(self) -> None:
        """There is something new, or time to look up. Whoever does not wait looks before it does."""
        if not self.is_waiting or self._is_woken:
            return
        self._is_woken = True
        self._news.tell()

    def write_with(self, pen: Pen) -> None:
        """Call somebody as soon as there is something new, before the reader is woken.

        He takes it with :meth:`receive_nowait` and writes it. If he returns True, that was all there was to do. What he raises is
        the reader's to hear of, and not that of whoever speaks.
        """
        self._pen = pen

    def tell(self) -> None:
        """There is something new. Whoever does not wait, or wakes up already, will see."""
        if not self.is_waiting or self._is_woken:
            return
        if self._is_written():
            self._wrote_at = self._log.clock()
        else:
            self.wake()

    def _is_written(self) -> bool:
        try:
            return self._pen()
        except trio.WouldBlock:  # it is not in memory
            return False
        except Exception as error:  # noqa: BLE001 - our own mistake
            self._trouble = error
            return False

    def rouse(self) -> None:
        """There is something to be fetched."""
        self._is_roused = True
        self.wake()

    def hang_up(self) -> None:
        """There will be nothing new any more."""
        self._news.close()

    async def receive(self) -> Changes:
        """All changes since the last call, at least one.

        Raises:
            trio.EndOfChannel: the log has ended and this reader has had all of it.
            Lost: the reader was too far behind.
        """
        while not (changes := await self.hear()):
            pass
        return changes

    async def hear(self) -> Changes:
        """The same; nothing, if somebody wakes the reader."""
        log = self._log
        if self.position >= log.end:
            await self._wait()
            if self.position >= log.end:
                return ()
        if self.position < log.base:
            return self._advance(await log.load(self.position))
        return self._advance(log.read(self.position))

    async def _wait(self) -> None:
        self.is_waiting, self._is_woken = True, False
        try:
            await self._news.receive()
        except BaseException:
            if self._is_roused:
                self._log.give_back()
            raise
        finally:
            self.is_waiting = False
        if self._is_roused:
            self._is_roused = False
            self._log.fetch()
        if self._trouble is not None:
            raise self._trouble

    def receive_nowait(self) -> Changes:
        """What there is now.

        Raises:
            trio.WouldBlock: nothing, or it is not in memory.
        """
        if not self._log.base <= self.position < self._log.end:
            raise trio.WouldBlock
        return self._advance(self._log.read(self.position))

    def _advance(self, changes: Changes) -> Changes:
        self.position += len(changes)
        self._log.took()
        return changes

    def close(self) -> None:
        """Leave the log."""
        self._pen = _no_pen
        self._news.close()
        self._log.leave(self)

    def __enter__(self) -> Self:
        """Read for as long as the block runs."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave."""
        self.close()
