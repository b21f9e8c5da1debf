"""Retention rules that hold for every engine.

Which runs are surplus, and when runs were last used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import frozen

from hermes_trio.core.records import Retention

MAX_PURGED = 1000
"""Records of each kind that one purge removes, so that it never delays other writes for long."""

MAX_ACCESSES = 1000


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
class PurgeCandidate:
    """An ended run that a purge may delete."""

    principal: str
    run_id: str
    conversation: str
    size: int


def select_surplus(
    count: int, size: int, least_used_first: Iterable[PurgeCandidate], retention: Retention
) -> Iterator[PurgeCandidate]:
    """Yield candidates until the rest is within the limits.

    ``count`` and ``size`` are the totals before.
    """
    for candidate in least_used_first:
        if not (_exceeds(count, retention.max_runs) or _exceeds(size, retention.max_bytes)):
            return
        yield candidate
        count, size = count - 1, size - candidate.size


def _exceeds(value: int, limit: int) -> bool:
    return 0 < limit < value  # a limit of 0 means none
