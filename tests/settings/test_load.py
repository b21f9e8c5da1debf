"""Loading settings: sources, precedence, and error messages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio import create_app
from hermes_trio.settings import (
    ConfigurationError,
    InvalidValueError,
    LoadedSettings,
    Settings,
    SettingsError,
    Source,
    SourceKind,
    load,
    options,
)
from hermes_trio.settings.model import deprecated_names, own_variable
from hermes_trio.stores.factory import InMemory, SqliteFile

NO_HOME = {"HOME": "/nonexistent"}


def toml(folder: Path, text: str) -> Path:
    """Write a configuration file with this text."""
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(flags: dict[str, Any], environ: dict[str, str], config_file: Path | None = None) -> str:
    """Return the one-line error of ``load``."""
    with pytest.raises(SettingsError) as caught:
        load(flags, NO_HOME | environ, config_file)
    text = str(caught.value)
    assert "\n" not in text
    return text


def from_env(**environ: str) -> LoadedSettings:
    """Load settings from an environment alone."""
    return load({}, NO_HOME | environ, None)


# Defaults and the class itself


def test_defaults_need_nothing() -> None:
    loaded = from_env()
    assert loaded.settings == Settings(data_dir=Path("/nonexistent/.local/share/hermes-trio"))
    assert set(loaded.sources.values()) == {Source(SourceKind.DEFAULT, "default")}
    assert list(loaded.sources) == list(options())


def test_the_documented_defaults() -> None:
    settings = Settings()
    assert (settings.host, settings.port, settings.agent_name) == ("127.0.0.1", 8642, "demo")
    assert (settings.model_name, settings.max_runs, settings.max_body_bytes) == (
        "hermes-agent",
        100,
        10_000_000,
    )
    assert (settings.log_level, settings.log_format, settings.open_webui_status) == (
        "info",
        "text",
        "auto",
    )
    assert settings.access_log is True
    assert (settings.keepalive_seconds, settings.run_seconds, settings.stall_seconds) == (10, 0, 30)
    assert (settings.drain_seconds, settings.interrupt_grace_seconds) == (20, 5)
    assert (settings.write_seconds, settings.body_seconds) == (30, 20)
    assert (settings.max_iterations, settings.upstream_read_seconds, settings.upstream_retries) == (
        50,
        60,
        2,
    )


def test_settings_and_sources_are_frozen() -> None:
    loaded = from_env()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        loaded.settings.port = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        loaded.sources["port"] = Source(SourceKind.FLAG, "--port")  # type: ignore[index]


def test_every_option_is_documented_and_no_secret_has_a_flag() -> None:
    for option in options().values():
        assert option.help.endswith(".")
        assert not (option.secret and option.flag)


def test_repr_hides_the_key() -> None:
    assert "sesame" not in repr(Settings(api_key="open-sesame-open-sesame"))
    assert "api_key=''" in repr(Settings())


def test_data_dir_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert Settings().data_dir == Path("/data/hermes-trio")
    assert from_env(XDG_DATA_HOME="/other").settings.data_dir == Path("/other/hermes-trio")
    assert from_env(XDG_DATA_HOME="relative").settings.data_dir == Path(
        "/nonexistent/.local/share/hermes-trio"
    )
    assert load({}, {}, None).settings.data_dir == Path.home() / ".local/share/hermes-trio"


# Precedence

# The sources of one option, weakest first: how it is given, and what it is called.
SOURCES = ("file", "PORT", "API_SERVER_PORT", "HERMES_TRIO_PORT", "flag")


@given(given=st.sets(st.sampled_from(SOURCES)), empty=st.sets(st.sampled_from(SOURCES[1:4])))
def test_the_strongest_source_wins_and_is_reported(
    tmp_path_factory: pytest.TempPathFactory, given: set[str], empty: set[str]
) -> None:
    path = toml(tmp_path_factory.mktemp("precedence"), "port = 1" if "file" in given else "")
    environ = dict.fromkeys(empty, "")
    environ |= {name: str(SOURCES.index(name) + 1) for name in given if name.isupper()}
    flags = {"port": "5"} if "flag" in given else {}
    loaded = load(flags, NO_HOME | environ, path)
    names = {"file": f"{path}: port", "flag": "--port"}
    winner = max(given, key=SOURCES.index, default="")
    assert loaded.settings.port == (SOURCES.index(winner) + 1 if winner else 8642)
    assert loaded.sources["port"].name == (names.get(winner, winner) if winner else "default")


# Several workers or nodes need another store than the one that these are tried with.
FIXED = {"certfile", "keyfile", "unix_socket", "api_key_file", "model_path", "data_dir", "workers"}
NAMES = sorted(options().keys() - FIXED)
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "host": ("a.example", "b.example", "c.example"),
    "agent": ("a", "b", "c:d"),
    "model_name": ("a", "b", "c"),
    "base_url": ("http://a", "https://b/v1", "http://[::1]:8000/v1/"),
    "upstream_api_key": ("a", "b", "c"),
    "upstream_model": ("a", "b", "c"),
    "system_prompt": ("a", "b", "c"),
    "tools": (("a",), ("b", "c"), ("d:e",)),
    "api_key": ("a", "b", "c"),
    "store": ("memory:", "sqlite:///b", "sqlite:///c"),
    "workers": (1, 1, 1),
    "max_cluster_runs_per_principal": (0, 0, 0),
    "cors_origins": (("http://a",), ("http://b", "http://c"), ("http://d",)),
    "allowed_hosts": (("a",), ("b", "*.c"), ("*",)),
    "root_path": ("/a", "/b/c", "/d"),
    "log_level": ("debug", "error", "warning"),
    "log_format": ("json", "text", "json"),
    "access_log": (False, True, False),
    "write_through": (False, True, False),
    "open_webui_status": ("on", "off", "auto"),
    "open_webui_tasks": ("on", "off", "auto"),
    "task_profile": ("a", "b", "c"),
    "approval_replies": (True, False, True),
    "shared_workspace": (True, False, True),
    "gateway_health_url": ("a", "http://b/health", "https://c:8642/v1"),
    "gateway_health_key": ("a", "b", "c"),
    "store_fallback": ("memory", "off", "memory"),
    "check_database": (True, False, True),
    "sandbox": ("require", "off", "auto"),
    "sandbox_network": (True, False, True),
    "sandbox_paths": (("/a",), ("/b", "/c"), ("/d",)),
    "tool_items": ("mcp_call", "hidden", "function_call"),
    "agent_failure_status": (424, 422, 500),
    "on_disconnect": ("grace:5", "detach", "interrupt"),
    "stream_durability": ("strict", "normal", "strict"),
    "busy_session": ("wait", "refuse", "wait"),
    "timezone": ("Europe/Berlin", "UTC", "Asia/Tokyo"),
    "missed_jobs": ("skip", "run", "skip"),
}
NUMBERS = (1, 2, 3)


def as_text(value: Any) -> str:
    """Format a value for an environment variable."""
    return ",".join(value) if isinstance(value, tuple) else str(value)


def as_toml(value: Any) -> str:
    """Format a value for a line of TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else repr(value)


