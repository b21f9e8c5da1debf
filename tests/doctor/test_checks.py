"""The doctor's checks on real files and sockets, and their timeouts."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

from hermes_trio.cli import commands as cli
from hermes_trio.doctor import local, remote
from hermes_trio.doctor.checks import CheckTimeouts, run_checks, try_import
from hermes_trio.doctor.findings import Finding, Level
from hermes_trio.keys import LOCAL_FILE
from hermes_trio.settings import Profile, Settings
from hermes_trio.stores.factory import POSTGRES_EXTRA
from hermes_trio.stores.sqlite import open_sqlite
from hermes_trio.stores.sqlite.schema import LATEST_VERSION

QUICK = CheckTimeouts(local=5.0, remote=0.5, imports=5.0)
SECRET = "sk-this-must-not-be-shown-anywhere"
STRONG = "J8vNq2LxWz5RtYc7Hb4KdMf9Ps3"


class Site(BaseHTTPRequestHandler):
    """A model server that accepts one key, below ``/v1`` only."""

    names: tuple[str, ...] = ("m", "n")

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            self.send_error(404)
        elif self.headers.get("Authorization") != f"Bearer {SECRET}":
            self.send_error(401)
        else:
            body = json.dumps({"data": [{"id": name} for name in self.names]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def model_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Site) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def listening(backlog: int = 8) -> Iterator[int]:
    """Listen on a port and never answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as sock:
        yield sock.getsockname()[1]


def found(settings: Settings) -> dict[str, Finding]:
    return {finding.check: finding for finding in run_checks(settings, QUICK)}


def test_a_machine_without_a_previous_start(tmp_path: Path) -> None:
    data = tmp_path / "a" / "b"
    checks = found(Settings(data_dir=data, port=0))
    assert [*checks][:7] == ["port", "key", "data folder", "disk", "SQLite", "store", "sandbox"]
    del checks["sandbox"]  # depends on the machine
    assert {finding.level for finding in checks.values()} == {Level.OK}
    assert not data.parent.exists()  # looking makes nothing


# The port


def test_a_port_used_by_a_silent_program(tmp_path: Path) -> None:
    with listening() as port:
        finding = found(Settings(data_dir=tmp_path, port=port))["port"]
    assert finding.level is Level.FAIL
    assert f"(pid {os.getpid()})" in finding.message


def test_a_port_used_by_another_web_server(tmp_path: Path) -> None:
    with model_server() as url:
        port = int(url.rpartition(":")[2])
        assert found(Settings(data_dir=tmp_path, port=port))["port"].level is Level.FAIL


def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    finding = found(Settings(data_dir=tmp_path, host="192.0.2.1", api_key=STRONG))["port"]
    assert finding.level is Level.FAIL
    assert "cannot listen on 192.0.2.1" in finding.message


# Keys


