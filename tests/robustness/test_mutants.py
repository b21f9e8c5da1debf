"""The faults that ``nox -s mutants`` plants still have their places.

Whether they are caught is for that session to say.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.robustness.mutants import MUTANTS, Mutant, NotFound, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_can_be_planted(mutant: Mutant) -> None:
    compile(mutated(mutant), mutant.path, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_test_that_must_notice_exists(mutant: Mutant) -> None:
    path, *names = mutant.test.partition("[")[0].split("::")
    source = Path(__file__).parent.joinpath(path).read_text("utf-8")
    assert [name for name in names if not re.search(rf"(def|class) {name}\b", source)] == []


def test_a_fault_without_a_place_is_told() -> None:
    with pytest.raises(NotFound, match="found 0 times"):
        mutated(Mutant("nowhere", "logs.py", "no such text", ""))
