"""Opening the store that the settings name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.stores.factory import (
    InMemory,
    PostgresUrl,
    SqliteFile,
    StoreLocation,
    mask_store_url,
    open_store,
    parse_store_url,
)
from hermes_trio.stores.sqlite import MemoryStore, SqliteStore
from tests.stores.helpers import file_names


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("", SqliteFile(Path("/d/hermes.db"))),
        ("memory:", InMemory()),
        ("sqlite:///records.db", SqliteFile(Path("records.db"))),
        ("postgresql://ann@db/x", PostgresUrl("postgresql://ann@db/x")),
        ("postgres://ann@db/x", PostgresUrl("postgres://ann@db/x")),
        ("sqlite:////var/lib/records.db", SqliteFile(Path("/var/lib/records.db"))),
    ],
)
def test_parse_store_url(url: str, location: StoreLocation) -> None:
    assert parse_store_url(url, Path("/d")) == location


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("", ""),
        ("memory:", "memory:"),
        ("sqlite:////x/a:b@c.db", "sqlite:////x/a:b@c.db"),
        ("postgresql://ann@db:5432/x", "postgresql://ann@db:5432/x"),
        ("postgresql://db:5432/x?user=ann", "postgresql://db:5432/x?user=ann"),
        ("postgresql://ann:hush@db:5432/x", "postgresql://ann:***@db:5432/x"),
        (
            "postgres://ann:hu:sh@one,two/x?sslmode=require",
            "postgres://ann:***@one,two/x?sslmode=require",
        ),
        ("postgresql://:hush@/x", "postgresql://:***@/x"),
        ("postgresql://ann:hush", "postgresql://ann:***"),
        ("postgresql://ann:5hush/x?sslmode=require", "postgresql://ann:***?sslmode=require"),
        ("postgresql://ann:hu,sh:5432/x", "postgresql://ann:***"),
        ("postgresql://ann:***@db:hush", "postgresql://ann:***@db:***"),
        ("postgresql://ann@db:hush", "postgresql://ann@db:***"),
        ("postgresql://one:5432,two:hush/x", "postgresql://one:5432,two:***"),
        ("postgresql://one:5432,[::1]:5433,three/x", "postgresql://one:5432,[::1]:5433,three/x"),
        ("postgresql://[::1]:hush", "postgresql://[::1]:***"),
        ("postgresql://db:/x:y", "postgresql://db:/x:y"),
        ("postgresql:///x?password=hu&sh&port=1", "postgresql:///x?password=***&***&port=1"),
        ("postgresql:///x?pass%77ord=hush", "postgresql:///x?pass%77ord=***"),
        ("postgresql:///x?oauth_client_secret=hush", "postgresql:///x?oauth_client_secret=***"),
        (
            "postgresql:///x?password=hu;s'h&user=ann&sslpassword=hush",
            "postgresql:///x?password=***&user=ann&sslpassword=***",
        ),
    ],
)
def test_mask_store_url(url: str, masked: str) -> None:
    parse_store_url(url, Path("/d"))
    assert mask_store_url(url) == masked


@pytest.mark.parametrize(
    "password", ["hu@sh", "hu/sh", "hu?sh", "hu#sh", "hu'sh", 'hu"sh', "hu sh", "hu/s@h"]
)
def test_a_password_that_would_be_misread_is_refused(password: str) -> None:
    """The driver would take a part of it for the host or the port, and quote it in an error."""
    with pytest.raises(ValueError, match="need percent-encoding") as caught:
        parse_store_url(f"postgresql://ann:{password}@db/x", Path("/d"))
    assert "sh" not in str(caught.value)


async def test_open_a_store_in_memory(tmp_path: Path) -> None:
    async with open_store(parse_store_url("memory:", tmp_path)) as store:
        assert isinstance(store, MemoryStore)
    assert file_names(tmp_path) == []


async def test_open_a_store_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store(parse_store_url("sqlite:///here.db", tmp_path)) as store:
        assert isinstance(store, SqliteStore)
        assert (tmp_path / "here.db").is_file()
    async with open_store(parse_store_url("", tmp_path / "data")):
        assert (tmp_path / "data" / "hermes.db").is_file()


def test_a_missing_driver_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hermes_trio.stores.postgres", None)
    location = PostgresUrl("postgresql://ann:hush@db/x")
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[postgres\]'"):
        open_store(location)
    assert "hush" not in repr(location)


def test_an_unknown_kind_of_store_is_an_error() -> None:
    """Never silently a store in memory: the records would be lost."""
    with pytest.raises(ConfigurationError, match=r"^store: "):
        open_store(cast("StoreLocation", object()))
