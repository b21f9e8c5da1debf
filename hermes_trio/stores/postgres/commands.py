"""Statements on the commands that nodes send each other, and on the locks of sessions.

Each is one job that runs without a transaction around it: no statement holds a lock while it waits
for its client. Times are those of the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import structlog
from attrs import asdict, define

from hermes_trio.core.records import Command
from hermes_trio.stores.base import CorruptRecord
from hermes_trio.stores.codec import decode_json, encode_json
from hermes_trio.stores.postgres.nodes import LIVING_NODES
from hermes_trio.stores.sql.database import SqlConnection

MAX_TAKEN = 256
"""Commands that are taken at once."""

MAX_PURGED = 10_000
KEEP_SECONDS = 3600.0
"""How long commands and the locks of dead nodes are kept."""

log = structlog.get_logger(__name__)


# -- commands --

# Sent again after a lost acknowledgement, a command is stored once.
_SEND = """
    WITH sent AS (
        INSERT INTO commands (command_id, principal, run_id, kind, arguments, sender)
        VALUES (:command_id, :principal, :run_id, :kind, :arguments, :sender)
        ON CONFLICT (command_id) DO NOTHING
    )
    SELECT owner FROM runs WHERE principal = :principal AND run_id = :run_id AND status = 'in_progress'
"""
_TAKE = """
    WITH open AS (
        SELECT commands.command_id FROM commands
        JOIN runs ON runs.principal = commands.principal AND runs.run_id = commands.run_id
        WHERE commands.taken_at IS NULL AND runs.status = 'in_progress' AND runs.owner = :node
        ORDER BY commands.created_at, commands.command_id LIMIT :limit
        FOR UPDATE OF commands SKIP LOCKED
    ), taken AS (
        UPDATE commands SET taken_at = clock_timestamp() FROM open
        WHERE commands.command_id = open.command_id
        RETURNING commands.*
    )
    SELECT command_id, principal, run_id, kind, arguments, sender FROM taken ORDER BY created_at, command_id
"""
_ANSWER = """
    UPDATE commands SET answer = ?, answered_at = clock_timestamp()
    WHERE command_id = ? AND answered_at IS NULL
"""
_FIND_ANSWER = "SELECT answer FROM commands WHERE command_id = ? AND answered_at IS NOT NULL"
_PURGE_COMMANDS = """
    DELETE FROM commands WHERE command_id IN (
        SELECT command_id FROM commands WHERE created_at < clock_timestamp() - make_interval(secs => :seconds)
        ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED
    )
"""


def send(connection: SqlConnection, command: Command) -> str:
    """Store a command, and return the node that executes its run, "" if none does."""
    row = {
        "command_id": command.command_id,
        "principal": command.principal,
        "run_id": command.run_id,
        "kind": str(command.kind),
        "arguments": encode_json(command.arguments),
        "sender": command.sender,
    }
    found = connection.execute(_SEND, row).fetchone()
    return "" if found is None else str(found[0])


def take(connection: SqlConnection, node: str) -> tuple[Command, ...]:
    """Return some of the commands for the runs of a node, oldest first, and mark them as taken."""
    rows = connection.execute(_TAKE, {"node": node, "limit": MAX_TAKEN}).fetchall()
    return tuple(_decode_readable(rows))


def _decode_readable(rows: Sequence[Sequence[Any]]) -> Iterator[Command]:
    """Decode commands. One that cannot be read is left out, and named in the server log."""
    for command_id, principal, run_id, kind, arguments, sender in rows:
        try:
            given = decode_json(arguments, dict, f"command {command_id!r}")
        except CorruptRecord as error:
            log.error("a command that cannot be read is left out", error=str(error))
            continue
        yield Command(command_id, principal, run_id, kind, given, sender)


def answer(connection: SqlConnection, command_id: str, answer: Mapping[str, Any]) -> None:
    """Store the answer to a command, unless it has one."""
    connection.execute(_ANSWER, (encode_json(answer), command_id))


def find_answer(connection: SqlConnection, command_id: str) -> Mapping[str, Any] | None:
    """Return the answer to a command, None if it has none."""
    found = connection.execute(_FIND_ANSWER, (command_id,)).fetchone()
    if found is None:
        return None
    return decode_json(found[0], dict, f"the answer to command {command_id!r}")


# -- locks of sessions --

# Of a lock that is changed at this very moment, the statement sees the new holder, but the nodes as
# they were when it began. So it replaces only the holder that it found dead then.
_LOCK = f"""
    INSERT INTO session_locks (principal, session_id, node) VALUES (:principal, :session_id, :node)
    ON CONFLICT (principal, session_id) DO UPDATE SET node = excluded.node, locked_at = excluded.locked_at
    WHERE session_locks.node <> :node AND session_locks.node IN (
        SELECT held.node FROM session_locks AS held
        WHERE held.principal = :principal AND held.session_id = :session_id
            AND held.node NOT IN ({LIVING_NODES})
    )
"""  # noqa: S608 - made of constants
_UNLOCK = "DELETE FROM session_locks WHERE principal = ? AND session_id = ? AND node = ?"
_PURGE_LOCKS = f"""
    DELETE FROM session_locks WHERE locked_at < clock_timestamp() - make_interval(secs => :seconds)
        AND node NOT IN ({LIVING_NODES})
"""  # noqa: S608 - made of constants


@define(eq=False)
class LockAttempt:
    """Locks a session; returns False if it is locked, by this node or by another that is alive.

    The caller sets ``is_abandoned`` when it no longer waits for the result. It then unlocks the
    session, and that may overtake the thread that is about to lock it.
    """

    principal: str
    session_id: str
    node: str
    is_abandoned: bool = False

    def __call__(self, connection: SqlConnection) -> bool:
        """Lock the session, unless the caller has gone."""
        is_locked = connection.execute(_LOCK, asdict(self)).rowcount == 1
        if is_locked and self.is_abandoned:
            unlock_session(connection, self.principal, self.session_id, self.node)
        return is_locked


def unlock_session(connection: SqlConnection, principal: str, session_id: str, node: str) -> None:
    """Unlock a session, if this node has locked it."""
    connection.execute(_UNLOCK, (principal, session_id, node))


# -- retention --


def purge(connection: SqlConnection) -> None:
    """Delete old commands, and locks that dead nodes left long ago."""
    connection.execute(_PURGE_COMMANDS, {"seconds": KEEP_SECONDS, "limit": MAX_PURGED})
    connection.execute(_PURGE_LOCKS, {"seconds": KEEP_SECONDS})
