from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.agent.event_queue import AnnouncementBuffer, RunEnded
from hermes_trio.agents.hermes.agent import CallbackAdapter
from hermes_trio.core.events import (
    Event,
    Finished,
    Reasoning,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolStarted,
    coalesce,
)
from hermes_trio.core.messages import CallItem
from hermes_trio.core.state import CallState
from hermes_trio.core.turn import Turn
from tests.support.agent_harness import EventRecorder


def heard(recorder: EventRecorder) -> list[Event]:
    """Return the recorded events without times."""
    plain: list[Event] = []
    for event in recorder.events:
        match event:
            case ToolStarted(call_id, name, args, _):
                plain.append(ToolStarted(call_id, name, args))
            case ToolAnnounced(name, args):
                plain.append(ToolAnnounced(name, args))
            case ToolCompleted(call_id, result, is_error, _):
                plain.append(ToolCompleted(call_id, result, is_error))
            case _:
                plain.append(event)
    return plain


def shown(recorder: EventRecorder) -> Turn:
    """Return the turn as the server shows it, fed with the recorded events."""
    turn, buffer = Turn(), AnnouncementBuffer()
    due = buffer.admit([*recorder.events, Finished()], 0.0)
    for event in coalesce([*due, *buffer.release()]):
        turn.take(event)
    return turn


def shown_calls(recorder: EventRecorder) -> list[CallItem]:
    return [item for item in shown(recorder).items if isinstance(item, CallItem)]


class FakeHermes:
    """Calls the callbacks in the order in which the real one does."""

    def __init__(self, ears: CallbackAdapter) -> None:
        self.call: dict[str, Callable[..., None]] = ears.callbacks()

    def start(self, name: str, args: dict[str, Any]) -> None:
        self.call["tool_progress_callback"]("tool.started", name, "preview", args)

    def begin(self, call_id: str, name: str, args: dict[str, Any]) -> None:
        self.call["tool_start_callback"](call_id, name, args)

    def end(self, call_id: str, name: str, result: object, is_error: bool = False) -> None:
        self.call["tool_progress_callback"](
            "tool.completed", name, None, None, duration=0.1, is_error=is_error, result=result
        )
        self.call["tool_complete_callback"](call_id, name, {}, result)


def pair() -> tuple[EventRecorder, FakeHermes]:
    recorder = EventRecorder()
    return recorder, FakeHermes(CallbackAdapter(recorder.emitter()))


def test_text_and_reasoning_pass() -> None:
    recorder, hermes = pair()
    hermes.call["reasoning_callback"]("hm")
    hermes.call["stream_delta_callback"]("\n\nHi")
    assert heard(recorder) == [Reasoning("hm"), Text("\n\nHi")]


@pytest.mark.parametrize(
    ("deltas", "said"),
    [
        (["Look:", None, "\n\nDone.", "\n\nReally."], ["Look:", "\n\n", "Done.", "\n\nReally."]),
        (["Look:", None, "\n", "\nDone."], ["Look:", "\n\n", "Done."]),
        ([None, "\n\nDone."], ["Done."]),
        (["Look:", None, None, "\n\nDone."], ["Look:", "\n\n", "Done."]),
        (["", None], []),
    ],
)
def test_the_blank_line_belongs_to_the_text_before_the_tool(
    deltas: list[str | None], said: list[str]
) -> None:
    recorder, hermes = pair()
    for delta in deltas:
        hermes.call["stream_delta_callback"](delta)
    assert heard(recorder) == [Text(piece) for piece in said]


def test_a_call_reported_twice_is_shown_once_under_its_id() -> None:
    recorder, hermes = pair()
    hermes.start("terminal", {"command": "ls"})
    hermes.begin("c1", "terminal", {"command": "ls"})
    hermes.end("c1", "terminal", "a b", is_error=True)
    assert heard(recorder) == [
        ToolAnnounced("terminal", {"command": "ls"}),
        ToolStarted("c1", "terminal", {"command": "ls"}),
        ToolCompleted("c1", "a b", is_error=True),
    ]
    (call,) = shown_calls(recorder)
    assert (call.call_id, call.result, call.is_error) == ("c1", "a b", True)


def test_a_batch_keeps_its_ids() -> None:
    recorder, hermes = pair()
    batch = [("1", "a"), ("2", "b"), ("3", "a")]
    for _call_id, name in batch:
        hermes.start(name, {})
    for call_id, name in batch:
        hermes.begin(call_id, name, {})
    for call_id, name in batch:
        hermes.end(call_id, name, call_id)
    assert [(call.call_id, call.name, call.result) for call in shown_calls(recorder)] == [
        ("1", "a", "1"),
        ("2", "b", "2"),
        ("3", "a", "3"),
    ]


