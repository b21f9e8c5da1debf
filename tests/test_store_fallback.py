"""A server whose store cannot be opened: it refuses to start, or serves from memory and says so everywhere."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_trio.bootstrap import open_server
from hermes_trio.preparation import prepare
from hermes_trio.settings import Settings
from hermes_trio.settings.validators import InvalidValueError
from hermes_trio.stores.base import StoreError
from tests.support.asgi import Client
from tests.support.fakes import CHAT, KEY, ask, ask_stream, bearer

HEADER = "x-hermes-store-fallback"


def no_directory(folder: Path) -> str:
    """A path through a file."""
    (folder / "file").touch()
    return f"sqlite:///{folder}/file/hermes.db"


def no_database(folder: Path) -> str:
    """A file that is no database."""
    (folder / "text.db").write_text("this is not a database" * 100)
    return f"sqlite:///{folder}/text.db"


def newer_database(folder: Path) -> str:
    """A database of a later version of this program."""
    with closing(sqlite3.connect(folder / "newer.db")) as connection:
        connection.execute("PRAGMA user_version = 9999")
    return f"sqlite:///{folder}/newer.db"


def no_server(folder: Path) -> str:
    """A PostgreSQL server that does not run."""
    pytest.importorskip("psycopg", reason="the driver of PostgreSQL is not installed")
    return "postgresql://hermes@127.0.0.1:1/hermes?connect_timeout=2"


UNUSABLE = (no_directory, no_database, newer_database, no_server)


def settings_of(folder: Path, store: str, **more: Any) -> Settings:
    return Settings(data_dir=folder, store=store, api_key=KEY, agent="demo", **more)


@pytest.mark.parametrize("make", UNUSABLE)
async def test_by_default_the_server_does_not_start(make: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        async with open_server(prepare(settings_of(tmp_path, make(tmp_path)))):
            pytest.fail("it started")


@pytest.mark.parametrize("make", UNUSABLE)
async def test_it_serves_from_memory_and_says_so(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(tmp_path, make(tmp_path), store_fallback="memory")
    async with open_server(prepare(settings)) as running:
        running.readiness.not_ready = ""
        client = Client(running.app, bearer(KEY))
        ready = await Client(running.app).get("/health/ready")
        assert ready.status == 200
        assert ready.json["status"] == "degraded"
        assert "kept in memory" in ready.json["reason"]
        assert str(tmp_path) not in ready.json["reason"]  # no key is needed to read it
        checks = (await client.get("/health/detailed")).json["readiness"]
        assert checks["status"] == checks["checks"]["store"]["status"] == "degraded"
        assert checks["checks"]["store"]["detail"]

        made = await client.send("/v1/responses", {"input": "hello"})
        assert made.status == 200
        found = await client.get(f"/v1/responses/{made.json['id']}")
        assert found.json["output"] == made.json["output"]
        whole, streamed = await client.send(CHAT, ask()), await client.send(CHAT, ask_stream())
        missing = await client.get("/v1/responses/resp_none")
        refused = await Client(running.app).get("/v1/models")
        assert (missing.status, refused.status) == (404, 401)
        for answer in (ready, made, found, whole, streamed, missing, refused):
            assert answer.headers[HEADER] == "memory"
    assert (
        "all records will be lost when the server stops" in capsys.readouterr().out
    )  # where unconfigured logs go


async def test_a_store_that_works_needs_no_fallback(tmp_path: Path) -> None:
    async with open_server(prepare(settings_of(tmp_path, "", store_fallback="memory"))) as running:
        running.readiness.not_ready = ""
        client = Client(running.app, bearer(KEY))
        ready = await client.get("/health/ready")
        assert ready.json == {"status": "ok"}
        assert HEADER not in ready.headers
        response_id = (await client.send("/v1/responses", {"input": "hello"})).json["id"]
    assert (tmp_path / "hermes.db").stat().st_size > 0
    async with open_server(prepare(settings_of(tmp_path, ""))) as running:
        client = Client(running.app, bearer(KEY))
        assert (await client.get(f"/v1/responses/{response_id}")).status == 200


async def test_a_server_that_drains_is_not_merely_degraded(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, no_directory(tmp_path), store_fallback="memory")
    async with open_server(prepare(settings)) as running:
        running.readiness.not_ready = "draining"
        ready = await Client(running.app).get("/health/ready")
        assert (ready.status, ready.json["reason"]) == (503, "draining")


def test_several_processes_cannot_share_a_memory() -> None:
    with pytest.raises(InvalidValueError, match="store_fallback: 2 processes cannot share"):
        Settings(store="postgresql://db/x", workers=2, store_fallback="memory")