@given(in_file=st.sets(st.sampled_from(NAMES)), in_env=st.sets(st.sampled_from(NAMES)),
       in_flags=st.sets(st.sampled_from(NAMES)))  # fmt: skip
def test_options_do_not_disturb_each_other(
    tmp_path_factory: pytest.TempPathFactory,
    in_file: set[str],
    in_env: set[str],
    in_flags: set[str],
) -> None:
    values = {name: VALUES.get(name, NUMBERS) for name in NAMES}
    lines = [f"{name} = {as_toml(values[name][0])}" for name in in_file]
    path = toml(tmp_path_factory.mktemp("options"), "\n".join(lines))
    environ = {f"HERMES_TRIO_{name.upper()}": as_text(values[name][1]) for name in in_env}
    loaded = load({name: values[name][2] for name in in_flags}, NO_HOME | environ, path)
    for name in NAMES:
        kinds = [SourceKind.FILE] * (name in in_file) + [SourceKind.ENVIRONMENT] * (name in in_env)
        kinds += [SourceKind.FLAG] * (name in in_flags)
        kind = kinds[-1] if kinds else SourceKind.DEFAULT
        assert loaded.sources[name].kind == kind
        if kind is not SourceKind.DEFAULT:
            place = (SourceKind.FILE, SourceKind.ENVIRONMENT, SourceKind.FLAG).index(kind)
            assert getattr(loaded.settings, name) == values[name][place]


