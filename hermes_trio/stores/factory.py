"""Store URLs: parse one, and open the store it names. The only module that knows every engine.

Engines are imported when they are opened, so parsing a URL stays cheap and a driver is needed only
where it is used.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field, frozen

from hermes_trio.core.errors import ConfigurationError

if TYPE_CHECKING:
    from hermes_trio.stores.base import Store

FILE_NAME = "hermes.db"
POSTGRES_EXTRA = "pip install '.[postgres]' in a clone of the repository"
DEFAULT_LEASE_SECONDS = 8.0
_SQLITE = "sqlite:///"
_MEMORY = "memory:"
_POSTGRES = ("postgresql://", "postgres://")
_UNENCODED = frozenset("/?#\"'<> ")
_PASSWORD = re.compile(r"(://[^@/]*?:)[^@]*(?=@)")
# What follows the colon of a host without being a port: a password, if the @ and the host were forgotten.
_HOST = r"(?:\[[^]/]*\]|[^][:/@,]*)"
_NO_PORT = re.compile(
    rf"(://(?:[^@/]*@)?+(?:{_HOST}(?::\d*)?,)*{_HOST}:)(?!\d*(?:[,/]|$)).*", re.DOTALL
)
# What may be shown of the parameters of a URL. Of others, none knows what later drivers keep in them.
_PUBLIC = frozenset(
    [
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "sslmode",
        "application_name",
        "connect_timeout",
        "target_session_attrs",
    ]
)
_KNOWN = "use memory:, sqlite:///path, postgresql://…, or leave it empty for a file in data_dir"


@frozen
class InMemory:
    """Records are lost when the process ends."""


@frozen
class SqliteFile:
    """Records are kept in one SQLite file."""

    path: Path


@frozen
class PostgresUrl:
    """Records are kept in a PostgreSQL database."""

    url: str = field(repr=False)  # it may contain a password


StoreLocation = InMemory | SqliteFile | PostgresUrl


def parse_store_url(url: str, data_dir: Path) -> StoreLocation:
    """Parse a store URL. An empty one means a file in ``data_dir``.

    Following the convention of ``DATABASE_URL``, three slashes start a path relative to the working
    directory and four an absolute one.

    Raises:
        ValueError: The URL names no known store. The message never repeats the URL, which may
            contain a password.
    """
    if not url:
        return SqliteFile(data_dir / FILE_NAME)
    if url == _MEMORY:
        return InMemory()
    if url.startswith(_POSTGRES):
        _check_password(url)
        return PostgresUrl(url)
    path = url.removeprefix(_SQLITE)
    if path == url:
        scheme, colon, _ = url.partition(":")
        name = f"{scheme}:" if colon and scheme.isalnum() else "this"
        raise ValueError(f"{name} is not a known kind of store; {_KNOWN}")
    if (
        not path.strip("/")
        or path.endswith("/")
        or path == ":memory:"
        or "\0" in path
        or "?" in path
    ):
        raise ValueError(f"sqlite:/// must be followed by the path of a file; {_KNOWN}")
    return SqliteFile(Path(path))


def _check_password(url: str) -> None:
    # The driver would take the rest of such a password for something else, and quote it in an error.
    user, at, rest = url.partition("://")[2].partition("@")
    if at and (not _UNENCODED.isdisjoint(user) or "@" in rest):
        raise ValueError("special characters in the user and the password need percent-encoding")


def mask_store_url(url: str) -> str:
    """Return a store URL with its password masked, and everything else that might be one."""
    place, mark, query = _PASSWORD.sub(r"\1***", url).partition("?")
    return _NO_PORT.sub(r"\1***", place) + mark + "&".join(map(_mask_parameter, query.split("&")))


def _mask_parameter(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return parameter if name in _PUBLIC or not parameter else f"{name}=***" if equals else "***"


def open_store(
    location: StoreLocation, is_checked: bool = False, lease_seconds: float = DEFAULT_LEASE_SECONDS
) -> AbstractAsyncContextManager[Store]:
    """Return the store at a location, to be entered.

    Args:
        location: where it is.
        is_checked: whether to look for damage in a file first.
        lease_seconds: where several processes share the store, how long this one may be silent
            before others take over its runs.

    Raises:
        ConfigurationError: At once, if this version has no such store, or its driver is missing.
        StoreError: On entering, if the store cannot be opened.
    """
    match location:
        case InMemory():
            from hermes_trio.stores.sqlite import open_memory  # noqa: PLC0415

            return open_memory()
        case SqliteFile(path):
            from hermes_trio.stores.sqlite import SqliteOptions, open_sqlite  # noqa: PLC0415

            return open_sqlite(path.absolute(), SqliteOptions(is_checked=is_checked))
        case PostgresUrl(url):
            try:
                from hermes_trio.stores.postgres import (  # noqa: PLC0415
                    PostgresOptions,
                    open_postgres,
                )
            except ImportError as error:
                raise ConfigurationError(
                    f"store: PostgreSQL needs more packages: {POSTGRES_EXTRA} ({error})"
                ) from error
            return open_postgres(url, PostgresOptions(lease_seconds=lease_seconds))
        case unknown:
            raise ConfigurationError(f"store: unknown kind of store {type(unknown).__name__}")
