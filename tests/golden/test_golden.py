"""The wire and the store are what they were, to the byte."""

from __future__ import annotations

import difflib
from itertools import islice

import pytest

from tests.golden.play import play
from tests.golden.scenarios import CORPUS, SCENARIOS, corpus_file

SHOWN_LINES = 60  # of a difference


@pytest.mark.parametrize("name", SCENARIOS)
def test_transcript(name: str) -> None:
    recorded, played = corpus_file(name).read_text("ascii"), play(SCENARIOS[name])
    if played != recorded:
        lines = difflib.unified_diff(recorded.splitlines(), played.splitlines(), "recorded", "played", n=2)
        shown = "\n".join(islice(lines, SHOWN_LINES))
        pytest.fail(f"{name} is not as recorded:\n{shown}", pytrace=False)


def test_every_file_has_its_scenario() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(SCENARIOS)
