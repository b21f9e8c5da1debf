"""The one frozen ``Settings``: every option of the server, with its default, its rule and its documentation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from hermes_trio.settings import checks
from hermes_trio.settings.errors import WrongValueError
from hermes_trio.settings.profile import NOTHING, Profile, agent_for, masked
from hermes_trio.stores.factory import StoreLocation, parse_store_url

APP = "hermes-trio"
ENV_PREFIX = "HERMES_TRIO_"
_KEY = "option"


@frozen
class Option:
    """What there is to know about one option beside its type and default."""

    help: str
    flag: str = ""  # without one the option is left to the environment and the file
    metavar: str = "TEXT"
    secret: bool = False
    variables: tuple[str, ...] = ()  # other programs' names for it; the first that is set wins
    must_exist: bool = False


def user_dir(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    """A folder of ours by the XDG rules, which tell us to ignore a relative path."""
    named = environ.get(variable, "")
    if named and Path(named).is_absolute():
        return Path(named) / APP
    home = environ.get("HOME", "")
    return (Path(home) if home else Path.home()) / fallback / APP


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Where data goes unless told otherwise."""
    return user_dir(environ, "XDG_DATA_HOME", ".local/share")


def _setting(default: Any, option: Option, *rules: Any) -> Any:
    secrecy: Any = masked if option.secret else True
    return attrs.field(default=default, metadata={_KEY: option}, validator=list(rules), repr=secrecy)


def _choice(option: Option, *choices: str) -> Any:
    """One of a few words, the first being the default; capitals do not matter, as in ``LOG_LEVEL=INFO``."""
    rule = checks.OneOf(choices)
    return attrs.field(default=choices[0], metadata={_KEY: option}, validator=rule, converter=str.lower)


def _named_file(text: str, flag: str) -> dict[str, Option]:
    return {_KEY: Option(text, flag, "FILE", must_exist=True)}


def _known_store(settings: Settings, field: attrs.Attribute[Any], value: str) -> None:
    try:
        parse_store_url(value, settings.data_dir)
    except ValueError as error:
        raise WrongValueError(field.name, str(error)) from None


