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
    open_store,
    parse_store_url,
)
from hermes_trio.stores.memory import MemoryStore
from hermes_trio.stores.sqlite import SqliteStore
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
    with pytest.raises(ConfigurationError, match=r"pip install 'hermes-trio\[postgres\]'"):
        open_store(location)
    assert "hush" not in repr(location)


def test_an_unknown_kind_of_store_is_an_error() -> None:
    """Never silently a store in memory: the records would be lost."""
    with pytest.raises(ConfigurationError, match=r"^store: "):
        open_store(cast("StoreLocation", object()))
