"""All scenarios, and the files that hold their transcripts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.golden.dialects import dialect_scenarios
from tests.golden.flows import FLOWS
from tests.golden.scenario_run import Scenario

# Importing a module adds its flows.
for _module in ("leaving", "approvals", "requests", "responses", "lists", "errors"):
    import_module(f"tests.golden.flows_{_module}")

CORPUS = Path(__file__).parent / "corpus"


def _by_name(*scenarios: Scenario) -> dict[str, Scenario]:
    found = {scenario.name: scenario for scenario in scenarios}
    assert len(found) == len(scenarios), "two scenarios have one name"
    return found


SCENARIOS = _by_name(*dialect_scenarios(), *FLOWS)


def corpus_file(name: str) -> Path:
    """Where the transcript of a scenario is kept."""
    return CORPUS / f"{name}.json"
