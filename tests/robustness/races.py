"""Races: two operations at the same moment, in every order that a scheduler can choose.

Each round has its own seed, which determines the order of all tasks and how many steps each of the two
operations waits. A *contest* plays one round, checks the invariants, and returns the result.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import trio
from attrs import frozen
from structlog.testing import capture_logs
from trio.testing import MockClock

from hermes_trio.core.events import Text
from hermes_trio.core.records import EndedRun, Retention
from tests.robustness.invariants import (
    check,
    faults_against_record,
    faults_of_stream,
    stored_run_of_record,
)
from tests.robustness.observed_server import ObservedExchange, ObservedServer, open_observed_server
from tests.robustness.scenarios import HELLO, LIMITS, TOOLS
from tests.robustness.schedule import repeatable, shuffle, steps
from tests.robustness.streams import Dialect, ReceivedStream, read_stream
from tests.support.asgi import JSON, NO_HEADERS, Headers, HttpResponse
from tests.support.fakes import Ask, Step

RESPONSES, RUNS = "/v1/responses", "/v1/runs"
FURTHEST = 45  # steps; more than any of these requests takes
EVERYTHING = Retention(log_seconds=0.0, idempotency_seconds=0.0)
LATER = 1e12


@frozen
class RaceRound:
    """One round of a contest."""

    server: ObservedServer
    chance: random.Random

    async def at_random(self, action: Callable[[], Awaitable[Any]]) -> None:
        """Run an operation after a random number of steps."""
        await steps(self.chance.randrange(FURTHEST))
        await action()

    async def both(
        self, one: Callable[[], Awaitable[Any]], other: Callable[[], Awaitable[Any]]
    ) -> None:
        """Run two operations, each after its own random number of steps."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.at_random, one)
            nursery.start_soon(self.at_random, other)

    async def post(
        self, path: str, body: object = None, headers: Headers = NO_HEADERS
    ) -> HttpResponse:
        """A whole answer."""
        raw = b"" if body is None else json.dumps(body).encode()
        return await self.ended(self.server.exchange("POST", path, raw, {**JSON, **headers}, None))

    async def get(self, path: str, method: str = "GET") -> HttpResponse:
        """A whole answer."""
        return await self.ended(self.server.exchange(method, path, b"", {}, None))

    async def ended(self, exchange: ObservedExchange) -> HttpResponse:
        """Return when an exchange has ended."""
        await exchange.run(self.server.harness.client.app)
        check(exchange.faults)
        return exchange.answer

    async def record(self, run_id: str) -> EndedRun:
        """Return the record of a run that has ended."""
        await self.server.until_quiet()
        found = await self.server.store.find_run("ann", run_id)
        assert isinstance(found, EndedRun), found
        return found

    def check_stream(self, dialect: Dialect, raw: bytes, record: EndedRun) -> ReceivedStream:
        """Check a stream, or its beginning, against the record."""
        received = read_stream(dialect, raw)
        check(faults_of_stream(received))
        if received.run_id:
            check(faults_against_record(received, stored_run_of_record(record)))
        return received


Contest = Callable[[RaceRound], Awaitable[str]]


async def _stream(
    one: RaceRound, path: str, body: object, headers: Headers = NO_HEADERS
) -> ObservedExchange:
    return one.server.exchange(
        "POST", path, json.dumps(body).encode(), {**JSON, **headers}, Dialect.RESPONSES
    )


async def stop_and_finish(one: RaceRound) -> str:
    """Stop a run that is about to finish."""
    run_id = (await one.post(RUNS, {"input": "Hi"})).json["run_id"]
    answers: list[HttpResponse] = []

    async def stop() -> None:
        answers.append(await one.post(f"{RUNS}/{run_id}/stop"))

    await one.at_random(stop)
    record = await one.record(run_id)
    events = await one.get(f"{RUNS}/{run_id}/events")
    assert one.check_stream(Dialect.RUNS, events.body, record).ends
    assert answers[0].json["status"] in {"stopping", str(record.outcome.status)}
    return str(record.outcome.status)