@pytest.mark.parametrize(
    ("variable", "option", "text", "value"),
    [
        ("API_SERVER_HOST", "host", "0.0.0.0", "0.0.0.0"),
        ("API_SERVER_PORT", "port", "9000", 9000),
        ("API_SERVER_KEY", "api_key", "k" * 16, "k" * 16),
        ("API_SERVER_MODEL_NAME", "model_name", "my model", "my model"),
        (
            "API_SERVER_CORS_ORIGINS",
            "cors_origins",
            "http://a, http://b,",
            ("http://a", "http://b"),
        ),
        ("OPENAI_BASE_URL", "base_url", "http://a/v1", "http://a/v1"),
        ("OPENAI_API_KEY", "upstream_api_key", "sk-a", "sk-a"),
        ("OPENAI_MODEL", "upstream_model", "gpt", "gpt"),
        ("HERMES_TRIO_TOOLS", "tools", "terminal, a:b", ("terminal", "a:b")),
        ("HERMES_STREAM_READ_TIMEOUT", "upstream_read_seconds", "5", 5.0),
        ("HERMES_STREAM_RETRIES", "upstream_retries", "0", 0),
        (
            "HERMES_TRIO_ALLOWED_HOSTS",
            "allowed_hosts",
            "a.example,*.b, [::1], 10.0.0.1",
            ("a.example", "*.b", "[::1]", "10.0.0.1"),
        ),
        ("DATABASE_URL", "store", "sqlite:///x.db", "sqlite:///x.db"),
        ("PORT", "port", "80", 80),
        ("HERMES_TRIO_DRAIN_SECONDS", "drain_seconds", "1.5", 1.5),
        ("HERMES_TRIO_LOG_LEVEL", "log_level", "WARNING", "warning"),
        ("HERMES_TRIO_ACCESS_LOG", "access_log", "Off", False),
        ("HERMES_TRIO_ACCESS_LOG", "access_log", "1", True),
    ],
)
def test_variables(variable: str, option: str, text: str, value: object) -> None:
    loaded = from_env(**{variable: text})
    assert getattr(loaded.settings, option) == value
    assert loaded.sources[option] == Source(SourceKind.ENVIRONMENT, variable)


def test_an_option_without_a_flag_can_be_passed_by_a_program() -> None:
    loaded = load({"drain_seconds": 1}, NO_HOME, None)
    assert loaded.settings.drain_seconds == 1.0
    assert loaded.sources["drain_seconds"] == Source(SourceKind.FLAG, "argument drain_seconds")


# Deprecated names

RENAMED = [
    ("ahead_characters", "max_buffered_chars"),
    ("grace_seconds", "interrupt_grace_seconds"),
    ("log_keep_seconds", "replay_seconds"),
]


