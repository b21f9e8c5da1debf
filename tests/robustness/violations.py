"""Count how often each kind of violation was checked for and found; one counter per process.

The shared checks record into it, so that the zeros in the report are backed by a count of checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from typing import ParamSpec

from attrs import define, field

P = ParamSpec("P")


class Violation(StrEnum):
    """Kinds of violations. None may ever be found."""

    LOST = "lost"
    WRONG = "malformed stream"
    LEAKED = "leaked"
    STUCK = "stuck"
    SERVER_ERROR = "5xx"


MEANING = {
    Violation.LOST: "a stream has something that its record does not have",
    Violation.WRONG: "a stream has a gap, two ends, something after its end, or a call without one",
    Violation.LEAKED: "a task, thread, descriptor, slot, reader or busy session that was not there before",
    Violation.STUCK: "a run without a terminal record, a request without an answer",
    Violation.SERVER_ERROR: "a 5xx that a client caused",
}


@define
class ViolationCounter:
    """The counts of one process since the last `take()`."""

    checked: Counter[Violation] = field(factory=Counter)
    found: Counter[Violation] = field(factory=Counter)

    def record(self, violation: Violation, found: int = 0, times: int = 1) -> None:
        """Record checks and what they found."""
        self.checked[violation] += times
        self.found[violation] += found

    def take(self) -> list[tuple[str, int, int]]:
        """Return all counts and reset them."""
        rows = [
            (str(violation), self.checked[violation], self.found[violation])
            for violation in Violation
        ]
        self.checked.clear()
        self.found.clear()
        return rows

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Discard what is recorded in the block: a state that is still changing."""
        checked, found = self.checked.copy(), self.found.copy()
        yield
        self.checked, self.found = checked, found


VIOLATIONS = ViolationCounter()


def counted(
    violation: Violation,
) -> Callable[[Callable[P, Iterator[str]]], Callable[P, Iterator[str]]]:
    """Decorate a check that yields faults, so that it records them."""

    def counting(check: Callable[P, Iterator[str]]) -> Callable[P, Iterator[str]]:
        @wraps(check)
        def checked_call(*args: P.args, **more: P.kwargs) -> Iterator[str]:
            VIOLATIONS.record(violation)
            for fault in check(*args, **more):
                VIOLATIONS.record(violation, found=1, times=0)
                yield fault

        return checked_call

    return counting