async def cancel_and_disconnect(one: RaceRound) -> str:
    """Cancel a response while its client leaves."""
    exchange = await _stream(one, RESPONSES, {"input": "Hi", "stream": True})
    answers: list[HttpResponse] = []

    async def leave() -> None:
        exchange.disconnect()

    async def cancel() -> None:
        if runs := one.server.harness.state.services.registry.list_for("ann"):
            answers.append(await one.post(f"{RESPONSES}/{runs[0].header.run_id}/cancel"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.run, one.server.harness.client.app)
        await one.both(leave, cancel)
    check(exchange.faults)
    if not one.server.runs:
        return "never began"
    record = await one.record(one.server.runs[0].header.run_id)
    one.check_stream(Dialect.RESPONSES, exchange.raw, record)
    assert all(answer.status in {200, 400} for answer in answers), answers
    if answers and answers[0].status == 200:
        assert answers[0].json["status"] == record.outcome.status
    return f"{record.outcome.status} {record.outcome.reason}"


async def resume_and_expiry(one: RaceRound) -> str:
    """Resume a stream while its log expires.

    The client gets its bytes, a refusal, or a cut stream; never other bytes.
    """
    first = await one.ended(await _stream(one, RESPONSES, {"input": "Hi", "stream": True}))
    blocks = first.body.split(b"\n\n")
    after = one.chance.randrange(len(blocks) - 3)
    run_id = read_stream(Dialect.RESPONSES, first.body).run_id
    answers: list[HttpResponse] = []

    async def resume() -> None:
        answers.append(await one.get(f"{RESPONSES}/{run_id}?stream=true&starting_after={after}"))

    async def expire() -> None:
        await one.server.store.purge(EVERYTHING, LATER)

    await one.both(resume, expire)
    rest = b"\n\n".join(blocks[after + 1 :])
    [answer] = answers
    if answer.status != 200:
        assert (answer.status, answer.error["code"]) == (404, "events_expired")
        return "refused"
    assert rest.startswith(answer.body)
    return "whole" if answer.body == rest else "cut"


async def delete_and_stream(one: RaceRound) -> str:
    """Delete a response while a client reads it."""
    answer = await one.post(RESPONSES, {"input": "Hi", "background": True})
    run_id = answer.json["id"]
    read: list[HttpResponse] = []
    gone: list[HttpResponse] = []

    async def follow() -> None:
        read.append(await one.get(f"{RESPONSES}/{run_id}?stream=true"))

    async def delete() -> None:
        gone.append(await one.get(f"{RESPONSES}/{run_id}", "DELETE"))

    await one.both(follow, delete)
    assert gone[0].status == 200, gone[0].body
    assert (await one.get(f"{RESPONSES}/{run_id}")).status == 404
    one.server.runs.clear()  # its record is gone, as it was asked for
    [answer] = read
    if answer.status == 404:
        return "nothing to read"
    assert answer.status == 200, answer.body
    received = read_stream(Dialect.RESPONSES, answer.body)
    check(faults_of_stream(received, 0))
    return min(received.ends[0]) if received.ends else "cut"


async def one_key_twice(one: RaceRound) -> str:
    """Send two requests with one key: they start one run and get the same bytes."""
    body, key = {"input": "Hi", "stream": True}, {"Idempotency-Key": f"k{one.chance.random()}"}
    both = [await _stream(one, RESPONSES, body, key) for _ in range(2)]
    first, second = (partial(each.run, one.server.harness.client.app) for each in both)
    await one.both(first, second)
    answers = [each.answer for each in both]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].body == answers[1].body
    [run] = one.server.runs
    assert one.check_stream(
        Dialect.RESPONSES, answers[0].body, await one.record(run.header.run_id)
    ).is_closed
    replayed = ["idempotency-replayed" in answer.headers for answer in answers]
    assert sorted(replayed) == [False, True]
    return "the first" if replayed[1] else "the second"


