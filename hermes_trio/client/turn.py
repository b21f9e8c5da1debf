"""One turn, from the prompt to the last event.

The user can interrupt it and answer approval requests.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable

import trio
from attrs import Factory, define, frozen

from hermes_trio.client.api_client import ApiClient, RequestRefused, ServerUnreachable, TurnPrompt
from hermes_trio.client.events import ApprovalPrompt
from hermes_trio.client.screen import Screen
from hermes_trio.client.stream import (
    DEFAULT_POLICY,
    Received,
    Reconnecting,
    ReconnectPolicy,
    RetriesExhausted,
    StreamUpdate,
    stream_turn,
)
from hermes_trio.client.view import EMPTY_VIEW, View, apply_event, exit_code
from hermes_trio.core.events import Choice

EXIT_MISUSE = 2
EXIT_STOPPED = 130
_EXIT_FAILED = 1
_BUFFER = 64
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REPLY_SECONDS = 10.0


@frozen
class NoAnswer:
    """The request is left for another client to answer."""


ApprovalHandler = Callable[[ApprovalPrompt], Awaitable[Choice | NoAnswer]]


def answer_with(choice: Choice) -> ApprovalHandler:
    """Return a handler that always answers alike.

    If that is not offered, with the next weaker approval.
    """

    async def answer(question: ApprovalPrompt) -> Choice:
        return strongest_offered(choice, question.choices)

    return answer


async def leave_open(_question: ApprovalPrompt) -> NoAnswer:
    """Leave every request for another client."""
    return NoAnswer()


def strongest_offered(wanted: Choice, offered: tuple[Choice, ...]) -> Choice:
    """Return the strongest choice that is offered and not stronger than the wanted one."""
    order = (Choice.ALWAYS, Choice.SESSION, Choice.ONCE, Choice.DENY)
    weaker = order[order.index(wanted) :]
    return next((choice for choice in weaker if choice in offered), Choice.DENY)


@frozen
class TurnResult:
    """How a turn ended."""

    view: View
    code: int
    quit: bool = False  # the user wants to leave, not only to stop the run


async def run_turn(
    client: ApiClient,
    prompt: TurnPrompt,
    screen: Screen,
    approval_handler: ApprovalHandler,
    policy: ReconnectPolicy = DEFAULT_POLICY,
) -> TurnResult:
    """Run one turn. Ctrl-C stops the run, a second Ctrl-C exits at once."""
    turn = _TurnController(client, prompt, screen, approval_handler, policy)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(turn.watch_signals, nursery)
            nursery.start_soon(turn.animate)
            nursery.start_soon(turn.answer_questions)
            await turn.listen(nursery)
            nursery.cancel_scope.cancel()
    finally:
        screen.finish(turn.view)
    return turn.end()


@define
class _TurnController:
    client: ApiClient
    prompt: TurnPrompt
    screen: Screen
    approval_handler: ApprovalHandler
    policy: ReconnectPolicy
    view: View = EMPTY_VIEW
    run_id: str = ""
    is_stopping: bool = False
    is_quit: bool = False
    code: int = _EXIT_FAILED  # unless the run reports its end
    _moved: trio.Event = Factory(trio.Event)  # set, and replaced, when the questions change
    _asking: trio.CancelScope = Factory(trio.CancelScope)

    def end(self) -> TurnResult:
        """Return the result."""
        if self.is_quit:
            return TurnResult(self.view, EXIT_STOPPED, quit=True)
        return TurnResult(self.view, exit_code(self.view) if self.view.is_over else self.code)

    async def listen(self, nursery: trio.Nursery) -> None:
        """Receive the updates of the run, to the end."""
        send, receive = trio.open_memory_channel[StreamUpdate](_BUFFER)
        nursery.start_soon(
            stream_turn, self.client, self.prompt, send, self._on_started, self.policy
        )
        async with receive:
            try:
                async for update in receive:
                    self._take(update)
            except BrokenPipeError:  # the reader of our output has gone: stop the run
                with trio.move_on_after(_REPLY_SECONDS, shield=True):
                    await self._stop()
                raise

    def _on_started(self, run_id: str) -> None:
        self.run_id = run_id

    def _take(self, update: StreamUpdate) -> None:
        match update:
            case Received(event, _):
                before, self.view = self.view, apply_event(self.view, event, time.time())
                self.screen.show(self.view, update)
                if self.view.questions != before.questions:
                    if before.questions and before.questions[0] not in self.view.questions:
                        self._asking.cancel()
                    self._moved.set()
                    self._moved = trio.Event()
            case Reconnecting(why, attempt, pause):
                self.screen.notice(
                    f"{why}; trying again in {pause:g} s ({attempt} of {self.policy.attempts})"
                )
            case RetriesExhausted(why, is_misuse):
                self.code = EXIT_MISUSE if is_misuse else _EXIT_FAILED
                self.screen.notice(why)

    # -- approval requests --

    async def answer_questions(self) -> None:
        """Answer approval requests one after the other: always the one that is displayed."""
        while True:
            while not self.view.questions:
                await self._moved.wait()
            question = self.view.questions[0]
            with trio.CancelScope() as self._asking:
                await self._answer(question)
            while question in self.view.questions:
                await self._moved.wait()

    async def _answer(self, question: ApprovalPrompt) -> None:
        """Try until the server has the answer, or the request is closed."""
        while True:
            choice = await self.approval_handler(question)
            if isinstance(choice, NoAnswer):
                return
            try:
                await self.client.answer(self.run_id, question.approval_id, choice)
            except RequestRefused:
                return
            except ServerUnreachable as error:
                self.screen.notice(f"the answer did not get through: {error}")
                await trio.sleep(1)  # a handler that answers by rule would retry at once
            else:
                return

    # -- signals and display --

    async def watch_signals(
        self, nursery: trio.Nursery, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Stop the run at the first Ctrl-C; exit at a second one, or at any other signal."""
        with trio.open_signal_receiver(*_SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                if number != signal.SIGINT or self.is_stopping or not self.run_id:
                    self.is_quit = True
                    nursery.cancel_scope.cancel()
                    return
                self.is_stopping = True
                self.screen.stopping()
                nursery.start_soon(self._stop)

    async def _stop(self) -> None:
        try:
            with trio.fail_after(_REPLY_SECONDS):
                await self.client.stop(self.run_id)
        except (RequestRefused, ServerUnreachable, trio.TooSlowError) as error:
            self.screen.notice(f"the run could not be stopped: {error}")

    async def animate(self) -> None:
        """Redraw the screen regularly, if it needs that."""
        if self.screen.frames_per_second:
            while True:
                self.screen.tick(self.view)
                await trio.sleep(1 / self.screen.frames_per_second)
