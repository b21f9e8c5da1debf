"""What the whole suite looks for, how often it looked, and how often it found something: one book in each process.

The checks that all tests share write into it, so that the zeros of the report say how often they were earned.
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


class Sought(StrEnum):
    """What must never be found."""

    LOST = "lost"
    WRONG = "told wrongly"
    LEAKED = "leaked"
    STUCK = "stuck"
    SERVER_ERROR = "5xx"


MEANING = {
    Sought.LOST: "a stream, or the beginning of one, tells what the record does not",
    Sought.WRONG: "a stream has a gap, two ends, something after its end, or a call without one",
    Sought.LEAKED: "a task, thread, descriptor, slot, reader or busy session that was not there before",
    Sought.STUCK: "a run without a terminal record, a request without an answer",
    Sought.SERVER_ERROR: "a 5xx that a client caused",
}


@define
class Book:
    """The counts of one process since somebody last took them."""

    looked: Counter[Sought] = field(factory=Counter)
    found: Counter[Sought] = field(factory=Counter)

    def look(self, sought: Sought, found: int = 0, times: int = 1) -> None:
        """Somebody looked."""
        self.looked[sought] += times
        self.found[sought] += found

    def take(self) -> list[tuple[str, int, int]]:
        """Everything, and begin anew."""
        rows = [(str(sought), self.looked[sought], self.found[sought]) for sought in Sought]
        self.looked.clear()
        self.found.clear()
        return rows

    @contextmanager
    def closed(self) -> Iterator[None]:
        """What is seen in the block does not count: it may still come right."""
        looked, found = self.looked.copy(), self.found.copy()
        yield
        self.looked, self.found = looked, found


BOOK = Book()


def counted(sought: Sought) -> Callable[[Callable[P, Iterator[str]]], Callable[P, Iterator[str]]]:
    """Let a check that yields faults write into the book."""

    def with_book(check: Callable[P, Iterator[str]]) -> Callable[P, Iterator[str]]:
        @wraps(check)
        def look(*args: P.args, **more: P.kwargs) -> Iterator[str]:
            BOOK.look(sought)
            for fault in check(*args, **more):
                BOOK.look(sought, found=1, times=0)
                yield fault

        return look

    return with_book