def test_a_call_without_an_id_is_passed_on_at_once() -> None:
    recorder, hermes = pair()
    hermes.start("terminal", {"command": "ls"})
    assert heard(recorder) == [ToolAnnounced("terminal", {"command": "ls"})]


def test_a_call_without_an_id_ends_with_the_turn() -> None:
    recorder, hermes = pair()
    hermes.start("terminal", {"command": "ls"})
    hermes.call["tool_progress_callback"]("tool.completed", "terminal", None, None, is_error=False)
    hermes.start("terminal", {"command": "pwd"})
    hermes.call["stream_delta_callback"]("Hi")
    calls = shown_calls(recorder)
    assert [(call.args["command"], call.state) for call in calls] == [
        ("ls", CallState.COMPLETED),
        ("pwd", CallState.COMPLETED),
    ]
    assert len({call.call_id for call in calls}) == 2


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("a b", False),
        ('{"output": "", "exit_code": 0, "error": null}', False),
        ({"_multimodal": True}, False),
        (None, False),
        ("Error executing tool 'terminal': timed out after 420.0s", True),
        ("Error executing tool 'terminal': thread did not return a result", True),
        ("[Tool execution cancelled — terminal was skipped due to user interrupt]", True),
    ],
)
@pytest.mark.parametrize("is_announced", [False, True])
def test_an_end_without_the_progress_event_failed_if_its_result_says_so(
    is_announced: bool, result: Any, failed: bool
) -> None:
    recorder, hermes = pair()
    if is_announced:
        hermes.start("terminal", {})
    hermes.begin("c1", "terminal", {})
    hermes.call["tool_complete_callback"]("c1", "terminal", {}, result)
    (call,) = shown_calls(recorder)
    assert (call.call_id, call.state, call.is_error) == ("c1", CallState.COMPLETED, failed)


def test_events_for_other_displays_say_nothing() -> None:
    recorder, hermes = pair()
    for event in (
        "reasoning.available",
        "_thinking",
        "subagent.start",
        "tool.output_risk",
        "moa.start",
    ):
        hermes.call["tool_progress_callback"](event, "_thinking", "text", None, more=1)
    hermes.call["tool_progress_callback"]("_thinking", "a line")
    assert heard(recorder) == []


def test_an_end_in_another_thread_does_not_decide_about_this_one() -> None:
    recorder, hermes = pair()
    hermes.begin("c1", "a", {})
    ended = ("tool.completed", "a", None, None)
    other = threading.Thread(
        target=hermes.call["tool_progress_callback"], args=ended, kwargs={"is_error": False}
    )
    other.start()
    other.join()
    hermes.call["tool_progress_callback"](*ended, is_error=True)
    hermes.call["tool_complete_callback"]("c1", "a", {}, "no")
    assert heard(recorder)[-1] == ToolCompleted("c1", "no", is_error=True)


class StartReports(Enum):
    """How the starts of calls are reported throughout a turn."""

    TWICE = "twice"
    BY_ID = "by id"
    BY_NAME = "by name"


BATCHES = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4))


@given(st.sampled_from(StartReports), BATCHES)
def test_every_start_is_shown_once_and_ends_once(
    reports: StartReports, batches: list[list[str]]
) -> None:
    recorder, hermes = pair()
    ids: list[str] = []
    for names in batches:
        batch = [(f"c{len(ids) + at}", name) for at, name in enumerate(names)]
        ids += [call_id for call_id, _name in batch]
        for _call_id, name in batch if reports is not StartReports.BY_ID else ():
            hermes.start(name, {})
        for call_id, name in batch if reports is not StartReports.BY_NAME else ():
            hermes.begin(call_id, name, {})
        for call_id, name in batch:
            hermes.end(call_id, name, call_id)
        hermes.call["stream_delta_callback"]("next")
    calls = shown_calls(recorder)
    assert len(calls) == len(ids)
    assert len({call.call_id for call in calls}) == len(ids)
    assert all(call.state is CallState.COMPLETED for call in calls)


def test_run_ended_is_raised_in_callbacks() -> None:
    ears = CallbackAdapter(EventRecorder(ends_at=0).emitter())
    with pytest.raises(RunEnded):
        ears.text("Hi")
