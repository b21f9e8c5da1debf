"""Start, load, kill without warning, start again, check; again and again on the same data."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field

from tests.crash.checks import SLACK, Checker, Findings
from tests.crash.clients import Address, LoadClients, ObservedResponse
from tests.support.server_process import LaunchOptions, ServerProcess, kill, start
from tests.support.stored_records import unfinished

CLIENTS = 8
EARLIEST, LATEST = 0.05, 1.0  # seconds from the first request to the kill
EXPECTED = "recovered a run of a dead process"


@define
class CrashReport:
    """The results of many rounds."""

    seed: int
    slack: float = SLACK  # seconds of text that may be missing, on top of a flush interval
    kills: int = 0
    findings: Findings = field(factory=Findings)
    starts: list[float] = field(factory=list)

    @property
    def summary(self) -> str:
        """One line."""
        found = self.findings
        lost = sorted(found.lost) or [0.0]
        return (
            f"seed={self.seed} kills={self.kills} responses={found.responses} ended={found.ended} "
            f"cut={found.cut} continued={found.chained} violations={len(found.violations)} "
            f"unstored_events={found.unstored} lost_text_ms: median={1000 * _at(lost, 0.5):.0f} p99={1000 * _at(lost, 0.99):.0f} "
            f"max={1000 * lost[-1]:.0f} start_s: median={_at(sorted(self.starts), 0.5):.2f} "
            f"max={max(self.starts):.2f}"
        )


def _at(values: list[float], share: float) -> float:
    return values[int(share * (len(values) - 1))]


def run_rounds(
    folder: Path,
    kills: int,
    seed: int,
    slack: float = SLACK,
    tell: Callable[[str], None] = lambda _: None,
) -> CrashReport:
    """Kill a server repeatedly; every restart is checked against what clients saw before the kill."""
    report, seen = CrashReport(seed, slack), list[ObservedResponse]()
    plan = LaunchOptions(folder, ("--agent", "synthetic"))
    for number in range(kills + 1):
        server = _start(plan, report)
        try:
            _check(server, seen, report, tell)
            if number < kills:
                seen = _load_and_kill(server, f"{seed}-{number}")
                report.kills += 1
        finally:
            kill(server)
    return report


def _start(plan: LaunchOptions, report: CrashReport) -> ServerProcess:
    begun = time.monotonic()
    server = start(plan)
    report.starts.append(time.monotonic() - begun)
    return server


def _check(
    server: ServerProcess,
    seen: list[ObservedResponse],
    report: CrashReport,
    tell: Callable[[str], None],
) -> None:
    left = unfinished(server)
    findings = Checker(Address.of(server), report.slack).check(seen)
    findings.violations += [f"{left} runs are still in progress"] if left else []
    findings.violations += [f"logged: {line}" for line in server.complaints(EXPECTED)]
    report.findings.add(findings)
    for violation in findings.violations:
        tell(f"seed {report.seed}, kill {report.kills}: {violation}")


def _load_and_kill(server: ServerProcess, seed: str) -> list[ObservedResponse]:
    crowd = LoadClients(server, CLIENTS, seed)
    moment = random.Random(seed).uniform(EARLIEST, LATEST)
    crowd.begin()
    time.sleep(moment)  # the moment is what is tested; nothing is waited for
    server.signal(signal.SIGKILL)
    return crowd.end()
