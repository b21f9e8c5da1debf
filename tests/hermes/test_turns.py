"""One turn at a time."""

from __future__ import annotations

import gc
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes_trio.agent.interface import AgentConfig, AgentContext, TurnRequest
from hermes_trio.agents.hermes.provider import provider
from hermes_trio.core.approvals import Decision
from hermes_trio.core.events import (
    AnsweredBy,
    ApprovalRequest,
    Choice,
    Reasoning,
    Result,
    Text,
    ToolAnnounced,
    ToolCompleted,
    ToolStarted,
    Verdict,
)
from hermes_trio.core.messages import Usage
from tests.hermes.harness import Stopwatch, hermes, interrupt_on, run_turn
from tests.hermes.scripted_model import ScriptedAnswer, ScriptedCall, Upstream
from tests.support.agent_harness import EventRecorder, start, turn

ONE_CALL = Usage(11, 7, cached_tokens=3, reasoning_tokens=2)
TWO_CALLS = Usage(22, 14, cached_tokens=6, reasoning_tokens=4)


def shell(call_id: str, command: str) -> ScriptedCall:
    return ScriptedCall(call_id, "terminal", {"command": command})


async def test_text_comes_in_pieces(model: Upstream) -> None:
    model.play(ScriptedAnswer(["Hel", "lo"]))
    recorder = EventRecorder()
    async with hermes(model) as factory:
        result = await run_turn(factory, turn("Hi", instructions="Be brief."), recorder)
    assert recorder.events == [Text("Hel"), Text("lo")]
    assert result == Result("Hello", usage=ONE_CALL)
    (asked,) = model.requests
    assert asked["model"] == "scripted"
    assert asked["messages"][-1] == {"role": "user", "content": "Hi"}
    assert "Be brief." in asked["messages"][0]["content"]


async def test_reasoning_is_not_text(model: Upstream) -> None:
    model.play(ScriptedAnswer(["Hello"], reasoning=["hm", " yes"]))
    recorder = EventRecorder()
    async with hermes(model) as factory:
        await run_turn(factory, turn("Hi"), recorder)
    assert (recorder.reasoning, recorder.text) == ("hm yes", "Hello")
    assert [type(event) for event in recorder.events] == [Reasoning, Reasoning, Text]


async def test_one_tool_runs_between_two_pieces_of_text(model: Upstream) -> None:
    model.play(
        ScriptedAnswer(["Look:"], calls=[shell("c1", "echo found")]), ScriptedAnswer(["Done."])
    )
    recorder = EventRecorder()
    async with hermes(model) as factory:
        result = await run_turn(factory, turn("Look"), recorder)
    assert [type(event) for event in recorder.events] == [
        Text,
        Text,
        ToolAnnounced,
        ToolStarted,
        ToolCompleted,
        Text,
    ]
    assert (recorder.text, recorder.events[-1]) == ("Look:\n\nDone.", Text("Done."))
    ((name, args, output, is_error),) = recorder.calls
    assert (name, args, is_error) == ("terminal", {"command": "echo found"}, False)
    assert json.loads(output) == {"output": "found", "exit_code": 0, "error": None}
    assert (result.verdict, result.usage) == (Verdict.COMPLETED, TWO_CALLS)
    assert [message["role"] for message in model.requests[1]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]


async def test_a_command_that_fails_is_an_error(model: Upstream) -> None:
    model.play(ScriptedAnswer(calls=[shell("c1", "exit 3")]), ScriptedAnswer(["It failed."]))
    recorder = EventRecorder()
    async with hermes(model) as factory:
        await run_turn(factory, turn("Try"), recorder)
    assert [is_error for _name, _args, _result, is_error in recorder.calls] == [True]


