"""Statements on the commands that nodes send each other, and on the locks of sessions.

Each is one job that runs without a transaction around it: no statement holds a lock while it waits
for its client. Times are those of the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from attrs import asdict, define, evolve

from hermes_trio.core.records import Command, CommandAnswer
from hermes_trio.stores.base import CorruptRecord
from hermes_trio.stores.codec import decode_json, encode_json
from hermes_trio.stores.postgres.nodes import LIVING_NODES
from hermes_trio.stores.sql.database import SqlConnection

MAX_FOUND = 256
"""Commands that are returned at once."""

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
# Earlier versions take the commands that no node has taken, whether they have been answered or not.
_FIND = """
    SELECT command_id, principal, run_id, commands.kind, arguments, sender
    FROM commands JOIN runs USING (principal, run_id)
    WHERE taken_at IS NULL AND status = 'in_progress' AND owner = :node
    ORDER BY commands.created_at, command_id LIMIT :limit
"""
_ANSWER = """
    UPDATE commands SET answer = given.answer, answered_at = clock_timestamp(), taken_at = clock_timestamp()
    FROM unnest(CAST(:command_ids AS text[]), CAST(:answers AS text[])) AS given (command_id, answer)
    WHERE commands.command_id = given.command_id AND answered_at IS NULL
"""
_UNREADABLE = {"error": "the command cannot be read"}
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


def find(connection: SqlConnection, node: str) -> tuple[Command, ...]:
    """Return some of the commands for the runs of a node that have no answer, oldest first.

    Those that cannot be read are answered, and named in the server log.
    """
    rows = connection.execute(_FIND, {"node": node, "limit": MAX_FOUND}).fetchall()
    found: list[Command] = []
    unreadable: list[CommandAnswer] = []
    for command_id, principal, run_id, kind, arguments, sender in rows:
        command = Command(command_id, principal, run_id, kind, sender=sender)
        try:
            given = decode_json(arguments, dict, f"command {command_id!r}")
        except CorruptRecord as error:
            log.error("a command that cannot be read is left out", error=str(error))
            unreadable.append(CommandAnswer(command, _UNREADABLE))
        else:
            found.append(evolve(command, arguments=given))
    if unreadable:
        answer(connection, unreadable)
    return tuple(found)


def answer(connection: SqlConnection, answers: Sequence[CommandAnswer]) -> None:
    """Store the answers to those of the commands that have none."""
    row = {
        "command_ids": [each.command.command_id for each in answers],
        "answers": [encode_json(each.answer) for each in answers],
    }
    connection.execute(_ANSWER, row)


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
