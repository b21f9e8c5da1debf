"""``python -m tests.crash --kills 200``.

Kills a real server again and again; exits with 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.crash.checks import SLACK
from tests.crash.rounds import run_rounds


def main() -> int:
    """Run, print the report, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument(
        "--slack", type=float, default=SLACK, help="seconds of text beyond one flush interval"
    )
    options = parser.parse_args()
    _tell(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        report = run_rounds(Path(folder), options.kills, options.seed, options.slack, _tell)
    _tell(report.summary)
    return 1 if report.findings.violations else 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
