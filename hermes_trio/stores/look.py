"""A look at a database file from outside: whether it can be opened, and by whom it is held. Nothing in it is changed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from attrs import frozen

from hermes_trio.stores.base import StoreError
from hermes_trio.stores.faults import explained
from hermes_trio.stores.files import claim
from hermes_trio.stores.migrations import schema_version
from hermes_trio.stores.schema import STEPS

SQLITE_VERSION = sqlite3.sqlite_version_info
KNOWN_SCHEMA = len(STEPS)
_BUSY_SECONDS = 1.0


@frozen
class StoreLook:
    """What there is to see."""

    schema: int
    is_in_use: bool


def look(path: Path) -> StoreLook:
    """Look at a database file that is there. Blocks: call it in a thread.

    Raises:
        StoreError: it cannot be opened.
    """
    try:
        return _look(path.resolve())
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise explained(error, f"cannot open {path}") from error


def _look(path: Path) -> StoreLook:
    try:
        descriptor = claim(path)
    except StoreError:
        return StoreLook(_schema(path), is_in_use=True)
    try:
        return StoreLook(_schema(path), is_in_use=False)
    finally:
        os.close(descriptor)


def _schema(path: Path) -> int:
    # Without a log beside it, even a reader would make one, and for everybody to read.
    has_log = path.with_name(f"{path.name}-wal").exists()
    options = "mode=ro" if has_log else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.as_uri()}?{options}", uri=True, timeout=_BUSY_SECONDS)
    with closing(connection):
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        return schema_version(connection)
