"""What was found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from attrs import asdict

from hermes_trio.doctor.findings import Finding, Level


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """One line for each finding; what to do about it stands below."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        yield f"{finding.level:4}  {finding.check:{width}}  {finding.says}"
        if finding.advice:
            yield f"{'':{width + 8}}-> {finding.advice}"
    yield summary(findings)


def summary(findings: Sequence[Finding]) -> str:
    """The last line."""
    counts = [(level, sum(finding.level is level for finding in findings)) for level in Level]
    return ", ".join(f"{count} {level}" for level, count in counts if count)


def as_json(findings: Sequence[Finding]) -> str:
    """The same as one JSON object."""
    worst = next(level for level in reversed(Level) if any(each.level is level for each in findings))
    return json.dumps({"status": worst, "findings": [asdict(finding) for finding in findings]}, indent=2)
