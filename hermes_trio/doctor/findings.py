"""Findings of the doctor, and the report that shows them as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from attrs import frozen


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@frozen
class Finding:
    """The result of one check. It never contains a secret."""

    check: str
    level: Level
    message: str
    advice: str = ""


def ok(check: str, message: str) -> Finding:
    """Report that all is well."""
    return Finding(check, Level.OK, message)


def warn(check: str, message: str, advice: str) -> Finding:
    """Report something that works, but not as it should."""
    return Finding(check, Level.WARN, message, advice)


def fail(check: str, message: str, advice: str) -> Finding:
    """Report something that cannot work."""
    return Finding(check, Level.FAIL, message, advice)


def timed_out(check: str, seconds: float) -> Finding:
    """Report a check that did not finish in time."""
    advice = "find out what blocks it: an unresponsive disk, network or name server?"
    return fail(check, f"no result within {seconds:g} s", advice)


def not_checked(check: str, reason: str) -> Finding:
    """Report a check that failed to run."""
    return fail(check, f"cannot be checked: {reason}", "fix that and run the doctor again")


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 1 if anything cannot work, else 0."""
    return int(any(finding.level is Level.FAIL for finding in findings))


def format_text(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield one line for each finding, followed by its advice, and a summary."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        yield f"{finding.level:4}  {finding.check:{width}}  {finding.message}"
        if finding.advice:
            yield f"{'':{width + 8}}-> {finding.advice}"
    counts = [(level, sum(finding.level is level for finding in findings)) for level in Level]
    yield ", ".join(f"{count} {level}" for level, count in counts if count)


def format_json(findings: Sequence[Finding]) -> str:
    """Return all findings and the worst level as one JSON object."""
    worst = next(
        level for level in reversed(Level) if any(each.level is level for each in findings)
    )
    listed = [
        {"check": each.check, "level": each.level, "says": each.message, "advice": each.advice}
        for each in findings
    ]
    return json.dumps({"status": worst, "findings": listed}, indent=2)
