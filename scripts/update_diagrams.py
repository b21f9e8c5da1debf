"""``python -m scripts.update_diagrams`` regenerates the diagrams of the documentation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hermes_trio.core.state import (
    CALL_TRANSITIONS,
    RUN_TRANSITIONS,
    TURN_TRANSITIONS,
    CallState,
    RunState,
    TurnState,
)
from scripts.diagrams import Machine, svg

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
PAGE = "state_machines.md"

MACHINES = (
    Machine("state_call", "A tool call", "A tool call as clients see it.", CALL_TRANSITIONS, CallState.NEW),
    Machine("state_turn", "A turn", "The reducer of a run. It ends exactly once.", TURN_TRANSITIONS, TurnState.OPEN),
    Machine("state_run", "A run", "The status of a run, as the Runs API reports it.", RUN_TRANSITIONS, RunState.QUEUED),
)  # fmt: skip

INTRODUCTION = """\
# State machines

Every allowed transition is listed in a table of `hermes_trio.core.state`. This page is generated
from those tables by `python -m scripts.update_diagrams`, and a test fails when it is stale. A
transition that a table does not list raises an error and changes nothing.
"""


def files() -> dict[str, str]:
    """The page and its drawings, as they should be."""
    page = "\n".join([INTRODUCTION, *map(_section, MACHINES)])
    return {PAGE: page, **{f"{machine.name}.svg": svg(machine) for machine in MACHINES}}


def _section(machine: Machine) -> str:
    return "\n".join(_lines(machine)) + "\n"


def _lines(machine: Machine) -> Iterator[str]:
    yield f"## {machine.title}\n"
    yield f"{machine.about} The initial state is `{machine.first}`.\n"
    yield f"![{machine.title}: the states and transitions of the table below]({machine.name}.svg)\n"
    yield "| state | transition | next state |"
    yield "|---|---|---|"
    for (state, transition), target in machine.table.items():
        yield f"| `{state}` | {transition} | `{target}` |"
    yield "\nTerminal states: " + ", ".join(f"`{state}`" for state in machine.ends) + "."


if __name__ == "__main__":
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
