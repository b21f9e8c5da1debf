"""The ``store`` setting, parsed. Nothing else in the package reads a store URL."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

FILE_NAME = "hermes.db"
_SQLITE = "sqlite:///"
_MEMORY = "memory:"
_KNOWN = "use memory:, sqlite:///path, or leave it empty for a file in data_dir"


@frozen
class InMemory:
    """Records are lost when the process ends."""


@frozen
class SqliteFile:
    """Records are kept in one SQLite file."""

    path: Path


StoreLocation = InMemory | SqliteFile


def parse_store_url(url: str, data_dir: Path) -> StoreLocation:
    """Parse a store URL; "" means a file in the data directory.

    As everywhere else that ``DATABASE_URL`` is used, three slashes begin a path that is relative to the working
    directory and four begin an absolute one.

    Raises:
        ValueError: the store is not one we know. The text never repeats the URL, which may hold a password.
    """
    if not url:
        return SqliteFile(data_dir / FILE_NAME)
    if url == _MEMORY:
        return InMemory()
    return SqliteFile(_sqlite_path(url))


def _sqlite_path(url: str) -> Path:
    path = url.removeprefix(_SQLITE)
    if path == url:
        raise ValueError(f"{_scheme(url)} is not a store we know; {_KNOWN}")
    if not path.strip("/") or path.endswith("/") or path == ":memory:" or "\0" in path or "?" in path:
        raise ValueError(f"sqlite:/// must be followed by the path of a file; {_KNOWN}")
    return Path(path)


def _scheme(url: str) -> str:
    scheme, colon, _rest = url.partition(":")
    return f"{scheme}:" if colon and scheme.isalnum() else "this"
