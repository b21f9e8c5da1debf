"""Queries on the owners of runs: who may write a run, and taking over the runs of dead nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from hermes_trio.core.records import Ownership, TakenOverRun
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.codec import decode_header
from hermes_trio.stores.sql.database import SqlConnection
from hermes_trio.stores.sql.retention import give_up_run

RunKey = tuple[str, str]  # principal and run id
NOBODY = Ownership("")

_MAX_KEYS = 1024
# The comment is for engines with several writers: it waits for a take-over that is under way, and
# lets none begin before the transaction has ended.
_FIND = """
    WITH keys (principal, run_id) AS (VALUES {keys})
    SELECT principal, run_id, status = 'in_progress', hidden, owner, owner_epoch
    FROM keys JOIN runs USING (principal, run_id) /* FOR KEY SHARE OF runs */
"""


@frozen
class RunOwner:
    """Who may write a run."""

    is_live: bool
    is_hidden: bool
    ownership: Ownership

    def admits(self, ownership: Ownership | None) -> bool:
        """Return whether an owner may write the run: its own, or one without an owner."""
        is_free = self.is_hidden or not (self.is_live or self.ownership.node)
        return ownership is None or is_free or ownership == self.ownership


def columns(ownership: Ownership) -> dict[str, Any]:
    """Return an ownership as parameters of a statement."""
    return {"owner": ownership.node, "owner_epoch": ownership.epoch}


def find(connection: SqlConnection, keys: Sequence[RunKey]) -> Mapping[RunKey, RunOwner]:
    """Return the owners of those of the runs that exist."""
    owners: dict[RunKey, RunOwner] = {}
    different = sorted(set(keys))
    for start in range(0, len(different), _MAX_KEYS):
        some = different[start : start + _MAX_KEYS]
        # The last one is repeated up to a power of two, so that few different statements are
        # prepared.
        some += [some[-1]] * ((1 << (len(some) - 1).bit_length()) - len(some))
        statement = _FIND.format(keys=", ".join(["(?, ?)"] * len(some)))
        rows = connection.execute(statement, [name for key in some for name in key]).fetchall()
        for principal, run_id, is_live, is_hidden, node, epoch in rows:
            owners[principal, run_id] = RunOwner(
                bool(is_live), bool(is_hidden), Ownership(node, epoch)
            )
    return owners


# -- take-over --

MAX_TAKEN_OVER = 100
# What a node has taken over comes again until it has ended. Its own runs have the epoch 0.
FIND_ABANDONED = """
    SELECT principal, run_id, CASE WHEN owner = :node THEN owner_epoch ELSE owner_epoch + 1 END,
        CAST(header AS BLOB) FROM runs
    WHERE status = 'in_progress' AND (owner <> :node OR owner_epoch > 0)
    ORDER BY created_at, principal, run_id LIMIT :limit
"""
_TAKE_OVER = """
    UPDATE runs SET owner = :owner, owner_epoch = :owner_epoch
    WHERE principal = :principal AND run_id = :run_id
"""
# The process that claimed such a key died before the run began.
RELEASE_CLAIMS = """
    DELETE FROM claims WHERE NOT EXISTS (
        SELECT 1 FROM runs WHERE runs.principal = claims.principal AND runs.run_id = claims.run_id
    )
"""


@frozen
class TakeOver:
    """The runs that a node has taken over."""

    runs: tuple[TakenOverRun, ...]  # in the order the runs began
    errors: tuple[StoreError, ...]  # one for each run that was given up


def take_over(connection: SqlConnection, node: str) -> TakeOver:
    """Make a node the owner of runs of dead ones, and give up those that cannot be decoded."""
    parameters = {"node": node, "limit": MAX_TAKEN_OVER}
    runs: list[TakenOverRun] = []
    rows: list[dict[str, Any]] = []
    errors: list[StoreError] = []
    for principal, run_id, epoch, header in connection.execute(
        FIND_ABANDONED, parameters
    ).fetchall():
        ownership = Ownership(node, epoch)
        try:
            runs.append(TakenOverRun(decode_header(header, run_id), ownership))
        except StoreError as error:
            give_up_run(connection, principal, run_id)
            errors.append(error)
        else:
            rows.append({"principal": principal, "run_id": run_id, **columns(ownership)})
    if rows:
        connection.executemany(_TAKE_OVER, rows)
    return TakeOver(tuple(runs), tuple(errors))


def release_claims(connection: SqlConnection) -> None:
    """Release the idempotency keys whose runs never began."""
    connection.execute(RELEASE_CLAIMS)
