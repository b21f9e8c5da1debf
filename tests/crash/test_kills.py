"""Killed without warning under load, a few times.

``python -m tests.crash`` repeats it any number of times.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.rounds import run_rounds

KILLS = 3
SLACK = 1.0  # other tests run at the same time; ``python -m tests.crash`` is strict


@pytest.mark.slow
def test_what_clients_saw_survives_a_kill(tmp_path: Path) -> None:
    report = run_rounds(tmp_path, KILLS, random.SystemRandom().randrange(10**6), SLACK)
    print(report.summary)  # noqa: T201 - the seed, for whoever has to repeat it
    assert report.findings.violations == [], report.summary
    assert report.kills == KILLS
    assert report.findings.cut > 0
