"""Addresses of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_trio.stores.contract import StoreError
from hermes_trio.stores.memory import MemoryStore
from hermes_trio.stores.opening import open_store
from hermes_trio.stores.sqlite import SqliteStore
from tests.stores.helpers import names_in


async def test_memory() -> None:
    async with open_store("memory:") as store:
        assert isinstance(store, MemoryStore)


@pytest.mark.parametrize("name", ["a.db", "with space.db", "100%25#.db", "ünï.db"])
async def test_a_path_is_taken_literally(tmp_path: Path, name: str) -> None:
    async with open_store(f"sqlite://{tmp_path}/{name}") as store:
        assert isinstance(store, SqliteStore)
        assert (tmp_path / name).is_file()
    assert names_in(tmp_path) == [name, f"{name}.lock"]


@pytest.mark.parametrize(
    "address",
    [
        "", "memory", "memory://", "sqlite:", "sqlite://relative", "sqlite:///", "sqlite:////", "sqlite:///:memory:",
        "sqlite:///directory/", "sqlite:///a.db?mode=ro", "sqlite:///a\0b", "mysql://ann:secret@host/db",
    ],
)  # fmt: skip
def test_anything_else_is_refused_at_once(address: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(address)
    text = str(caught.value)
    assert "\n" not in text
    assert "secret" not in text
