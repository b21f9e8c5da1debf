"""The chats of a channel: each message is taken once and answered in the order of its chat.

A message is claimed in the store before it is acknowledged, so that one which is delivered again is
not answered again, even after a restart or by another process. It then waits in memory: messages
that wait when the process dies are not answered. The run in progress is recovered, and its chat is
told at the next start. A server that shuts down tells the chats itself.
"""

from __future__ import annotations

import contextvars
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog
import trio
from attrs import define, field, frozen

from hermes_trio.channels.base import MAX_AGE_SECONDS, Channel, ChannelMessage, DeliveryError
from hermes_trio.channels.turns import (
    FAILED,
    RESTARTING,
    RunningCalls,
    new_run_id,
    read_answer,
    start_turn,
)
from hermes_trio.core.errors import SERVER_ERROR, ApiError
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.core.records import IdempotencyRecord, RunEnd, RunHeader, RunQuery
from hermes_trio.core.sessions import build_preview
from hermes_trio.runs.admission import RETRY_SOON
from hermes_trio.runs.disconnects import ClientHandle
from hermes_trio.runs.run import Run
from hermes_trio.stores.base import StoreError
from hermes_trio.web.state import AppState

log = structlog.get_logger(__name__)

BUSY = "I am too busy at the moment. Please try again later."
FULL = (
    "I am still working on your earlier messages and did not take the last one. "
    "Please send it again when I have answered."
)
TEXT_ONLY = "I understand text messages only."
INTERRUPTED = (
    "I was interrupted while I worked on “{preview}”. Please send your last messages again."
)

FORBIDDEN = 403
MAX_CHATS = 1_000  # with messages that are not answered yet
MAX_KEY_CHARS = 256  # of an idempotency key
CLAIM_SECONDS = 10.0
# For a slot and for the turns that other clients run in the session; there is no event for either.
BUSY_SECONDS = 60.0
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.5, 5.0
TEXT_ONLY_SECONDS = 60.0  # between two notes: users may send a whole album
CLOSE_SECONDS = 5.0
INTERRUPTED_SECONDS = 3_600.0  # how long ago a run may have been recovered, for its chat to be told
MAX_INTERRUPTED = 100


@frozen
class _Waiting:
    """A message that is to be answered by a run with this id."""

    message: ChannelMessage
    run_id: str


@define(eq=False)
class _Chat:
    """A chat with messages that are not answered yet."""

    waiting: deque[_Waiting] = field(factory=deque)
    was_told_full: bool = False


