"""The wire and the store are what they were, to the byte."""

from __future__ import annotations

from itertools import islice, takewhile, zip_longest

import pytest

from tests.golden.scenario_run import run_scenario
from tests.golden.scenarios import CORPUS, SCENARIOS, corpus_file
from tests.support.write_through import offered

SHOWN_LINES = 8  # of those that differ
SHOWN_CHARACTERS = 120  # on each side of the first that differs


@pytest.mark.parametrize("is_written_through", [False, True], ids=["channel", "write-through"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_transcript(name: str, is_written_through: bool) -> None:
    with offered(is_written_through):
        recorded, played = corpus_file(name).read_text("ascii"), run_scenario(SCENARIOS[name])
    if played != recorded:
        pytest.fail(f"{name} is not as recorded\n{_differences(recorded, played)}", pytrace=False)


def _differences(recorded: str, played: str) -> str:
    """The first lines that differ, each around the first character that does: frames are long."""
    pairs = zip_longest(recorded.splitlines(), played.splitlines(), fillvalue="")
    differing = ((n, *pair) for n, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    return "\n".join(
        f"line {n}:\n  recorded {_around(old, new)}\n  played   {_around(new, old)}"
        for n, old, new in islice(differing, SHOWN_LINES)
    )


def _around(line: str, other: str) -> str:
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(line, other, strict=False))
    place = sum(1 for _ in equal)
    return line[max(0, place - SHOWN_CHARACTERS) : place + SHOWN_CHARACTERS]


def test_every_file_has_its_scenario() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(SCENARIOS)
