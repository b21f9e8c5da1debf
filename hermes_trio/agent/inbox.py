"""The way from an agent's threads to the tracker.

Any thread may put an event; one Trio task receives them, many at a time. The path is bounded as a whole: an event
takes a place when it is put and frees it when the tracker takes it, and a thread that finds no place waits. That is
the back-pressure which a slow reader puts on an agent.

Crossing into Trio is dear (a wake-up costs more than a hundred puts), so it happens once for all events that wait, of all agents:
the first put asks Trio to tell the tracker, the others only add to the pile. The news travels through a memory channel
with room for one piece of it, and the tracker takes the whole pile at once. Closing the send end of that channel is the
only mark of the end. While the tracker rests, somebody else may take what needs only to be noted.

Nearly all that is said is text of the answer, a few letters at a time. Such a piece lies on the pile as the ``str`` that it is,
and becomes an event with its neighbours, when they are taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import trio

from hermes_trio.agent.bell import current_bell
from hermes_trio.agent.news import NOBODY_WAITS, open_news
from hermes_trio.core.events import (
    ApprovalWanted,
    Crashed,
    Event,
    Finished,
    Reasoning,
    Said,
    Text,
    ToolOutput,
    heard,
)

# Together with what is being sent, some seven times as much waits for one reader that does not read: this bounds what it costs.
PLACES = 256
CHARACTERS = 32_768

_SPOKEN = frozenset({Text, Reasoning, ToolOutput})
_WEIGHTY = frozenset({ApprovalWanted, Finished, Crashed})  # what calls for more than being noted


SeeTo = Callable[[bool], bool]
"""Finds somebody who fetches what waits, at once or as soon as it is his turn; whether there was one."""

NOBODY_SEES_TO_IT: SeeTo = lambda at_once: False  # noqa: ARG005, E731


class RunEnded(Exception):
    """The run is over: nobody will hear what is said from now on. An agent should let it pass and return."""


class Inbox:
    """Made in a Trio task; puts are allowed from everywhere and at any time, even after the server is gone."""

    def __init__(self, places: int = PLACES, characters: int = CHARACTERS) -> None:
        self._bell = current_bell()
        self._places, self._characters = places, characters
        self._lock = threading.Lock()
        self._changed: threading.Condition | None = None  # for threads that wait for a place
        self._pile: list[Said] = []
        self._unread_characters = 0
        # What waits needs only to be noted, which others than the tracker can do for it.
        self._is_light = True
        self._see_to = NOBODY_SEES_TO_IT
        self._is_in_step = False  # the agent is a task, and it is its turn
        self._is_due = False  # it has said something in this turn
        self._is_full = self._is_awaited = False  # somebody waits for a place, or has waited
        self._is_told = self._closed = False  # told: the tracker knows, or is about to, that something waits
        self._space = NOBODY_WAITS
        self._when_space: list[Callable[[], None]] = []
        # Holds one piece of news at most: something waits on the pile.
        self._send, self._news = open_news(1)

    # -- the speaking side, any thread --

    def put(self, event: Said) -> None:
        """Add an event; waits for a place. Not for the Trio thread.

        Raises:
            RunEnded: nobody listens any more.
        """
        with self._lock:
            while self._is_full and not self._closed:
                self._wait_as_thread()
            if type(event) is not str or self._closed:
                self._add_open(event)
                return
            # Every token of an agent in a thread comes this way: what follows is _add_open without its calls.
            self._pile.append(event)
            self._unread_characters += len(event)
            self._is_full = len(self._pile) >= self._places or self._unread_characters >= self._characters
            if not (self._is_told and self._is_light):
                self._wake_trio()

    def _wait_as_thread(self) -> None:
        self._is_awaited = True
        if self._changed is None:
            self._changed = threading.Condition(self._lock)
        self._changed.wait()

    def try_put(self, event: Said) -> bool:
        """Add an event if there is a place now.

        Raises:
            RunEnded: nobody listens any more.
        """
        with self._lock:
            if self._is_full and not self._closed:
                return False
            self._add_open(event)
            return True

    def try_put_here(self, event: Said) -> bool:
        """The same for the Trio thread, where telling the tracker costs next to nothing.

        Raises:
            RunEnded: nobody listens any more.
        """
        with self._lock:
            if self._closed:
                raise RunEnded
            if self._is_full:
                return False
            if type(event) is str:  # nearly always: what follows is _pile_up without its call
                self._pile.append(event)
                self._unread_characters += len(event)
                self._is_full = len(self._pile) >= self._places or self._unread_characters >= self._characters
            else:
                self._pile_up(event)
            is_told, self._is_told = self._is_told and self._is_light, True
        if is_told:
            return True
        if self._is_in_step:
            self._is_due = True
        else:
            self._tell(at_once=False)
        return True

    def post(self, event: Event) -> None:
        """The last word of an agent: never waits and never raises, and is lost only if the run ended before.

        The tracker is not told: that all is said, which is next, wakes it anyway.
        """
        with self._lock:
            if not self._closed:
                self._pile_up(event)

    def when_space(self, tell: Callable[[], None]) -> None:
        """For speakers that may not wait: ``tell`` is called once, when a place may be free or nobody listens any more.

        It is called at once or later from the Trio thread, and must neither block nor raise.
        """
        with self._lock:
            if self._is_full and not self._closed:
                self._is_awaited = True
                self._when_space.append(tell)
                return
        tell()

    def _add_open(self, event: Said) -> None:
        if self._closed:
            raise RunEnded
        self._pile_up(event)
        if not (self._is_told and self._is_light):
            self._wake_trio()

    def _pile_up(self, event: Said) -> None:
        """Every token comes this way: whether the pile is full is noted here, once."""
        self._pile.append(event)
        if type(event) is str:
            self._unread_characters += len(event)
        else:
            self._weigh(event)
        self._is_full = len(self._pile) >= self._places or self._unread_characters >= self._characters

    def _weigh(self, event: Said) -> None:
        if type(event) in _SPOKEN:
            self._unread_characters += len(event.text)  # type: ignore[union-attr]  # all of these have one
        elif type(event) in _WEIGHTY:
            self._is_light = False

    def _wake_trio(self) -> None:
        self._is_told = True
        try:
            self._bell.ring(self._tell)
        except trio.RunFinishedError:
            self._closed = True

    # -- the Trio side --

    def begin_step(self) -> None:
        """The agent, a task, has its turn: what it says will be seen to when that is over."""
        self._is_in_step = True

    def end_step(self) -> None:
        """The agent lets the others work: see to what it has said."""
        self._is_in_step = False
        if self._is_due:
            self._is_due = False
            self._tell()

    async def wait_space(self) -> None:
        """Return when events may have been taken. For speakers that are Trio tasks."""
        self._is_awaited = True
        if self._space is NOBODY_WAITS:
            self._space = trio.Event()
        await self._space.wait()

    async def receive(self) -> list[Event]:
        """All events that wait, at least one.

        Raises:
            trio.EndOfChannel: the agent has had its last word.
        """
        if self._pile:
            # An agent that never stops must not keep the others from working.
            await trio.lowlevel.checkpoint()
        while not self._pile:
            try:
                await self._news.receive()
            except trio.EndOfChannel:
                if not self._pile:  # else there is the last word
                    raise
        return self._take()

    def finish(self) -> None:
        """Nothing more comes. What waits can still be received."""
        self.close()
        self._send.close()

    def close(self) -> None:
        """Stop listening: waiting speakers and later ones get ``RunEnded``. What was put before stays readable."""
        with self._lock:
            self._closed = True
        if self._is_awaited:
            self._wake_others()

    def drain(self) -> list[Event]:
        """Close, and take everything that was put before, without waiting."""
        if not self._closed:
            self.close()
        return self._take() if self._pile else []

    def seen_to_by(self, see_to: SeeTo) -> None:
        """Ask somebody first whether he finds one who fetches what waits, with :meth:`take_light`, in place of the tracker."""
        self._see_to = see_to

    def _tell(self, at_once: bool = True) -> None:
        if not (self._is_light and self._see_to(at_once)):
            self.rouse()

    def rouse(self) -> None:
        """Let the tracker see to it."""
        try:  # noqa: SIM105 - a context manager takes as long as the rest
            self._send.send_nowait(None)
        except (trio.WouldBlock, trio.ClosedResourceError):
            pass  # it knows already, or all is said

    def take_light(self) -> list[Event]:
        """All that waits, if it needs only to be noted; else the tracker is roused."""
        if self._is_light:
            return self._take()
        self.rouse()
        return []

    def _take(self) -> list[Event]:
        with self._lock:
            pile, self._pile = self._pile, []
            self._unread_characters = 0
            self._is_told = self._is_full = False
            self._is_light = True
        if self._is_awaited:
            self._wake_others()
        return heard(pile)

    def _wake_others(self) -> None:
        """Let all who wait for a place try again."""
        self._space.set()
        self._space = NOBODY_WAITS
        with self._lock:
            self._is_awaited = False
            if self._changed is not None:
                self._changed.notify_all()
            waiting, self._when_space = self._when_space, []
        for tell in waiting:
            tell()