def test_the_deprecated_names() -> None:
    assert sorted(deprecated_names().items()) == sorted(RENAMED)
    assert not deprecated_names().keys() & options().keys()


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_a_deprecated_variable_works_with_one_warning(old: str, new: str) -> None:
    loaded = from_env(**{own_variable(old): "7"})
    assert getattr(loaded.settings, new) == 7
    assert loaded.sources[new] == Source(SourceKind.ENVIRONMENT, own_variable(old))
    assert loaded.warnings == (
        f"{own_variable(old)} is deprecated; use {own_variable(new)} instead",
    )


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_a_deprecated_key_of_the_file_works_with_one_warning(
    tmp_path: Path, old: str, new: str
) -> None:
    path = toml(tmp_path, f"{old} = 7")
    loaded = load({}, NO_HOME, path)
    assert getattr(loaded.settings, new) == 7
    assert loaded.sources[new] == Source(SourceKind.FILE, f"{path}: {old}")
    assert loaded.warnings == (f"{path}: {old} is deprecated; use {new} instead",)


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_a_deprecated_argument_works_with_one_warning(old: str, new: str) -> None:
    loaded = load({old: 7}, NO_HOME, None)
    assert getattr(loaded.settings, new) == 7
    assert loaded.warnings == (f"argument {old} is deprecated; use {new} instead",)


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_the_current_name_beats_the_deprecated_one(tmp_path: Path, old: str, new: str) -> None:
    for lines in ((f"{old} = 1", f"{new} = 2"), (f"{new} = 2", f"{old} = 1")):
        assert getattr(load({}, NO_HOME, toml(tmp_path, "\n".join(lines))).settings, new) == 2
    for flags in ({old: 1, new: 2}, {new: 2, old: 1}):
        assert getattr(load(flags, NO_HOME, None).settings, new) == 2
    assert getattr(from_env(**{own_variable(old): "1", own_variable(new): "2"}).settings, new) == 2


def test_a_deprecated_name_of_a_stronger_source_beats_the_current_one(tmp_path: Path) -> None:
    path = toml(tmp_path, "max_buffered_chars = 1")
    loaded = load({}, NO_HOME | {"HERMES_TRIO_AHEAD_CHARACTERS": "2"}, path)
    assert loaded.settings.max_buffered_chars == 2


def test_an_embedded_application_logs_the_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HERMES_TRIO_AHEAD_CHARACTERS", "7")
    with structlog.testing.capture_logs() as lines:
        create_app(agent="demo", store="memory:", data_dir=tmp_path, api_key="key-kq7w-vzx2-mhp9")
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "HERMES_TRIO_AHEAD_CHARACTERS is deprecated; use HERMES_TRIO_MAX_BUFFERED_CHARS instead"
    ]


def test_nothing_deprecated_means_no_warning() -> None:
    assert (
        from_env(HERMES_TRIO_MAX_BUFFERED_CHARS="7", HERMES_TRIO_AHEAD_CHARACTERS="").warnings == ()
    )


# The file


def test_which_file_is_read(tmp_path: Path) -> None:
    flagged, named, own = (
        tmp_path / name for name in ("flagged.toml", "named.toml", "hermes-trio/config.toml")
    )
    own.parent.mkdir()
    for number, path in enumerate((flagged, named, own), 1):
        path.write_text(f"port = {number}")
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert load({}, environ, None).settings.port == 3
    environ["HERMES_TRIO_CONFIG"] = str(named)
    assert load({}, environ, None).settings.port == 2
    assert load({}, environ, flagged).settings.port == 1


def test_a_file_in_the_working_directory_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("hermes-trio.toml", "config.toml"):
        (tmp_path / name).write_text("port = 1")
    assert from_env().settings.port == 8642


def test_values_of_a_file(tmp_path: Path) -> None:
    path = toml(
        tmp_path,
        'host = "::1"\nmax_runs = 0\nrun_seconds = 60\ncors_origins = ["https://a", "*"]\n',
    )
    settings = load({}, NO_HOME, path).settings
    assert (settings.host, settings.max_runs, settings.run_seconds) == ("::1", 0, 60.0)
    assert settings.cors_origins == ("https://a", "*")


