"""The nodes that share a database, and their leases.

Every comparison is made by the database, in its own time: the clocks of the nodes do not matter.
The functions execute one statement each, outside of any transaction, and are safe to repeat.
"""

from __future__ import annotations

import hashlib

import psycopg
from attrs import frozen
from psycopg import errors

from hermes_trio.core.records import Node

_WRITER = "hermes-trio"

# The time of a statement is not later than what it sees of the database: a lease that was renewed
# before it lapsed never looks lapsed.
LIVING_NODES = """
    SELECT node FROM nodes
    WHERE heartbeat_at > statement_timestamp() - make_interval(secs => lease_seconds)
"""
"""The names of the nodes whose lease has not lapsed, as a query."""

_FORGET = """
    DELETE FROM nodes
    WHERE heartbeat_at < statement_timestamp() - make_interval(hours => 1, secs => lease_seconds)
"""
_JOIN = """
    INSERT INTO nodes (node, epoch, address, heartbeat_at, lease_seconds)
    VALUES (%(node)s, 0, %(address)s, clock_timestamp(), %(seconds)s)
    ON CONFLICT (node) DO UPDATE SET address = excluded.address,
        heartbeat_at = excluded.heartbeat_at, lease_seconds = excluded.lease_seconds
"""
# The epoch of a node counts how often its lease has lapsed.
_RENEW = """
    UPDATE nodes SET heartbeat_at = clock_timestamp(), lease_seconds = %(seconds)s,
        epoch = epoch + CASE WHEN before.is_alive THEN 0 ELSE 1 END
    FROM (
        SELECT node AS name,
            heartbeat_at > clock_timestamp() - make_interval(secs => lease_seconds) AS is_alive
        FROM nodes WHERE node = %(node)s FOR UPDATE
    ) AS before
    WHERE node = before.name RETURNING before.is_alive
"""
_LIST = """
    SELECT node, address, CAST(extract(epoch FROM statement_timestamp() - heartbeat_at) AS FLOAT8),
        heartbeat_at > statement_timestamp() - make_interval(secs => lease_seconds),
        (SELECT count(*) FROM runs WHERE runs.status = 'in_progress' AND runs.owner = nodes.node)
    FROM nodes
    WHERE heartbeat_at >= statement_timestamp() - make_interval(hours => 1, secs => lease_seconds)
    ORDER BY node
"""
# A node that is suspended in a transaction holds locks on its runs. A timeout of the server for idle
# transactions does not begin after what a pipeline sent, so others have to end its connection.
_RELEASE_ROWS = f"""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND state = 'idle in transaction'
        AND application_name IN (
            SELECT DISTINCT '{_WRITER} ' || left(encode(sha256(convert_to(owner, 'UTF8')), 'hex'), 20)
            FROM runs WHERE status = 'in_progress' AND owner NOT IN ({LIVING_NODES})
        )
"""  # noqa: S608 - made of constants
_FIND_OWNER = """
    SELECT owner FROM runs
    WHERE principal = %(principal)s AND run_id = %(run_id)s AND status = 'in_progress'
"""


def writer_name(node: str) -> str:
    """Return the application name of the connection on which a node writes."""
    return f"{_WRITER} {hashlib.sha256(node.encode()).hexdigest()[:20]}"


@frozen
class Lease:
    """The lease of a node, as the node asks for it."""

    node: str
    address: str
    seconds: float


def _parameters(lease: Lease) -> dict[str, object]:
    return {"node": lease.node, "address": lease.address, "seconds": lease.seconds}


def join(connection: psycopg.Connection, lease: Lease) -> None:
    """Add a node with a fresh lease, and forget those that died long ago."""
    connection.execute(_FORGET)
    connection.execute(_JOIN, _parameters(lease))


def renew(connection: psycopg.Connection, lease: Lease) -> bool:
    """Renew the lease of a node; return False if it had lapsed."""
    row = connection.execute(_RENEW, _parameters(lease)).fetchone()
    if row is None:  # forgotten
        join(connection, lease)
        return False
    return bool(row[0])


def leave(connection: psycopg.Connection, node: str) -> None:
    """Remove a node."""
    connection.execute("DELETE FROM nodes WHERE node = %s", [node])


def list_all(connection: psycopg.Connection) -> tuple[Node, ...]:
    """Return the nodes in the order of their names."""
    return tuple(Node(*row) for row in connection.execute(_LIST).fetchall())


def release_rows(connection: psycopg.Connection) -> None:
    """End the transactions that dead nodes have left open, if they still have runs."""
    connection.execute(_RELEASE_ROWS.encode())


def find_owner(connection: psycopg.Connection, principal: str, run_id: str) -> str:
    """Return the owner of a run in progress, "" if there is no such run."""
    row = connection.execute(_FIND_OWNER, {"principal": principal, "run_id": run_id}).fetchone()
    return "" if row is None else str(row[0])


def count_living(connection: psycopg.Connection) -> int:
    """Return the number of nodes that are alive; 0 for a database that knows no leases yet."""
    try:
        return len(connection.execute(LIVING_NODES).fetchall())
    except (errors.UndefinedTable, errors.UndefinedColumn):
        return 0