async def test_parallel_tools_keep_their_ids(model: Upstream, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text(f"I am {path.name}")
    reads = [
        ScriptedCall(f"c{at}", "read_file", {"path": str(path)}) for at, path in enumerate(paths)
    ]
    model.play(ScriptedAnswer(calls=reads), ScriptedAnswer(["Read."]))
    recorder = EventRecorder()
    async with hermes(model) as factory:
        await run_turn(factory, turn("Read"), recorder)
    started = [event.call_id for event in recorder.events if isinstance(event, ToolStarted)]
    assert started == ["c0", "c1", "c2"]
    # All were announced before any of them was started: the queue puts the two together.
    kinds = [type(event) for event in recorder.events]
    assert kinds[:6] == [ToolAnnounced] * 3 + [ToolStarted] * 3
    assert [
        f"I am {name}" in call[2] for name, call in zip("abc", recorder.calls, strict=True)
    ] == [True] * 3


async def test_a_model_that_refuses_is_a_failure(model: Upstream) -> None:
    model.play(*[ScriptedAnswer(status=401)] * 9)
    recorder = EventRecorder()
    async with hermes(model) as factory:
        result = await run_turn(factory, turn("Hi"), recorder)
    assert result.verdict is Verdict.FAILED
    assert "scripted 401" in result.error
    assert recorder.events == []


@pytest.mark.slow
async def test_a_model_that_is_out_of_order_is_a_failure(model: Upstream) -> None:
    model.play(*[ScriptedAnswer(status=500)] * 9)
    async with hermes(model) as factory:
        result = await run_turn(factory, turn("Hi"), EventRecorder())
    assert result.verdict is Verdict.FAILED
    assert "500" in result.error
    assert len(model.requests) > 1  # Hermes tries again by itself


async def test_an_interrupt_in_text_is_quick(
    model: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    hold = threading.Event()
    model.play(ScriptedAnswer(["Once upon"], hold=hold))
    watch = Stopwatch()
    async with hermes(model) as factory:
        agent: Any = factory(AgentContext(turn("Hi"), Path()))

        def interrupt() -> None:
            watch.start()
            agent.interrupt("client_disconnected")

        recorder = EventRecorder(on_event=interrupt_on(Text, interrupt))
        result = await trio.to_thread.run_sync(agent.run, turn("Hi"), recorder.emitter())
        seconds = watch.seconds
    hold.set()
    with capsys.disabled():
        report("in text", seconds)
    assert result == Result("", Verdict.INTERRUPTED, "client_disconnected", usage=result.usage)
    assert recorder.text == "Once upon"
    assert seconds < 0.5


async def test_an_interrupt_in_a_command_ends_it(
    model: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pids: list[int] = []
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = f"echo $$ > {fifo}; sleep 30"
    model.play(ScriptedAnswer(calls=[shell("c1", command)]), ScriptedAnswer(["Never said."]))
    watch = Stopwatch()
    async with hermes(model) as factory:
        agent: Any = factory(AgentContext(turn("Hi"), Path()))

        def interrupt() -> None:
            pids.append(int(fifo.read_text()))  # waits until the command writes to it
            watch.start()
            agent.interrupt("stop_requested")

        recorder = EventRecorder(on_event=interrupt_on(ToolStarted, interrupt))
        result = await trio.to_thread.run_sync(agent.run, turn("Wait"), recorder.emitter())
        seconds = watch.seconds
    with capsys.disabled():
        report("in a command", seconds)
    assert result.verdict is Verdict.INTERRUPTED
    assert seconds < 4
    assert str(pids[0]) not in os.listdir("/proc")
    assert len(model.requests) == 1


def report(where: str, seconds: float) -> None:
    print(f"\ninterrupt {where}: {seconds * 1000:.0f} ms")  # noqa: T201 - the session is run to see this


async def test_the_runner_waits_for_the_thread(model: Upstream, tmp_path: Path) -> None:
    hold = threading.Event()
    model.play(ScriptedAnswer(["Once upon"], hold=hold))
    async with hermes(model) as factory, trio.open_nursery() as nursery:
        run = await start(nursery, factory, turn("Hi"), tmp_path)
        await run.until(Text)
        run.scope.cancel()
        with trio.fail_after(5):
            await run.gone.wait()
    hold.set()


async def test_an_interrupt_ends_one_turn_of_two(model: Upstream) -> None:
    holds = [threading.Event(), threading.Event()]
    model.play(*(ScriptedAnswer(["Once upon"], hold=hold) for hold in holds))
    results: dict[str, Result] = {}
    async with hermes(model) as factory, trio.open_nursery() as nursery:
        agents: dict[str, Any] = {name: factory(AgentContext(turn("Hi"), Path())) for name in "ab"}
        begun = {name: trio.Event() for name in agents}
        token = trio.lowlevel.current_trio_token()

        async def one(name: str) -> None:
            recorder = EventRecorder(on_event=lambda _event: token.run_sync_soon(begun[name].set))
            request = TurnRequest(f"run_{name}", f"session_{name}", "Hi")
            results[name] = await trio.to_thread.run_sync(
                agents[name].run, request, recorder.emitter()
            )

        for name in agents:
            nursery.start_soon(one, name)
        with trio.fail_after(20):
            for each in begun.values():
                await each.wait()
        agents["a"].interrupt("stop_requested")
        with trio.fail_after(10):
            while "a" not in results:  # noqa: ASYNC110 - a thread tells nobody that it is done
                await trio.sleep(0.01)
        assert "b" not in results
        for hold in holds:
            hold.set()
    assert results["a"].verdict is Verdict.INTERRUPTED
    assert results["b"].text == "Once upon"


async def test_turns_leave_nothing_behind(model: Upstream) -> None:
    counts = []
    async with hermes(model) as factory:
        for _ in range(4):
            model.play(
                ScriptedAnswer(["Look:"], calls=[shell("c1", "echo found")]),
                ScriptedAnswer(["Done."]),
            )
            await run_turn(factory, turn("Look"), EventRecorder())
            gc.collect()
            counts.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
    assert counts[-1] <= counts[0], counts


DANGEROUS = "rm -r {}"


@pytest.mark.parametrize(("choice", "is_gone"), [(Choice.ONCE, True), (Choice.DENY, False)])
async def test_a_dangerous_command_waits_for_an_answer(
    model: Upstream, tmp_path: Path, choice: Choice, is_gone: bool
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    command = DANGEROUS.format(victim)
    model.play(ScriptedAnswer(calls=[shell("c1", command)]), ScriptedAnswer(["So be it."]))
    recorder = EventRecorder(decision=Decision(choice, AnsweredBy.CLIENT))
    async with hermes(model) as factory:
        result = await run_turn(factory, turn("Clean up"), recorder)
    (request,) = [event for event in recorder.events if isinstance(event, ApprovalRequest)]
    assert (request.command, request.call_id) == (command, "c1")
    assert request.patterns != (command,)
    assert victim.exists() is not is_gone
    assert result.verdict is Verdict.COMPLETED
    ((_name, _args, output, is_error),) = recorder.calls
    assert is_error is not is_gone
    assert ("denied" in output.lower()) is not is_gone


async def test_an_interrupt_ends_the_waiting_for_an_answer(model: Upstream, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    model.play(
        ScriptedAnswer(calls=[shell("c1", DANGEROUS.format(victim))]),
        ScriptedAnswer(["Never said."]),
    )
    async with hermes(model) as factory, trio.open_nursery() as nursery:
        run = await start(nursery, factory, turn("Hi"), tmp_path)
        await run.until(ApprovalRequest)
        run.scope.cancel()
        with trio.fail_after(5):
            await run.gone.wait()
    assert victim.exists()
    assert len(model.requests) == 1


async def test_the_configuration_of_hermes_counts(model: Upstream, home: Path) -> None:
    config = home / "config.yaml"
    before = config.read_text()
    named = {"default": "named-there", "provider": "custom", "base_url": model.url, "api_key": "k"}
    config.write_text(f"{before}model: {json.dumps(named)}\n")
    model.play(ScriptedAnswer(["Hello"]))
    try:
        async with provider.open(AgentConfig(options={"skip_memory": True}), Path()) as factory:
            assert (await run_turn(factory, turn("Hi"), EventRecorder())).text == "Hello"
    finally:
        config.write_text(before)
    (asked,) = model.requests
    assert asked["model"] == "named-there"
    names = {tool["function"]["name"] for tool in asked["tools"]}
    assert {"terminal", "read_file"} <= names
    assert "web_search" not in names


async def test_no_setting_of_ours_reaches_a_tool(
    model: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HERMES_TRIO_API_KEY", "API_SERVER_KEY", "DATABASE_URL", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, f"canary-{name}")
    model.play(ScriptedAnswer(calls=[shell("c1", "env; echo seen")]), ScriptedAnswer(["So."]))
    recorder = EventRecorder()
    async with hermes(model) as factory:
        await run_turn(factory, turn("Look"), recorder)
    assert "seen" in recorder.calls[0][2]
    assert "canary" not in recorder.calls[0][2]


async def test_nothing_is_printed(model: Upstream, capsys: pytest.CaptureFixture[str]) -> None:
    model.play(ScriptedAnswer(status=401))
    async with hermes(model) as factory:
        await run_turn(factory, turn("Hi"), EventRecorder())
    assert capsys.readouterr().out == ""
