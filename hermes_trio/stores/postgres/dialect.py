"""The shared statements in the SQL of PostgreSQL, and Python's values as its parameters."""

from __future__ import annotations

import re
from functools import cache

import psycopg
from psycopg.abc import AdaptContext
from psycopg.adapt import AdaptersMap, Buffer
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrBinaryDumper, TextBinaryLoader

from hermes_trio.stores.postgres.nodes import LIVING_NODES
from hermes_trio.stores.sql import owners, retention, runs

# -- statements --

_PARAMETER = re.compile(r"\?|(?<!:):([a-z_]+)")
_BLOB = re.compile(r"CAST\((\S+) AS BLOB\)")
_LOCK = re.compile(r"/\* (FOR [A-Za-z ]+) \*/")  # other engines have one writer
_JSON = re.compile(r"json_each\(([^()]+)\)")
_OF_THE_RUN = "principal = :principal AND run_id = :run_id"
# Looks only at the partition of the run's log.
_DAY = "day = (SELECT runs.day FROM runs WHERE principal = :principal AND run_id = :run_id)"
# An expired log stays in its partition, out of sight, until the whole partition is dropped.
_IN_SIGHT = f"{_DAY[:-1]} AND (logged = 1 OR status = 'in_progress'))"
CLAIM_SECONDS = 120.0
"""How long a living node may take from claiming an idempotency key to beginning the run."""

_REPLACED = {
    runs.INSERT_BATCH: """
        INSERT INTO log (day, principal, run_id, first, count, body)
        SELECT day, principal, run_id, :first, :count, :body FROM runs
        WHERE principal = :principal AND run_id = :run_id
        ON CONFLICT (principal, run_id, first, day)
            DO UPDATE SET count = excluded.count, body = excluded.body WHERE excluded.count > log.count
    """,
    runs.END: runs.END.replace(
        "log.run_id = runs.run_id", "log.run_id = runs.run_id AND log.day = runs.day"
    ),
    runs.READ_LOG: runs.READ_LOG.replace(_OF_THE_RUN, f"{_OF_THE_RUN} AND {_IN_SIGHT}"),
    retention.DELETE_LOG: f"{retention.DELETE_LOG} AND {_DAY}",
    # A run of a living node is passed over, whoever took it over in the meantime: the list of nodes
    # is that of the beginning of the statement, and the owner is compared again once it is locked.
    owners.FIND_ABANDONED: owners.FIND_ABANDONED.replace(
        "ORDER BY", f"AND (owner = :node OR owner <> ALL (ARRAY({LIVING_NODES}))) ORDER BY"
    )
    + "FOR UPDATE SKIP LOCKED",
    owners.RELEASE_CLAIMS: owners.RELEASE_CLAIMS
    + f"AND made_at < extract(epoch FROM clock_timestamp()) - {CLAIM_SECONDS}",
    retention.EXPIRE_LOG: retention.DELETE_LOG.replace("FROM log", "FROM log_other"),
}


@cache
def to_postgres(statement: str) -> bytes:
    """Translate a shared statement, and its parameters to those of the driver."""
    return _PARAMETER.sub(_placeholder, translate(statement)).encode()


def translate(statement: str) -> str:
    """Translate all of a shared statement but its parameters."""
    statement = _REPLACED.get(statement, statement)
    statement = _LOCK.sub(r"\1", statement)
    statement = _BLOB.sub(r"\1", statement)  # the driver reads no invalid text: there is none
    return _JSON.sub(r"json_array_elements_text(CAST(\1 AS json))", statement)


def _placeholder(match: re.Match[str]) -> str:
    return f"%({match[1]})s" if match[1] else "%s"


# -- values --

# PostgreSQL has no NUL in text. It is escaped, in a way that keeps the order of texts.
_ESCAPES = {"\0": "\1\1", "\1": "\1\2"}
_TO_ESCAPE = re.compile("[\0\1]")
_ESCAPED = re.compile("\1[\1\2]")


class _TextDumper(StrBinaryDumper):
    """Sends every text as one, so that a statement is prepared for one type of parameters."""

    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or "\1" in obj:
            obj = _TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], obj)
        return super().dump(obj)


class _TextLoader(TextBinaryLoader):
    def load(self, data: Buffer) -> str:
        text = str(super().load(data))
        if "\1" in text:
            text = _ESCAPED.sub(lambda found: "\0" if found[0] == "\1\1" else "\1", text)
        return text


class Adaptation:
    """How the values of a connection are converted; given to it as its context."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_dumper(str, _TextDumper)
        self.adapters.register_dumper(int, Int8BinaryDumper)
        # Else lists would be sent as text, and their texts dumped without the escapes.
        self.adapters.register_dumper(list, ListBinaryDumper)
        self.adapters.register_loader("text", _TextLoader)


ADAPTATION: AdaptContext = Adaptation()
