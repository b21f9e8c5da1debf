"""A greedy principal is refused, and the others are served."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.access import Quota
from hermes_trio.core.events import Text
from hermes_trio.runs.admission import Admission
from hermes_trio.web.auth import SPARE_REQUESTS
from tests.support.asgi import HttpResponse
from tests.support.fakes import (
    CHAT,
    OTHER_KEY,
    AppHarness,
    Ask,
    Pause,
    ScriptedAgentFactory,
    ask,
    ask_stream,
    bearer,
    make_harness,
    open_harness,
)

BOB = bearer(OTHER_KEY)
RUN: dict[str, Any] = {"input": "Hello"}
HEADERS = (
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
)


def assert_refused(answer: HttpResponse) -> None:
    assert answer.status == 429
    assert (answer.error["code"], answer.error["type"]) == (
        "rate_limit_exceeded",
        "rate_limit_error",
    )
    assert int(answer.headers["retry-after"]) >= 1


async def test_others_get_a_slot_when_one_takes_all_it_can() -> None:
    pause = Pause()
    agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
    async with open_harness(agents, admission=Admission(8, principals=2)) as harness:
        statuses = [(await harness.client.send("/v1/runs", RUN)).status for _ in range(12)]
        assert statuses == [202] * 6 + [429] * 6
        refused = await harness.client.send(CHAT, ask())
        assert_refused(refused)
        assert "(6)" in refused.error["message"]
        assert (await harness.client.send("/v1/runs", RUN, BOB)).status == 202
        pause.go()


class TestRate:
    async def test_more_runs_than_the_rate(self, autojump_clock: MockClock) -> None:
        harness = make_harness(admission=Admission(0, quota=Quota(runs_per_minute=2)))
        first, second, third = [await harness.client.send(CHAT, ask()) for _ in range(3)]
        assert [first.headers[name] for name in HEADERS] == ["2", "1", "30000ms"]
        assert [second.headers[name] for name in HEADERS] == ["2", "0", "60000ms"]
        assert [third.headers[name] for name in HEADERS] == ["2", "0", "60000ms"]
        assert_refused(third)
        assert third.headers["retry-after"] == "30"
        assert (await harness.client.send(CHAT, ask_stream(), BOB)).status == 200
        await trio.sleep(30)
        assert (await harness.client.send(CHAT, ask_stream())).status == 200

    async def test_a_repeated_request_starts_no_run(self) -> None:
        admission = Admission(0, quota=Quota(runs_per_minute=1))
        async with open_harness(admission=admission) as harness:
            key = {"Idempotency-Key": "one"}
            answers = [await harness.client.send(CHAT, ask(), key) for _ in range(3)]
            assert [answer.status for answer in answers] == [200] * 3
            assert_refused(await harness.client.send(CHAT, ask(), {"Idempotency-Key": "two"}))

    async def test_only_answers_about_runs_have_the_headers(self) -> None:
        harness = make_harness(admission=Admission(0, quota=Quota(runs_per_minute=1)))
        answer = await harness.client.get("/v1/models")
        assert not any(name in answer.headers for name in HEADERS)
        answer = await make_harness().client.send(CHAT, ask())
        assert not any(name in answer.headers for name in HEADERS)


async def open_streams(harness: AppHarness, count: int, stack: AsyncExitStack) -> list[Any]:
    """Start a run and read its events so many times."""
    run_id = (await harness.client.send("/v1/runs", RUN)).json["run_id"]
    path = f"/v1/runs/{run_id}/events"
    streams = [
        await stack.enter_async_context(harness.client.open("GET", path)) for _ in range(count)
    ]
    await wait_all_tasks_blocked()
    return streams


class TestOpenRequests:
    @pytest.mark.parametrize(
        ("admission", "count"),
        [(Admission(0, quota=Quota(requests=3)), 3), (Admission(0, 8, 2), 6)],
        ids=["quota", "fair"],
    )
    async def test_one_principal_cannot_have_all_connections(
        self, admission: Admission, count: int
    ) -> None:
        pause = Pause()
        async with (
            open_harness([pause, Text("Hi")], admission=admission) as harness,
            AsyncExitStack() as stack,
        ):
            streams = await open_streams(harness, count, stack)
            assert_refused(await harness.client.get("/v1/models"))
            assert (await harness.client.get("/v1/models", BOB)).status == 200
            assert (await harness.client.get("/health")).status == 200
            pause.go()
            assert [(await stream.end()).status for stream in streams] == [200] * count
            assert (await harness.client.get("/v1/models")).status == 200

    async def test_a_request_without_its_body_counts_until_it_ends(self) -> None:
        harness = make_harness(admission=Admission(0, quota=Quota(requests=1)))
        async with harness.client.open("POST", CHAT, [b"{"], is_whole=False):
            await wait_all_tasks_blocked()
            assert_refused(await harness.client.get("/v1/models"))
        await wait_all_tasks_blocked()
        assert (await harness.client.get("/v1/models")).status == 200

    async def test_what_ends_a_stream_is_not_refused(self) -> None:
        agents = ScriptedAgentFactory([Ask("rm -r build"), Text("Done")], is_async=True)
        admission = Admission(0, quota=Quota(requests=2))
        async with (
            open_harness(agents, admission=admission) as harness,
            AsyncExitStack() as stack,
        ):
            streams = await open_streams(harness, 2, stack)
            [run] = harness.state.services.registry
            path = f"/v1/runs/{run.header.stamp.run_id}"
            assert_refused(await harness.client.get(path))
            answer = await harness.client.send(f"{path}/approval", {"choice": "once"})
            assert answer.status == 200
            assert [(await stream.end()).status for stream in streams] == [200, 200]

    async def test_but_not_without_a_limit(self) -> None:
        harness = make_harness(admission=Admission(0, quota=Quota(requests=1)))
        async with AsyncExitStack() as stack:
            for _ in range(1 + SPARE_REQUESTS):
                slow = harness.client.open("POST", "/v1/runs/x/approval", [b"{"], is_whole=False)
                await stack.enter_async_context(slow)
            await wait_all_tasks_blocked()
            assert_refused(await harness.client.send("/v1/runs/x/stop", {}))
