"""The way from an agent's threads to the tracker.

Any thread may put an event; one Trio task receives them, many at a time. The path is bounded as a whole: an event
takes a place when it is put and frees it when the tracker takes it, and a thread that finds no place waits. That is
the back-pressure which a slow reader puts on an agent.

Crossing into Trio is dear (a wake-up costs more than a hundred puts), so it happens once for all events that wait:
the first put asks Trio to call ``_deliver``, the others only add to the pile. ``_deliver`` moves the pile into a
memory channel as one batch. Closing the send end of that channel is the only mark of the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import trio

from hermes_trio.core.events import Event, Reasoning, Text, ToolOutput

PLACES = 256
CHARACTERS = 262_144


class RunEnded(Exception):
    """The run is over: nobody will hear what is said from now on. An agent should let it pass and return."""


class Inbox:
    """Made in a Trio task; puts are allowed from everywhere and at any time, even after the server is gone."""

    def __init__(self, places: int = PLACES, characters: int = CHARACTERS) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._places, self._characters = places, characters
        self._changed = threading.Condition()
        self._pile: list[Event] = []
        self._unread = self._unread_characters = 0
        self._wake_up_pending = self._closed = False
        self._space = trio.Event()
        self._when_space: list[Callable[[], None]] = []
        # Never full: a batch holds at least one event, and the last word may come on top.
        self._send, self._receive = trio.open_memory_channel[list[Event]](places + 2)

    # -- the speaking side, any thread --

    def put(self, event: Event) -> None:
        """Add an event; waits for a place. Not for the Trio thread.

        Raises:
            RunEnded: nobody listens any more.
        """
        with self._changed:
            while self._is_full() and not self._closed:
                self._changed.wait()
            self._add_open(event)

    def try_put(self, event: Event) -> bool:
        """Add an event if there is a place now.

        Raises:
            RunEnded: nobody listens any more.
        """
        with self._changed:
            if self._is_full() and not self._closed:
                return False
            self._add_open(event)
            return True

    def post(self, event: Event) -> None:
        """The last word of an agent: never waits and never raises, and is lost only if the run ended before."""
        with self._changed:
            if not self._closed:
                self._add(event)

    def when_space(self, tell: Callable[[], None]) -> None:
        """For speakers that may not wait: ``tell`` is called once, when a place may be free or nobody listens any more.

        It is called at once or later from the Trio thread, and must neither block nor raise.
        """
        with self._changed:
            if self._is_full() and not self._closed:
                self._when_space.append(tell)
                return
        tell()

    def _add_open(self, event: Event) -> None:
        if self._closed:
            raise RunEnded
        self._add(event)

    def _add(self, event: Event) -> None:
        self._pile.append(event)
        self._unread += 1
        self._unread_characters += _size(event)
        if not self._wake_up_pending:
            self._wake_up_pending = True
            self._wake_trio()

    def _wake_trio(self) -> None:
        try:
            self._token.run_sync_soon(self._deliver)
        except trio.RunFinishedError:
            self._closed = True

    def _is_full(self) -> bool:
        return self._unread >= self._places or self._unread_characters >= self._characters

    # -- the Trio side --

    async def wait_space(self) -> None:
        """Return when events may have been taken. For speakers that are Trio tasks."""
        await self._space.wait()

    async def receive(self) -> list[Event]:
        """All events that wait, at least one.

        Raises:
            trio.EndOfChannel: the agent has had its last word.
        """
        batch = await self._receive.receive()
        self._took(batch)
        return batch

    def finish(self) -> None:
        """Nothing more comes: hand over what is left and close the send end."""
        self.close()
        self._deliver()
        self._send.close()

    def close(self) -> None:
        """Stop listening: waiting speakers and later ones get ``RunEnded``. What was put before stays readable."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._wake_others()

    def drain(self) -> list[Event]:
        """Close, and take everything that was put before, without waiting."""
        self.close()
        self._deliver()
        events: list[Event] = []
        while True:
            try:
                events += self._receive.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                return events

    def _deliver(self) -> None:
        with self._changed:
            self._wake_up_pending = False
            pile, self._pile = self._pile, []
        if pile:
            self._send.send_nowait(pile)

    def _took(self, batch: list[Event]) -> None:
        with self._changed:
            self._unread -= len(batch)
            self._unread_characters -= sum(map(_size, batch))
            self._changed.notify_all()
        self._wake_others()

    def _wake_others(self) -> None:
        self._space.set()
        self._space = trio.Event()
        with self._changed:
            waiting, self._when_space = self._when_space, []
        for tell in waiting:
            tell()


def _size(event: Event) -> int:
    return len(event.text) if isinstance(event, Text | Reasoning | ToolOutput) else 0
