"""One turn, from the question to the last event, with a person who may interrupt it and answer the agent."""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable

import trio
from attrs import Factory, define, frozen

from hermes_trio.client.calls import Ask, Caller, Refused, Unreachable
from hermes_trio.client.events import Question
from hermes_trio.client.screen import Screen
from hermes_trio.client.state import EMPTY, View, exit_code, step
from hermes_trio.client.stream import PATIENT, Dropped, GaveUp, Heard, Note, Patience, converse
from hermes_trio.core.events import Choice

MISUSE = 2
STOPPED = 130
_FAILED = 1
_BUFFER = 64
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REPLY_SECONDS = 10.0


@frozen
class LeaveIt:
    """Nobody here answers; somebody else may."""


Asker = Callable[[Question], Awaitable[Choice | LeaveIt]]


def always(choice: Choice) -> Asker:
    """Answers every question alike; where that is not offered, with the next weaker yes."""

    async def answer(question: Question) -> Choice:
        return strongest(choice, question.choices)

    return answer


async def leave_it(_question: Question) -> LeaveIt:
    """Answers nothing."""
    return LeaveIt()


def strongest(wanted: Choice, offered: tuple[Choice, ...]) -> Choice:
    """The strongest answer that is offered and not stronger than the one that is wanted."""
    order = (Choice.ALWAYS, Choice.SESSION, Choice.ONCE, Choice.DENY)
    weaker = order[order.index(wanted) :]
    return next((choice for choice in weaker if choice in offered), Choice.DENY)


@frozen
class TurnEnd:
    """How a turn ended, for whoever started the program."""

    view: View
    code: int
    quit: bool = False  # the person wants to leave, not only to stop the run


async def run_turn(
    caller: Caller, ask: Ask, screen: Screen, asker: Asker, patience: Patience = PATIENT
) -> TurnEnd:
    """Do one turn. Ctrl-C stops its run, a second one leaves at once."""
    turn = _Turn(caller, ask, screen, asker, patience)
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
class _Turn:
    caller: Caller
    ask: Ask
    screen: Screen
    asker: Asker
    patience: Patience
    view: View = EMPTY
    run_id: str = ""
    is_stopping: bool = False
    is_quit: bool = False
    code: int = _FAILED  # unless the run tells its end
    _moved: trio.Event = Factory(trio.Event)  # set, and replaced, when the questions change
    _asking: trio.CancelScope = Factory(trio.CancelScope)

    def end(self) -> TurnEnd:
        """What came of it."""
        if self.is_quit:
            return TurnEnd(self.view, STOPPED, quit=True)
        return TurnEnd(self.view, exit_code(self.view) if self.view.is_over else self.code)

    async def listen(self, nursery: trio.Nursery) -> None:
        """Take what the server tells, to the end."""
        send, receive = trio.open_memory_channel[Note](_BUFFER)
        nursery.start_soon(converse, self.caller, self.ask, send, self._begun, self.patience)
        async with receive:
            try:
                async for note in receive:
                    self._take(note)
            except BrokenPipeError:  # whoever read the answer has left: nobody wants the rest
                with trio.move_on_after(_REPLY_SECONDS, shield=True):
                    await self._stop()
                raise

    def _begun(self, run_id: str) -> None:
        self.run_id = run_id

    def _take(self, note: Note) -> None:
        match note:
            case Heard(event, _):
                before, self.view = self.view, step(self.view, event, time.time())
                self.screen.show(self.view, note)
                if self.view.questions != before.questions:
                    self._questions_changed(before)
            case Dropped(why, attempt, pause):
                self.screen.notice(
                    f"{why}; trying again in {pause:g} s ({attempt} of {self.patience.attempts})"
                )
            case GaveUp(why, is_misuse):
                self.code = MISUSE if is_misuse else _FAILED
                self.screen.notice(why)

    # -- questions --

    def _questions_changed(self, before: View) -> None:
        if before.questions and before.questions[0] not in self.view.questions:
            self._asking.cancel()
        self._moved.set()
        self._moved = trio.Event()

    async def answer_questions(self) -> None:
        """Answer one question after the other: always the one that is shown."""
        while True:
            while not self.view.questions:
                await self._moved.wait()
            question = self.view.questions[0]
            with trio.CancelScope() as self._asking:
                await self._answer(question)
            while question in self.view.questions:
                await self._moved.wait()

    async def _answer(self, question: Question) -> None:
        """Until the server has the answer, or somebody else was faster."""
        while True:
            choice = await self.asker(question)
            if isinstance(choice, LeaveIt):
                return
            try:
                await self.caller.answer(self.run_id, question.approval_id, choice)
            except Refused:
                return
            except Unreachable as error:
                self.screen.notice(f"the answer did not get through: {error}")
                await trio.sleep(1)  # whoever answers by rule would try again at once
            else:
                return

    # -- the person --

    async def watch_signals(
        self, nursery: trio.Nursery, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """The first Ctrl-C stops the run; a second one, or any other signal, leaves."""
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
                await self.caller.stop(self.run_id)
        except (Refused, Unreachable, trio.TooSlowError) as error:
            self.screen.notice(f"the run could not be stopped: {error}")

    async def animate(self) -> None:
        """Let the screen move, if it does."""
        if self.screen.frames_per_second:
            while True:
                self.screen.tick(self.view)
                await trio.sleep(1 / self.screen.frames_per_second)