@frozen(kw_only=True)
class Settings:
    """All that can be configured. Made by ``load``, or directly in tests and embeddings."""

    host: str = _setting(
        "127.0.0.1",
        Option("Address to listen on.", "--host", variables=("API_SERVER_HOST",)),
        checks.a_host,
    )
    port: int = _setting(
        8642,
        Option(
            "Port to listen on; 0 picks a free one.", "--port", "PORT", variables=("API_SERVER_PORT", "PORT")
        ),
        checks.Between(0, 65535),
    )
    agent: str = _setting(
        "",
        Option("Agent to serve: a name, or module:factory. Empty: upstream if there is a base_url, else demo.",
               "--agent", "AGENT"),
        checks.an_agent,
    )  # fmt: skip
    model_name: str = _setting(
        "hermes-agent",
        Option("Model id that clients see.", "--model-name", "NAME", variables=("API_SERVER_MODEL_NAME",)),
        checks.a_word,
    )
    base_url: str = _setting(
        "",
        Option("Address of the model's server, for agents that need one.", "--base-url", "URL",
               variables=("OPENAI_BASE_URL",)),
        checks.a_base_url,
    )  # fmt: skip
    upstream_api_key: str = _setting(
        "", Option("Key to the model's server.", "", secret=True, variables=("OPENAI_API_KEY",))
    )
    upstream_model: str = _setting(
        "",
        Option("What the model's server calls the model.", "--upstream-model", "NAME", variables=("OPENAI_MODEL",)),
    )  # fmt: skip
    model_path: Path | None = attrs.field(
        default=None,
        metadata=_named_file("Model for the agent local: a GGUF file.", "--model-path"),
    )
    system_prompt: str = _setting("", Option("What the agent is told before everything else."))
    tools: tuple[str, ...] = _setting(
        (),
        Option("Tool of the agent: a name, or module:attribute; may be repeated. None: the agent's own choice.",
               "--tool", "TOOL"),
        checks.words,
    )  # fmt: skip
    max_iterations: int = _setting(50, Option("Calls to the model in one turn."), checks.AtLeast(1))
    upstream_connect_seconds: float = _setting(
        10.0, Option("Time limit for connecting to the model's server."), checks.above_zero
    )
    upstream_read_seconds: float = _setting(
        60.0,
        Option("Silence of the model's server before it is given up.", variables=("HERMES_STREAM_READ_TIMEOUT",)),
        checks.above_zero,
    )  # fmt: skip
    upstream_write_seconds: float = _setting(
        60.0, Option("Time limit of one write to the model's server."), checks.above_zero
    )
    upstream_pool_seconds: float = _setting(
        30.0, Option("How long a call waits for a free connection to the model's server."), checks.above_zero
    )
    upstream_retries: int = _setting(
        2,
        Option("How often a call to the model is tried again.", variables=("HERMES_STREAM_RETRIES",)),
        checks.AtLeast(0),
    )
    api_key: str = _setting(
        "",
        Option("Key that clients must send. Never a flag: other users can list those.", "", secret=True,
               variables=("API_SERVER_KEY",)),
    )  # fmt: skip
    api_key_file: Path | None = attrs.field(
        default=None,
        metadata=_named_file("File with one key, or with named keys under [keys].", "--api-key-file"),
    )
    data_dir: Path = attrs.field(
        factory=lambda: default_data_dir(os.environ),
        metadata={_KEY: Option("Folder for the records and the generated key.", "--data-dir", "DIR")},
    )
    store: str = _setting(
        "",
        Option("Where records go: memory:, sqlite:///path, or empty for a file in the data folder.", "--store", "URL",
               variables=("DATABASE_URL",)),
        _known_store,
    )  # fmt: skip
    cors_origins: tuple[str, ...] = _setting(
        (),
        Option("Web origin that browsers may call from; may be repeated.", "--cors-origin", "ORIGIN",
               variables=("API_SERVER_CORS_ORIGINS",)),
        checks.origins,
    )  # fmt: skip
    max_runs: int = _setting(
        100,
        Option("Runs at the same time; 0 means no limit.", "--max-runs", "NUMBER"),
        checks.AtLeast(0),
    )
    max_agent_threads: int = _setting(
        1_000,
        Option("Threads for synchronous agents; further runs of such agents wait for one."),
        checks.AtLeast(1),
    )
    log_level: str = _choice(
        Option("How much to log: info, debug, warning, error, critical.", "--log-level", "LEVEL"),
        "info", "debug", "warning", "error", "critical",
    )  # fmt: skip
    log_format: str = _choice(Option("Log lines as text or json.", "--log-format", "FORMAT"), "text", "json")
    access_log: bool = _setting(
        True,
        Option("Log one line for every request, at its end: on or off.", "--access-log", "SWITCH"),
    )
    certfile: Path | None = attrs.field(
        default=None, metadata=_named_file("Certificate chain for TLS.", "--certfile")
    )
    keyfile: Path | None = attrs.field(
        default=None, metadata=_named_file("Private key of the certificate.", "--keyfile")
    )
    keepalive_seconds: float = _setting(
        10.0, Option("Silence on a stream before a keep-alive comment."), checks.above_zero
    )
    run_seconds: float = _setting(0.0, Option("Time limit of a run; 0 means none."), checks.AtLeast(0))
    stall_seconds: float = _setting(
        30.0, Option("How long a client may stop reading before it is dropped."), checks.above_zero
    )
    ahead_characters: int = _setting(
        32_768,
        Option("How far an agent may be ahead of a client that does not read; then it has to wait."),
        checks.AtLeast(1),
    )
    drain_seconds: float = _setting(
        20.0, Option("How long runs may go on when the server stops."), checks.AtLeast(0)
    )
    approval_seconds: float = _setting(
        300.0,
        Option("How long somebody has to answer an agent that asks; then the answer is no."),
        checks.above_zero,
    )
    grace_seconds: float = _setting(5.0, Option("How long an interrupted agent may take."), checks.AtLeast(0))
    write_seconds: float = _setting(30.0, Option("Time limit of one write to a client."), checks.above_zero)
    body_seconds: float = _setting(
        20.0, Option("Time limit for receiving a request body."), checks.above_zero
    )
    max_body_bytes: int = _setting(10_000_000, Option("Largest request body."), checks.AtLeast(1))
    write_through: bool = _setting(
        True,
        Option("Send tokens in the step that records them, where the connection allows it: on or off."),
    )
    open_webui_status: str = _choice(
        Option("Status events for Open WebUI: auto recognises it, on, off."), "auto", "on", "off"
    )

    on_disconnect: str = _setting(
        "interrupt",
        Option("What a client that leaves means for its run: interrupt, grace:SECONDS or detach."),
        checks.a_policy,
    )
    busy_session: str = _choice(
        Option("A turn in a session where another is under way: refuse it with a 409, or let it wait."),
        "refuse", "wait",
    )  # fmt: skip
    busy_wait_seconds: float = _setting(
        60.0, Option("How long such a turn waits before it is refused."), checks.AtLeast(0)
    )
    max_stored_runs: int = _setting(
        100_000,
        Option("Ended runs that are kept, least recently used first; 0 means all."),
        checks.AtLeast(0),
    )
    max_stored_bytes: int = _setting(
        0, Option("Size of the records that are kept; 0 means no limit."), checks.AtLeast(0)
    )
    log_keep_seconds: float = _setting(
        3600.0, Option("How long the events of an ended run can be replayed."), checks.AtLeast(0)
    )
    idempotency_seconds: float = _setting(
        86_400.0, Option("How long an Idempotency-Key is remembered."), checks.AtLeast(0)
    )

    # Tables of the file, which are no options.
    profiles: Mapping[str, Profile] = NOTHING
    mcp: Mapping[str, Mapping[str, Any]] = attrs.field(default=NOTHING, repr=False)  # may hold secrets
    agent_options: Mapping[str, Any] = attrs.field(default=NOTHING, repr=False)  # so may this

    def __attrs_post_init__(self) -> None:
        """TLS needs both halves."""
        if self.certfile and not self.keyfile:
            raise WrongValueError("certfile", "needs keyfile too")
        if self.keyfile and not self.certfile:
            raise WrongValueError("keyfile", "needs certfile too")

    @property
    def agent_name(self) -> str:
        """The agent that is meant."""
        return agent_for(self.agent, self.base_url)

    @property
    def store_location(self) -> StoreLocation:
        """Where records are kept."""
        return parse_store_url(self.store, self.data_dir)


def options() -> dict[str, Option]:
    """The documentation of every option, by its name, in the order of the class."""
    return {field.name: field.metadata[_KEY] for field in attrs.fields(Settings) if _KEY in field.metadata}


def own_variable(name: str) -> str:
    """The environment variable of an option that is ours alone."""
    return f"{ENV_PREFIX}{name.upper()}"
