"""The public API: what the package exports, is documented, is typed, and works."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

import hermes_trio
from hermes_trio import (
    AgentContext,
    ConfigurationError,
    Emitter,
    Settings,
    TurnRequest,
    create_app,
    serve,
)
from hermes_trio.web.app import make_app
from hermes_trio.web.state import WebOptions
from tests.support.doc_examples import ROOT, blocks_of

KEY = "a-key-for-these-tests"
BEARER = {"Authorization": f"Bearer {KEY}"}
BODY = {"messages": [{"role": "user", "content": "hello"}]}
REFERENCE = ROOT / "docs" / "reference" / "python_api.md"


class Echo:
    def run(self, turn: TurnRequest, emitter: Emitter) -> None:
        emitter.text(f"You said: {turn.text}")


def make_echo(context: AgentContext) -> Echo:
    return Echo()


def test_every_name_can_be_imported() -> None:
    assert {name: hasattr(hermes_trio, name) for name in hermes_trio.__all__} == dict.fromkeys(
        hermes_trio.__all__, True
    )
    assert {*hermes_trio.__all__} <= {*dir(hermes_trio)}


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = hermes_trio.nonsense  # type: ignore[attr-defined]


def test_every_name_is_documented() -> None:
    text = REFERENCE.read_text("utf-8")
    missing = [
        name
        for name in hermes_trio.__all__
        if f":: {name}\n" not in text and f".{name}`" not in text
    ]
    assert missing == []


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = "import sys, hermes_trio; sys.exit(bool(sys.modules.keys() & {'trio', 'quart', 'attrs', 'importlib.metadata'}))"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@pytest.mark.slow
def test_the_typed_agent_of_the_documentation_passes_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    [example] = [block for block in blocks_of(REFERENCE) if block.language == "python"]
    assert example.text.count("import") == 1
    (tmp_path / "typed_agent.py").write_text(example.text, "utf-8")
    check = "from hermes_trio import AgentFactory\nfrom typed_agent import factory\nchecked: AgentFactory = factory\n"
    (tmp_path / "check.py").write_text(check, "utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "check.py",
        "typed_agent.py",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def app_of(folder: Path, **options: Any) -> Any:
    return create_app(
        **{"agent": make_echo, "api_key": KEY, "store": "memory:", "data_dir": folder, **options}
    )


async def ask(app: Any) -> str:
    client = app.test_client()
    response = await client.post("/v1/chat/completions", json=BODY, headers=BEARER)
    assert response.status_code == 200
    text: str = (await response.get_json())["choices"][0]["message"]["content"]
    return text


async def test_the_lifespan_opens_and_closes_the_server(tmp_path: Path) -> None:
    app = app_of(tmp_path, store=f"sqlite:///{tmp_path}/runs.db")
    for _ in range(2):
        async with app.test_app() as running:
            assert await ask(running) == "You said: hello"
            assert (tmp_path / "runs.db-wal").exists()
            ready = await running.test_client().get("/health/ready")
            assert ready.status_code == 200
        assert not (tmp_path / "runs.db-wal").exists()


async def test_an_agent_may_be_given_with_settings(tmp_path: Path) -> None:
    settings = Settings(api_key=KEY, store="memory:", data_dir=tmp_path)
    async with create_app(settings, agent=make_echo).test_app() as running:
        assert await ask(running) == "You said: hello"
    async with create_app(settings, agent="tests.test_public_api:make_echo").test_app() as running:
        assert await ask(running) == "You said: hello"


async def test_a_failed_start_is_reported_to_the_server(tmp_path: Path) -> None:
    app = app_of(tmp_path, agent="tests.support.providers:refusing")
    sent: list[Any] = []
    with capture_logs():
        await app({"type": "lifespan", "asgi": {}}, _startup, _append_to(sent))
    assert sent == [
        {"type": "lifespan.startup.failed", "message": "base_url: this agent needs one"}
    ]


async def _startup() -> Any:
    await trio.lowlevel.checkpoint()
    return {"type": "lifespan.startup"}


def _append_to(messages: list[Any]) -> Any:
    async def send(message: Any) -> None:
        messages.append(message)

    return send


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no option 'nonsense'"):
        create_app(nonsense=1)
    with pytest.raises(ConfigurationError, match=r"^port: "):
        create_app(port="many")
    with pytest.raises(TypeError, match="either settings or options"):
        create_app(Settings(), port=1)
    with pytest.raises(ConfigurationError, match=r"^workers: .*postgresql://"):
        create_app(workers=2, store="memory:")
    with pytest.raises(TypeError, match="has its settings already"):
        serve(app_of(tmp_path), port=1)
    with pytest.raises(TypeError, match="not made by create_app"):
        serve(make_app(WebOptions()))


def test_objects_cannot_be_given_to_workers(tmp_path: Path) -> None:
    settings = Settings(store="postgresql://db/x", workers=2, data_dir=tmp_path)
    with pytest.raises(ConfigurationError, match=r"^workers: .*module:factory"):
        serve(create_app(settings))
    with pytest.raises(ConfigurationError, match=r"^workers: .*module:factory"):
        serve(settings=settings, agent=make_echo)


@pytest.mark.slow
def test_serve_runs_until_a_signal(tmp_path: Path) -> None:
    program = (
        "from hermes_trio import create_app, serve\n"
        "app = create_app(agent='demo', port=0, store='memory:', data_dir='data')\n"
        "serve(app)\n"
    )
    command = [sys.executable, "-c", program]
    environ = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("Try it:") for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
