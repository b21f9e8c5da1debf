"""The command line: flags, exit codes, one-line errors, and a help text that does not keep anyone waiting."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from attrs import define, field
from click.testing import CliRunner

import hermes_trio
import hermes_trio.cli as entry
import hermes_trio.server
from hermes_trio import __version__
from hermes_trio.cli import commands as cli
from hermes_trio.cli import sign_in
from hermes_trio.keys import KeysError, KeySources, open_keys
from hermes_trio.settings import (
    ConfigurationError,
    LoadedSettings,
    Source,
    SourceKind,
    load,
    options,
)

SERVE = "hermes_trio.server.main"
WORKERS = "hermes_trio.server.workers"
HEAVY = (
    "trio",
    "quart",
    "quart_trio",
    "hypercorn",
    "typed_settings",
    "structlog",
    "httpx2",
    "rich",
    "sqlite3",
)


@define
class FakeServer:
    """Stands in for ``hermes_trio.server.main``: notes what it was given, then ends as told."""

    code: int = 0
    error: BaseException = field(factory=lambda: SystemExit("not armed"))
    armed: bool = False
    served: list[LoadedSettings] = field(factory=list)
    checked: list[LoadedSettings] = field(factory=list)

    def main(self, loaded: LoadedSettings) -> int:
        """Serve, as far as the command line can tell."""
        self.served.append(loaded)
        self._fail()
        return self.code

    def check(self, loaded: LoadedSettings) -> None:
        """Check, as far as the command line can tell."""
        self.checked.append(loaded)
        self._fail()

    def fail_with(self, error: BaseException) -> None:
        """From now on end with this error."""
        self.error, self.armed = error, True

    def _fail(self) -> None:
        if self.armed:
            raise self.error


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the person who runs the tests gets in."""
    for name, option in options().items():
        for variable in (f"HERMES_TRIO_{name.upper()}", *option.variables):
            monkeypatch.delenv(variable, raising=False)
    for variable in ("HERMES_TRIO_CONFIG", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """The server that ``serve`` finds."""
    fake = FakeServer()
    monkeypatch.setitem(sys.modules, SERVE, fake)
    monkeypatch.setattr(hermes_trio.server, "main", fake, raising=False)
    return fake


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A real ``python -m hermes_trio``."""
    command = [sys.executable, "-m", "hermes_trio", *arguments]
    root = str(Path(hermes_trio.__file__).parent.parent)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=root, check=False
    )


# serve


def test_serve_hands_over_what_was_loaded(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_SERVER_MODEL_NAME", "mine")
    arguments = [
        "--port",
        "0",
        "--cors-origin",
        "http://a",
        "--cors-origin",
        "http://b",
        "--log-format",
        "json",
    ]
    assert cli.run(["serve", *arguments]) == 0
    (loaded,) = server.served
    assert loaded.settings.port == 0
    assert loaded.settings.cors_origins == ("http://a", "http://b")
    assert loaded.settings.log_format == "json"
    assert loaded.sources["port"] == Source(SourceKind.FLAG, "--port")
    assert loaded.sources["model_name"] == Source(SourceKind.ENVIRONMENT, "API_SERVER_MODEL_NAME")
    assert loaded.sources["host"].kind is SourceKind.DEFAULT


def test_every_flag_of_the_settings_works(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    values = {
        "host": "::1", "port": "1", "agent": "a:b", "model_name": "m", "api_key_file": str(path),
        "base_url": "http://a", "upstream_model": "u", "model_path": str(path), "tools": "t",
        "data_dir": str(tmp_path), "store": "memory:", "workers": "1", "cors_origins": "*", "allowed_hosts": "*", "max_runs": "0", "log_level": "debug",
        "log_format": "json", "access_log": "off", "sandbox": "off", "store_fallback": "memory", "certfile": str(path), "keyfile": str(path),
        "unix_socket": str(tmp_path / "socket"), "root_path": "/agents",
    }  # fmt: skip
    flags = {name: option.flag for name, option in options().items() if option.flag}
    assert flags.keys() == values.keys()
    line = [part for name, flag in flags.items() for part in (flag, values[name])]
    assert cli.run(["serve", *line]) == 0
    (loaded,) = server.served
    assert {
        name for name, source in loaded.sources.items() if source.kind is SourceKind.FLAG
    } == flags.keys()


@pytest.mark.parametrize(
    ("variable", "value", "note"),
    [
        ("PORT", "9", "port is set by the environment variable PORT; --port overrides it"),
        (
            "DATABASE_URL",
            "postgresql://ann:sesame@db/x",
            "store is set by the environment variable DATABASE_URL; --store overrides it",
        ),
    ],
)
def test_serve_names_variables_that_other_programs_use(
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    note: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert cli.run(["serve"]) == 0
    assert capsys.readouterr().err == f"Note: {note}\n"
    monkeypatch.setenv("API_SERVER_PORT", "8")
    assert cli.run(["serve", "--store", "memory:"]) == 0
    assert capsys.readouterr().err == ""


def test_several_workers_get_a_supervisor(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = FakeServer(code=4)
    monkeypatch.setitem(sys.modules, WORKERS, supervisor)
    monkeypatch.setattr(hermes_trio.server, "workers", supervisor, raising=False)
    line = ["serve", "--workers", "2", "--store", "postgresql://db/x"]
    assert cli.run(line) == 4
    assert [loaded.settings.workers for loaded in supervisor.served] == [2]
    assert server.served == []
    assert cli.run([*line, "--check"]) == 0
    assert len(server.checked) == 1


def test_serve_reads_the_named_file(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("port = 77")
    assert cli.run(["serve", "--config", str(path)]) == 0
    assert server.served[0].settings.port == 77
    assert server.served[0].sources["port"] == Source(SourceKind.FILE, f"{path}: port")


def test_the_exit_code_is_the_servers(server: FakeServer) -> None:
    server.code = 3
    assert cli.run(["serve"]) == 3
    assert CliRunner().invoke(cli.program, ["serve"]).exit_code == 3


def test_main_exits_with_the_code(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.code = 4
    monkeypatch.setattr(sys, "argv", ["hermes-trio", "serve"])
    with pytest.raises(SystemExit) as caught:
        entry.main()
    assert caught.value.code == 4


def test_check_only_checks(server: FakeServer) -> None:
    result = CliRunner().invoke(cli.program, ["serve", "--check", "--port", "9"])
    assert (result.exit_code, result.output) == (0, "configuration ok\n")
    assert [loaded.settings.port for loaded in server.checked] == [9]
    assert not server.served


@pytest.mark.parametrize(
    "error", [ConfigurationError("agent: no such\nagent"), KeysError("agent: no such agent")]
)
@pytest.mark.parametrize("arguments", [["serve", "--check"], ["serve"]])
def test_trouble_is_one_line(
    server: FakeServer, capsys: pytest.CaptureFixture[str], error: Exception, arguments: list[str]
) -> None:
    server.fail_with(error)
    assert cli.run(arguments) == 2
    assert capsys.readouterr() == ("", "Error: agent: no such agent\n")


def test_other_errors_are_not_hidden(server: FakeServer) -> None:
    server.fail_with(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.run(["serve"])


def test_an_interrupt_is_quiet(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.fail_with(KeyboardInterrupt())
    assert cli.run(["serve"]) == 130
    assert capsys.readouterr() == ("", "")


def test_an_interrupt_before_the_command_began(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.program, "make_context", interrupted)
    assert cli.run(["serve"]) == 130
    assert capsys.readouterr().err.strip() == ""


# key, open, completion


@pytest.fixture
def stored_key(tmp_path: Path) -> str:
    """The key that an earlier start of the server has generated in its data folder."""
    opened = open_keys(KeySources("127.0.0.1", tmp_path / "data"))
    return opened.keyring.keys[0].key


def test_key_prints_the_generated_key(stored_key: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.program, ["key", "--data-dir", str(tmp_path / "data")])
    assert (result.exit_code, result.output) == (0, f"{stored_key}\n")


def test_key_before_the_first_start(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.program, ["key", "--data-dir", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "has the server been started?" in result.output
    assert not (tmp_path / "none").exists()


def test_open_prints_a_link_that_signs_in(stored_key: str, tmp_path: Path) -> None:
    arguments = ["open", "--print", "--port", "77", "--data-dir", str(tmp_path / "data")]
    result = CliRunner().invoke(cli.program, arguments)
    assert result.output == f"http://127.0.0.1:77/#key={quote(stored_key, safe='')}\n"


def test_open_without_a_display_prints_the_link(
    stored_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(variable, raising=False)
    result = CliRunner().invoke(cli.program, ["open", "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 0
    assert "/#key=" in result.output


def test_a_browser_gets_a_private_file_and_not_the_key(stored_key: str, tmp_path: Path) -> None:
    launched: list[str] = []

    def launch(url: str) -> bool:
        launched.append(url)
        return True

    settings = load({"data_dir": tmp_path / "data"}, {}, None).settings
    assert sign_in.open_in_browser(settings, {"DISPLAY": ":0"}, launch)
    path = tmp_path / "data" / "sign-in.html"
    assert launched == [path.as_uri()]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f'href="http://127.0.0.1:8642/#key={quote(stored_key, safe="")}"' in path.read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    script = CliRunner().invoke(cli.program, ["completion", shell])
    assert script.exit_code == 0
    assert "_HERMES_TRIO_COMPLETE" in script.output


def test_completion_completes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from hermes_trio.cli.commands import run; run([])"],
        env={
            **os.environ,
            "_HERMES_TRIO_COMPLETE": "bash_complete",
            "COMP_WORDS": "hermes-trio ser",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "plain,serve\n"


# Misuse


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["serve", "--port", "abc"], "port: 'abc' is not a whole number (from --port)"),
        (["config", "show", "--max-runs=-1"], "max_runs: -1 is less than 0 (from --max-runs)"),
        (
            ["serve", "--config", "/no/such"],
            "config: /no/such: No such file or directory (from --config)",
        ),
        (
            ["serve", "--api-key-file", "/no"],
            "api_key_file: /no: No such file or directory (from --api-key-file)",
        ),
        (["serve", "--certfile", "/no"], "certfile: requires keyfile as well (from --certfile)"),
        (["serve", "--prot", "1"], "No such option '--prot'."),
        (["serve", "--api-key", "secret"], "No such option '--api-key'."),
        (["serve", "--port"], "Option '--port' requires an argument."),
        (["serve", "now"], "Got unexpected extra argument (now)"),
        (["sevre"], "No such command 'sevre'."),
    ],
)
def test_misuse_is_one_line_and_code_2(
    server: FakeServer, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"Error: {expected}")
    assert err.count("\n") == 1
    assert not server.served


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 2
    assert "serve" in capsys.readouterr().err


# config show


def test_config_show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('log_level = "debug"')
    monkeypatch.setenv("API_SERVER_KEY", "open-sesame-open-sesame")
    monkeypatch.setenv("API_SERVER_CORS_ORIGINS", "http://a,http://b")
    monkeypatch.setenv("DATABASE_URL", "postgresql://ann:sesame@db/x")
    result = CliRunner().invoke(
        cli.program, ["config", "show", "--port", "1", "--config", str(path)]
    )
    assert result.exit_code == 0
    rows = {line.split()[0]: line.split(maxsplit=1)[1] for line in result.output.splitlines()}
    assert list(rows) == ["option", *options()]
    assert rows["option"].split() == ["value", "from"]
    assert rows["port"].split() == ["1", "--port"]
    assert rows["api_key"].split() == ["********", "API_SERVER_KEY"]
    assert rows["log_level"].split(maxsplit=1) == ["debug", f"{path}: log_level"]
    assert rows["cors_origins"].split() == ["http://a,", "http://b", "API_SERVER_CORS_ORIGINS"]
    assert rows["store"].split() == ["postgresql://ann:***@db/x", "DATABASE_URL"]
    assert rows["certfile"].split() == ["(not", "set)", "default"]
    assert "sesame" not in result.output


# The real program


def test_version() -> None:
    result = python("--version")
    assert (result.returncode, result.stdout, result.stderr) == (
        0,
        f"hermes-trio {__version__}\n",
        "",
    )


def test_config_show_with_profiles(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(
        'base_url = "http://a/v1"\nupstream_api_key = "sk-hidden"\nsystem_prompt = "one\\ntwo"\n'
        '[profiles.coder]\nagent = "demo"\napi_key = "sk-hidden"\n[profiles.coder.options]\ntoken = "sk-hidden"\n'
        '[mcp.files]\ncommand = "x"\nenv = {A = "sk-hidden"}\n'
    )
    result = CliRunner().invoke(cli.program, ["config", "show", "--config", str(path)])
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in result.output.splitlines()}
    assert "sk-hidden" not in result.output
    assert rows["agent"] == "upstream default"
    assert rows["upstream_api_key"] == f"******** {path}: upstream_api_key"
    assert rows["system_prompt"] == f"one two {path}: system_prompt"
    assert rows["profiles.coder.agent"] == f"demo {path}: profiles.coder.agent"
    assert rows["profiles.coder.base_url"] == f"http://a/v1 {path}: base_url"
    assert rows["profiles.coder.api_key"] == f"******** {path}: profiles.coder.api_key"
    assert rows["profiles.coder.options"] == f"token {path}: profiles.coder.options"
    assert rows["profiles.coder.keys"] == "(not set) default"
    assert rows["mcp.files"] == f"command, env {path}: mcp.files"


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(f'system_prompt = "{"x" * 500}"\n')
    result = CliRunner().invoke(cli.program, ["config", "show", "--config", str(path)])
    assert f" {'x' * 100}... " in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["serve", "--help"],
        ["config", "show", "-h"],
        ["chat", "-h"],
        ["store", "migrate", "-h"],
    ],
)
def test_help(arguments: list[str]) -> None:
    result = python(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: hermes-trio")


def test_help_names_every_flag_and_its_default() -> None:
    text = " ".join(CliRunner().invoke(cli.program, ["serve", "--help"]).output.split())
    for option in options().values():
        assert option.flag in text
        assert not option.flag or option.help in text
    assert "[default: 8642]" in text
    assert "--check" in text


@pytest.mark.parametrize("command", ["serve", "chat", "doctor", "store", "open", "completion"])
def test_help_imports_nothing_heavy(command: str) -> None:
    program = f"import sys, hermes_trio.cli.commands as c; c.run(['{command}', '--help']); print([*sys.modules.keys() & {{*{HEAVY}}}])"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True,
        cwd=Path(hermes_trio.__file__).parent.parent,
    )  # fmt: skip
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_wrong_port_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_SERVER_PORT", "abc")
    result = python("config", "show")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "Error: port: 'abc' is not a whole number (from API_SERVER_PORT)\n"


def test_a_deprecated_option_is_one_warning_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_TRIO_AHEAD_CHARACTERS", "99")
    result = python("config", "show")
    assert result.returncode == 0
    assert ["max_buffered_chars", "99", "HERMES_TRIO_AHEAD_CHARACTERS"] in [
        line.split() for line in result.stdout.splitlines()
    ]
    assert result.stderr == (
        "Warning: HERMES_TRIO_AHEAD_CHARACTERS is deprecated; use HERMES_TRIO_MAX_BUFFERED_CHARS instead\n"
    )


def test_config_show_for_real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PORT", "9")
    result = python("config", "show")
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["port", "9", "PORT"] in lines
    assert ["data_dir", f"{tmp_path}/.local/share/hermes-trio", "default"] in lines
