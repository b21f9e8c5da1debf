"""What the doctor says about what was found: pure functions from facts to findings. No secret is ever part of a fact."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from attrs import frozen


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@frozen
class Finding:
    """One line of the doctor."""

    check: str
    level: Level
    says: str
    advice: str = ""


def ok(check: str, says: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, says)


def warn(check: str, says: str, advice: str) -> Finding:
    """It works, but not as it should."""
    return Finding(check, Level.WARN, says, advice)


def fail(check: str, says: str, advice: str) -> Finding:
    """It cannot work."""
    return Finding(check, Level.FAIL, says, advice)


def too_slow(check: str, seconds: float) -> Finding:
    """A check that did not end in time."""
    return fail(
        check, f"no result within {seconds:g} s", "see what keeps it: a dead disk, network or name server?"
    )


def broken(check: str, why: str) -> Finding:
    """A check that could not be made."""
    return fail(check, f"cannot be looked at: {why}", "see what is in the way")


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if anything cannot work."""
    return int(any(finding.level is Level.FAIL for finding in findings))
