"""The agent ``local`` with real child processes, in which a fake library answers."""

from __future__ import annotations

import importlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import (
    AgentConfig,
    AgentContext,
    AgentFactory,
    AsyncAgent,
    TurnRequest,
)
from hermes_trio.agents.local.provider import provider
from hermes_trio.agents.local.supervisor import LaunchSpec, run_child
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.events import Result, Verdict
from tests.agents.local import fake_package
from tests.support.asgi import real_timeout
from tests.support.doc_examples import ROOT
from tests.support.upstream_agent import RecordingEmitter


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the fake library and models for it."""
    fake_package.install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    for name in ("Hello.", "broken", "slow"):
        (tmp_path / f"{name.lower().removesuffix(chr(46))}.gguf").write_text(name)
    return tmp_path


@asynccontextmanager
async def opened(config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
    with real_timeout():
        async with provider.open(config, workspace) as factory:
            yield factory


def configured(package: Path, **more: Any) -> AgentConfig:
    return AgentConfig(**{"model_path": package / "hello.gguf", "tools": ("none",), **more})


async def answer(factory: AgentFactory, text: str = "Hi") -> tuple[str, Result]:
    """Return the text of one turn."""
    turn = TurnRequest("run_0123456789ab", "session", text)
    emitter = RecordingEmitter()
    agent = cast("AsyncAgent", factory(AgentContext(turn, Path())))
    result = await agent.run(turn, cast("AsyncEmitter", emitter))
    assert isinstance(result, Result)
    return emitter.said, result


def ended(pid: int) -> bool:
    """Whether a process ends within a few seconds."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], 20)[0])
    finally:
        os.close(pidfd)


async def test_a_turn_is_done_by_the_child_which_ends_with_the_block(package: Path) -> None:
    async with opened(configured(package), package) as factory:
        assert (await answer(factory))[0] == "Hello."
        pid = int((await answer(factory, "pid"))[0])
        assert os.getpgid(pid) == pid != os.getpgid(0)
    assert ended(pid)


async def test_options_reach_the_library(package: Path) -> None:
    options = {"local": {"context": 512, "slots": 2, "threads": 3, "gpu_layers": 0}}
    async with opened(configured(package, options=options), package) as factory:
        said, _ = await answer(factory, "params")
    for part in (
        "'n_ctx': 512",
        "'n_parallel': 2",
        "n_threads=3",
        "'n_gpu_layers': 0",
        "['127.0.0.1']",
    ):
        assert part in said


async def test_the_child_sees_no_secret(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    async with opened(configured(package), package) as factory:
        said, _ = await answer(factory, "environ")
    assert "CUDA_VISIBLE_DEVICES" in said
    assert "OPENAI_API_KEY" not in said


async def test_a_child_that_dies_is_replaced(package: Path) -> None:
    async with opened(configured(package), package) as factory:
        first = int((await answer(factory, "pid"))[0])
        os.kill(first, signal.SIGKILL)
        assert ended(first)
        with real_timeout():
            said, result = await answer(factory, "pid")
            while result.verdict is not Verdict.COMPLETED:  # the news of the death had not come yet
                said, result = await answer(factory, "pid")
        assert int(said) != first


async def test_a_child_that_dies_in_a_turn_fails_that_turn(package: Path) -> None:
    config = configured(package)
    async with opened(config, package) as factory:
        _, result = await answer(factory, "die")
        assert result.verdict is Verdict.FAILED
        assert result.error


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"model_path": None}, "model_path is missing: set it to a model file in GGUF format"),
        (
            {"model_path": Path("/no/such.gguf")},
            "model_path: /no/such.gguf: No such file or directory",
        ),
        (
            {"options": {"local": {"context": 0}}},
            "options of local: Expected `int` >= 1 - at `$.context`",
        ),
        (
            {"options": {"local": {"contxt": 1}}},
            "options of local: Object contains unknown field `contxt`",
        ),
        ({"options": {"local": 5}}, "options of local: Expected `object`, got `int`"),
        (
            {"tools": ("no_such",)},
            "no tool 'no_such'",
        ),
    ],
)
async def test_what_cannot_work_is_a_line(
    package: Path, more: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        async with opened(configured(package, **more), package):
            raise AssertionError
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


async def test_a_file_that_is_no_model_is_a_line(package: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        async with opened(configured(package, model_path=package / "broken.gguf"), package):
            raise AssertionError
    assert (
        str(caught.value)
        == "model_path: The model server is down: exit code 1: gguf: invalid magic"
    )


async def test_a_missing_package_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").touch()
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ConfigurationError) as caught:
        async with opened(AgentConfig(model_path=tmp_path / "model.gguf"), tmp_path):
            raise AssertionError
    assert str(caught.value) == (
        "agent local: the package xllamacpp is missing: pip install '.[local]' in a clone of the repository"
    )


async def test_a_child_that_does_not_end_is_killed(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_trio.agents.local.supervisor.STOP_SECONDS", 0.05)
    deaf = 'import sys, time; sys.stdin.readline(); print(\'{"address": "http://127.0.0.1:1"}\', flush=True); time.sleep(3600)'
    ready = trio.Event()
    with real_timeout():
        async with trio.open_nursery() as nursery:
            spec = LaunchSpec(package)
            nursery.start_soon(run_child, spec, lambda _: ready.set(), (sys.executable, "-c", deaf))
            await ready.wait()
            nursery.cancel_scope.cancel()
    assert ready.is_set()


async def test_a_child_that_cannot_listen_tells_its_end(package: Path) -> None:
    with real_timeout():
        why = await run_child(
            LaunchSpec(package), print, (sys.executable, "-c", "import sys; sys.exit('no memory')")
        )
    assert why == "exit code 1: no memory"


PARENT = """
import sys, trio
from pathlib import Path
from hermes_trio.agents.local import supervisor

async def main():
    await supervisor.run_child(supervisor.LaunchSpec(Path(sys.argv[1])), print)

import structlog
structlog.configure(processors=[lambda _, __, event: event.get("line", "")])
trio.run(main)
"""


@contextmanager
def parent(model: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has a child, and shows all that the child says."""
    environ = {**os.environ, "PYTHONPATH": f"{model.parent}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        [sys.executable, "-u", "-c", PARENT, model], stdout=subprocess.PIPE, env=environ, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_child_dies_with_a_parent_that_is_killed_even_while_it_loads(package: Path) -> None:
    with parent(package / "slow.gguf") as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("loading"))
        pid = int(line.split()[1])
        os.kill(pid, 0)
        process.kill()
        process.wait()
        assert ended(pid)