async def approve_and_time_out(one: RaceRound) -> str:
    """Answer an approval request at the moment of its timeout.

    It has one answer, the same for all observers.
    """
    choice = one.chance.choice(
        ["once", "session"]
    )  # to remember takes a while, in which time goes on
    run_id = (await one.post(RUNS, {"input": "Hi"})).json["run_id"]
    answers: list[HttpResponse] = []

    async def approve() -> None:
        answers.append(await one.post(f"{RUNS}/{run_id}/approval", {"choice": choice}))

    async def time_passes() -> None:
        cast("MockClock", trio.lowlevel.current_clock()).jump(LIMITS.approval)

    await trio.sleep(1)  # on a clock that jumps: until the agent waits
    async with trio.open_nursery() as nursery:  # time is up while the answer is on its way
        nursery.start_soon(approve)
        await steps(one.chance.randrange(25))
        await time_passes()
    record = await one.record(run_id)
    events = await one.get(f"{RUNS}/{run_id}/events")
    one.check_stream(Dialect.RUNS, events.body, record)
    # The jump of the clock may also make the last save late, and nothing else may go wrong.
    assert (
        str(record.outcome.status) == "completed" or record.outcome.failure.kind == "store_error"
    ), record
    told = [
        json.loads(line[6:])
        for line in events.body.decode().split("\n")
        if line.startswith("data: ")
    ]
    [said] = [event for event in told if event["event"] == "approval.responded"]
    [decision] = one.server.agents.decisions
    one.server.agents.decisions.clear()
    assert (str(decision.choice), str(decision.by)) == (said["choice"], said["by"])
    assert (answers[0].status == 200) is (said["by"] == "client"), (answers, said)
    return str(said["by"])


async def two_turns_of_a_session(one: RaceRound) -> str:
    """Start two turns in one session at once.

    Each runs alone or is refused, and the transcript has them in order.
    """
    session = f"s{one.chance.random()}"
    answers: list[HttpResponse] = []

    async def turn() -> None:
        body = {"input": "Hi", "session_id": session}
        answers.append(await one.post(RUNS, body))

    await one.both(turn, turn)
    await one.server.until_quiet()
    statuses = sorted(answer.status for answer in answers)
    assert statuses in ([202, 202], [202, 409]), answers
    said = [message.role for message in await one.server.store.load_messages("ann", session)]
    assert said == ["user", "assistant"] * statuses.count(202)
    return str(statuses[1])


@frozen
class Race:
    """A contest, its script, and the results that must occur in many rounds."""

    name: str
    contest: Contest
    script: tuple[Step, ...] = HELLO
    seen: frozenset[str] = frozenset()
    delay_steps: int = 12  # steps that the agent may take between two words


RACES = (
    Race("stop x finish", stop_and_finish, HELLO, frozenset({"completed", "cancelled"})),
    Race("cancel x disconnect", cancel_and_disconnect, TOOLS, frozenset({"cancelled stop_requested", "incomplete client_disconnected"})),
    Race("resume x expiry", resume_and_expiry, TOOLS, frozenset({"refused", "whole"})),
    Race("delete x stream", delete_and_stream, TOOLS, frozenset({"cancelled", "completed"})),
    Race("two posts x one key", one_key_twice, TOOLS, frozenset({"the first", "the second"})),
    Race("approve x time-out", approve_and_time_out, (Text("May I?"), Ask("rm")), frozenset({"client", "timeout"})),
    Race("two turns x one session", two_turns_of_a_session, HELLO, frozenset({"202", "409"})),
)  # fmt: skip


def run_race(race: Race, rounds: int, seed: int = 0) -> Counter[str]:
    """Play many rounds; return their results."""
    seen: Counter[str] = Counter()

    async def main() -> None:
        async with open_observed_server(race.script, limits=LIMITS, max_runs=10) as server:
            for number in range(seed, seed + rounds):
                seen[await _play(race, server, number)] += 1

    with repeatable(seed), capture_logs():
        trio.run(main, clock=MockClock(autojump_threshold=0))
    return seen


async def _play(race: Race, server: ObservedServer, number: int) -> str:
    server.reset()
    shuffle(number)
    chance = random.Random(number)
    server.agents.delay_steps = chance.randrange(race.delay_steps)
    how = await race.contest(RaceRound(server, chance))
    await server.until_quiet()
    check(await server.faults(), (race.name, number))
    return how