def test_paths_are_relative_to_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    path = toml(tmp_path, 'data_dir = "data"')
    assert load({}, NO_HOME, path).settings.data_dir == tmp_path / "data"
    assert load({"data_dir": "data"}, NO_HOME, path).settings.data_dir == Path("/data")
    assert load({"data_dir": "~/data"}, NO_HOME, path).settings.data_dir == Path.home() / "data"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    loaded = load({"api_key_file": str(tmp_path / "link")}, NO_HOME, None)
    assert loaded.settings.api_key_file == tmp_path / "link"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prot = 1", "prot: no such option, did you mean port? (from {path})"),
        ("max-runs = 1", "max-runs: no such option, did you mean max_runs? (from {path})"),
        ("zzzzzz = 1", "zzzzzz: no such option (from {path})"),
        ("[server]\nport = 1", "server: no such option{any} (from {path})"),
        ("[port]\nx = 1", "port: is a table, but a single value is expected (from {path})"),
        ("port = 86.5", "port: 86.5 is not a whole number (from {path}: port)"),
        ("port = true", "port: True is not a whole number (from {path}: port)"),
        ("run_seconds = false", "run_seconds: False is not a number (from {path}: run_seconds)"),
        ("host = 5", "host: 5 is not a string (from {path}: host)"),
        ("data_dir = 5", "data_dir: 5 is not a path (from {path}: data_dir)"),
        ("certfile = ''", "certfile: '' is not a path (from {path}: certfile)"),
        ('certfile = "a\\u0000b"', "certfile: 'a\\x00b' is not a path (from {path}: certfile)"),
        (
            "cors_origins = 5",
            "cors_origins: 5 is not a list of strings (from {path}: cors_origins)",
        ),
        (
            "cors_origins = [5]",
            "cors_origins: [5] is not a list of strings (from {path}: cors_origins)",
        ),
        ("api_key = 12345678", "api_key: the value is not a string (from {path}: api_key)"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, text: str, expected: str) -> None:
    path = toml(tmp_path, text)
    start, _, end = expected.format(path=path, any="\0").partition("\0")
    line = refusal({}, {}, path)
    assert line.startswith(start)
    assert line.endswith(end)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert (
        refusal({}, {}, missing) == f"config: {missing}: No such file or directory (from --config)"
    )
    named = {"HERMES_TRIO_CONFIG": str(missing)}
    assert (
        refusal({}, named)
        == f"config: {missing}: No such file or directory (from HERMES_TRIO_CONFIG)"
    )
    assert refusal({}, {}, tmp_path) == f"config: {tmp_path}: Is a directory (from --config)"
    broken = toml(tmp_path, "port: 1")
    assert refusal({}, {}, broken).startswith(f"config: {broken} is not valid TOML: ")
    broken.write_bytes(b"api_key = '\xff\xfe'")
    assert refusal({}, {}, broken) == f"config: {broken} is not valid TOML: not UTF-8"


