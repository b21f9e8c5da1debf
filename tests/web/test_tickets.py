"""``POST /v1/runs/{run_id}/ticket``: a ticket opens the event stream of one run, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import structlog
from attrs import define

from hermes_trio.core.events import Text
from hermes_trio.keys import Principal
from hermes_trio.schema import replies
from hermes_trio.schema.openapi import OPERATIONS, Operation
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.asgi import Exchange, HttpResponse
from tests.support.fakes import (
    CHAT,
    EPOCH,
    KEY,
    OTHER_KEY,
    AppHarness,
    Pause,
    ScriptedAgentFactory,
    ask,
    bearer,
)
from tests.support.responses_api import idle_harness
from tests.support.run_stream_rules import blocks_of, check_whole, event_of
from tests.support.runs_api import RUNS, kinds, started


@define
class FakeWallClock:
    """Seconds since the epoch, as the test says."""

    now: float = EPOCH

    def __call__(self) -> float:
        return self.now


async def issued(harness: AppHarness, run_id: str, prefix: str = "") -> str:
    """A ticket for a run."""
    answer = await harness.client.get(f"{prefix}{RUNS}/{run_id}/ticket", bearer(KEY), method="POST")
    assert answer.status == 200, answer.body
    return msgspec.convert(answer.json, replies.RunTicket).ticket


async def without_key(
    harness: AppHarness, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> HttpResponse:
    """The answer to a request that has no key."""
    before, harness.client.headers = harness.client.headers, {}
    try:
        return await harness.client.get(path, headers or {}, method)
    finally:
        harness.client.headers = before


async def read_until(exchange: Exchange, **fields: Any) -> None:
    """Read events of a run up to one with these fields."""
    while not fields.items() <= event_of(await exchange.block()).items():
        pass


async def test_the_reply() -> None:
    async with idle_harness(options=WebOptions(ticket_seconds=90)) as harness:
        run_id = await started(harness)
        answer = await harness.client.get(f"{RUNS}/{run_id}/ticket", method="POST")
        told = msgspec.convert(answer.json, replies.RunTicket, strict=True)
        assert set(answer.json) == {"object", "run_id", "ticket", "expires_at"}
        # Rounded up: a ticket is valid for the whole time that the setting names.
        assert (told.run_id, told.expires_at) == (run_id, int(EPOCH) + 91)
        assert answer.headers["cache-control"] == "no-store"
        assert KEY not in told.ticket


async def test_a_ticket_opens_the_events_of_its_run() -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        with_key = await harness.client.get(f"{RUNS}/{run_id}/events")
        answer = await without_key(
            harness, f"{RUNS}/{run_id}/events?ticket={await issued(harness, run_id)}"
        )
        assert (answer.status, answer.body) == (200, with_key.body)
        check_whole(answer.body)


async def test_a_live_run_and_a_browser_that_reconnects() -> None:
    pause = Pause()
    async with idle_harness([Text("One"), pause, Text("two")]) as harness:
        run_id = await started(harness)
        path = f"{RUNS}/{run_id}/events?ticket={await issued(harness, run_id)}"
        harness.client.headers = {}
        async with harness.client.open("GET", path) as exchange:
            await read_until(exchange, event="message.delta", delta="One")
        async with harness.client.open("GET", path, headers={"Last-Event-ID": "1"}) as exchange:
            pause.go()
            rest = await exchange.end()
        assert '"seq": 2' in blocks_of(rest.body)[0]
        last = len(
            blocks_of(rest.body)
        )  # the last block is a comment, the first event was number 2
        again = await harness.client.get(path, {"Last-Event-ID": str(last)})
        assert again.status == 204


async def test_an_expired_ticket_is_a_401_which_stops_a_browser() -> None:
    clock = FakeWallClock()
    async with idle_harness(wall_clock=clock) as harness:
        run_id = await started(harness)
        path = f"{RUNS}/{run_id}/events?ticket={await issued(harness, run_id)}"
        clock.now = EPOCH + 60
        assert (await without_key(harness, path)).status == 200
        clock.now = EPOCH + 61
        answer = await without_key(harness, path, {"Last-Event-ID": "0"})
        assert answer.status == 401
        assert (answer.error["code"], answer.error["param"]) == ("ticket_expired", "ticket")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_an_open_stream_outlives_its_ticket() -> None:
    clock, pause = FakeWallClock(), Pause()
    async with idle_harness([Text("One"), pause, Text("two")], wall_clock=clock) as harness:
        run_id = await started(harness)
        path = f"{RUNS}/{run_id}/events?ticket={await issued(harness, run_id)}"
        harness.client.headers = {}
        async with harness.client.open("GET", path) as exchange:
            await read_until(exchange, event="message.delta", delta="One")
            clock.now += 3_600
            pause.go()
            answer = await exchange.end()
        assert kinds(check_whole(answer.body))[-1] == "run.completed"


async def test_a_ticket_opens_the_stream_of_a_response_but_not_the_response() -> None:
    async with idle_harness() as harness:
        response_id = (await harness.client.send("/v1/responses", {"input": "Hi"})).json["id"]
        ticket = await issued(harness, response_id)
        path = f"/v1/responses/{response_id}"
        with_key = await harness.client.get(f"{path}?stream=true")
        streamed = await without_key(harness, f"{path}?stream=true&ticket={ticket}")
        assert (streamed.status, streamed.body) == (200, with_key.body)
        for query in ("", "&stream=false", "&stream=0"):
            answer = await without_key(harness, f"{path}?ticket={ticket}{query}")
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


async def test_a_ticket_for_another_run() -> None:
    async with idle_harness() as harness:
        mine, other = await started(harness), await started(harness)
        ticket = await issued(harness, mine)
        for path in (
            f"{RUNS}/{other}/events?",
            f"{RUNS}/run_unknown/events?",
            f"/v1/responses/{other}?stream=true&",
        ):
            answer = await without_key(harness, f"{path}ticket={ticket}")
            assert (answer.status, answer.error["code"]) == (401, "invalid_ticket")


@pytest.mark.parametrize("change", ["", "x{}", "{}x", "{}{}", "ht-ticket-9999999999.AAAA.ann"])
async def test_a_ticket_that_was_tampered_with(change: str) -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        ticket = await issued(harness, run_id)
        path = f"{RUNS}/{run_id}/events?ticket={change.format(ticket, ticket)}"
        answer = await without_key(harness, path)
        assert (answer.status, answer.error["code"]) == (401, "invalid_ticket")
        assert ticket not in answer.body.decode()


async def test_a_ticket_with_another_name_or_expiry_in_it() -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        ticket = await issued(harness, run_id)
        expiry, signature, _ = ticket.removeprefix("ht-ticket-").split(".")
        for forged in (f"{expiry}.{signature}.bob", f"{int(expiry) + 60}.{signature}.ann"):
            path = f"{RUNS}/{run_id}/events?ticket=ht-ticket-{forged}"
            assert (await without_key(harness, path)).error["code"] == "invalid_ticket"


async def test_a_page_session_is_no_ticket() -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        session = harness.state.page_sessions.issue(Principal("ann"), int(EPOCH) + 60)
        answer = await without_key(harness, f"{RUNS}/{run_id}/events?ticket={session}")
        assert answer.error["code"] == "invalid_ticket"


async def test_the_run_of_another_principal() -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        answer = await harness.client.get(f"{RUNS}/{run_id}/ticket", bearer(OTHER_KEY), "POST")
        assert (answer.status, answer.error["code"]) == (404, "run_not_found")
        # Even one that the server would sign opens nothing: the run belongs to somebody else.
        ticket = harness.state.tickets.issue(Principal("bob"), int(EPOCH) + 60, "", run_id)
        answer = await without_key(harness, f"{RUNS}/{run_id}/events?ticket={ticket}")
        assert (answer.status, answer.error["code"]) == (404, "run_not_found")


async def test_no_ticket_for_a_run_that_is_not_there_or_without_a_key() -> None:
    async with idle_harness() as harness:
        answer = await harness.client.get(f"{RUNS}/run_0/ticket", method="POST")
        assert (answer.status, answer.error["code"]) == (404, "run_not_found")
        run_id = await started(harness)
        assert (await without_key(harness, f"{RUNS}/{run_id}/ticket", method="POST")).status == 401


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE"])
async def test_a_ticket_is_for_get_only(method: str) -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        ticket = await issued(harness, run_id)
        for path in (f"{RUNS}/{run_id}/events", f"/v1/responses/{run_id}?stream=true"):
            query = "&" if "?" in path else "?"
            answer = await without_key(harness, f"{path}{query}ticket={ticket}", method=method)
            assert answer.status == 401


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if not each.takes_ticket and not each.is_open],
    ids=lambda op: f"{op.method} {op.path}",
)
async def test_no_other_route_takes_a_ticket(operation: Operation) -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        ticket = await issued(harness, run_id)
        path = operation.path
        for name in operation.parameters:
            path = path.replace(f"{{{name}}}", run_id)
        for query in (f"?ticket={ticket}", f"?stream=true&ticket={ticket}"):
            answer = await without_key(harness, path + query, method=operation.method.upper())
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer {}"}, {"Cookie": "ticket={}"}])
async def test_a_ticket_counts_in_the_query_only(headers: dict[str, str]) -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        ticket = await issued(harness, run_id)
        given = {name: value.format(ticket) for name, value in headers.items()}
        answer = await without_key(harness, f"{RUNS}/{run_id}/events", given)
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


async def test_a_key_comes_before_a_ticket() -> None:
    """A request has one credential: what a wrong key may not do, a ticket beside it does not allow."""
    async with idle_harness() as harness:
        run_id = await started(harness)
        path = f"{RUNS}/{run_id}/events?ticket="
        assert (await harness.client.get(f"{path}nonsense")).status == 200
        good = path + await issued(harness, run_id)
        assert (await without_key(harness, good, bearer("wrong"))).status == 401
        assert (await without_key(harness, good, bearer(OTHER_KEY))).status == 404
        # A proxy may ask for a password of its own.
        assert (await without_key(harness, good, {"Authorization": "Basic eDp5"})).status == 200


PROFILES = WebOptions(profiles=(ServedProfile("coder", "coder"), ServedProfile("other", "other")))


async def test_a_ticket_belongs_to_its_profile() -> None:
    agents = {name: ScriptedAgentFactory((Text("Hi"),), None) for name in ("coder", "other")}
    async with idle_harness(options=PROFILES, profile_agents=agents) as harness:
        answer = await harness.client.send(f"/p/coder{RUNS}", {"input": "Hi"})
        run_id = answer.json["run_id"]
        ticket = await issued(harness, run_id, "/p/coder")
        path = f"{RUNS}/{run_id}/events?ticket={ticket}"
        assert (await without_key(harness, f"/p/coder{path}")).status == 200
        for prefix in ("", "/p/other"):
            answer = await without_key(harness, prefix + path)
            assert (answer.status, answer.error["code"]) == (401, "invalid_ticket")


async def test_no_log_line_has_a_ticket_in_it() -> None:
    clock = FakeWallClock()
    async with idle_harness(wall_clock=clock) as harness:
        run_id = await started(harness)
        ticket = await issued(harness, run_id)
        path = f"{RUNS}/{run_id}/events?ticket={ticket}"
        with structlog.testing.capture_logs() as lines:
            for each in (path, f"{path}x", f"{RUNS}?ticket={ticket}", f"/nowhere?ticket={ticket}"):
                await without_key(harness, each)
            clock.now += 3_600
            await without_key(harness, path)
        assert [refused(line) for line in lines] == [
            ("request", None),
            ("refused a key", "invalid_ticket"),
            ("request", None),
            ("refused a key", "invalid_api_key"),
            ("request", None),
            ("refused a key", "invalid_api_key"),
            ("request", None),
            ("refused a key", "ticket_expired"),
            ("request", None),
        ]
        assert ticket not in repr(lines)
        assert ticket.split(".")[1] not in repr(lines)


def refused(line: Any) -> tuple[str, Any]:
    """The event of a log line, and which refusal it tells of."""
    return line["event"], line.get("code")


async def test_a_chat_turn_that_is_not_stored_yet_has_tickets_too() -> None:
    pause = Pause()
    async with (
        idle_harness([pause, Text("Hi")]) as harness,
        harness.client.post(CHAT, {**ask(), "stream": True}) as exchange,
    ):
        run_id = (await exchange.frame()).json["id"]
        path = f"{RUNS}/{run_id}/events?ticket={await issued(harness, run_id)}"
        async with harness.client.open("GET", path, headers={"Authorization": ""}) as follower:
            await read_until(follower, event="run.started")
            pause.go()
            assert (await follower.end()).status == 200
        await exchange.end()
