"""The queue between an agent and its run's tracker.

The agent emits from any thread, or from a Trio task; the tracker receives batches from a Trio
memory channel. Events wait in a list under a lock until they are moved into the channel, which is
scheduled once for all that are pending: a wake-up of Trio costs more than a hundred appends.

Most events are pieces of text a few characters long. They are queued as plain ``str`` and joined
into one :class:`~hermes_trio.core.events.Text` when the tracker receives them, so a tracker that is
busy gets fewer, larger events and never falls behind.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable

import trio
from attrs import define, field

from hermes_trio.core.events import (
    Event,
    EventOrText,
    Reasoning,
    Text,
    ToolAnnounced,
    ToolOutput,
    ToolStarted,
    coalesce,
)

Callback = Callable[[], None]


class ThreadNotifier:
    """Schedules callbacks in the Trio thread, with one wake-up of Trio for all that are pending.

    A wake-up from another thread costs a system call, during which the thread gives up the
    interpreter lock. With many agents there is nearly always a wake-up pending already. Create it
    in a Trio task; ``notify`` is thread-safe.
    """

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._callbacks: list[Callback] = []

    def notify(self, callback: Callback) -> None:
        """Have a callback called soon in the Trio thread. The callback must not raise.

        Raises:
            trio.RunFinishedError: Trio is not running any more.
        """
        with self._lock:
            self._callbacks.append(callback)
            if len(self._callbacks) > 1:
                return  # the pending wake-up calls this one too
        try:
            self._token.run_sync_soon(self._call_all)
        except trio.RunFinishedError:
            # Reset, so that the next caller schedules a wake-up and learns the same.
            with self._lock:
                self._callbacks = []
            raise

    def _call_all(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


_notifier: trio.lowlevel.RunVar[ThreadNotifier] = trio.lowlevel.RunVar(
    "hermes_trio.thread_notifier"
)


def current_notifier() -> ThreadNotifier:
    """Return the notifier of the current Trio run. All agents share it."""
    try:
        return _notifier.get()
    except LookupError:
        notifier = ThreadNotifier()
        _notifier.set(notifier)
        return notifier


# Too short to be noticed. Hermes needs less than a millisecond between the two reports, and a few
# more for a batch of calls, all of which it announces first.
HOLD_SECONDS = 0.1
MAX_HELD = 64  # calls; what is held back is not subject to the run's back-pressure


@define(eq=False)
class AnnouncementBuffer:
    """Holds announced tool calls back until their id is known. Not thread-safe.

    Some agents report each start of a call twice: first without its id, because an older interface
    has none, and at once again with it. A call that is shown keeps its id, so an announcement waits
    for a moment: if the same tool is started under an id meanwhile, the call is shown under that id;
    otherwise under the one that was made up for it.

    Everything else keeps its order: whatever is neither an announcement nor the start of an announced
    call releases all announcements before it.
    """

    _held: deque[tuple[float, ToolAnnounced]] = field(factory=deque, init=False)

    @property
    def deadline(self) -> float:
        """When the oldest announcement is to be released; infinity if there is none."""
        return self._held[0][0] if self._held else math.inf

    def admit(self, events: list[EventOrText], now: float) -> list[EventOrText]:
        """Add events; return all that are due, in their order."""
        if not self._held and ToolAnnounced not in map(type, events):
            return events
        due: list[EventOrText] = []
        for event in events:
            if isinstance(event, ToolAnnounced):
                self._held.append((now + HOLD_SECONDS, event))
            elif announced := self._take(event):
                due += [event, announced]
            else:
                due += [*self.release(), event]
        while self.deadline <= now or len(self._held) > MAX_HELD:
            due.append(self._held.popleft()[1])
        return due

    def release(self) -> list[Event]:
        """Return all announcements that are held back."""
        released: list[Event] = [event for _, event in self._held]
        self._held.clear()
        return released

    def _take(self, event: EventOrText) -> ToolAnnounced | None:
        """Take out the oldest announcement of the call that this event starts, if it starts one."""
        if isinstance(event, ToolStarted) and event.call_id:
            for entry in self._held:
                if entry[1].name == event.name:
                    self._held.remove(entry)
                    return entry[1]
        return None


# These bound what a client that does not read costs, together with the buffers of its connection.
MAX_EVENTS = 256
MAX_CHARS = 32_768

# Parametrised once: that costs as much as opening a channel.
_open_channel = trio.open_memory_channel[list[EventOrText]]

_WITH_TEXT = frozenset({Text, Reasoning, ToolOutput})


class RunEnded(Exception):
    """The run has ended, and further events of the agent are discarded.

    An agent should let this pass and return.
    """


class EventQueue:
    """A bounded, thread-safe queue of agent events with one Trio consumer.

    Producers block (threads) or wait (tasks) while the consumer has not taken ``max_events`` events
    or ``max_chars`` characters; this is the run's back-pressure. The consumer receives everything
    pending in one batch, and Trio is woken once per batch, not per event. Closing the send side of
    the channel ends the stream.

    Create it in a Trio task. The producer methods may be called from any thread and at any time,
    even after Trio has ended.
    """

    def __init__(self, max_events: int = MAX_EVENTS, max_chars: int = MAX_CHARS) -> None:
        self._max_events, self._max_chars = max_events, max_chars
        self._notifier = current_notifier()
        self._lock = threading.Lock()
        self._pending: list[EventOrText] = []
        # What the consumer has not taken yet, pending or in the channel.
        self._unread_events = self._unread_chars = 0
        self._is_full = False
        # a delivery to the channel is under way, or waits for room in it
        self._is_scheduled = False
        self._is_closed = False
        # Producers that wait for room: threads, Trio tasks, and callbacks of other event loops.
        self._has_waiters = False
        self._thread_space: threading.Condition | None = None
        self._task_space: trio.Event | None = None
        self._space_callbacks: list[Callable[[], None]] = []
        self._announcements = AnnouncementBuffer()  # received, but held back
        # One batch: whatever comes while it is in the channel is pending and goes with it.
        self._send, self._receive = _open_channel(1)

    # -- producers, in any thread --

    def put(self, event: EventOrText) -> None:
        """Add an event; blocks the calling thread while the queue is full. Not for the Trio thread.

        Raises:
            RunEnded: the run is over.
        """
        with self._lock:
            while self._is_full and not self._is_closed:
                self._has_waiters = True
                if self._thread_space is None:
                    self._thread_space = threading.Condition(self._lock)
                self._thread_space.wait()
            self._append(event)
            self._schedule()

    def try_put(self, event: EventOrText) -> bool:
        """Add an event if there is room, from any thread. Return whether there was.

        Raises:
            RunEnded: the run is over.
        """
        with self._lock:
            if self._is_full and not self._is_closed:
                return False
            self._append(event)
            self._schedule()
            return True

    def put_final(self, event: Event) -> None:
        """Add the agent's last event, whether or not there is room. Never blocks and never raises.

        The consumer is not woken: ``close_send``, which follows, delivers it. It is dropped if the
        run is over.
        """
        with self._lock:
            if not self._is_closed:
                self._append(event)

    def when_space(self, callback: Callable[[], None]) -> None:
        """Call back once when there may be room, or when the run is over.

        At once, or later in the Trio thread.

        For producers that can neither block nor wait in Trio. The callback must neither block nor
        raise.
        """
        with self._lock:
            if self._is_full and not self._is_closed:
                self._has_waiters = True
                self._space_callbacks.append(callback)
                return
        callback()

    def _append(self, event: EventOrText) -> None:
        if self._is_closed:
            raise RunEnded
        self._pending.append(event)
        self._unread_events += 1
        if type(event) is str:
            self._unread_chars += len(event)
        elif type(event) in _WITH_TEXT:
            self._unread_chars += len(event.text)  # type: ignore[union-attr]  # all of these have one
        self._is_full = (
            self._unread_events >= self._max_events or self._unread_chars >= self._max_chars
        )

    def _schedule(self) -> None:
        if self._is_scheduled:
            return
        self._is_scheduled = True
        try:
            self._notifier.notify(self._deliver)
        except trio.RunFinishedError:
            self._is_closed = True

    # -- producers that are Trio tasks --

    def put_nowait(self, event: EventOrText) -> bool:
        """Add an event if there is room, from the Trio thread, where no wake-up is needed.

        Return whether there was.

        Raises:
            RunEnded: the run is over.
        """
        with self._lock:
            if self._is_full and not self._is_closed:
                return False
            self._append(event)
            is_scheduled, self._is_scheduled = self._is_scheduled, True
        if not is_scheduled:
            self._deliver()
        return True

    async def wait_space(self) -> None:
        """Wait until the consumer has taken something, or the run is over."""
        self._has_waiters = True
        if self._task_space is None:
            self._task_space = trio.Event()
        await self._task_space.wait()

    # -- the consumer, in the Trio thread --

    async def receive(self) -> list[Event]:
        """Return everything that has been put, at least one event, with adjacent pieces of text joined.

        An announced tool call may be held back for up to ``HOLD_SECONDS``: see
        :class:`AnnouncementBuffer`. Nothing is lost if this is cancelled.

        Raises:
            trio.EndOfChannel: the agent has emitted its last event, and it was received.
        """
        while True:
            try:
                events = await self._receive_batch()
            except trio.EndOfChannel:
                if released := self._announcements.release():
                    return released
                raise
            if due := self._announcements.admit(events, trio.current_time()):
                return coalesce(due)

    async def _receive_batch(self) -> list[EventOrText]:
        """Return what has been put; nothing if it is time to release an announcement."""
        deadline = self._announcements.deadline
        batch: list[EventOrText] = []
        if deadline == math.inf:  # nearly always, and a cancel scope is not free
            batch = await self._receive.receive()
            return batch + self._take_all()
        with trio.move_on_at(deadline):
            batch = await self._receive.receive()
            return batch + self._take_all()
        return []

    def close_send(self) -> None:
        """End the stream: nothing more comes. What was put before can still be received."""
        self.close()
        self._deliver()
        self._send.close()

    def close(self) -> None:
        """Refuse new events: blocked and later producers get ``RunEnded``.

        What was put before can be received.
        """
        with self._lock:
            self._is_closed = True
        if self._has_waiters:
            self._wake_waiters()

    def drain(self) -> list[Event]:
        """Close, and return everything that was put before, without waiting."""
        self.close()
        events = self._announcements.admit(self._take_all(), trio.current_time())
        events += self._announcements.release()
        return coalesce(events) if events else []

    def _deliver(self) -> None:
        """Move what is pending into the channel.

        While that is full, ``receive`` takes it along instead.
        """
        with self._lock:
            if not self._pending:
                self._is_scheduled = False
                return
            try:
                self._send.send_nowait(self._pending)
            except (trio.WouldBlock, trio.ClosedResourceError):
                return
            self._pending, self._is_scheduled = [], False

    def _take_all(self) -> list[EventOrText]:
        """Take what is in the channel, which is older, and what is pending."""
        try:
            batch: list[EventOrText] = self._receive.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            batch = []
        with self._lock:
            pending, self._pending = self._pending, []
            self._unread_events = self._unread_chars = 0
            self._is_full = self._is_scheduled = False
        if self._has_waiters:
            self._wake_waiters()
        return batch + pending

    def _wake_waiters(self) -> None:
        if self._task_space is not None:
            self._task_space.set()
            self._task_space = None
        with self._lock:
            self._has_waiters = False
            if self._thread_space is not None:
                self._thread_space.notify_all()
            callbacks, self._space_callbacks = self._space_callbacks, []
        for callback in callbacks:
            callback()