class Chats:
    """Takes the messages of a channel and answers them. Create it in a Trio task.

    Args:
        channel: where they come from.
        state: what the requests of the application share.
        nursery: for one task per chat; ``close`` waits for them.
    """

    def __init__(self, channel: Channel, state: AppState, nursery: trio.Nursery) -> None:
        self._channel, self._policy = channel, channel.policy
        self._state, self._nursery = state, nursery
        self._chats: dict[str, _Chat] = {}
        self._text_only_until: dict[str, float] = {}  # by chat: when the next note may be sent
        # Tasks for chats must not keep the context of the request that happened to start them.
        self._context = contextvars.copy_context()
        self._is_closing = False
        self._active = 0
        self._idle = trio.Event()

    async def accept(self, message: ChannelMessage) -> None:
        """Take a message, unless it was taken before. Return when it may be acknowledged.

        Raises:
            ApiError: 503 while the server stops or has too many chats; it should be sent again.
            StoreError: the same, because the store does not work.
        """
        self._state.admission.require_open()
        is_new = message.chat not in self._chats
        if self._is_closing or (is_new and len(self._chats) >= MAX_CHATS):
            text = "The server takes no messages at the moment."
            raise ApiError(503, text, SERVER_ERROR, code="channel_not_ready", headers=RETRY_SOON)
        with self._counted():
            run_id = new_run_id()
            if await self._claim(message.message_id, run_id):
                self._enqueue(_Waiting(message, run_id))
            else:
                log.info("ignored a message that was delivered again", channel=self._channel.name)

    async def _claim(self, key: str, run_id: str) -> bool:
        """Claim a key for good. Return False if it was claimed before."""
        if len(key) > MAX_KEY_CHARS:
            key = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        services = self._state.services
        claim = IdempotencyRecord(
            principal=self._policy.principal,
            route=f"channel:{self._channel.name}",
            key=key,
            fingerprint="",
            run_id=run_id,
            made_at=services.wall_clock(),
        )
        # A claim that takes effect after its request has left would lose the message.
        with trio.move_on_after(CLAIM_SECONDS, shield=True):
            return (await services.store.claim_key(claim)).run_id == run_id
        raise StoreError("the store took too long to claim a message")

    def _enqueue(self, waiting: _Waiting) -> None:
        name = waiting.message.chat
        chat = self._chats.get(name)
        if chat is None:
            chat = self._chats[name] = _Chat()
            self._start(self._work, name, chat)
        if len(chat.waiting) < self._policy.max_waiting:
            chat.waiting.append(waiting)
        elif not chat.was_told_full:
            chat.was_told_full = True
            self._start(self._tell, name, FULL)

    def _start(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        self._context.run(self._nursery.start_soon, self._run_counted, work, *args)

    async def _run_counted(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        with self._counted():
            await work(*args)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()
                self._idle = trio.Event()

    async def close(self) -> None:
        """Take no more messages, and wait a few seconds until the chats have been told."""
        self._is_closing = True
        with trio.move_on_after(CLOSE_SECONDS, shield=True) as waiting:
            while self._active:
                await self._idle.wait()
        if waiting.cancelled_caught:
            log.error("chats were left without an answer", chats=len(self._chats))

    # -- one chat --

    async def _work(self, name: str, chat: _Chat) -> None:
        """Answer the messages of a chat, one after the other."""
        try:
            while chat.waiting:
                waiting = chat.waiting.popleft()
                chat.was_told_full = False
                await self._handle(waiting, chat)
        finally:
            del self._chats[name]

    async def _handle(self, waiting: _Waiting, chat: _Chat) -> None:
        try:
            if waiting.message.text:
                await self._answer(waiting, chat)
            else:
                await self._explain(waiting.message.chat)
        except Exception:
            log.exception("a message was not answered", run_id=waiting.run_id)
            await self._tell(waiting.message.chat, FAILED)

    async def _answer(self, waiting: _Waiting, chat: _Chat) -> None:
        calls = RunningCalls()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_typing, waiting.message)
            if self._policy.progress_seconds:
                nursery.start_soon(self._report_progress, waiting.message, calls)
            answer = await self._run_turn(waiting, chat, calls)
            nursery.cancel_scope.cancel()
        await self._tell(waiting.message.chat, answer)

    async def _run_turn(self, waiting: _Waiting, chat: _Chat, calls: RunningCalls) -> str:
        """Run the turn of a message, and return what to tell its chat."""
        try:
            run, client = await self._start_turn(waiting)
            return await read_answer(run, client, calls)
        except ApiError as refusal:
            if not self._is_stopping:
                log.warning("a message was not answered", reason=refusal.message)
                return BUSY
            chat.waiting.clear()  # the next ones would be refused as well
            return RESTARTING

    @property
    def _is_stopping(self) -> bool:
        return self._is_closing or self._state.admission.is_draining

    async def _start_turn(self, waiting: _Waiting) -> tuple[Run, ClientHandle]:
        """Start the turn of a message as soon as there is a slot and its session is free.

        Raises:
            ApiError: there was none for too long, the key does not allow it, or the server stops.
        """
        give_up_at = trio.current_time() + BUSY_SECONDS
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                return await start_turn(
                    self._state, self._channel.name, self._policy, waiting.message, waiting.run_id
                )
            except ApiError as refusal:
                is_final = refusal.status == FORBIDDEN or self._is_stopping
                if is_final or trio.current_time() + delay > give_up_at:
                    raise
            await trio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    async def _keep_typing(self, message: ChannelMessage) -> None:
        while True:
            await self._channel.show_typing(message)
            await trio.sleep(self._channel.typing_seconds)

    async def _report_progress(self, message: ChannelMessage, calls: RunningCalls) -> None:
        """Tell once which tool runs, if the turn takes long."""
        await trio.sleep(self._policy.progress_seconds)
        await self._tell(message.chat, f"{await calls.wait_label()} …")
        await self._channel.show_typing(message)  # the message has ended it

    async def _explain(self, name: str) -> None:
        now = trio.current_time()
        told = self._text_only_until
        self._text_only_until = {chat: until for chat, until in told.items() if until > now}
        if name not in self._text_only_until:
            self._text_only_until[name] = now + TEXT_ONLY_SECONDS
            await self._tell(name, TEXT_ONLY)

    async def _tell(self, chat: str, text: str) -> None:
        try:
            await self._channel.send_text(chat, text)
        except DeliveryError as error:
            log.error("a message was not sent", channel=self._channel.name, error=str(error))

    # -- after a crash --

    async def report_interrupted(self) -> None:
        """Tell the chats whose runs were recovered after the process had died, once for each run."""
        try:
            for header in await self._find_interrupted():
                chat = str(header.request.get("chat", ""))
                if not (chat and self._channel.is_allowed(chat)):
                    continue
                if await self._claim(f"interrupted:{header.run_id}", new_run_id()):
                    preview = build_preview(header.messages)
                    await self._tell(chat, INTERRUPTED.format(preview=preview))
        except StoreError as error:
            log.error("interrupted chats were not told", error=str(error))

    async def _find_interrupted(self) -> list[RunHeader]:
        """Return the runs that were recovered lately."""
        query = RunQuery(
            limit=MAX_INTERRUPTED,
            live=False,
            ends=frozenset({(Status.INCOMPLETE, Reason.PROCESS_DIED)}),
            kinds=frozenset({self._channel.name}),
        )
        services = self._state.services
        page = await services.store.list_runs(self._policy.principal, query)
        now = services.wall_clock()
        return [
            run.header
            for run in page.runs
            if isinstance(run, RunEnd)
            and now - run.header.stamp.created_at < MAX_AGE_SECONDS
            and now - run.header.stamp.created_at - run.ended_after < INTERRUPTED_SECONDS
        ]
