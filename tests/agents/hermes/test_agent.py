"""The adapter against a stand-in for the package."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes_trio.agent.event_queue import RunEnded
from hermes_trio.agent.interface import (
    AgentConfig,
    AgentContext,
    AgentFactory,
    AgentProvider,
    TurnRequest,
)
from hermes_trio.agents.hermes import compat, runtime
from hermes_trio.agents.hermes.provider import provider
from hermes_trio.core.approvals import Decision
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.events import (
    AgentFailed,
    AnsweredBy,
    ApprovalRequest,
    Choice,
    Event,
    Finished,
    Result,
    Text,
    ToolStarted,
    Verdict,
)
from hermes_trio.core.messages import Message, Usage
from tests.agents.hermes.fake_package import FakeAIAgent, FakePackage, done
from tests.support.agent_harness import EventRecorder, start, turn

USAGE = Usage(11, 7, cached_tokens=3, reasoning_tokens=2)
NOWHERE = Path("/nonexistent")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    package = FakePackage()
    package.install(monkeypatch)
    monkeypatch.setattr(runtime, "WARM_UP_MODULES", ("gateway.run", "no_such_module"))
    compat._warn_once.cache_clear()
    return package


@asynccontextmanager
async def opened(warm_up: bool = False, **config: Any) -> AsyncIterator[AgentFactory]:
    options = {"warm_up": warm_up, **config.pop("options", {})}
    async with provider.open(AgentConfig(options=options, **config), NOWHERE) as factory:
        yield factory


async def do(
    factory: AgentFactory, request: TurnRequest, recorder: EventRecorder | None = None
) -> Result:
    """One turn in a thread, with nothing around it."""
    agent: Any = factory(AgentContext(request, NOWHERE))
    result = await trio.to_thread.run_sync(
        agent.run, request, (recorder or EventRecorder()).emitter()
    )
    assert isinstance(result, Result)
    return result


# -- construction --


async def test_everything_is_resolved_as_the_gateway_does(package: FakePackage) -> None:
    async with opened() as factory:
        await do(factory, turn("Hi", instructions="be brief", session_key="memory"))
    given = dict(package.agent.kwargs)
    assert {name for name in given if name.endswith("_callback")} == {
        "stream_delta_callback",
        "reasoning_callback",
        "tool_progress_callback",
        "tool_start_callback",
        "tool_complete_callback",
    }
    assert given.pop("session_db").db_path == Path("/hermes-home/state.db")
    assert {name: value for name, value in given.items() if not name.endswith("_callback")} == {
        "base_url": "http://configured",
        "api_key": "theirs",
        "model": "configured-model",
        "enabled_toolsets": ["file", "web"],
        "max_iterations": 33,
        "fallback_model": ["fallback"],
        "reasoning_config": {"effort": "configured"},
        "skip_memory": False,
        "skip_context_files": False,
        "session_id": "session_1",
        "gateway_session_key": "memory",
        "ephemeral_system_prompt": "be brief",
        "quiet_mode": True,
        "verbose_logging": False,
        "platform": "api_server",
    }


async def test_a_turn_without_tools_leaves_nothing_in_hermes(package: FakePackage) -> None:
    async with opened() as factory:
        await do(factory, turn("A title, please", allows_tools=False))
    given = package.agent.kwargs
    assert (given["enabled_toolsets"], given["skip_memory"]) == ([], True)
    assert given["session_db"] is None


async def test_what_the_settings_say_counts_more(package: FakePackage) -> None:
    said = AgentConfig(
        model="m",
        api_key="ours",
        system_prompt="You are.",
        tools=("web", "browser"),
        max_iterations=5,
    )
    options = {"provider": "openrouter", "reasoning_effort": "low", "warm_up": False}
    async with provider.open(
        AgentConfig(**{**_fields(said), "options": options}), NOWHERE
    ) as factory:
        await do(factory, turn("Hi", instructions="Be brief."))
    expected = {
        "model": "m",
        "api_key": "ours",
        "provider": "openrouter",
        "enabled_toolsets": ["browser", "web"],
        "max_iterations": 5,
        "reasoning_config": {"effort": "low"},
        "ephemeral_system_prompt": "You are.\n\nBe brief.",
    }
    assert expected.items() <= package.agent.kwargs.items()


def _fields(config: AgentConfig) -> dict[str, Any]:
    names = ("model", "api_key", "system_prompt", "tools", "max_iterations")
    return {name: getattr(config, name) for name in names}


async def test_a_key_alone_is_not_one_for_the_provider_of_hermes(package: FakePackage) -> None:
    async with opened(
        api_key="some-openai-key", options={"api_mode": "anthropic_messages"}
    ) as factory:
        await do(factory, turn("Hi"))
    assert package.agent.kwargs["api_key"] == "theirs"
    assert package.agent.kwargs["api_mode"] == "anthropic_messages"


async def test_an_address_needs_nothing_of_the_configuration_of_hermes(
    package: FakePackage,
) -> None:
    async with opened(base_url="http://there/v1") as factory:
        await do(factory, turn("Hi"))
    expected = {
        "base_url": "http://there/v1",
        "api_key": "no-key",
        "provider": "custom",
        "api_mode": "chat_completions",
    }
    assert expected.items() <= package.agent.kwargs.items()


async def test_the_message_and_copies_of_the_history_are_handed_over(package: FakePackage) -> None:
    past = (Message("user", "A"), Message("assistant", "B"))
    parts = ({"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:"}})
    async with opened() as factory:
        await do(factory, turn("", message=parts, history=past))
        await do(factory, turn("", message=parts, history=past))
    assert package.agent.asked["user_message"] == list(parts)
    assert package.agent.asked["task_id"] == "session_1"
    assert [each["content"] for each in package.agent.asked["conversation_history"]] == ["A", "B"]
    assert past == (Message("user", "A"), Message("assistant", "B"))


async def test_a_session_of_hermes_is_adopted_if_that_is_wanted(package: FakePackage) -> None:
    package.stored["session_1"] = [{"role": "user", "content": "old", "_db_persisted": True}]
    async with opened() as factory:
        await do(factory, turn("Hi"))
        assert package.agent.asked["conversation_history"] == []
    async with opened(options={"adopt_sessions": True}) as factory:
        await do(factory, turn("Hi"))
        assert [each["content"] for each in package.agent.asked["conversation_history"]] == ["old"]
        broken = TurnRequest("run_1", "broken", "Hi")
        await do(factory, broken)
        assert package.agent.asked["conversation_history"] == []
        package.stored["api-0123"] = package.stored["session_1"]
        await do(factory, TurnRequest("run_1", "api-0123", "Hi"))
        assert package.agent.asked["conversation_history"] == []
    assert "_db_persisted" in package.stored["session_1"][0]


# -- a turn --


async def test_an_answer_that_was_never_streamed_is_returned(package: FakePackage) -> None:
    async with opened() as factory:
        assert await do(factory, turn("Hi")) == Result("Hello", usage=USAGE)


async def test_what_it_says_is_said(package: FakePackage) -> None:
    def script(agent: FakeAIAgent) -> Mapping[str, Any]:
        other = threading.Thread(target=agent.call, args=("stream_delta_callback", "Hi"))
        other.start()
        other.join()
        agent.call("stream_delta_callback", None)
        agent.call("tool_progress_callback", "tool.started", "terminal", "ls", {"command": "ls"})
        agent.call("tool_start_callback", "c1", "terminal", {"command": "ls"})
        agent.call(
            "tool_progress_callback", "tool.completed", "terminal", None, None, is_error=False
        )
        agent.call("tool_complete_callback", "c1", "terminal", {"command": "ls"}, "a b")
        agent.call("tool_progress_callback", "tool.started", "lonely", "", {})
        return done("Hi")

    package.script = script
    recorder = EventRecorder()
    async with opened() as factory:
        await do(factory, turn("Hi"), recorder)
    kinds = [type(event).__name__ for event in recorder.events]
    assert kinds == [
        *("Text", "Text"),
        *("ToolAnnounced", "ToolStarted", "ToolCompleted"),
        "ToolAnnounced",
    ]


async def test_a_changed_session_is_reported(package: FakePackage) -> None:
    def script(agent: FakeAIAgent) -> Mapping[str, Any]:
        agent.session_id = "session_2"
        return done("Hi")

    package.script = script
    async with opened() as factory:
        assert (await do(factory, turn("Hi"))).session_id == "session_2"


AROUND = [
    "key run_1",
    "running",
    "approvals closed",
    "key reset",
    "vars cleared",
]


def fail(_agent: FakeAIAgent) -> Mapping[str, Any]:
    raise RuntimeError("upstream gone")


async def test_whatever_happens_nothing_is_left_behind(package: FakePackage) -> None:
    package.script = fail
    package.release_fails = True
    async with opened() as factory:
        with pytest.raises(RuntimeError, match="upstream gone"):
            await do(factory, turn("Hi"))
    assert [event for event in package.events if not event.startswith("vars [")] == [
        *AROUND,
        "database closed",
    ]
    assert package.agent.released == 1
    assert package.notify == {}


async def test_tools_know_whose_turn_it_is(package: FakePackage) -> None:
    async with opened(options={"cwd": "/work"}) as factory:
        await do(factory, turn("Hi", session_key="memory"))
    told = next(event for event in package.events if event.startswith("vars ["))
    for each in (
        "('async_delivery', False)",
        "('platform', 'api_server')",
        "('session_id', 'session_1')",
        "('session_key', 'memory')",
        "('chat_id', 'session_1')",
        "('cwd', '/work')",
    ):
        assert each in told


async def test_a_profile_is_entered_in_the_thread_of_the_turn(package: FakePackage) -> None:
    async with opened(options={"hermes_profile": "work"}) as factory:
        package.events.clear()
        await do(factory, turn("Hi"))
        assert package.events[0] == "home /profiles/work"
        assert package.events[-1] == "home left"


# -- interrupts, through the real agent runner --


def until_interrupted(agent: FakeAIAgent) -> Mapping[str, Any]:
    agent.call("stream_delta_callback", "Once upon")
    assert agent.interrupted.wait(10)
    return done("Once upon", interrupted=True, interrupt_message=agent.interrupts[0])


async def test_an_interrupt_reaches_the_agent(package: FakePackage, tmp_path: Path) -> None:
    package.script = until_interrupted
    async with opened() as factory, trio.open_nursery() as nursery:
        run = await start(nursery, factory, turn("Hi"), tmp_path)
        await run.until(Text)
        run.scope.cancel()
        await run.gone.wait()
    assert package.agent.interrupts == ["test"]
    assert package.agent.released == 1


async def test_an_interrupt_before_the_agent_exists_is_kept(package: FakePackage) -> None:
    async with opened() as factory:
        agent: Any = factory(AgentContext(turn("Hi"), NOWHERE))
        agent.interrupt("gone")
        result = await trio.to_thread.run_sync(agent.run, turn("Hi"), EventRecorder().emitter())
    assert result == Result(verdict=Verdict.INTERRUPTED, error="gone")
    assert "running" not in package.events
    assert package.agent.released == 1


async def test_a_turn_through_the_runner_ends_with_its_result(
    package: FakePackage, tmp_path: Path
) -> None:
    async with opened() as factory, trio.open_nursery() as nursery:
        run = await start(nursery, factory, turn("Hi"), tmp_path)
        await run.to_end()
        package.construction_fails = RuntimeError("no provider")
        failed = await start(nursery, factory, turn("Hi"), tmp_path)
        await failed.to_end()
    assert [event.result for event in run.events if isinstance(event, Finished)] == [
        Result("Hello", usage=USAGE)
    ]
    assert [event.message for event in failed.events if isinstance(event, AgentFailed)] == [
        "no provider"
    ]


# -- approvals --


QUESTION = {
    "command": "rm -r x",
    "description": "deletes",
    "pattern_keys": ["rm"],
    "allow_permanent": True,
}


def wanting(*questions: dict[str, Any]) -> Callable[[FakeAIAgent], Mapping[str, Any]]:
    def script(agent: FakeAIAgent) -> Mapping[str, Any]:
        return done(" ".join(str(agent.package.ask("run_1", question)) for question in questions))

    return script


@pytest.mark.parametrize("choice", list(Choice))
async def test_to_hermes_every_answer_is_for_this_once(
    package: FakePackage, choice: Choice
) -> None:
    package.script = wanting(QUESTION)
    recorder = EventRecorder(decision=Decision(choice, AnsweredBy.CLIENT))
    async with opened() as factory:
        result = await do(factory, turn("Hi"), recorder)
    assert result.text == ("deny" if choice is Choice.DENY else "once")
    (request,) = recorder.events
    assert isinstance(request, ApprovalRequest)
    assert (request.command, request.description, request.patterns) == (
        "rm -r x",
        "deletes",
        ("rm",),
    )
    assert request.allow_permanent


async def test_what_hermes_advises_against_is_not_allowed_by_its_kind(package: FakePackage) -> None:
    package.script = wanting({**QUESTION, "smart_denied": True, "allow_permanent": False})
    recorder = EventRecorder()
    async with opened() as factory:
        await do(factory, turn("Hi"), recorder)
    (request,) = recorder.events
    assert isinstance(request, ApprovalRequest)
    assert request.patterns == ("rm -r x",)
    assert not request.allow_permanent


@pytest.mark.parametrize("trouble", [RunEnded(), RuntimeError("no way to ask")])
async def test_a_question_that_cannot_be_asked_is_answered_no(
    package: FakePackage, trouble: Exception
) -> None:
    def fail(_event: Event) -> None:
        raise trouble

    package.script = wanting(QUESTION)
    async with opened() as factory:
        result = await do(factory, turn("Hi"), EventRecorder(on_event=fail))
    assert result.text == "deny"


async def test_the_end_of_the_run_ends_the_waiting(package: FakePackage, tmp_path: Path) -> None:
    package.script = wanting(QUESTION)
    async with opened() as factory, trio.open_nursery() as nursery:
        run = await start(nursery, factory, turn("Hi"), tmp_path)
        await run.until(ApprovalRequest)
        run.scope.cancel()
        await run.gone.wait()
    assert package.queues == {}
    assert package.agent.released == 1


async def test_an_answer_that_comes_too_late_decides_about_nothing_else(
    package: FakePackage,
) -> None:
    other = {**QUESTION, "command": "rm -r y"}

    def script(agent: FakeAIAgent) -> Mapping[str, Any]:
        package.queues["run_1"] = []
        compat.answer("run_1", QUESTION, "once")
        return done(str(package.ask("run_1", other)))

    package.script = script
    async with opened() as factory:
        result = await do(factory, turn("Hi"))
    assert result.text == "deny"


async def test_without_the_private_names_commands_are_denied(
    package: FakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package.install(monkeypatch, without=("tools.approval._gateway_queues",))
    package.script = wanting(QUESTION)
    async with opened() as factory:
        result = await do(
            factory, turn("Hi"), EventRecorder(decision=Decision(Choice.ONCE, AnsweredBy.CLIENT))
        )
    assert result.text == "deny"


# -- opening --


def test_it_is_a_provider() -> None:
    assert isinstance(provider, AgentProvider)


async def test_without_the_package_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[hermes\]'") as told:
        async with opened():
            raise AssertionError
    assert "\n" not in str(told.value)


async def test_a_package_that_cannot_be_imported_is_reported(
    package: FakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package.install(monkeypatch, without=("run_agent.AIAgent",))
    with pytest.raises(ConfigurationError, match=r"has no run_agent\.AIAgent"):
        async with opened():
            raise AssertionError


async def test_it_is_warmed_up_once(package: FakePackage) -> None:
    async with opened(warm_up=True):
        (agent,) = package.agents
        assert agent.released == 1
        assert "session_id" not in agent.kwargs
    assert package.events == ["probed", "database closed"]


async def test_an_agent_that_cannot_be_made_stops_the_start(package: FakePackage) -> None:
    package.construction_fails = RuntimeError("no provider\nis configured")
    with pytest.raises(
        ConfigurationError, match="hermes cannot be created: no provider is configured"
    ):
        async with opened(warm_up=True):
            raise AssertionError
    assert package.events == ["probed", "database closed"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"hermes_profile": "play"}, "Hermes has no profile 'play'"),
        ({"home": "/nonexistent/home"}, "is not a directory"),
    ],
)
async def test_a_missing_home_is_reported(
    package: FakePackage, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        async with opened(options=options):
            raise AssertionError


MOVED = (
    "gateway.run._resolve_runtime_agent_kwargs",
    "gateway.run._resolve_gateway_model",
    "gateway.run._load_gateway_config",
    "gateway.run._current_max_iterations",
    "gateway.run.GatewayRunner",
    "gateway.session_context.set_session_vars",
    "hermes_cli.tools_config._get_platform_tools",
    "hermes_constants.get_hermes_home",
    "hermes_state.SessionDB",
    "tools.approval.register_gateway_notify",
)


async def test_names_that_moved_are_done_without(
    package: FakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package.install(monkeypatch, without=MOVED)
    async with opened(warm_up=True, model="m") as factory:
        assert await do(factory, turn("Hi")) == Result("Hello", usage=USAGE)
    expected = {
        "model": "m",
        "enabled_toolsets": ["hermes-api-server"],
        "max_iterations": 90,
        "fallback_model": None,
        "reasoning_config": None,
        "session_db": None,
    }
    assert expected.items() <= package.agent.kwargs.items()


async def test_a_profile_that_cannot_be_entered_is_no_other_profile(
    package: FakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    package.install(monkeypatch, without=("gateway.run._profile_runtime_scope",))
    with pytest.raises(ConfigurationError, match="_profile_runtime_scope"):
        async with opened(options={"hermes_profile": "work"}):
            raise AssertionError


async def test_prints_are_guarded_while_it_is_open(package: FakePackage) -> None:
    before = sys.stdout
    async with opened():
        assert sys.stdout is not before
    assert sys.stdout is before


async def test_a_text_said_after_the_end_is_the_agents_own_affair(package: FakePackage) -> None:
    def script(agent: FakeAIAgent) -> Mapping[str, Any]:
        agent.call("tool_start_callback", "c1", "a", {})
        return done("Hi")

    package.script = script
    recorder = EventRecorder(ends_at=0)
    async with opened() as factory:
        assert (await do(factory, turn("Hi"), recorder)).text == "Hi"
    assert not any(isinstance(event, ToolStarted) for event in recorder.events)
