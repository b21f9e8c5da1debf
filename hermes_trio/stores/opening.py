"""From an address in the settings to an open store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from hermes_trio.stores.contract import Store, StoreError
from hermes_trio.stores.memory import open_memory
from hermes_trio.stores.sqlite import open_sqlite

_SQLITE = "sqlite:///"
_KNOWN = "memory: or sqlite:///absolute/path"


def open_store(url: str) -> AbstractAsyncContextManager[Store]:
    """The store at an address: ``memory:`` or ``sqlite:///absolute/path``. The path is taken literally.

    Raises:
        StoreError: at once, if the address is none of these; on entering, if the store cannot be opened.
    """
    if url == "memory:":
        return open_memory()
    if url.startswith(_SQLITE):
        return open_sqlite(_path(url))
    # The scheme alone: the rest of an address may hold a password.
    scheme = url.partition(":")[0] if ":" in url else "no scheme"
    raise StoreError(f"unknown store address ({scheme}): use {_KNOWN}")


def _path(url: str) -> Path:
    name = url.removeprefix(_SQLITE)
    if name == ":memory:":
        raise StoreError("sqlite:///:memory: is not supported: use memory:")
    if not name.strip("/") or name.endswith("/") or "\0" in name or "?" in name:
        raise StoreError("a sqlite store address is sqlite:///absolute/path, with a file name and no options")
    return Path("/", name)
