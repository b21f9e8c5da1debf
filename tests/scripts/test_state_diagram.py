"""The diagrams of the documentation: up to date, complete, and readable."""

from __future__ import annotations

from enum import StrEnum
from itertools import combinations
from xml.etree import ElementTree

import pytest

from scripts.flow_diagram import parse, render
from scripts.state_diagram import Layout, StateMachine, assign_columns, svg
from scripts.update_diagrams import DOCS, MACHINES, files, pipeline


class Place(StrEnum):
    """States of a machine that is hard to draw."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting_for_approval"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"


class Step(StrEnum):
    """Its transitions."""

    GO = "go"
    ASK = "ask"
    ANSWER = "answer"
    STOP = "stop"
    END = "end"
    FAIL = "fail"
    SAY = "say <&>"


HARD = StateMachine(
    "hard",
    "Hard",
    "With cycles, a loop, and arrows that cross several columns.",
    {
        (Place.QUEUED, Step.GO): Place.RUNNING,
        (Place.RUNNING, Step.SAY): Place.RUNNING,
        (Place.RUNNING, Step.ASK): Place.WAITING,
        (Place.WAITING, Step.ANSWER): Place.RUNNING,
        (Place.QUEUED, Step.STOP): Place.STOPPING,
        (Place.RUNNING, Step.STOP): Place.STOPPING,
        (Place.WAITING, Step.STOP): Place.STOPPING,
        (Place.STOPPING, Step.GO): Place.QUEUED,
        (Place.RUNNING, Step.END): Place.COMPLETED,
        (Place.RUNNING, Step.FAIL): Place.FAILED,
        (Place.STOPPING, Step.FAIL): Place.FAILED,
        (Place.STOPPING, Step.END): Place.FAILED,
    },
    Place.QUEUED,
)
ALL = [*MACHINES, HARD]


def test_what_is_committed_is_what_the_tables_say() -> None:
    stale = [
        name for name, text in files().items() if (DOCS / name).read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run: python -m scripts.update_diagrams"


def test_no_drawing_of_a_machine_that_is_gone() -> None:
    drawn = {str(path.relative_to(DOCS)) for path in DOCS.glob("reference/state_*")}
    assert drawn == {name for name in files() if name.startswith("reference/")}


@pytest.mark.parametrize("machine", ALL, ids=lambda machine: machine.name)
def test_every_state_and_every_transition_is_in_the_drawing(machine: StateMachine) -> None:
    texts = [
        element.text
        for element in ElementTree.fromstring(svg(machine)).iter()
        if element.tag.endswith("text")
    ]
    assert sorted(texts, key=str) == sorted(
        [*machine.states, *(arrow.label for arrow in machine.arrows)]
    )


@pytest.mark.parametrize("machine", ALL, ids=lambda machine: machine.name)
def test_no_overlap_and_nothing_outside_the_canvas(machine: StateMachine) -> None:
    layout = Layout(machine)
    nodes = [node for column in layout._columns for node in column]
    for node in nodes:
        assert node.width / 2 < node.x < layout.width - node.width / 2
        assert 20 < node.y < layout.height - 20
    for one, other in combinations(nodes, 2):
        assert abs(one.y - other.y) > 40 or abs(one.x - other.x) > (one.width + other.width) / 2


def test_arrows_point_to_the_right_unless_they_close_a_cycle() -> None:
    columns = assign_columns(HARD)
    assert columns == {
        "queued": 0,
        "running": 1,
        "waiting_for_approval": 2,
        "stopping": 3,
        "completed": 2,
        "failed": 4,
    }
    back = [
        (arrow.source, arrow.target)
        for arrow in HARD.arrows
        if columns[arrow.source] > columns[arrow.target]
    ]
    assert back == [("waiting_for_approval", "running"), ("stopping", "queued")]


@pytest.mark.parametrize("machine", ALL, ids=lambda machine: machine.name)
def test_every_state_can_be_reached(machine: StateMachine) -> None:
    reached = {str(machine.first)}
    for _ in machine.states:
        reached |= {arrow.target for arrow in machine.arrows if arrow.source in reached}
    assert reached == set(machine.states)
    assert machine.ends


def test_every_path_in_the_pipeline_diagram_exists() -> None:
    package = DOCS.parent / "hermes_trio"
    captions = (box.caption for box in pipeline().boxes.values())
    paths = [
        word for caption in captions for word in caption.replace(",", " ").split() if "/" in word
    ]
    assert paths
    assert [path for path in paths if not (package / path).exists()] == []


def test_every_box_and_arrow_is_in_the_pipeline_diagram() -> None:
    diagram = pipeline()
    texts = {
        element.text
        for element in ElementTree.fromstring(render(diagram)).iter()
        if element.tag.endswith("text")
    }
    assert {*diagram.boxes, *(flow.label for flow in diagram.flows)} <= texts


@pytest.mark.parametrize("line", ["0 0 Agent", "Agent -> Store: saves"])
def test_a_mistake_in_a_flow_description_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"neither a box nor an arrow|no such box"):
        parse("A mistake", line)
