"""The application for Hypercorn's command line: how its lifespan opens the server, ends the runs and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from hermes_trio.server import lifespan
from hermes_trio.server.guards import Guards
from hermes_trio.server.lifespan import NEEDS_TRIO, LifespanApp
from hermes_trio.settings import Settings
from tests.support.asgi import Client
from tests.support.fakes import CHAT, ask_stream, bearer

KEY = "a-key-for-this-test"
SCOPE = {"type": "lifespan", "asgi": {"version": "3.0"}}
AGENT = "tests.server.test_lifespan:make_agent"


class WaitingAgent:
    """Says a word, and waits until it is interrupted."""

    async def run(self, turn: Any, emitter: Any) -> None:
        await emitter.text("Hi")
        await trio.sleep_forever()


def make_agent(context: Any) -> WaitingAgent:
    return WaitingAgent()


@define
class FakeGuards:
    """Guards whose worker is terminated when the test says so."""

    terminated: trio.Event = field(factory=trio.Event)
    deadlines: list[float] = field(factory=list)

    async def wait_terminated(self) -> float:
        await self.terminated.wait()
        return 0.0

    def limit_writes(self, deadline: float) -> None:
        self.deadlines.append(deadline)


@define
class Lifespan:
    """What a server like Hypercorn does with a lifespan, and what it is told."""

    app: LifespanApp
    guards: FakeGuards
    sent: list[dict[str, Any]] = field(factory=list)
    shutdown: trio.Event = field(factory=trio.Event)
    told: trio.Event = field(factory=trio.Event)  # the first message was sent
    over: trio.Event = field(factory=trio.Event)
    _is_started: bool = False

    @property
    def types(self) -> list[str]:
        return [message["type"].removeprefix("lifespan.") for message in self.sent]

    async def receive(self) -> dict[str, Any]:
        if not self._is_started:
            self._is_started = True
            return {"type": "lifespan.startup"}
        await self.shutdown.wait()
        return {"type": "lifespan.shutdown"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        self.told.set()

    async def run(self) -> None:
        await self.app(SCOPE, self.receive, self.send)
        self.over.set()


def made(folder: Path, **options: Any) -> Lifespan:
    """An application that has not been started."""
    settings = Settings(
        **{
            "agent": AGENT,
            "api_key": KEY,
            "store": f"sqlite:///{folder}/runs.db",
            "data_dir": folder,
            **options,
        }
    )
    guards = FakeGuards()
    return Lifespan(LifespanApp(settings, cast("Guards", guards), lambda _seconds: None), guards)


@asynccontextmanager
async def started(folder: Path, **options: Any) -> AsyncIterator[Lifespan]:
    """One that was started; at the end of the block its worker ends."""
    life = made(folder, **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(life.run)
        with trio.fail_after(10):
            await life.told.wait()
        yield life
        life.shutdown.set()
        with trio.fail_after(10):
            await life.over.wait()


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The process of the tests stays as it is; the calls are counted."""
    calls: list[str] = []
    monkeypatch.setattr(lifespan, "tune_process", lambda: calls.append("tuned"))
    return calls


def client(life: Lifespan) -> Client:
    return Client(life.app, bearer(KEY))


async def test_the_server_is_open_from_startup_to_shutdown(
    tmp_path: Path, untuned: list[str]
) -> None:
    async with started(tmp_path) as life:
        assert life.types == ["startup.complete"]
        assert untuned == ["tuned"]
        assert (await client(life).get("/health/ready")).status == 200
        assert (tmp_path / "runs.db-wal").exists()
    assert life.types == ["startup.complete", "shutdown.complete"]
    assert not (tmp_path / "runs.db-wal").exists()


async def test_a_request_before_the_start_gets_no_answer(tmp_path: Path) -> None:
    life = made(tmp_path)
    assert (await client(life).get("/health")).status == 0


async def test_termination_ends_the_runs_before_their_connections_are_cancelled(
    tmp_path: Path,
) -> None:
    async with started(tmp_path) as life, client(life).post(CHAT, ask_stream()) as exchange:
        await exchange.content("Hi")
        life.guards.terminated.set()
        answer = await exchange.end()
        assert b"server_shutdown" in answer.body
        assert answer.frames[-1].is_done
        assert len(life.guards.deadlines) == 1
        assert life.types == ["startup.complete"]
        assert (await client(life).get("/health/ready")).json["reason"] == "draining"
    assert life.types == ["startup.complete", "shutdown.complete"]


async def test_runs_that_are_left_at_the_end_are_stopped(tmp_path: Path) -> None:
    async with started(tmp_path) as life:
        run = await client(life).send("/v1/runs", {"input": "Hi"})
        await wait_all_tasks_blocked(0.01)
    assert life.types == ["startup.complete", "shutdown.complete"]
    async with started(tmp_path) as again:
        found = await client(again).get(f"/v1/runs/{run.json['run_id']}")
        assert (found.json["status"], found.json["reason"]) == ("failed", "server_shutdown")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agent": "nowhere:nothing"}, "agent: "),
        ({"agent": "tests.support.providers:refusing"}, "base_url: this agent needs one"),
    ],
)
async def test_what_keeps_the_server_from_starting_is_told(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    life = made(tmp_path, **options)
    with capture_logs() as lines:
        await life.run()
    assert life.types == ["startup.failed"]
    assert life.sent[0]["message"].startswith(message)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == [
        "the server cannot run"
    ]


def test_the_asyncio_worker_is_told_what_to_do(tmp_path: Path) -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    app = LifespanApp(Settings(agent=AGENT, api_key=KEY, data_dir=tmp_path), Guards(1.0))
    asyncio.run(app(SCOPE, receive, send))
    assert sent == [{"type": "lifespan.startup.failed", "message": NEEDS_TRIO}]
