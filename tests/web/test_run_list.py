"""``GET /v1/runs``: what there is, live or ended, whatever API started it."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Result, Text, Verdict
from hermes_trio.core.records import Ownership, RunHeader, RunPage, RunQuery, Stamp
from hermes_trio.schema import replies
from hermes_trio.stores.sqlite import MemoryStore
from tests.support.fakes import CHAT, EPOCH, AppHarness, Pause, ScriptedAgentFactory, ask
from tests.support.responses_api import BOB, RESPONSES, idle_harness, say, until_ended
from tests.support.runs_api import RUNS, Json, followed, shown, started, stopped
from tests.web.test_runs_stop import LateStore


def ticking() -> Callable[[], float]:
    """A clock that goes on by a second with each look."""
    seconds = itertools.count(int(EPOCH))
    return lambda: float(next(seconds))


@asynccontextmanager
async def ticking_rig(*args: Any, **more: Any) -> AsyncIterator[AppHarness]:
    """A server on which every run begins later than the one before."""
    async with idle_harness(*args, max_runs=50, wall_clock=ticking(), **more) as harness:
        yield harness


async def listed(harness: AppHarness, query: str = "", headers: Any = None) -> Json:
    """A page."""
    answer = await harness.client.get(f"{RUNS}?{query}", headers or {})
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.RunList)
    ids = [run["run_id"] for run in answer.json["data"]]
    assert (answer.json["first_id"], answer.json["last_id"]) == (
        (ids[0], ids[-1]) if ids else (None, None)
    )
    return dict(answer.json)


async def ids(harness: AppHarness, query: str = "", headers: Any = None) -> list[str]:
    """The runs of a page."""
    return [run["run_id"] for run in (await listed(harness, query, headers))["data"]]


async def ended_runs(harness: AppHarness, count: int, **more: Any) -> list[str]:
    """Some runs that have ended, newest first."""
    found: list[str] = []
    for _ in range(count):
        found.insert(0, await started(harness, **more))
        await followed(harness, found[0])
    await harness.until_idle()
    return found


async def test_nothing_yet() -> None:
    async with ticking_rig() as harness:
        assert await listed(harness) == {
            "object": "list",
            "data": [],
            "first_id": None,
            "last_id": None,
            "has_more": False,
        }


async def test_runs_of_every_kind_as_they_stand() -> None:
    async with ticking_rig() as harness:
        [run] = await ended_runs(harness, 1, session_id="s", metadata={"a": "b"})
        response = (await harness.client.send(RESPONSES, say())).json["id"]
        chat = (await harness.client.send(CHAT, ask())).json["id"]
        await harness.client.send(RESPONSES, say(store=False))
        await harness.client.send(RESPONSES, say(store=False), {"Idempotency-Key": "k"})
        page = await listed(harness)
        assert [(each["run_id"], each["kind"]) for each in page["data"]] == [
            (chat, "chat"),
            (response, "responses"),
            (run, "runs"),
        ]
        for each in page["data"]:
            whole = await shown(harness, each["run_id"])
            assert whole.pop("output") == "Hello world"
            assert each == whole
        assert await ids(harness, headers=BOB) == []


async def test_who_started_a_run_and_with_what() -> None:
    async with ticking_rig() as harness:
        headers = {"User-Agent": "OpenAI/Python 3.1.0"}
        body = say(input="How are\nthe plums?")
        response = (await harness.client.send(RESPONSES, body, headers)).json["id"]
        await harness.client.send(CHAT, ask(), {"X-OpenWebUI-Chat-Id": "c"})
        chat, first = (await listed(harness))["data"]
        assert (first["run_id"], first["client"], first["preview"]) == (
            response,
            "OpenAI/Python 3.1.0",
            "How are the plums?",
        )
        assert chat["client"] == "Open WebUI"


@pytest.mark.parametrize("order", ["", "desc", "asc"])
@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_page_by_page(order: str, limit: int) -> None:
    async with ticking_rig() as harness:
        expected = await ended_runs(harness, 5)
        assert len(await ids(harness, f"limit={limit}")) == limit
        found = [run["run_id"] for run in await all_pages(harness, f"limit={limit}&order={order}")]
        assert found == (expected[::-1] if order == "asc" else expected)


async def test_a_page_has_twenty_unless_asked_otherwise() -> None:
    async with ticking_rig() as harness:
        expected = await ended_runs(harness, 21)
        page = await listed(harness)
        assert [run["run_id"] for run in page["data"]] == expected[:20]
        assert page["has_more"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("order=up", "order"),
        ("status=running,odd", "status"), ("status=in_progress", "status"), ("kind=odd", "kind"),
    ],
)  # fmt: skip
async def test_what_is_refused(query: str, param: str) -> None:
    async with ticking_rig() as harness:
        answer = await harness.client.get(f"{RUNS}?{query}")
        assert (answer.status, answer.error["param"]) == (400, param)


async def test_after_what_is_not_there() -> None:
    async with ticking_rig() as harness:
        [run] = await ended_runs(harness, 1)
        unstored = (
            await harness.client.send(RESPONSES, say(store=False), {"Idempotency-Key": "k"})
        ).json["id"]
        for after, who in (("run_x", {}), (run, BOB), (unstored, {})):
            answer = await harness.client.get(f"{RUNS}?after={after}", who)
            assert (answer.status, answer.error["param"]) == (404, "after")
            assert answer.error["code"] == "run_not_found"


ENDS = [
    (None, "completed"),
    (Result("", Verdict.TRUNCATED), "completed"),
    (Result("", Verdict.INTERRUPTED), "cancelled"),
    (Result("", Verdict.FAILED, "no luck"), "failed"),
    (ValueError("broken"), "failed"),
]


async def test_by_status_kind_and_session() -> None:
    async with ticking_rig([Text("Hi")]) as harness:
        by_status: dict[str, list[str]] = {"completed": [], "cancelled": [], "failed": []}
        for end, status in ENDS:
            harness.agents.end = end
            by_status[status] = [*await ended_runs(harness, 1, session_id="s"), *by_status[status]]
        for status, expected in by_status.items():
            assert await ids(harness, f"status={status}") == expected
        both = await ids(harness, "status=failed,%20cancelled&session_id=s&kind=runs")
        assert both == [*by_status["failed"], *by_status["cancelled"]]
        assert await ids(harness, "status=queued,running,waiting_for_approval,stopping") == []
        assert await ids(harness, "kind=chat,sessions") == []
        assert await ids(harness, "session_id=t") == []
        assert len(await ids(harness, "kind=chat,runs&session_id=s")) == len(ENDS)


# -- what is live --


async def test_live_runs_among_ended_ones() -> None:
    async with ticking_rig() as harness:
        [first] = await ended_runs(harness, 1)
        pauses = [Pause(), Pause()]
        harness.agents.script, harness.agents.is_async = [Text("Hi"), pauses[0]], True
        live = await started(harness, session_id="s")
        await pauses[0].wait_reached()
        harness.agents.script = [Text("Hi"), pauses[1]]
        async with harness.client.post(CHAT, ask()) as chat:
            await pauses[1].wait_reached()
            await wait_all_tasks_blocked()
            page = (await listed(harness))["data"]
            assert [run["kind"] for run in page] == ["chat", "runs", "runs"]
            assert [run["status"] for run in page] == ["running", "running", "completed"]
            assert [run["last_event"] for run in page[:2]] == ["message.delta", "message.delta"]
            chat_id = page[0]["run_id"]
            assert await ids(harness, "status=running") == [chat_id, live]
            assert await ids(harness, "status=running&kind=chat") == [chat_id]
            assert await ids(harness, "session_id=s") == [live]
            assert await ids(harness, f"after={chat_id}") == [live, first]
            assert await ids(harness, f"after={live}&order=asc") == [chat_id]
            assert await ids(harness, "status=queued,waiting_for_approval,stopping,completed") == [
                first
            ]
            assert await ids(harness, headers=BOB) == []
            for pause in pauses:
                pause.go()
            await chat.end()
        await until_ended(harness, 3)
        assert await ids(harness, "status=completed") == [chat_id, live, first]


async def test_what_is_stopping() -> None:
    pause, store = Pause(), LateStore()
    async with ticking_rig(
        ScriptedAgentFactory([Text("Hi"), pause], is_async=True), store=store
    ) as harness:
        run_id = await started(harness)
        await pause.wait_reached()
        assert await stopped(harness, run_id) == "stopping"
        await store.pause.wait_reached()
        assert await ids(harness, "status=stopping") == [run_id]
        assert await ids(harness, "status=running") == []
        store.pause.go()
        await until_ended(harness)
        assert await ids(harness, "status=cancelled") == [run_id]


async def test_what_another_process_runs() -> None:
    async with ticking_rig() as harness:
        await harness.store.begin_run(
            RunHeader("ann", Stamp("run_far", EPOCH, "m"), "runs", "s", ()), Ownership("another")
        )
        [run] = (await listed(harness, "status=running"))["data"]
        assert (run["run_id"], run["status"]) == ("run_far", "running")
        assert await ids(harness, "status=stopping") == []


class Unhurried(MemoryStore):
    """Takes its time to begin a run."""

    def __init__(self) -> None:
        super().__init__()
        self.pause = Pause()

    async def begin_run(self, header: RunHeader, ownership: Ownership) -> None:
        await self.pause.stop_here_in_trio()
        await super().begin_run(header, ownership)


async def test_a_run_that_the_store_is_yet_to_hear_of() -> None:
    store = Unhurried()
    async with ticking_rig(store=store) as harness, harness.client.post(RUNS, say()) as exchange:
        await store.pause.wait_reached()
        [run] = harness.state.services.registry.list_for("ann")
        assert await ids(harness) == []
        assert (await harness.client.get(f"{RUNS}?after={run.header.run_id}")).status == 404
        assert (await harness.client.get(f"{RUNS}/{run.header.run_id}")).status == 404
        store.pause.go()
        assert (await exchange.end()).status == 202
        assert len(await ids(harness)) == 1


class SlowList(MemoryStore):
    """Takes its time to list runs."""

    def __init__(self) -> None:
        super().__init__()
        self.pause = Pause()

    async def list_runs(self, principal: str, query: RunQuery) -> RunPage:
        await self.pause.stop_here_in_trio()
        return await super().list_runs(principal, query)


@pytest.mark.parametrize("path", [CHAT, RUNS])
async def test_a_run_that_ends_meanwhile_is_there_once(path: str) -> None:
    pause, store = Pause(), SlowList()
    agents = ScriptedAgentFactory([Text("Hi"), pause], is_async=True)
    async with ticking_rig(agents, store=store) as harness, trio.open_nursery() as nursery:
        nursery.start_soon(harness.client.send, path, {**ask(), **say()})
        await pause.wait_reached()
        async with harness.client.open("GET", RUNS) as exchange:
            await store.pause.wait_reached()
            pause.go()
            await until_ended(harness)
            store.pause.go()
            [run] = (await exchange.end()).json["data"]
            assert run["status"] == "completed"


class ShortPages(MemoryStore):
    """Its runs are so large that a page holds few."""

    async def list_runs(self, principal: str, query: RunQuery) -> RunPage:
        page = await super().list_runs(principal, query)
        return RunPage(page.runs[:2], page.has_more or len(page.runs) > 2)


@pytest.mark.parametrize("make_store", [MemoryStore, ShortPages])
@pytest.mark.parametrize("seed", range(4))
async def test_page_by_page_with_live_ones_in_between(seed: int, make_store: Any) -> None:
    """Whatever is live or ended, known to the store or not: each run once, in order."""
    chance = random.Random(seed)
    factory_pause, open_door = Pause(), Pause()
    open_door.go()
    agents = ScriptedAgentFactory([], "Hi", is_async=True)
    async with ticking_rig(agents, store=make_store()) as harness, trio.open_nursery() as nursery:
        for _ in range(12):
            is_live = chance.random() < 0.4
            harness.agents.script = [factory_pause if is_live else open_door]
            path = chance.choice([CHAT, RUNS, RESPONSES])
            count = len(harness.ends)
            nursery.start_soon(harness.client.send, path, {**ask(), **say()})
            await wait_all_tasks_blocked()
            await (factory_pause.wait_reached() if is_live else until_ended(harness, count + 1))
            factory_pause.reached = trio.Event()
        for order in ("asc", "desc"):
            began = [
                run["created_at"] for run in await all_pages(harness, f"limit=3&order={order}")
            ]
            assert began == sorted(set(began), reverse=order == "desc")
            assert len(began) == 12
        factory_pause.go()


async def all_pages(harness: AppHarness, query: str) -> list[Json]:
    """The runs of all pages."""
    page = await listed(harness, query)
    found: list[Json] = page["data"]
    while page["has_more"]:
        page = await listed(harness, f"{query}&after={page['last_id']}")
        found += page["data"]
    return found
