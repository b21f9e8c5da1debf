"""An interactive turn: approval requests, Ctrl-C, connection problems, and the exit code."""

from __future__ import annotations

import io
import signal

import pytest
import trio
import trio.testing
from attrs import Factory, define

from hermes_trio.client.api_client import ApiClient, TurnPrompt
from hermes_trio.client.events import ApprovalPrompt, read_event
from hermes_trio.client.screen import JsonLines, PlainText
from hermes_trio.client.stream import Received, ReconnectPolicy
from hermes_trio.client.turn import (
    ApprovalHandler,
    NoAnswer,
    TurnResult,
    answer_with,
    leave_open,
    run_turn,
    strongest_offered,
)
from hermes_trio.client.view import View
from hermes_trio.core.dialects.runs import frames_after
from hermes_trio.core.events import (
    AgentFailed,
    AnsweredBy,
    ApprovalAnswered,
    ApprovalRequest,
    Choice,
    Event,
    Finished,
    Result,
    Text,
    ToolStarted,
    Verdict,
)
from hermes_trio.core.outcome import Reason
from tests.client.runs import HEADER, RUN_ID, changes_of
from tests.client.server import HEAD, Asked, Flaky, calling, error, reply

ASK = TurnPrompt("hello", "once")
HASTY = ReconnectPolicy(attempts=2, first=0.0)
FINISHED = Finished(Result(), 3.0)
WANTED = ApprovalRequest("q", "", "rm x", "why", ("rm",), True, 1.0, 60.0)


@define
class Person:
    """A plain text view that records its messages."""

    out: io.StringIO = Factory(io.StringIO)
    err: io.StringIO = Factory(io.StringIO)

    @property
    def screen(self) -> PlainText:
        return PlainText(self.out, self.err)


async def turn(
    client: ApiClient, person: Person, approval_handler: ApprovalHandler = leave_open
) -> TurnResult:
    with trio.fail_after(10):
        return await run_turn(client, ASK, person.screen, approval_handler, HASTY)


@pytest.mark.parametrize(
    ("last", "code", "told"),
    [
        (FINISHED, 0, ""),
        (Finished(Result(verdict=Verdict.TRUNCATED), 3.0), 0, "incomplete: "),
        (AgentFailed("oh", "ValueError", 3.0), 1, "failed: oh"),
    ],
)
async def test_a_turn_ends_as_its_run_does(last: Event, code: int, told: str) -> None:
    person = Person()
    script: list[Event] = [Text("one"), ToolStarted("a", "t", {}, 1.0), Text("\n\ntwo"), last]
    async with calling(Flaky(changes_of(script))) as client:
        end = await turn(client, person)
    assert (end.code, end.quit) == (code, False)
    assert person.out.getvalue() == "one\n\ntwo\n"
    assert told in person.err.getvalue()


async def test_a_run_that_another_client_stopped() -> None:
    person = Person()
    async with calling(Flaky(changes_of([], Reason.STOP_REQUESTED))) as client:
        assert (await turn(client, person)).code == 130
    assert person.out.getvalue() == ""


@pytest.mark.parametrize(("status", "code"), [(401, 2), (429, 1)])
async def test_a_refused_turn(status: int, code: int) -> None:
    person = Person()
    async with calling(Flaky([], answers=[error(status, "because")])) as client:
        assert (await turn(client, person)).code == code
    assert person.err.getvalue() == "no: because\n"


async def test_connection_problems_are_reported() -> None:
    person = Person()
    server = Flaky(
        changes_of([Text("x"), FINISHED]), budget=lambda number: 0 if number == 0 else 10_000
    )
    async with calling(server) as client:
        assert (await turn(client, person)).code == 0
    assert person.err.getvalue() == "the connection was closed; trying again in 0 s (1 of 2)\n"


# Questions


@define
class AskingServer:
    """A server whose run requests approval and ends when it is answered or stopped."""

    by: AnsweredBy = AnsweredBy.CLIENT
    silent: int = 0  # so many answers get no reply
    refuses: bool = False
    over: trio.Event = Factory(trio.Event)
    got: list[object] = Factory(list)
    stops: int = 0
    is_deaf: bool = False  # to a stop

    async def respond(self, asked: Asked, stream: trio.SocketStream) -> None:
        if asked.path.endswith("/approval"):
            await self._take(asked, stream)
        elif asked.path.endswith("/stop"):
            self.stops += 1
            if not self.is_deaf:
                self.over.set()
            await stream.send_all(reply(200, {}))
        elif asked.path.endswith("/events"):
            await stream.send_all(HEAD + frames_after(HEADER, changes_of([WANTED])[:1]))
            await self.over.wait()
            await stream.send_all(frames_after(HEADER, changes_of(self._script()), 1))
        else:
            await stream.send_all(reply(202, {"run_id": RUN_ID}))

    async def _take(self, asked: Asked, stream: trio.SocketStream) -> None:
        self.got.append(asked.json)
        if len(self.got) > self.silent:
            self.over.set()
            await stream.send_all(
                error(409, "approval_not_pending") if self.refuses else reply(200, {})
            )

    def _script(self) -> list[Event]:
        if self.stops:
            return [WANTED]
        return [WANTED, ApprovalAnswered("q", Choice.ONCE, self.by, 2.0), Text("ok"), FINISHED]


