"""``python -m tests.golden [NAME ...]``: record the corpus again, or some of its files.

Only when a change of the wire is intended: the diff of the corpus is what reviewers of that change look at.
"""

from __future__ import annotations

import logging
import sys

import structlog

from tests.golden.scenario_run import run_scenario
from tests.golden.scenarios import CORPUS, SCENARIOS, corpus_file


def main(names: list[str]) -> None:
    """Record."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    CORPUS.mkdir(exist_ok=True)
    for name in names or SCENARIOS:
        corpus_file(name).write_text(run_scenario(SCENARIOS[name]), "ascii")
    for path in CORPUS.glob("*.json"):
        if path.stem not in SCENARIOS:
            path.unlink()


main(sys.argv[1:])
