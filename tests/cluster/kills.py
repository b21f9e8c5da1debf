"""Kill random nodes under load, again and again; whatever a client had seen must be found elsewhere."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

import trio
from attrs import define, field

from tests.cluster.checks import check_survivors, check_turns, end_of
from tests.cluster.exchange import ask
from tests.cluster.load import Crowd
from tests.cluster.nodes import LOGGED_AFTER_A_DEATH, POLL, TAKE_OVER, Cluster
from tests.cluster.records import Records
from tests.crash.checks import Findings

FOLLOWED = {"background", "run"}
EARLIEST, LATEST = 0.05, 1.0  # seconds from the first request to the kill


@define
class KillReport:
    """The results of many rounds."""

    seed: str
    kills: int = 0
    findings: Findings = field(factory=Findings)
    take_overs: list[float] = field(factory=list)  # seconds from a kill to the end of the last run

    @property
    def summary(self) -> str:
        """One line."""
        found, lost = self.findings, sorted(self.findings.lost) or [0.0]
        slowest = max(self.take_overs, default=0.0)
        return (
            f"seed={self.seed} kills={self.kills} turns={found.responses} ended={found.ended} cut={found.cut} "
            f"violations={len(found.violations)} lost_text_ms: median={1000 * lost[len(lost) // 2]:.0f} "
            f"max={1000 * lost[-1]:.0f} slowest_take_over_s={slowest:.2f}"
        )


def ignore(_line: str) -> None:
    """Tell nobody."""


async def kill_nodes(
    cluster: Cluster, kills: int, seed: str, tell: Callable[[str], None] = ignore
) -> KillReport:
    """Kill a random node again and again, each time with new clients, and check every turn on another."""
    report, dice = KillReport(seed), random.Random(seed)
    for number in range(kills):
        victim = dice.randrange(len(cluster.servers))
        problems = await _round(cluster, victim, f"{seed}-{number}", report)
        report.kills += 1
        report.findings.violations += problems
        for problem in problems:
            tell(f"seed {seed}, kill {number} of node {victim}: {problem}")
        await trio.to_thread.run_sync(cluster.restart, victim)
    report.findings.violations += Records(cluster.url).violations()
    return report


async def _round(cluster: Cluster, victim: int, seed: str, report: KillReport) -> list[str]:
    dice = random.Random(seed)
    crowd = Crowd(cluster, seed)
    async with trio.open_nursery() as nursery:
        await nursery.start(crowd.run)
        # The moment is what is tested; nothing is waited for.
        await trio.sleep(dice.uniform(EARLIEST, LATEST))
        cluster.servers[victim].signal(signal.SIGKILL)
        killed_at = time.monotonic()
        crowd.finish()
        nursery.start_soon(_measure_take_over, cluster.url, killed_at, report)
    reader = dice.choice(cluster.others(victim))
    left = max(0.0, killed_at + TAKE_OVER - time.monotonic())
    findings = await check_turns(reader, crowd.seen, left)
    others = [turn for turn in crowd.seen if turn.run_id and turn.node != victim]
    findings.violations += await check_survivors(reader, others)
    findings.violations += _check_followers(crowd, victim)
    findings.violations += await _check_freed(cluster, crowd, victim)
    findings.violations += [f"logged: {line}" for line in cluster.complaints(LOGGED_AFTER_A_DEATH)]
    problems, findings.violations = findings.violations, []
    report.findings.add(findings)
    return problems


async def _measure_take_over(url: str, killed_at: float, report: KillReport) -> None:
    """Note how long the runs of the dead node stay in progress; those of the living end by themselves."""
    records = Records(url)
    with trio.move_on_after(2 * TAKE_OVER):
        # What another process writes to a database can only be polled.
        while await trio.to_thread.run_sync(records.live_runs):  # noqa: ASYNC110
            await trio.sleep(POLL)
    report.take_overs.append(time.monotonic() - killed_at)


def _check_followers(crowd: Crowd, victim: int) -> list[str]:
    """Streams of the dead node's runs that were read on another one have come to their end there."""
    return [
        f"{turn.kind} {turn.run_id}, followed on node {turn.reader}, has no end: {turn.body[-300:]!r}"
        for turn in crowd.seen
        if turn.kind in FOLLOWED and turn.node == victim != turn.reader and not end_of(turn)
    ]


async def _check_freed(cluster: Cluster, crowd: Crowd, victim: int) -> list[str]:
    """A session whose turn died with its node takes the next one, on another node."""
    died = [
        turn
        for turn in crowd.seen
        if turn.kind == "session" and turn.node == victim and turn.run_id
    ]
    found = []
    for turn in died[:2]:
        path = f"/api/sessions/{turn.session}/chat"
        reply = await ask(cluster.others(victim)[0], "POST", path, {"message": "tokens=1"})
        if reply.status != 200:
            found.append(f"session {turn.session} takes no further turn: {reply}")
    return found
