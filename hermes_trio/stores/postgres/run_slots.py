"""Statements on the slots of a principal for runs on all nodes together.

The slots of a principal are numbered, and the number is part of the key of its row: whatever nodes do
at the same time, they cannot take more than there are. Each statement is executed outside of a
transaction, so that none holds a lock while it waits for its client.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import asdict, define

from hermes_trio.stores.postgres.nodes import LIVING_NODES
from hermes_trio.stores.sql.database import SqlConnection

KEEP_SECONDS = 3600.0
"""How long the slots of dead nodes are kept."""

_MAX_ATTEMPTS = 32

# Nodes that choose at the same time choose different numbers, as a rule. As with session locks, only
# a holder that the statement found dead when it began is replaced.
_TAKE = f"""
    WITH held AS (
        SELECT number, slot FROM run_slots WHERE principal = :principal AND node IN ({LIVING_NODES})
    ), taken AS (
        INSERT INTO run_slots (principal, number, slot, node)
        SELECT :principal, free.number, :slot, :node
        FROM generate_series(CAST(1 AS BIGINT), CAST(:limit AS BIGINT)) AS free (number)
        WHERE free.number NOT IN (SELECT number FROM held)
            AND NOT EXISTS (SELECT 1 FROM held WHERE slot = :slot)
        ORDER BY random() LIMIT 1
        ON CONFLICT (principal, number) DO UPDATE
            SET slot = excluded.slot, node = excluded.node, taken_at = excluded.taken_at
            WHERE run_slots.node <> :node AND run_slots.node IN (
                SELECT dead.node FROM run_slots AS dead
                WHERE dead.principal = :principal AND dead.number = excluded.number
                    AND dead.node NOT IN ({LIVING_NODES})
            )
        RETURNING number
    )
    SELECT EXISTS (SELECT 1 FROM taken) OR EXISTS (SELECT 1 FROM held WHERE slot = :slot),
        (SELECT count(*) FROM held WHERE number <= :limit) >= :limit
"""  # noqa: S608 - made of constants
_GIVE_BACK = "DELETE FROM run_slots WHERE slot = ANY(?)"
_PURGE = f"""
    DELETE FROM run_slots WHERE taken_at < clock_timestamp() - make_interval(secs => :seconds)
        AND node NOT IN ({LIVING_NODES})
"""  # noqa: S608 - made of constants


@define(eq=False)
class SlotAttempt:
    """Takes a slot; returns False if the principal has as many as it may. Safe to repeat.

    The caller sets ``is_abandoned`` when it no longer waits for the result. It then gives the slot
    back, and that may overtake the thread that is about to take it.
    """

    principal: str
    slot: str
    node: str
    limit: int
    is_abandoned: bool = False

    def __call__(self, connection: SqlConnection) -> bool:
        """Take the slot, unless the caller has gone."""
        for _ in range(_MAX_ATTEMPTS):  # as long as others take what this one has chosen
            [(is_taken, is_full)] = connection.execute(_TAKE, asdict(self)).fetchall()
            if is_taken or is_full:
                break
        if is_taken and self.is_abandoned:
            give_back(connection, [self.slot])
        return bool(is_taken)


def give_back(connection: SqlConnection, slots: Sequence[str]) -> None:
    """Give slots back, if they are taken."""
    connection.execute(_GIVE_BACK, (list(slots),))


def purge(connection: SqlConnection) -> None:
    """Delete the slots that dead nodes left long ago."""
    connection.execute(_PURGE, {"seconds": KEEP_SECONDS})