# Wrong values


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("API_SERVER_PORT", "abc", "port: 'abc' is not a whole number"),
        ("API_SERVER_PORT", "65536", "port: 65536 is not between 0 and 65535"),
        ("PORT", "-1", "port: -1 is not between 0 and 65535"),
        ("HERMES_TRIO_PORT", "9" * 5000, f"port: '{'9' * 79}... is not a whole number"),
        ("HERMES_TRIO_PORT", "a\nb", r"port: 'a\nb' is not a whole number"),
        ("HERMES_TRIO_MAX_RUNS", "-1", "max_runs: -1 is less than 0"),
        ("HERMES_TRIO_RUN_SECONDS", "inf", "run_seconds: inf is not a finite number"),
        ("HERMES_TRIO_KEEPALIVE_SECONDS", "0", "keepalive_seconds: 0.0 is not greater than 0"),
        ("HERMES_TRIO_STALL_SECONDS", "nan", "stall_seconds: nan is not a finite number"),
        ("HERMES_TRIO_BODY_SECONDS", "soon", "body_seconds: 'soon' is not a number"),
        ("HERMES_TRIO_MAX_BODY_BYTES", "0", "max_body_bytes: 0 is less than 1"),
        (
            "API_SERVER_HOST",
            "127.0.0.1:80",
            "host: '127.0.0.1:80' is not a host name or an IP address",
        ),
        ("API_SERVER_HOST", "http://x", "host: 'http://x' is not a host name or an IP address"),
        ("OPENAI_BASE_URL", "localhost:8000", "base_url: the value is not a URL such as "),
        ("OPENAI_BASE_URL", "ftp://x", "base_url: the value is not a URL such as "),
        ("HERMES_TRIO_MAX_ITERATIONS", "0", "max_iterations: 0 is less than 1"),
        ("HERMES_STREAM_READ_TIMEOUT", "0", "upstream_read_seconds: 0.0 is not greater than 0"),
        ("HERMES_STREAM_RETRIES", "-1", "upstream_retries: -1 is less than 0"),
        ("API_SERVER_MODEL_NAME", " ", "model_name: ' ' is empty or not printable"),
        ("HERMES_TRIO_AGENT", "my agent", "agent: 'my agent' is neither a name nor module:factory"),
        (
            "HERMES_TRIO_LOG_LEVEL",
            "loud",
            "log_level: 'loud' is not one of info, debug, warning, error, critical",
        ),
        ("HERMES_TRIO_LOG_FORMAT", "xml", "log_format: 'xml' is not one of text, json"),
        (
            "HERMES_TRIO_AGENT_FAILURE_STATUS",
            "418",
            "agent_failure_status: 418 is not one of 424, 422, 400, 500",
        ),
        ("HERMES_TRIO_ACCESS_LOG", "maybe", "access_log: 'maybe' is neither on nor off"),
        (
            "HERMES_TIMEZONE",
            "Europe/Atlantis",
            "timezone: 'Europe/Atlantis' is not a time zone such as Europe/Berlin",
        ),
        (
            "HERMES_TRIO_ON_DISCONNECT",
            "never",
            "on_disconnect: 'never' is not interrupt, grace:SECONDS or detach",
        ),
        (
            "HERMES_TRIO_ON_DISCONNECT",
            "grace:99999",
            "on_disconnect: 'grace:99999' is more than a day",
        ),
        (
            "HERMES_TRIO_OPEN_WEBUI_STATUS",
            "maybe",
            "open_webui_status: 'maybe' is not one of auto, on, off",
        ),
        (
            "API_SERVER_CORS_ORIGINS",
            "http://a/",
            "cors_origins: 'http://a/' is not an origin such as ",
        ),
        (
            "HERMES_TRIO_ALLOWED_HOSTS",
            "chat.example.org, a.example:8642",
            "allowed_hosts: 'a.example:8642' is not a host name such as ",
        ),
        (
            "HERMES_TRIO_ALLOWED_HOSTS",
            "a.*.example",
            "allowed_hosts: 'a.*.example' is not a host name such as ",
        ),
        ("HERMES_TRIO_DATA_DIR", "~no-such-user/x", "data_dir: '~no-such-user/x' is not a path"),
    ],
)
def test_an_invalid_value_names_option_and_source(variable: str, text: str, expected: str) -> None:
    line = refusal({}, {variable: text})
    assert line.startswith(expected)
    assert line.endswith(f"(from {variable})")


def test_an_invalid_flag_is_named_as_typed() -> None:
    assert refusal({"cors_origins": ("x",)}, {}).endswith("(from --cors-origin)")
    assert refusal({"port": ""}, {}) == "port: '' is not a whole number (from --port)"
    assert refusal({"prot": "1"}, {}) == "prot: no such option, did you mean port?"


def test_an_overridden_value_is_not_validated() -> None:
    assert load({"port": "1"}, NO_HOME | {"PORT": "tcp://10.0.0.1:80"}, None).settings.port == 1