def key_file(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


@pytest.mark.parametrize(
    ("text", "mode", "level"),
    [
        (STRONG, 0o600, Level.OK),
        ("aaaaaaaaaaaaaaaaaaaa", 0o600, Level.WARN),
        (STRONG, 0o644, Level.FAIL),
        ("wxyz-wxyz", 0o600, Level.FAIL),
    ],
)
def test_the_generated_key(tmp_path: Path, text: str, mode: int, level: Level) -> None:
    key_file(tmp_path / LOCAL_FILE, text, mode)
    finding = local.check_key(Settings(data_dir=tmp_path))
    assert finding.level is level
    assert text not in finding.message


def test_other_machines_need_a_key(tmp_path: Path) -> None:
    finding = local.check_key(Settings(data_dir=tmp_path, host="0.0.0.0"))
    assert finding.level is Level.FAIL
    assert "API_SERVER_KEY" in finding.message
    assert (
        local.check_key(Settings(data_dir=tmp_path, host="0.0.0.0", api_key=STRONG)).level
        is Level.OK
    )


# Files


def test_a_data_directory_that_others_can_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert local.check_directory(Settings(data_dir=tmp_path)).level is Level.WARN
    tmp_path.chmod(0o700)
    assert local.check_directory(Settings(data_dir=tmp_path)).level is Level.OK


def test_a_data_directory_that_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert local.check_directory(Settings(data_dir=tmp_path / "file")).level is Level.FAIL
    assert local.check_directory(Settings(data_dir=tmp_path / "file" / "below")).level is Level.FAIL
    assert local.check_directory(Settings(data_dir=Path("/proc/nowhere"))).level is Level.FAIL
    assert local.check_directory(Settings(data_dir=Path("/proc"))).level is Level.FAIL


async def test_a_store_in_use_and_closed(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    async with open_sqlite(tmp_path / "hermes.db"):
        used = local.check_store(settings)
    left = local.check_store(settings)
    assert (used.level, left.level) == (Level.OK, Level.OK)
    assert used.message.endswith(f"schema version {LATEST_VERSION}, in use by a running server")
    assert left.message.endswith(f"schema version {LATEST_VERSION}")
    assert {*os.listdir(tmp_path)} == {"hermes.db", "hermes.db.lock"}


def test_a_store_that_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "hermes.db").write_bytes(b"not a database" * 100)
    assert local.check_store(Settings(data_dir=tmp_path)).level is Level.FAIL
    (tmp_path / "hermes.db").unlink()
    (tmp_path / "hermes.db").mkdir()
    assert local.check_store(Settings(data_dir=tmp_path)).level is Level.FAIL
    assert local.check_store(Settings(data_dir=tmp_path, store="memory:")).level is Level.OK


def test_an_unusable_store_with_a_fallback_is_a_warning(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, store_fallback="memory")
    assert local.check_store(settings).level is Level.OK
    (tmp_path / "hermes.db").write_bytes(b"not a database" * 100)
    found = local.check_store(settings)
    refused = local.check_store(Settings(data_dir=tmp_path))
    assert (found.level, found.advice) == (Level.WARN, refused.advice)
    assert found.message == (
        f"{refused.message}; the server starts without it and loses all records at the end"
        " (store_fallback)"
    )


def test_a_missing_driver_has_no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not start without the driver of the store that it is to use."""
    monkeypatch.setitem(sys.modules, "hermes_trio.stores.postgres", None)
    settings = Settings(store="postgresql://ann:hush@db/x", store_fallback="memory")
    found = local.check_store(settings)
    assert (found.level, found.advice) == (Level.FAIL, POSTGRES_EXTRA)
    assert found.message.startswith("the driver of PostgreSQL is missing")
    assert "hush" not in repr(found)


# The models' servers


def upstream(settings: Settings) -> Finding:
    return found(settings)["upstream"]


def test_model_servers(tmp_path: Path) -> None:
    with model_server() as url:
        right = Settings(
            data_dir=tmp_path,
            port=0,
            base_url=f"{url}/v1",
            upstream_api_key=SECRET,
            upstream_model="m",
        )
        wrong_key = Settings(
            data_dir=tmp_path, port=0, base_url=f"{url}/v1", upstream_api_key="another"
        )
        wrong_path = Settings(data_dir=tmp_path, port=0, base_url=url, upstream_api_key=SECRET)
        profile = Profile(
            name="coder", agent="demo", base_url=f"{url}/v1/", api_key=SECRET, model="zzz"
        )
        levels = [upstream(each).level for each in (right, wrong_key, wrong_path)]
        by_profile = found(Settings(data_dir=tmp_path, port=0, profiles={"coder": profile}))
    assert levels == [Level.OK, Level.FAIL, Level.WARN]
    assert by_profile["upstream of coder"].level is Level.WARN
    assert "zzz" in by_profile["upstream of coder"].message
    assert by_profile["clock"].message == "plausible, and in agreement with other servers"
    assert SECRET not in str(by_profile)


def test_model_servers_that_do_not_answer(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        assert upstream(Settings(data_dir=tmp_path, port=0, base_url=closed)).level is Level.FAIL
    begun = time.monotonic()
    with listening() as port:
        silent = upstream(
            Settings(data_dir=tmp_path, port=0, base_url=f"http://127.0.0.1:{port}/v1")
        )
    assert silent.level is Level.FAIL
    assert time.monotonic() - begun < 5


def test_an_agent_without_its_model_server(tmp_path: Path) -> None:
    assert upstream(Settings(data_dir=tmp_path, port=0, agent="upstream")).level is Level.FAIL


def test_each_model_server_is_checked_once(tmp_path: Path) -> None:
    same = Profile(name="p", base_url="http://a/v1", api_key="k")
    settings = Settings(base_url="http://a/v1", upstream_api_key="k", profiles={"p": same})
    assert [asked.label for asked in remote.list_upstreams(settings)] == [""]


# Packages, time


def test_packages_that_are_needed(tmp_path: Path) -> None:
    settings = Settings(mcp={"files": {"command": "x"}}, agent="hermes")
    levels = {finding.check: finding.level for finding in local.check_packages(settings)}
    assert levels["package mcp"] is (Level.OK if local.is_installed("mcp") else Level.FAIL)
    assert local.hermes_package(settings).is_needed
    assert not local.is_installed("no_such_package.inside")


async def test_imports_that_fail_or_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module_x.py").write_text("1/0")
    (tmp_path / "endless_module_x.py").write_text("import time\ntime.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert await try_import("json", 20) == ""
    assert "fails" in await try_import("broken_module_x", 20)
    assert "takes more than" in await try_import("endless_module_x", 0.2)


def test_nothing_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(_settings: Settings) -> Finding:
        time.sleep(3)  # a dead network disk; the thread is left behind
        raise AssertionError

    def gone(_settings: Settings) -> Finding:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(local, "check_store", stuck)
    monkeypatch.setattr(local, "check_disk", gone)
    begun = time.monotonic()
    checks = {
        each.check: each
        for each in run_checks(Settings(data_dir=tmp_path, port=0), CheckTimeouts(local=0.2))
    }
    assert time.monotonic() - begun < 2.5
    assert checks["store"].message == "no result within 0.2 s"
    assert checks["disk"].message == "cannot be checked: Input/output error"


# The command


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    arguments = ["doctor", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    fine = CliRunner().invoke(cli.program, arguments)
    assert (fine.exit_code, fine.output.splitlines()[0].split()) == (
        0,
        ["ok", "settings", "can", "be", "read"],
    )
    bad = CliRunner().invoke(cli.program, [*arguments, "--json", "--agent", "upstream"])
    assert bad.exit_code == 1
    assert json.loads(bad.output)["status"] == "fail"
    assert SECRET not in fine.output + bad.output


def test_settings_that_cannot_be_read_are_a_finding() -> None:
    result = CliRunner().invoke(cli.program, ["doctor", "--port", "abc"])
    assert result.exit_code == 1
    assert result.output.startswith(
        "fail  settings  port: 'abc' is not a whole number (from --port)\n"
    )


@pytest.mark.parametrize(
    ("mode", "problem", "level"),
    [
        ("auto", "", Level.OK),
        ("require", "", Level.OK),
        ("auto", "it is not installed", Level.WARN),
        ("require", "it is not installed", Level.FAIL),
        ("off", "", Level.WARN),
        ("off", "it is not installed", Level.WARN),
    ],
)
def test_the_sandbox(mode: str, problem: str, level: Level) -> None:
    finding = local.assess_sandbox(mode, problem)
    assert finding.level is level
    assert problem in finding.message or mode == "off"


def test_the_sandbox_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = Settings(data_dir=tmp_path, sandbox="require")
    assert "bubblewrap (bwrap) is not installed" in local.check_sandbox(settings).message
