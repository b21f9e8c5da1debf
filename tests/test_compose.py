"""Building a server from settings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from hermes_trio.compose import open_store
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.settings import Settings
from hermes_trio.stores.memory import MemoryStore
from hermes_trio.stores.sqlite import SqliteStore
from tests.stores.helpers import names_in


async def test_a_store_in_memory(tmp_path: Path) -> None:
    async with open_store(Settings(store="memory:", data_dir=tmp_path)) as store:
        assert isinstance(store, MemoryStore)
    assert names_in(tmp_path) == []


async def test_a_store_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store(Settings(store="sqlite:///here.db")) as store:
        assert isinstance(store, SqliteStore)
        assert (tmp_path / "here.db").is_file()
    async with open_store(Settings(data_dir=tmp_path / "data")):
        assert (tmp_path / "data" / "hermes.db").is_file()


def test_a_kind_of_store_that_is_not_built_in_is_an_error() -> None:
    """Never a store in memory in its place: the records would be lost without a word."""
    settings = cast("Settings", SimpleNamespace(store_location=object()))
    with pytest.raises(ConfigurationError, match=r"^store: "):
        open_store(settings)
