"""What clients of the whole server see of the callbacks, with a stand-in for the package."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes_trio import Settings, create_app
from hermes_trio.agent.event_queue import HOLD_SECONDS
from hermes_trio.agent.interface import AgentConfig, AgentContext, AgentFactory
from hermes_trio.agents.hermes import compat
from hermes_trio.agents.hermes.provider import provider
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.settings import load
from tests.agents.hermes.fake_package import FakeAIAgent, FakePackage, done
from tests.support.asgi import HttpResponse
from tests.support.fakes import (
    CHAT,
    AppHarness,
    ScriptedAgentFactory,
    ask_stream,
    open_harness,
)

ARGS = {"command": "ls"}
KEY = "key-kq7w-vzx2-mhp9"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    package = FakePackage()
    package.install(monkeypatch)
    monkeypatch.setattr(compat, "check_installed", lambda: None)
    return package


class ServedAgent(ScriptedAgentFactory):
    """Puts the agent into a harness for scripted ones."""

    def __init__(self, made: AgentFactory) -> None:
        super().__init__(())
        self._made = made

    def factory(self, context: AgentContext) -> Any:
        return self._made(context)


@asynccontextmanager
async def serving(
    package: FakePackage, script: Callable[[FakeAIAgent], object]
) -> AsyncIterator[AppHarness]:
    def play(agent: FakeAIAgent) -> Mapping[str, Any]:
        script(agent)
        return done("Done.")

    package.script = play
    config = AgentConfig(options={"warm_up": False})
    async with (
        provider.open(config, Path("/nonexistent")) as factory,
        open_harness(ServedAgent(factory)) as harness,
    ):
        yield harness
        await harness.until_idle()


def progress(answer: HttpResponse) -> list[dict[str, Any]]:
    return [frame.json for frame in answer.frames if frame.event == "hermes.tool.progress"]


def announce(agent: FakeAIAgent, name: str = "terminal", args: Any = ARGS) -> None:
    agent.call("tool_progress_callback", "tool.started", name, "ls", args)


def start(agent: FakeAIAgent, call_id: str, name: str = "terminal", args: Any = ARGS) -> None:
    agent.call("tool_start_callback", call_id, name, args)


def complete(agent: FakeAIAgent, call_id: str, name: str = "terminal") -> None:
    agent.call("tool_complete_callback", call_id, name, ARGS, "a b")


async def test_the_progress_callback_alone_shows_a_call_at_once(package: FakePackage) -> None:
    go_on = threading.Event()

    def script(agent: FakeAIAgent) -> None:
        announce(agent)
        assert go_on.wait(10)
        agent.call(
            "tool_progress_callback", "tool.completed", "terminal", None, None, is_error=False
        )

    async with serving(package, script) as harness:
        began = trio.current_time()
        async with harness.client.post(CHAT, ask_stream()) as exchange:
            # The tool runs until the test has seen that it does.
            running = (await exchange.frame_where(status="running")).json
            assert HOLD_SECONDS <= trio.current_time() - began < 2
            go_on.set()
            answer = await exchange.end()
    assert (running["tool"], running["label"]) == ("terminal", "ls")
    ended = progress(answer)[-1]
    assert (ended["toolCallId"], ended["status"]) == (running["toolCallId"], "completed")
    assert ended["isError"] is False


@pytest.mark.parametrize("pause", [0.0, HOLD_SECONDS / 4])
async def test_both_callbacks_show_one_call_under_the_id_of_the_model(
    package: FakePackage, pause: float
) -> None:
    def script(agent: FakeAIAgent) -> None:
        for name in ("terminal", "read_file", "terminal"):
            announce(agent, name)
        if pause:
            threading.Event().wait(pause)
        calls = [("c1", "terminal"), ("c2", "read_file"), ("c3", "terminal")]
        for call_id, name in calls:
            start(agent, call_id, name)
        for call_id, name in calls:
            complete(agent, call_id, name)

    async with serving(package, script) as harness:
        shown = progress(await harness.client.send(CHAT, ask_stream()))
    assert [(each["toolCallId"], each["tool"], each["status"]) for each in shown] == [
        *(("c1", "terminal", "running"), ("c2", "read_file", "running")),
        ("c3", "terminal", "running"),
        *(("c1", "terminal", "completed"), ("c2", "read_file", "completed")),
        ("c3", "terminal", "completed"),
    ]


async def test_start_and_end_without_the_progress_event_are_no_error(package: FakePackage) -> None:
    def script(agent: FakeAIAgent) -> None:
        start(agent, "c1")
        complete(agent, "c1")

    async with serving(package, script) as harness:
        running, ended = progress(await harness.client.send(CHAT, ask_stream()))
    assert running["toolCallId"] == ended["toolCallId"] == "c1"
    assert (ended["status"], ended["result"], ended["isError"]) == ("completed", "a b", False)


async def test_made_up_ids_are_unique_in_a_session(package: FakePackage) -> None:
    def script(agent: FakeAIAgent) -> None:
        announce(agent)
        announce(agent)

    session = {"X-Hermes-Session-Id": "a-session"}
    async with serving(package, script) as harness:
        answers = [
            await harness.client.send(CHAT, ask_stream(text), session) for text in ("one", "two")
        ]
        messages = await harness.store.load_messages("ann", "a-session")
    ids = [
        each["toolCallId"]
        for answer in answers
        for each in progress(answer)
        if each["status"] == "running"
    ]
    assert len(set(ids)) == len(ids) == 4
    assert [call.call_id for message in messages for call in message.tool_calls] == ids


async def test_the_label_has_no_secrets(package: FakePackage) -> None:
    secret, password = "sk-proj-" + "abc123" * 6, "hunter2"
    command = f"curl -H 'Authorization: Bearer {secret}' https://me:{password}@api.example/x"

    def script(agent: FakeAIAgent) -> None:
        announce(agent, args={"command": command})
        start(agent, "c1", args={"command": command})

    async with serving(package, script) as harness:
        headers = {"X-OpenWebUI-Chat-Id": "chat-1"}
        running = progress(await harness.client.send(CHAT, ask_stream(), headers))[0]
    assert running["label"] == "curl -H 'Authorization: Bearer ***' https://me:***@api.example/x"
    described = str(running["event"])  # for Open WebUI
    assert secret not in described
    assert password not in described


# -- the model id --


async def model_ids(settings: Settings) -> list[str]:
    async with create_app(settings).test_app() as running:
        answer = await running.test_client().get(
            "/v1/models", headers={"Authorization": f"Bearer {settings.api_key}"}
        )
        return [model["id"] for model in (await answer.get_json())["data"]]


def settings_for(folder: Path, **more: Any) -> Settings:
    options = {"warm_up": False, **more.pop("agent_options", {})}
    return Settings(
        agent="hermes",
        api_key=KEY,
        store="memory:",
        data_dir=folder,
        agent_options=options,
        **more,
    )


def home_below(folder: Path, *parts: str) -> Path:
    home = folder.joinpath(*parts)
    home.mkdir(parents=True)
    return home


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((".hermes", "profiles", "lucas"), "lucas"),
        (("data", "profiles", "r2_d-2"), "r2_d-2"),
        ((".hermes",), "hermes-agent"),
        ((".hermes", "profiles", "Not An Id"), "hermes-agent"),
        ((".hermes", "profiles", "default"), "hermes-agent"),
        ((".hermes", "profiles", "custom"), "hermes-agent"),
        ((".hermes", "profiles", "lucas", "deeper"), "hermes-agent"),
    ],
)
async def test_the_model_is_named_after_the_profile_of_the_home(
    package: FakePackage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home_below(tmp_path, *parts)))
    assert await model_ids(settings_for(tmp_path)) == [expected]


async def test_a_link_to_the_home_of_a_profile_is_that_profile(
    package: FakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(home_below(tmp_path, "profiles", "lucas"))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "link"))
    assert await model_ids(settings_for(tmp_path)) == ["lucas"]


async def test_the_options_name_the_profile(
    package: FakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home_below(tmp_path, "profiles", "other")))
    named = settings_for(tmp_path, agent_options={"hermes_profile": "work"})
    assert await model_ids(named) == ["work"]
    home = str(home_below(tmp_path, "profiles", "lucas"))
    assert await model_ids(settings_for(tmp_path, agent_options={"home": home})) == ["lucas"]


async def test_a_name_in_the_settings_counts_more(
    package: FakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home_below(tmp_path, "profiles", "lucas")))
    assert await model_ids(settings_for(tmp_path, model_name="mine")) == ["mine"]
    # Even if it is the default, as long as it was set.
    given = {"API_SERVER_MODEL_NAME": "hermes-agent", "HOME": str(tmp_path)}
    flags = {"agent": "hermes", "store": "memory:", "api_key": KEY, "data_dir": tmp_path}
    loaded = load(flags, given, None).settings
    assert (await model_ids(loaded))[0] == "hermes-agent"
    assert (await model_ids(load(flags, {"HOME": str(tmp_path)}, None).settings))[0] == "lucas"


async def test_a_profile_of_this_server_keeps_its_name(
    package: FakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home_below(tmp_path, "profiles", "lucas")))
    config = tmp_path / "config.toml"
    config.write_text("[profiles.lucas]\nagent = 'demo'\n")
    flags = {"agent": "hermes", "store": "memory:", "api_key": KEY, "data_dir": tmp_path}
    assert await model_ids(load(flags, {"HOME": str(tmp_path)}, config).settings) == [
        "hermes-agent",
        "lucas",
    ]


def test_a_wrong_option_is_reported_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no option 'hom'"):
        create_app(settings_for(tmp_path, agent_options={"hom": "x"}))