def test_tls_needs_certificate_and_key(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.write_text("")
    assert (
        refusal({"certfile": str(pem)}, {})
        == "certfile: requires keyfile as well (from --certfile)"
    )
    assert (
        refusal({}, {"HERMES_TRIO_KEYFILE": str(pem)})
        == "keyfile: requires certfile as well (from HERMES_TRIO_KEYFILE)"
    )
    both = {"certfile": str(pem), "keyfile": str(tmp_path / "no.pem")}
    assert (
        refusal(both, {})
        == f"keyfile: {tmp_path}/no.pem: No such file or directory (from --keyfile)"
    )
    assert (
        refusal(both | {"keyfile": tmp_path}, {})
        == f"keyfile: {tmp_path}: is a directory (from --keyfile)"
    )
    assert load(both | {"keyfile": str(pem)}, NO_HOME, None).settings.keyfile == pem


def test_a_key_may_come_through_a_pipe() -> None:
    reading, writing = os.pipe()
    try:
        path = f"/dev/fd/{reading}"
        assert load({"api_key_file": path}, NO_HOME, None).settings.api_key_file == Path(path)
    finally:
        os.close(reading)
        os.close(writing)


def test_the_constructor_validates_too() -> None:
    with pytest.raises(InvalidValueError, match="port: -1 is not between 0 and 65535"):
        Settings(port=-1)


def test_errors_are_configuration_errors() -> None:
    assert issubclass(SettingsError, ConfigurationError)


# The store


def test_the_store_url_is_relative_to_the_data_directory() -> None:
    assert Settings(data_dir=Path("/d")).store_location == SqliteFile(Path("/d/hermes.db"))
    assert Settings(store="memory:", data_dir=Path("/d")).store_location == InMemory()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "mysql://joe:hunter2@db/x",
            "store: mysql: is not a known kind of store; use memory:, ",
        ),
        (
            "postgresql://ann:hunter/2@db/x",
            "store: special characters in the user and the password need ",
        ),
        ("hunter2", "store: this is not a known kind of store; use memory:, "),
        ("hunter 2:x", "store: this is not a known kind of store; use memory:, "),
        ("sqlite://hunter2", "store: sqlite: is not a known kind of store; use memory:, "),
        ("sqlite:///", "store: sqlite:/// must be followed by the path of a file; "),
        ("sqlite:///:memory:", "store: sqlite:/// must be followed by the path of a file; "),
        ("sqlite:///a?mode=ro", "store: sqlite:/// must be followed by the path of a file; "),
        ("sqlite:////", "store: sqlite:/// must be followed by the path of a file; "),
        ("sqlite:///directory/", "store: sqlite:/// must be followed by the path of a file; "),
        ("memory", "store: this is not a known kind of store; use memory:, "),
        ("memory://", "store: memory: is not a known kind of store; use memory:, "),
    ],
)
def test_other_stores_are_refused_without_repeating_a_password(url: str, expected: str) -> None:
    line = refusal({}, {"DATABASE_URL": url})
    assert line.startswith(expected)
    assert line.endswith("(from DATABASE_URL)")
    assert "hunter" not in line


def test_a_store_of_the_wrong_type_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("store = ['postgresql://ann:hunter2@db/x']")
    line = refusal({}, {}, path)
    assert line.startswith("store: the value is not ")
    assert "hunter" not in line


@pytest.mark.parametrize("store", ["", "memory:", "sqlite:///x.db"])
def test_workers_need_postgresql(store: str) -> None:
    line = refusal({"workers": "2", "store": store}, {})
    assert line.startswith("workers: 2 processes cannot share this store")
    assert "postgresql://" in line
    assert line.endswith("(from --workers)")


@pytest.mark.parametrize("number", ["0", "-1", "257", "two"])
def test_numbers_of_workers(number: str) -> None:
    assert refusal({"workers": number}, {}).startswith("workers: ")


@pytest.mark.parametrize("store", ["", "memory:", "sqlite:///x"])
def test_runs_of_all_nodes_are_counted_in_postgresql(store: str) -> None:
    environ = {"HERMES_TRIO_MAX_CLUSTER_RUNS_PER_PRINCIPAL": "5", "HERMES_TRIO_STORE": store}
    line = refusal({}, environ)
    assert line.startswith("max_cluster_runs_per_principal: only nodes that share")
    loaded = load({}, {**environ, "HERMES_TRIO_STORE": "postgresql://db/x", "HOME": "/"}, None)
    assert loaded.settings.max_cluster_runs_per_principal == 5


def test_workers_with_a_database_from_the_environment() -> None:
    loaded = load({"workers": "3"}, {"DATABASE_URL": "postgresql://db/x", "HOME": "/"}, None)
    assert loaded.settings.workers == 3
    assert loaded.sources["store"] == Source(SourceKind.ENVIRONMENT, "DATABASE_URL")
