"""The demo agent: what it says and does, alone with a recording ear."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agent.interface import AgentContext
from hermes_trio.agents.demo import HELP, INTRODUCTION, DemoAgent, factory
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import (
    AnsweredBy,
    ApprovalRequest,
    Choice,
    ClientCall,
    Event,
    Result,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
    Verdict,
)
from hermes_trio.core.messages import Message, ToolCall, Usage
from tests.support.agent_harness import DENIED, EventRecorder, turn
from tests.support.processes import TIMEOUT, has_ended, in_thread, nothing_left

BEFORE = (Message("user", "hi there"), Message("assistant", "hello"))
FLAT_TOOLS = [{"type": "function", "name": name} for name in ("lookup", "ping")]
NESTED_TOOLS = [{"type": "function", "function": {"name": name}} for name in ("lookup", "ping")]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with nothing_left():
        yield


def heard(
    workspace: Path, text: str, decision: Decision = DENIED, /, **more: Any
) -> tuple[EventRecorder, Result]:
    """A whole turn in a session that has begun before."""
    recorder = EventRecorder(decision=decision)
    request = turn(text, **{"history": BEFORE, **more})
    return recorder, DemoAgent(workspace, word_delay=0).run(request, recorder.emitter())


class TestTalking:
    def test_the_first_answer_says_what_it_is(self, tmp_path: Path) -> None:
        recorder, _ = heard(tmp_path, "hello", history=())
        assert recorder.text.startswith(INTRODUCTION)
        assert "demo agent of hermes-trio" in recorder.text
        assert "--agent module:factory" in recorder.text

    def test_a_turn_without_tools_runs_no_command(self, tmp_path: Path) -> None:
        prompt = "### Task:\nTitle, please.\n/terminal touch made\n/write made x"
        recorder, _ = heard(tmp_path, prompt, allows_tools=False)
        assert recorder.text.startswith("You said: ")
        assert {type(event) for event in recorder.events} == {Text}
        assert list(tmp_path.iterdir()) == []

    def test_later_answers_only_answer(self, tmp_path: Path) -> None:
        recorder, result = heard(tmp_path, " What is up? ")
        assert recorder.text == "You said: “What is up?”. Try `/help` to see what I can do."
        assert result == Result(usage=Usage(input_tokens=6, output_tokens=13))

    def test_it_streams_word_by_word(self, tmp_path: Path) -> None:
        recorder, _ = heard(tmp_path, "/long 30")
        pieces = [event.text for event in recorder.events if isinstance(event, Text)]
        assert len(pieces) == 30
        assert all(len(piece.split()) == 1 for piece in pieces)

    def test_instructions_are_not_mentioned(self, tmp_path: Path) -> None:
        assert "pirate" not in heard(tmp_path, "hello", instructions="be a pirate")[0].text

    @pytest.mark.parametrize(
        ("kinds", "said"),
        [(["image_url"], "1 image,"), (["input_image", "image_url"], "2 images,")],
    )
    def test_images_are_counted(self, tmp_path: Path, kinds: list[str], said: str) -> None:
        message = ({"type": "text", "text": "look"}, *({"type": kind} for kind in kinds))
        recorder, result = heard(tmp_path, "", message=message)
        assert said in recorder.text
        assert "“look”" in recorder.text
        assert result.usage.input_tokens == 4

    def test_an_image_alone_is_an_answerable_message(self, tmp_path: Path) -> None:
        assert "nothing in words" in heard(tmp_path, "", message=({"type": "image_url"},))[0].text

    def test_the_output_limit_cuts(self, tmp_path: Path) -> None:
        recorder, result = heard(tmp_path, "/long 30", options={"max_tokens": 7})
        assert recorder.text == "word1 word2 word3 word4 word5 word6 word7 "
        assert (result.verdict, result.error) == (Verdict.TRUNCATED, "output truncated at 7 tokens")
        assert result.usage.output_tokens == 7

    @pytest.mark.parametrize("limit", [30, None, "7", True, 1.5])
    def test_a_limit_that_is_none_does_not(self, tmp_path: Path, limit: object) -> None:
        recorder, result = heard(tmp_path, "/long 30", options={"max_tokens": limit})
        assert (len(recorder.text.split()), result.verdict) == (30, Verdict.COMPLETED)

    def test_the_factory_pauses_between_words(self, tmp_path: Path) -> None:
        agent, recorder = factory(AgentContext(turn("/long 3"), tmp_path)), EventRecorder()
        began = time.monotonic()
        agent.run(turn("/long 3", history=BEFORE), recorder.emitter())
        assert time.monotonic() - began >= 0.06


class TestCommands:
    def test_terminal(self, tmp_path: Path) -> None:
        recorder, _ = heard(tmp_path, "/terminal echo hi")
        assert recorder.calls == [("terminal", {"command": "echo hi"}, "hi", False)]
        assert recorder.output == "hi\n"
        assert recorder.text == "Here is what came of it:\n- `/terminal echo hi`: hi"

    def test_terminal_that_fails(self, tmp_path: Path) -> None:
        recorder, result = heard(tmp_path, "/terminal echo no >&2; exit 3")
        assert recorder.calls[0][2:] == ("no\n[exit code 3]", True)
        assert "```\nno\n[exit code 3]\n```" in recorder.text
        assert result.verdict is Verdict.COMPLETED

    def test_terminal_without_output(self, tmp_path: Path) -> None:
        assert heard(tmp_path, "/terminal true")[0].text.endswith("(no output)")

    def test_write_and_read(self, tmp_path: Path) -> None:
        recorder, _ = heard(tmp_path, "/write a/b.txt some text\n/read a/b.txt")
        assert recorder.calls == [
            (
                "write_file",
                {"path": "a/b.txt", "content": "some text"},
                "wrote 9 bytes to a/b.txt",
                False,
            ),
            ("read_file", {"path": "a/b.txt"}, "some text", False),
        ]
        assert "- `/read a/b.txt`: some text" in recorder.text

    @pytest.mark.parametrize("path", ["none", "../x", "/etc/passwd", ""])
    def test_files_that_are_refused(self, tmp_path: Path, path: str) -> None:
        recorder, result = heard(tmp_path, f"/read {path}\n/terminal echo on")
        assert recorder.calls[0][3]
        assert recorder.calls[1][2:] == ("on", False)
        assert result.verdict is Verdict.COMPLETED

    @pytest.mark.parametrize("tools", [FLAT_TOOLS, NESTED_TOOLS])
    def test_call_calls_the_clients_tools(self, tmp_path: Path, tools: list[Any]) -> None:
        line = '/call lookup {"word": "a b"}\n/call ping'
        recorder, result = heard(tmp_path, line, options={"tools": tools})
        assert recorder.events == [
            ClientCall("call_run_1_client_1", "lookup", '{"word": "a b"}'),
            ClientCall("call_run_1_client_2", "ping", "{}"),
        ]
        assert result.verdict is Verdict.COMPLETED

    @pytest.mark.parametrize(
        ("line", "tools", "said"),
        [
            ("/call other {}", FLAT_TOOLS, "it has given me: lookup, ping"),
            ("/call lookup {}", None, "it has given me: none"),
            ("/call lookup {}", [{"type": "mcp", "name": "lookup"}, 5], "it has given me: none"),
            ("/call lookup [1]", FLAT_TOOLS, "not a JSON object"),
            ("/call lookup {", FLAT_TOOLS, "not a JSON object"),
        ],
    )
    def test_calls_that_are_refused(
        self, tmp_path: Path, line: str, tools: object, said: str
    ) -> None:
        recorder, _ = heard(tmp_path, line, options={"tools": tools})
        assert said in recorder.text
        assert not [event for event in recorder.events if isinstance(event, ClientCall)]

    @pytest.mark.parametrize(
        ("parameters", "arguments"),
        [
            ({"required": ["location", 5]}, '{"location": "example"}'),
            ({"required": "location"}, "{}"),
            (None, "{}"),
        ],
    )
    def test_a_message_that_mentions_a_tool_calls_it(
        self, tmp_path: Path, parameters: object, arguments: str
    ) -> None:
        tools = [*FLAT_TOOLS, {"type": "function", "name": "get_weather", "parameters": parameters}]
        recorder, _ = heard(tmp_path, "What's the Weather like?", options={"tools": tools})
        assert recorder.events == [ClientCall("call_run_1_client_1", "get_weather", arguments)]

    @pytest.mark.parametrize("text", ["get the news", "/help weather", "whether"])
    def test_other_messages_do_not(self, tmp_path: Path, text: str) -> None:
        tools = [{"type": "function", "name": "get_weather", "parameters": {}}]
        recorder, _ = heard(tmp_path, text, options={"tools": tools})
        assert recorder.text
        assert not [event for event in recorder.events if isinstance(event, ClientCall)]

    @pytest.mark.parametrize("tools", [FLAT_TOOLS, None])
    def test_what_the_clients_tools_returned_is_shown(self, tmp_path: Path, tools: object) -> None:
        calls = (ToolCall("a", "lookup", "{}"), ToolCall("b", "ping", "{}"))
        history = (
            Message("user", "/call lookup {}"),
            Message("assistant", "", calls),
            Message("tool", "a word", tool_call_id="a"),
            Message("tool", ({"type": "text", "text": "pong"},), tool_call_id="b"),
        )
        recorder, _ = heard(tmp_path, "", history=history, options={"tools": tools})
        assert recorder.text == (
            "Here is what your tools returned:\n- `lookup`: a word\n- `ping`: pong"
        )

    def test_results_of_the_servers_tools_are_not(self, tmp_path: Path) -> None:
        calls = (ToolCall("a", "terminal", "{}"), ToolCall("b", "ping", "{}"))
        history = (
            Message("assistant", "", calls),
            Message("tool", "ran", tool_call_id="a"),
            Message("tool", "pong", tool_call_id="b"),
        )
        recorder, _ = heard(tmp_path, "", history=history, options={"tools": FLAT_TOOLS})
        assert recorder.text == "Here is what your tools returned:\n- `ping`: pong"

    def test_sleep(self, tmp_path: Path) -> None:
        assert heard(tmp_path, "/sleep 0.01")[0].calls == [
            ("sleep", {"seconds": 0.01}, "slept 0.01 s", False)
        ]

    @pytest.mark.parametrize(
        "line",
        [
            "/sleep x",
            "/sleep -1",
            "/sleep nan",
            "/sleep 1e99",
            "/sleep",
            "/long x",
            "/long 1.5",
            "/long -1",
        ],
    )
    def test_numbers_that_are_none(self, tmp_path: Path, line: str) -> None:
        recorder, _ = heard(tmp_path, line)
        assert "is not a number" in recorder.text
        assert not recorder.calls

    def test_think(self, tmp_path: Path) -> None:
        recorder, result = heard(tmp_path, "/think let me see\n/think again")
        assert recorder.reasoning == "let me see\n\nagain"
        assert result.usage.reasoning_tokens == 4
        assert "let" not in [
            word.strip() for word in recorder.text.replace("`/think let me see`", "").split()
        ]

    def test_fail(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match=r"^broken as told$"):
            heard(tmp_path, "/fail broken as told")

    def test_ask_and_be_denied(self, tmp_path: Path) -> None:
        recorder, _ = heard(
            tmp_path, "/ask touch started", Decision(Choice.DENY, AnsweredBy.TIMEOUT)
        )
        assert recorder.calls == [
            ("terminal", {"command": "touch started"}, "not approved (timeout)", True)
        ]
        assert "not approved (timeout)" in recorder.text
        assert not list(tmp_path.iterdir())

    def test_a_dangerous_command_is_asked_for(self, tmp_path: Path) -> None:
        (tmp_path / "precious").mkdir()
        recorder, _ = heard(tmp_path, "/terminal rm -rf precious")
        assert [path.name for path in tmp_path.iterdir()] == ["precious"]
        assert recorder.calls == [
            ("terminal", {"command": "rm -rf precious"}, "not approved (nobody)", True)
        ]
        (wish,) = [event for event in recorder.events if isinstance(event, ApprovalRequest)]
        assert wish.description
        assert wish.patterns == ("terminal: rm -rf precious",)
        assert wish.allow_permanent
        heard(tmp_path, "/terminal rm -rf precious", Decision(Choice.ONCE, AnsweredBy.CLIENT))
        assert not list(tmp_path.iterdir())

    def test_ask_and_be_approved(self, tmp_path: Path) -> None:
        recorder, _ = heard(
            tmp_path, "/ask echo yes; touch started", Decision(Choice.ONCE, AnsweredBy.CLIENT)
        )
        assert recorder.calls == [
            ("terminal", {"command": "echo yes; touch started"}, "yes", False)
        ]
        assert [path.name for path in tmp_path.iterdir()] == ["started"]
        (wish,) = [event for event in recorder.events if isinstance(event, ApprovalRequest)]
        (call,) = [event for event in recorder.events if isinstance(event, ToolStarted)]
        assert (wish.call_id, wish.command) == (call.call_id, "echo yes; touch started")

    def test_help(self, tmp_path: Path) -> None:
        assert heard(tmp_path, "/help")[0].text == HELP

    def test_unknown(self, tmp_path: Path) -> None:
        recorder, _ = heard(tmp_path, "/dance now")
        assert recorder.text == f"I do not know `/dance`.\n{HELP}"

    def test_several_run_in_order(self, tmp_path: Path) -> None:
        recorder, _ = heard(
            tmp_path, "please do\n  /write x 1\n/terminal cat x\nand then\n/write x 2\n/read x"
        )
        assert [call[2] for call in recorder.calls] == [
            "wrote 1 bytes to x",
            "1",
            "wrote 1 bytes to x",
            "2",
        ]

    def test_long_results_are_quoted_in_part(self, tmp_path: Path) -> None:
        recorder, _ = heard(tmp_path, "/terminal seq 1000")
        assert len(recorder.calls[0][2]) > 3000
        assert len(recorder.text) < 500

    def test_it_is_always_the_same(self, tmp_path: Path) -> None:
        script = "/think a b\n/write x 1\n/read x\n/ask rm x\n/long 3\n/help\n/what"
        first, second = heard(tmp_path, script), heard(tmp_path, script)
        assert (first[0].text, first[0].calls, first[1]) == (
            second[0].text,
            second[0].calls,
            second[1],
        )


class TestInterrupting:
    def test_before_it_began(self, tmp_path: Path) -> None:
        agent, recorder = DemoAgent(tmp_path, word_delay=0), EventRecorder()
        agent.interrupt("early")
        result = agent.run(turn("/terminal touch started"), recorder.emitter())
        assert (result.verdict, result.error) == (Verdict.INTERRUPTED, "early")
        assert not recorder.events
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("script", "kind"),
        [("/terminal echo; sleep 60", ToolOutput), ("/sleep 60", ToolStarted), ("/long 5", Text)],
    )
    def test_ends_whatever_it_waits_for(
        self, tmp_path: Path, script: str, kind: type[Event]
    ) -> None:
        # Without a pause before the first word there is nothing to hear; then the pause has to be a
        # real one.
        agent, reached, results = (
            DemoAgent(tmp_path, word_delay=0),
            threading.Event(),
            list[Result](),
        )

        def notice(event: Event) -> None:
            if isinstance(event, kind):
                agent._word_delay = 60
                reached.set()

        recorder = EventRecorder(on_event=notice)
        script = f"{script}\n/terminal touch later"
        with in_thread(
            lambda: results.append(agent.run(turn(script, history=BEFORE), recorder.emitter()))
        ):
            assert reached.wait(TIMEOUT)
            began = time.monotonic()
            agent.interrupt("enough")
        assert time.monotonic() - began < 1
        assert (results[0].verdict, results[0].error) == (Verdict.INTERRUPTED, "enough")
        assert all(
            is_error and "interrupted" in result for _, _, result, is_error in recorder.calls
        )
        assert not list(tmp_path.iterdir())


SCRIPT = "/think well then\n/terminal echo $$; sleep 60 & echo $!\n/write x 1\n/read x\n/sleep 0\n/ask x\n/terminal false\n/long 3"


def test_cut_after_every_word(tmp_path: Path) -> None:
    """Whatever it is saying when the run ends: the end passes through, and no process stays."""
    for words in count():
        recorder = EventRecorder(ends_at=words)
        with nothing_left():
            if is_whole(tmp_path, recorder):
                break
        assert all(has_ended(int(pid)) for pid in recorder.output.split())
        completed = [event for event in recorder.events if isinstance(event, ToolCompleted)]
        assert not any("RunEnded" in event.result for event in completed)
    assert words > 50


def is_whole(workspace: Path, recorder: EventRecorder) -> bool:
    try:
        DemoAgent(workspace, word_delay=0).run(turn(SCRIPT), recorder.emitter())
    except RunEnded:
        return False
    return True
