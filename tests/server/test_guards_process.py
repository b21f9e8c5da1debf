"""The process around the server.

Settings, tuning, versions, descriptors, and Hypercorn's command line.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import tomllib
from functools import partial
from pathlib import Path

import pytest
import structlog
import trio
from packaging.requirements import Requirement

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.server.config import StructlogLogger, hypercorn_config
from hermes_trio.server.tuning import tune_process
from hermes_trio.server.versions import PINS, check_versions
from tests.server.apps import Demo
from tests.support.fatal_packets import TRIGGERS
from tests.support.in_process_server import serving
from tests.support.raw_http import ask, get

ROOT = Path(__file__).parent.parent.parent


def test_tuning_can_be_undone() -> None:
    before = gc.get_threshold(), sys.getswitchinterval()
    tuning = tune_process()
    try:
        assert gc.get_threshold() == (50_000, 20, 100)
        assert sys.getswitchinterval() == pytest.approx(0.02)
        assert gc.get_freeze_count() > 0
        assert tuning.frozen_objects > 0
        assert (tuning.thresholds, tuning.switch_seconds) == before
    finally:
        tuning.undo()
    assert (gc.get_threshold(), sys.getswitchinterval()) == before
    assert gc.get_freeze_count() == 0


def test_the_settings_of_the_process() -> None:
    config = hypercorn_config("cert.pem", "key.pem")
    assert config.ssl_enabled
    assert (config.graceful_timeout, config.keep_alive_timeout, config.backlog) == (5, 10, 4096)
    assert config.read_timeout is None
    assert config.accesslog is None
    assert config.alpn_protocols == ["h2", "http/1.1"]
    assert not config.include_server_header
    assert not hypercorn_config().ssl_enabled


async def test_hypercorns_lines_go_to_structlog() -> None:
    log = hypercorn_config().log
    assert isinstance(log, StructlogLogger)
    with structlog.testing.capture_logs() as lines:
        await log.access({}, {"status": 200, "headers": []}, 0.1)  # type: ignore[arg-type]
        for name in ("debug", "info", "warning", "error", "critical", "exception"):
            await getattr(log, name)("a line")
        await log.log(20, "a line")
    levels = [line["log_level"] for line in lines]
    assert levels == ["debug", "debug", "warning", "error", "critical", "error", "info"]


async def test_no_line_for_a_request_and_one_for_an_error() -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        raise ValueError("mine")

    with structlog.testing.capture_logs() as lines:
        async with serving(Demo()) as live:
            await ask(live.port, get("/", "Connection: close"))
        assert {line["log_level"] for line in lines} == {"debug"}
        async with serving(app) as live:
            assert b" 500 " in await ask(live.port, get("/", "Connection: close"))
    assert [line["event"] for line in lines if "ASGI Framework" in line["event"]][
        -1
    ] == "Error in ASGI Framework"


def test_the_installed_versions_are_the_ones_we_know() -> None:
    check_versions()


def test_the_package_asks_for_the_same_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(text) for text in project["dependencies"]]
    for package, supported in PINS.items():
        ranges = [each.specifier for each in wanted if each.name == package]
        assert ranges, package
        for series in supported:
            assert any(f"{series}.0" in each or f"{series}.99" in each for each in ranges)
        major, _, minor = supported[-1].rpartition(".")
        following = f"{major}.{int(minor) + 1}.0".lstrip(".")
        assert not any(following in each for each in ranges), following


@pytest.mark.parametrize(
    ("package", "series", "problem"),
    [
        ("hypercorn", "0.17", r"version 0\.18\.\d+ is installed, but this server needs 0\.17\.\*"),
        ("hypercorn", "0.1", "version"),
        ("no-such-package-here", "1", r"is not installed, but this server needs 1\.\*"),
    ],
)
def test_another_version_is_named_in_one_line(package: str, series: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{package}: {problem}") as caught:
        check_versions({package: (series,)})
    assert "\n" not in str(caught.value)


def test_all_supported_series_are_named() -> None:
    needed = r"needs 0\.16\.\* or 0\.17\.\*; run: pip install 'hypercorn==0\.16\.\*'$"
    with pytest.raises(ConfigurationError, match=needed):
        check_versions({"hypercorn": ("0.16", "0.17")})


FEW_DESCRIPTORS = """
    import resource, trio, trio.testing
    from tests.server.apps import Demo
    from tests.support.raw_http import ask, connect, get
    from tests.support.in_process_server import serving

    async def main():
        async with serving(Demo()) as live:
            held = [await connect(live.port) for _ in range(5)]
            await trio.testing.wait_all_tasks_blocked()
            used = max(stream.socket.fileno() for stream in held) + 6
            for limit in (used + 10, used + 11):  # a connection takes two: once they are short on each side
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, used + 11))
                try:
                    while True:
                        held.append(await connect(live.port))
                except OSError as error:
                    print("full", error.errno)
            await trio.testing.wait_all_tasks_blocked(0.02)
            for stream in held:
                await stream.aclose()
            answer = await ask(live.port, get("/", "Connection: close"))
            print("served", answer.endswith(b"hello"))

    trio.run(main)
"""


@pytest.mark.slow
def test_running_out_of_descriptors_is_survived() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FEW_DESCRIPTORS)],
        check=False, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "served True" in done.stdout, done.stderr
    assert "full" in done.stdout
    assert "accept returned EMFILE" in done.stderr


UNDER_HYPERCORN = """
    from hermes_trio.server.guards import Guards, install
    from tests.server.apps import Demo

    install(Guards())

    async def app(scope, receive, send):
        await Demo()(scope, receive, send)
"""


@pytest.mark.slow
async def test_the_command_line_of_hypercorn_is_guarded_too(tmp_path: Path) -> None:
    (tmp_path / "guarded.py").write_text(textwrap.dedent(UNDER_HYPERCORN))
    command = [
        sys.executable,
        "-m",
        "hypercorn",
        "-k",
        "trio",
        "-w",
        "0",
        "-b",
        "127.0.0.1:0",
        "guarded:app",
    ]
    options = {
        "stderr": subprocess.PIPE,
        "cwd": tmp_path,
        "env": {**os.environ, "PYTHONPATH": str(ROOT)},
        "start_new_session": True,
    }
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            process = await nursery.start(
                partial(trio.run_process, command, check=False, **options)
            )
            port = await port_of(process)
            for trigger in TRIGGERS:
                await trigger(port)
            assert b"hello" in await ask(port, get("/", "Connection: close"))
            process.terminate()


async def port_of(process: trio.Process) -> int:
    assert process.stderr is not None
    seen = b""
    while b"CTRL" not in seen:
        seen += await process.stderr.receive_some(4096)
    return int(seen.rpartition(b" (CTRL")[0].rpartition(b":")[2])
