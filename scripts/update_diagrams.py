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
from scripts import flow_diagram
from scripts.state_diagram import StateMachine, svg

DOCS = Path(__file__).parent.parent / "docs"
PAGE = "reference/state_machines.md"
PIPELINE = DOCS / "discussion" / "pipeline.txt"

MACHINES = (
    StateMachine("state_call", "A tool call", "A tool call as clients see it.", CALL_TRANSITIONS, CallState.NEW),
    StateMachine("state_turn", "A turn", "The reducer of a run. It ends exactly once.", TURN_TRANSITIONS, TurnState.OPEN),
    StateMachine("state_run", "A run", "The status of a run, as the Runs API reports it.", RUN_TRANSITIONS, RunState.QUEUED),
)  # fmt: skip

INTRODUCTION = """\
# State machines

Every allowed transition is listed in a table of `hermes_trio.core.state`. This page is generated
from those tables by `python -m scripts.update_diagrams`, and a test fails when it is stale. A
transition that a table does not list raises an error and changes nothing.
"""


def files() -> dict[str, str]:
    """Return the content of every generated file, by its path below ``docs``."""
    page = "\n".join([INTRODUCTION, *map(_section, MACHINES)])
    drawings = {f"reference/{machine.name}.svg": svg(machine) for machine in MACHINES}
    return {PAGE: page, **drawings, "discussion/pipeline.svg": flow_diagram.render(pipeline())}


def pipeline() -> flow_diagram.FlowDiagram:
    """Parse the description of the architecture page's diagram."""
    return flow_diagram.parse("The route of a token", PIPELINE.read_text(encoding="utf-8"))


def _section(machine: StateMachine) -> str:
    return "\n".join(_lines(machine)) + "\n"


def _lines(machine: StateMachine) -> Iterator[str]:
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
        (DOCS / name).write_text(text, encoding="utf-8")