@pytest.mark.parametrize(
    "server",
    [AskingServer(), AskingServer(refuses=True), AskingServer(silent=1)],
    ids=["heard", "too late", "unheard"],
)
async def test_a_question_is_answered(server: AskingServer) -> None:
    server.over = trio.Event()
    person = Person()
    async with calling(server) as client:
        end = await turn(client, person, answer_with(Choice.ALWAYS))
    assert end.code == 0
    assert person.out.getvalue() == "ok\n"
    assert server.got == [{"approval_id": "q", "choice": "always"}] * (server.silent + 1)
    assert ("did not get through" in person.err.getvalue()) == bool(server.silent)


async def test_another_client_answers_first() -> None:
    server, asked = AskingServer(), list[ApprovalPrompt]()

    async def think(question: ApprovalPrompt) -> Choice:
        asked.append(question)
        server.over.set()
        await trio.sleep_forever()
        raise AssertionError

    async with calling(server) as client:
        assert (await turn(client, Person(), think)).code == 0
    assert len(asked) == 1
    assert server.got == []


async def test_a_request_that_is_left_to_other_clients() -> None:
    server = AskingServer()

    async def leave(question: ApprovalPrompt) -> NoAnswer:
        server.over.set()
        return await leave_open(question)

    async with calling(server) as client:
        assert (await turn(client, Person(), leave)).code == 0
    assert server.got == []


@pytest.mark.parametrize(
    ("wanted", "offered", "given"),
    [
        (Choice.ALWAYS, tuple(Choice), Choice.ALWAYS),
        (Choice.ALWAYS, (Choice.ONCE, Choice.SESSION, Choice.DENY), Choice.SESSION),
        (Choice.SESSION, (Choice.ONCE, Choice.DENY), Choice.ONCE),
        (Choice.ONCE, (Choice.ALWAYS, Choice.DENY), Choice.DENY),
        (Choice.DENY, tuple(Choice), Choice.DENY),
        (Choice.ONCE, (), Choice.DENY),
    ],
)
def test_no_answer_exceeds_the_wanted_choice(
    wanted: Choice, offered: tuple[Choice, ...], given: Choice
) -> None:
    assert strongest_offered(wanted, offered) is given


# Signals


def interrupting(*numbers: int) -> ApprovalHandler:
    """Answer an approval request with signals."""

    async def press(_question: ApprovalPrompt) -> NoAnswer:
        for number in numbers:
            signal.raise_signal(number)
            await trio.testing.wait_all_tasks_blocked()
        return NoAnswer()

    return press


async def test_ctrl_c_stops_the_run() -> None:
    server, person = AskingServer(), Person()
    async with calling(server) as client:
        end = await turn(client, person, interrupting(signal.SIGINT))
    assert (end.code, end.quit, server.stops) == (130, False, 1)
    assert person.err.getvalue() == "stopping; Ctrl-C again quits\n"


@pytest.mark.parametrize(
    "numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,), (signal.SIGHUP,)]
)
async def test_leaving(numbers: tuple[int, ...]) -> None:
    async with calling(AskingServer(is_deaf=True)) as client:
        end = await turn(client, Person(), interrupting(*numbers))
    assert (end.code, end.quit) == (130, True)


async def test_a_closed_output_pipe() -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    server, screen = AskingServer(), JsonLines(Gone(), io.StringIO())
    async with calling(server) as client:
        with pytest.RaisesGroup(BrokenPipeError):
            await run_turn(client, ASK, screen, leave_open, HASTY)
    assert server.stops == 1


# What scripts get


async def test_json_lines() -> None:
    out = io.StringIO()
    screen = JsonLines(out, io.StringIO())
    heard = Received(read_event('{"seq": 0,\n"event": "x"}'), '{"seq": 0,\n"event": "x"}')
    screen.show(View(), heard)
    screen.tick(View())
    screen.finish(View())
    assert out.getvalue() == '{"seq": 0, "event": "x"}\n'
