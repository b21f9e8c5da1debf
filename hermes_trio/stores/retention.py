"""Retention rules that hold for every engine.

How much each owner may keep, what counts towards it, and when runs were last used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from hermes_trio.core.records import OwnerUsage, Retention

MAX_PURGED = 1000
"""Records of each kind that one purge removes, so that it never delays other writes for long."""

MAX_ACCESSES = 1000

# What a row takes besides its content, in its table and in the indexes; measured with SQLite.
RUN_BYTES = 1_200
MESSAGE_BYTES = 150
SESSION_BYTES = 500
ITEM_BYTES = 300


@frozen
class RunAccess:
    """The time a run was last read."""

    principal: str
    run_id: str
    at: float


class AccessTimes:
    """The latest access to each of up to ``limit`` runs, kept in memory until the next write.

    Beyond the limit the oldest accesses are dropped; those runs merely look less recently used.
    """

    def __init__(self, limit: int = MAX_ACCESSES) -> None:
        self._limit = limit
        self._accesses: dict[tuple[str, str], RunAccess] = {}

    def record(self, access: RunAccess) -> None:
        """Replace the previous access to the same run."""
        key = (access.principal, access.run_id)
        self._accesses.pop(key, None)  # so that it moves to the end
        self._accesses[key] = access
        if len(self._accesses) > self._limit:
            del self._accesses[next(iter(self._accesses))]

    def drain(self) -> tuple[RunAccess, ...]:
        """Remove and return everything."""
        accesses = tuple(self._accesses.values())
        self._accesses.clear()
        return accesses


@frozen
class StorageQuota:
    """How much each owner may keep; None for any amount."""

    runs: int | None
    size: int | None

    def allows(self, usage: OwnerUsage) -> bool:
        """Return whether an owner is within the quota."""
        return (self.runs is None or usage.runs <= self.runs) and (
            self.size is None or usage.size <= self.size
        )


def fair_quota(usages: Sequence[OwnerUsage], retention: Retention) -> StorageQuota:
    """Return the quota under which all owners together are within the limits.

    The surplus is taken from the owners who store most, so no owner can push out the records
    of an owner who uses less than an equal share.
    """
    return StorageQuota(
        _fair_share([usage.runs for usage in usages], retention.max_runs),
        _fair_share([usage.size for usage in usages], retention.max_bytes),
    )


def _fair_share(amounts: Iterable[int], limit: int) -> int | None:
    """Return the amount to which the largest must shrink for the sum to reach the limit."""
    left, larger = limit, sorted(amounts)
    if not limit:  # a limit of 0 means none
        return None
    while larger:
        share = left // len(larger)
        if larger[0] > share:
            return share
        left -= larger.pop(0)
    return None
