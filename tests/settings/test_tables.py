"""Profiles: their tables, what they inherit from the top level, and error messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.preparation import check, find_agents
from hermes_trio.settings import (
    InvalidValueError,
    LoadedSettings,
    Profile,
    Settings,
    SettingsError,
    Source,
    SourceKind,
    load,
)

NO_HOME = {"HOME": "/nonexistent"}
SECRET = "sk-nobody-may-see-this"


def loaded_from(folder: Path, text: str, **environ: str) -> LoadedSettings:
    """Load the settings from a file with this text."""
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load({}, NO_HOME | environ, path)


def profile_of(folder: Path, text: str, **environ: str) -> Profile:
    """Return the profile ``x`` of a file with this text."""
    return loaded_from(folder, text, **environ).settings.profiles["x"]


FULL = f"""
[profiles.x]
agent = "my_module:factory"
model = "qwen"
base_url = "http://127.0.0.1:11434/v1"
api_key = "{SECRET}"
system_prompt = "Be brief."
model_path = "models/qwen.gguf"
tools = ["terminal", "my_tools:search"]
max_iterations = 7
keys = ["ann", "bob"]
model_name = "Quick one"
mcp = ["files"]
options = {{ temperature = 0.5, stop = ["a"] }}

[mcp.files]
command = "serve-files"
[mcp.web]
url = "http://127.0.0.1:9"
"""


def test_every_option_of_a_profile(tmp_path: Path) -> None:
    loaded = loaded_from(tmp_path, FULL)
    assert dict(loaded.settings.profiles) == {
        "x": Profile(
            name="x",
            agent="my_module:factory",
            model="qwen",
            base_url="http://127.0.0.1:11434/v1",
            api_key=SECRET,
            model_path=tmp_path / "models/qwen.gguf",
            system_prompt="Be brief.",
            tools=("terminal", "my_tools:search"),
            max_iterations=7,
            keys=("ann", "bob"),
            model_name="Quick one",
            mcp=("files",),
            options={"temperature": 0.5, "stop": ["a"]},
        )
    }
    assert (
        loaded.sources["profiles.x.model"].name == f"{tmp_path / 'config.toml'}: profiles.x.model"
    )
    assert loaded.sources["mcp.web"].kind is SourceKind.FILE
    assert SECRET not in repr(loaded)


def test_without_a_file_there_are_no_profiles() -> None:
    settings = load({}, NO_HOME, None).settings
    assert (dict(settings.profiles), dict(settings.mcp)) == ({}, {})


TOP = f"""
agent = "demo"
base_url = "http://127.0.0.1:1/v1"
upstream_api_key = "{SECRET}"
upstream_model = "big"
system_prompt = "Hello."
tools = ["terminal"]
max_iterations = 3
[mcp.files]
command = "serve-files"
[profiles.x]
"""


def test_what_a_profile_does_not_say_comes_from_the_top(tmp_path: Path) -> None:
    loaded = loaded_from(tmp_path, TOP)
    assert loaded.settings.profiles["x"] == Profile(
        name="x", agent="demo", model="big", base_url="http://127.0.0.1:1/v1", api_key=SECRET,
        system_prompt="Hello.", tools=("terminal",), max_iterations=3, model_name="x", mcp=("files",),
    )  # fmt: skip
    assert loaded.sources["profiles.x.model"] == loaded.sources["upstream_model"]
    assert loaded.sources["profiles.x.keys"] == Source(SourceKind.DEFAULT, "default")


def test_the_environment_beats_the_top_of_the_file_but_not_a_profile(tmp_path: Path) -> None:
    text = f'{TOP}\n[profiles.y]\nmodel = "small"\n'
    profiles = loaded_from(tmp_path, text, OPENAI_MODEL="huge").settings.profiles
    assert (profiles["x"].model, profiles["y"].model) == ("huge", "small")


def test_a_key_goes_to_the_server_it_is_for_and_to_no_other(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, f'{TOP}base_url = "https://elsewhere.example/v1"')
    assert profile.api_key == ""
    assert profile_of(tmp_path, f'{TOP}base_url = "http://127.0.0.1:1/v1"').api_key == SECRET


def test_a_key_from_a_variable(tmp_path: Path) -> None:
    text = '[profiles.x]\napi_key_env = "THE_KEY"'
    loaded = loaded_from(tmp_path, text, THE_KEY=SECRET)
    assert loaded.settings.profiles["x"].api_key == SECRET
    assert loaded.sources["profiles.x.api_key"] == Source(SourceKind.ENVIRONMENT, "THE_KEY")


@pytest.mark.parametrize(
    ("top", "own", "meant"),
    [
        ("", "", "demo"),
        ("", 'base_url = "http://a"', "upstream"),
        ('base_url = "http://a"', "", "upstream"),
        ('base_url = "http://a"', 'agent = "demo"', "demo"),
        ('agent = "synthetic"', 'base_url = "http://a"', "synthetic"),
    ],
)
def test_the_default_agent(tmp_path: Path, top: str, own: str, meant: str) -> None:
    assert profile_of(tmp_path, f"{top}\n[profiles.x]\n{own}").agent_name == meant


def test_the_default_agent_of_the_top_level() -> None:
    assert Settings().agent_name == "demo"
    assert Settings(base_url="http://a").agent_name == "upstream"
    assert Settings(base_url="http://a", agent="demo").agent_name == "demo"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("profiles = 5", "profiles: is a single value, but tables [profiles.NAME] are expected (from {path})"),
        ("mcp = []", "mcp: is a single value, but tables [mcp.NAME] are expected (from {path})"),
        ("[profiles]\nx = 5", "profiles.x: is a single value, but a table is expected (from {path})"),
        ("[mcp]\nx = 5", "mcp.x: is a single value, but a table is expected (from {path})"),
        ("[profiles.default]", "profiles: 'default' cannot be the name of a profile (from {path})"),
        ('[profiles.".."]', "profiles: '..' is not a name of up to 64 letters, digits, dots, dashes and underscores"),
        ('[profiles."a/b"]', "profiles: 'a/b' is not a name of "),
        ('[profiles."a\\nb"]', r"profiles: 'a\nb' is not a name of "),
        (f"[profiles.{'a' * 65}]", f"profiles: '{'a' * 65}' is not a name of "),
        ('[mcp.""]', "mcp: '' is not a name of "),
        ("[profiles.x]\nmodle = 5", "profiles.x.modle: no such option, did you mean model? (from {path})"),
        ("[profiles.x]\nname = 'y'", "profiles.x.name: no such option"),
        ("[profiles.x]\nzzzz = 5", "profiles.x.zzzz: no such option (from {path})"),
        ("[profiles.x]\nmodel = 5", "profiles.x.model: 5 is not a string (from {path}: profiles.x.model)"),
        ("[profiles.x]\nmodel_path = ''", "profiles.x.model_path: '' is not a path (from {path}: profiles.x.model_path)"),
        ("[profiles.x]\ntools = [5]", "profiles.x.tools: [5] is not a list of strings (from {path}: profiles.x.tools)"),
        ("[profiles.x]\ntools = ['']", "profiles.x.tools: '' is empty or not printable (from {path}: profiles.x.tools)"),
        ("[profiles.x]\nkeys = []", "profiles.x.keys: is empty; omit it to allow every key (from {path})"),
        ("[profiles.x]\nkeys = ''", "profiles.x.keys: is empty; omit it to allow every key (from {path})"),
        ("[profiles.x]\noptions = 5", "profiles.x.options: 5 is not a table (from {path})"),
        ("options = 5", "options: is a single value, but a table is expected (from {path})"),
        ("[profiles.x]\nagent = 'a b'", "profiles.x.agent: 'a b' is neither a name nor module:factory (from {path}: "),
        ("[profiles.x]\nmodel_name = ''", "profiles.x.model_name: '' is empty or not printable (from {path}: "),
        (
            "[profiles.x]\nmax_iterations = 0",
            "profiles.x.max_iterations: 0 is less than 1 (from {path}: profiles.x.max_iterations)",
        ),
        ("[profiles.x]\nmcp = ['no']", "profiles.x.mcp: there is no table [mcp.no] (from {path})"),
        ("[profiles.x]\napi_key_env = 5", "profiles.x.api_key_env: 5 is not a string (from {path}: profiles.x.api_key_env)"),
        ("[profiles.x]\napi_key_env = 'NO'", "profiles.x.api_key_env: the variable 'NO' is not set (from {path})"),
        (
            "[profiles.x]\napi_key_env = 'A'\napi_key = 'b'",
            "profiles.x.api_key: cannot be combined with api_key_env (from {path})",
        ),
        (
            "[profiles.hermes-agent]",
            "profiles.hermes-agent.model_name: 'hermes-agent' is already the name of the server's own agent (from {path})",
        ),
        (
            "[profiles.x]\n[profiles.y]\nmodel_name = 'x'",
            "profiles.y.model_name: 'x' is already the name of profile x (from {path})",
        ),
    ],
)  # fmt: skip
def test_an_error_is_one_line_that_names_the_option(
    tmp_path: Path, text: str, expected: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded_from(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(expected.replace("{path}", str(tmp_path / "config.toml")))
    assert "\n" not in said


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("api_key", f"['{SECRET}']"),
        ("base_url", f"['{SECRET}']"),
        ("base_url", f"'{SECRET}'"),
        ("base_url", f"'https://me:{SECRET}@host'"),
        ("base_url", f"'https://host/{SECRET}@/'"),
        ("base_url", f"'http://host?key={SECRET}'"),
    ],
)
def test_secrets_are_not_repeated(tmp_path: Path, option: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded_from(tmp_path, f"[profiles.x]\n{option} = {value}")
    assert str(caught.value).startswith(f"profiles.x.{option}: the value is not ")
    assert SECRET not in str(caught.value)


@given(name=st.text(max_size=70))
def test_a_name_is_a_folder_and_a_part_of_a_path(name: str) -> None:
    try:
        Profile(name=name)
    except InvalidValueError:
        return
    assert name == Path(name).name
    assert name.isascii()
    assert name not in {"", ".", "..", "default"}


# What becomes of them


def test_agents_receive_the_values_of_their_tables(tmp_path: Path) -> None:
    text = FULL.replace('agent = "my_module:factory"', 'agent = "demo"')
    agents = find_agents(loaded_from(tmp_path, f"upstream_read_seconds = 5\n{text}").settings)
    told = agents["x"].config
    assert (told.profile, told.model, told.api_key, told.tools) == (
        "x",
        "qwen",
        SECRET,
        ("terminal", "my_tools:search"),
    )
    assert told.model_path == tmp_path / "models/qwen.gguf"
    assert (told.system_prompt, told.max_iterations, told.limits.read) == ("Be brief.", 7, 5.0)
    assert {name: dict(server) for name, server in told.mcp.items()} == {
        "files": {"command": "serve-files"}
    }
    assert dict(told.options) == {"temperature": 0.5, "stop": ["a"]}
    assert SECRET not in repr(told)
    own = agents[""].config
    assert (own.profile, own.model, own.limits) == ("", "", told.limits)
    assert set(own.mcp) == {"files", "web"}


def test_workspaces_are_apart() -> None:
    settings = Settings(data_dir=Path("/d"), profiles={"x": Profile(name="x")})
    workspaces = {name: member.workspace for name, member in find_agents(settings).items()}
    assert workspaces == {"": Path("/d/workspace"), "x": Path("/d/profiles/x/workspace")}


def test_the_servers_own_agent_receives_the_top_level() -> None:
    settings = Settings(
        agent="demo", base_url="http://a", upstream_api_key=SECRET, upstream_model="m", system_prompt="s",
        tools=("t",), max_iterations=2, upstream_connect_seconds=1, upstream_read_seconds=2,
        upstream_write_seconds=3, upstream_pool_seconds=4, upstream_retries=5,
    )  # fmt: skip
    told = find_agents(settings)[""].config
    assert (told.base_url, told.api_key, told.model, told.system_prompt) == (
        "http://a",
        SECRET,
        "m",
        "s",
    )
    assert (told.tools, told.max_iterations) == (("t",), 2)
    limits = told.limits
    assert (limits.connect, limits.read, limits.write, limits.pool, limits.retries) == (
        1,
        2,
        3,
        4,
        5,
    )


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ({"agent": "nobody"}, "profiles.x.agent: no agent 'nobody'"),
        ({"keys": ("default", "eve")}, "profiles.x.keys: there is no key of 'eve'"),
    ],
)
def test_what_only_a_start_can_find_out(
    tmp_path: Path, profile: dict[str, Any], expected: str
) -> None:
    settings = Settings(data_dir=tmp_path, profiles={"x": Profile(name="x", **profile)})
    with pytest.raises(ConfigurationError) as caught:
        check(settings)
    assert str(caught.value).startswith(expected)


def test_the_profile_for_tasks_must_exist(tmp_path: Path) -> None:
    profiles = {"x": Profile(name="x")}
    check(Settings(data_dir=tmp_path, profiles=profiles, task_profile="x"))
    with pytest.raises(ConfigurationError, match=r"^task_profile: there is no profile 'y'$"):
        check(Settings(data_dir=tmp_path, profiles=profiles, task_profile="y"))


def test_options_of_the_top_level_hold_unless_a_profile_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[options.approvals]\nterminal = "always"\n[profiles.a]\n[profiles.b.options]\nx = 1\n'
    )
    loaded = load({}, {}, path)
    agents = find_agents(loaded.settings)
    own = {"approvals": {"terminal": "always"}}
    assert {name: dict(member.config.options) for name, member in agents.items()} == {
        "": own,
        "a": own,
        "b": {"x": 1},
    }
    assert loaded.sources["profiles.a.options"].name == f"{path}: options"
