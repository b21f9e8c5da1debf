"""``Settings`` and ``Profile``.

Every option of the server with its default, validator and help text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
from attrs import frozen

from hermes_trio.settings import validators
from hermes_trio.settings.channels import NO_CHANNELS, ChannelSettings
from hermes_trio.settings.declaration import (
    OPTION,
    Option,
    choice,
    existing_file,
    mask_secret,
    setting,
)
from hermes_trio.settings.validators import InvalidValueError
from hermes_trio.stores.factory import (
    DEFAULT_LEASE_SECONDS,
    PostgresUrl,
    StoreLocation,
    parse_store_url,
)

APP = "hermes-trio"
ENV_PREFIX = "HERMES_TRIO_"
DEFAULT_MODEL_NAME = "hermes-agent"
MAX_WORKERS = 256
MAX_CLUSTER_RUNS = 10_000
EMPTY: Mapping[str, Any] = MappingProxyType({})
_TABLE_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,64}")  # also the name of a directory
_RESERVED_NAME = "default"  # commonly used for the agent of the top level


def user_dir(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    """Return our directory by the XDG rules, under which a relative path is ignored."""
    named = environ.get(variable, "")
    if named and Path(named).is_absolute():
        return Path(named) / APP
    home = environ.get("HOME", "")
    return (Path(home) if home else Path.home()) / fallback / APP


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Return the default of ``data_dir``."""
    return user_dir(environ, "XDG_DATA_HOME", ".local/share")


def _validate_store(settings: Settings, field: attrs.Attribute[Any], value: str) -> None:
    try:
        parse_store_url(value, settings.data_dir)
    except ValueError as error:
        raise InvalidValueError(field.name, str(error)) from None


def _validate_workers(settings: Settings, field: attrs.Attribute[Any], value: int) -> None:
    if value > 1 and not isinstance(settings.store_location, PostgresUrl):
        complaint = f"{value} processes cannot share this store; set store to postgresql://…"
        raise InvalidValueError(field.name, complaint)


def _validate_cluster_runs(settings: Settings, field: attrs.Attribute[Any], value: int) -> None:
    if value and not isinstance(settings.store_location, PostgresUrl):
        complaint = "only nodes that share a postgresql:// store can count runs together; set max_runs_per_principal"
        raise InvalidValueError(field.name, complaint)


def resolve_agent(agent: str, base_url: str) -> str:
    """Return the agent's name.

    If none is given, one that calls a model if there is a server for it.
    """
    return agent or ("upstream" if base_url else "demo")


def is_table_name(name: str) -> bool:
    """Return whether a table ``[profiles.NAME]`` or ``[mcp.NAME]`` may have this name."""
    return _TABLE_NAME.fullmatch(name) is not None


def _validate_profile_name(_profile: object, field: attrs.Attribute[Any], value: str) -> None:
    if not is_table_name(value) or value == _RESERVED_NAME:
        complaint = f"{validators.quote_value(value)} cannot be the name of a profile"
        raise InvalidValueError(field.name, complaint)


@frozen(kw_only=True)
class Profile:
    """A further agent with a name of its own, from a table ``[profiles.NAME]``."""

    name: str = attrs.field(validator=_validate_profile_name)
    agent: str = attrs.field(default="", validator=validators.validate_agent)
    model: str = ""
    base_url: str = attrs.field(default="", validator=validators.validate_base_url)
    api_key: str = attrs.field(default="", repr=mask_secret)
    model_path: Path | None = None
    system_prompt: str = ""
    tools: tuple[str, ...] = attrs.field(default=(), validator=validators.validate_texts)
    max_iterations: int = attrs.field(default=50, validator=validators.AtLeast(1))
    # The principals that may use the profile; empty means all.
    keys: tuple[str, ...] = attrs.field(default=(), validator=validators.validate_texts)
    model_name: str = attrs.field(
        default=attrs.Factory(lambda self: self.name, takes_self=True),
        validator=validators.validate_text,
    )
    mcp: tuple[str, ...] = ()  # names of [mcp.NAME] tables
    options: Mapping[str, Any] = attrs.field(
        default=EMPTY, repr=False
    )  # for the agent, which validates them

    @property
    def agent_name(self) -> str:
        """Name of the agent, after the default was applied."""
        return resolve_agent(self.agent, self.base_url)


@frozen(kw_only=True)
class Settings:
    """The configuration of a server.

    Created by ``load``, or directly in tests and embedding programs.
    """

    host: str = setting(
        "127.0.0.1",
        Option("Address to listen on.", "--host", variables=("API_SERVER_HOST",)),
        validators.validate_host,
    )
    port: int = setting(
        8642,
        Option(
            "Port to listen on; 0 picks a free one.",
            "--port",
            "PORT",
            variables=("API_SERVER_PORT", "PORT"),
        ),
        validators.Between(0, 65535),
    )
    unix_socket: Path | None = attrs.field(
        default=None,
        metadata={
            OPTION: Option(
                "Path of a Unix socket to listen on as well, for a proxy on the same machine; it carries no TLS.",
                "--unix",
                "PATH",
            )
        },
    )
    root_path: str = setting(
        "",
        Option(
            "Path below which a reverse proxy serves this server, such as /agents.",
            "--root-path",
            "PATH",
        ),
        validators.validate_root_path,
    )
    agent: str = setting(
        "",
        Option("Agent to serve: a name, or module:factory. If empty: upstream when base_url is set, otherwise demo.",
               "--agent", "AGENT"),
        validators.validate_agent,
    )  # fmt: skip
    model_name: str = setting(
        DEFAULT_MODEL_NAME,
        Option(
            "Model id that clients see. If not set, the agent hermes is named after its Hermes profile.",
            "--model-name",
            "NAME",
            variables=("API_SERVER_MODEL_NAME",),
        ),
        validators.validate_text,
    )
    base_url: str = setting(
        "",
        Option("Base URL of the model server, for agents that use one.", "--base-url", "URL",
               variables=("OPENAI_BASE_URL",)),
        validators.validate_base_url,
    )  # fmt: skip
    upstream_api_key: str = setting(
        "", Option("API key for the model server.", "", secret=True, variables=("OPENAI_API_KEY",))
    )
    upstream_model: str = setting(
        "",
        Option("Name of the model on the model server.", "--upstream-model", "NAME", variables=("OPENAI_MODEL",)),
    )  # fmt: skip
    model_path: Path | None = attrs.field(
        default=None,
        metadata=existing_file("GGUF file of the model, for the agent local.", "--model-path"),
    )
    system_prompt: str = setting("", Option("System prompt of the agent."))
    tools: tuple[str, ...] = setting(
        (),
        Option("Tool for the agent: a name, or module:attribute; may be repeated. If empty, the agent decides.",
               "--tool", "TOOL"),
        validators.validate_texts,
    )  # fmt: skip
    max_iterations: int = setting(
        50, Option("Maximum number of model calls in one turn."), validators.AtLeast(1)
    )
    upstream_connect_seconds: float = setting(
        10.0, Option("Timeout for connecting to the model server."), validators.validate_positive
    )
    upstream_read_seconds: float = setting(
        60.0,
        Option("How long the model server may be silent during a call.", variables=("HERMES_STREAM_READ_TIMEOUT",)),
        validators.validate_positive,
    )  # fmt: skip
    upstream_write_seconds: float = setting(
        60.0, Option("Timeout for one write to the model server."), validators.validate_positive
    )
    upstream_pool_seconds: float = setting(
        30.0,
        Option("How long a call waits for a free connection to the model server."),
        validators.validate_positive,
    )
    upstream_retries: int = setting(
        2,
        Option(
            "How often a failed call to the model is retried.", variables=("HERMES_STREAM_RETRIES",)
        ),
        validators.AtLeast(0),
    )
    api_key: str = setting(
        "",
        Option("Key that clients must send. Not available as a flag, which other users could see.", "", secret=True,
               variables=("API_SERVER_KEY",)),
    )  # fmt: skip
    api_key_file: Path | None = attrs.field(
        default=None,
        metadata=existing_file(
            "File with one key, or with named keys under [keys].", "--api-key-file"
        ),
    )
    gateway_health_url: str = setting(
        "",
        Option("Address of another gateway whose health GET /api/status shows.", variables=("GATEWAY_HEALTH_URL",)),
        validators.validate_gateway_url,
    )  # fmt: skip
    gateway_health_key: str = setting(
        "",
        Option("Key for /health/detailed of that gateway.", secret=True, variables=("GATEWAY_HEALTH_KEY",)),
    )  # fmt: skip
    gateway_health_seconds: float = setting(
        3.0,
        Option("How long each health route of that gateway may take to answer.", variables=("GATEWAY_HEALTH_TIMEOUT",)),
        validators.validate_positive,
    )  # fmt: skip
    data_dir: Path = attrs.field(
        factory=lambda: default_data_dir(os.environ),
        metadata={
            OPTION: Option("Directory for the records and the generated key.", "--data-dir", "DIR")
        },
    )
    store: str = setting(
        "",
        Option("Where to keep records: memory:, sqlite:///path, postgresql://…, or empty for a file in data_dir.", "--store", "URL",
               is_store_url=True, variables=("DATABASE_URL",)),
        _validate_store,
    )  # fmt: skip
    store_fallback: str = choice(
        Option(
            "What to do if the store cannot be opened: off to refuse to start, or memory to serve without it and lose "
            "all records at the end.",
            "--store-fallback", "MODE",
        ),
        "off", "memory",
    )  # fmt: skip
    check_database: bool = setting(
        False,
        Option("Read the whole database file at the start, to look for damage: on or off."),
    )
    lease_seconds: float = setting(
        DEFAULT_LEASE_SECONDS,
        Option(
            "How long this process may be silent before others that use the same database take over its runs."
        ),
        validators.AtLeast(1),
    )
    workers: int = setting(
        1,
        Option(
            "Number of worker processes behind the port; more than one requires PostgreSQL.", "--workers", "NUMBER"
        ),
        validators.Between(1, MAX_WORKERS),
        _validate_workers,
    )  # fmt: skip
    cors_origins: tuple[str, ...] = setting(
        (),
        Option("Origin from which browsers may call the API; may be repeated.", "--cors-origin", "ORIGIN",
               variables=("API_SERVER_CORS_ORIGINS",)),
        validators.validate_origins,
    )  # fmt: skip
    allowed_hosts: tuple[str, ...] = setting(
        (),
        Option("Host name under which clients may address the server, *.NAME for those below NAME, * for all; may be "
               "repeated. If empty: local names on loopback addresses, all names on others.",
               "--allowed-host", "HOST"),
        validators.validate_allowed_hosts,
    )  # fmt: skip
    max_runs: int = setting(
        100,
        Option("Maximum number of concurrent runs; 0 means no limit.", "--max-runs", "NUMBER"),
        validators.AtLeast(0),
    )
    max_runs_per_principal: int = setting(
        0,
        Option("Maximum number of concurrent runs of one principal; 0 means a fair share of max_runs."),
        validators.AtLeast(0),
    )  # fmt: skip
    max_cluster_runs_per_principal: int = setting(
        0,
        Option(
            "Maximum number of concurrent runs of one principal on all nodes of a PostgreSQL database together; 0 "
            "means no limit."
        ),
        validators.Between(0, MAX_CLUSTER_RUNS),
        _validate_cluster_runs,
    )  # fmt: skip
    max_runs_per_minute: int = setting(
        0,
        Option("Maximum number of runs that one principal may start per minute; 0 means no limit."),
        validators.AtLeast(0),
    )
    max_requests_per_principal: int = setting(
        0,
        Option(
            "Maximum number of open requests of one principal, streams included; 0 means a fair share of the "
            "connections that the process may have."
        ),
        validators.AtLeast(0),
    )  # fmt: skip
    max_agent_threads: int = setting(
        1_000,
        Option(
            "Maximum number of threads for synchronous agents; further runs wait for a free one."
        ),
        validators.AtLeast(1),
    )
    log_level: str = choice(
        Option("Least severe messages to log: debug, info, warning, error or critical.", "--log-level", "LEVEL"),
        "info", "debug", "warning", "error", "critical",
    )  # fmt: skip
    log_format: str = choice(
        Option("Format of log lines: text or json.", "--log-format", "FORMAT"), "text", "json"
    )
    access_log: bool = setting(
        True,
        Option("Log one line per request when it ends: on or off.", "--access-log", "SWITCH"),
    )
    certfile: Path | None = attrs.field(
        default=None, metadata=existing_file("TLS certificate chain in PEM format.", "--certfile")
    )
    keyfile: Path | None = attrs.field(
        default=None,
        metadata=existing_file("Private key of the certificate in PEM format.", "--keyfile"),
    )
    keepalive_seconds: float = setting(
        10.0,
        Option("How long a stream may be idle before a keep-alive comment is sent."),
        validators.validate_positive,
    )
    run_seconds: float = setting(
        0.0, Option("Maximum duration of a run; 0 means no limit."), validators.AtLeast(0)
    )
    stall_seconds: float = setting(
        30.0,
        Option("How long a client may stop reading before it is disconnected."),
        validators.validate_positive,
    )
    max_buffered_chars: int = setting(
        32_768,
        Option("Characters that an agent may emit ahead of a client that does not read, before it has to wait.",
               deprecated_name="ahead_characters"),
        validators.AtLeast(1),
    )  # fmt: skip
    drain_seconds: float = setting(
        20.0,
        Option("How long runs may continue after the server was told to stop."),
        validators.AtLeast(0),
    )
    approval_seconds: float = setting(
        300.0,
        Option("How long an approval request waits for an answer before it is denied."),
        validators.validate_positive,
    )
    approval_replies: bool = setting(
        False,
        Option(
            "Ask for approvals in the text of a chat, to be answered by the next message: on or off."
        ),
    )
    interrupt_grace_seconds: float = setting(
        5.0,
        Option("How long an interrupted agent may take to return before it is abandoned.",
               deprecated_name="grace_seconds"),
        validators.AtLeast(0),
    )  # fmt: skip
    write_seconds: float = setting(
        30.0, Option("Timeout for one write to a client."), validators.validate_positive
    )
    body_seconds: float = setting(
        20.0, Option("Timeout for receiving a request body."), validators.validate_positive
    )
    max_body_bytes: int = setting(
        10_000_000, Option("Maximum size of a request body."), validators.AtLeast(1)
    )
    max_total_body_bytes: int = setting(
        100_000_000,
        Option(
            "Maximum total size of the request bodies that are received and parsed at the same time; others wait. "
            "0 means no limit."
        ),
        validators.AtLeast(0),
    )  # fmt: skip
    write_through: bool = setting(
        True,
        Option(
            "Send tokens in the same step that records them, where the connection allows it: on or off."
        ),
    )
    open_webui_status: str = choice(
        Option("Status events for Open WebUI: on, off, or auto to detect it."), "auto", "on", "off"
    )
    open_webui_tasks: str = choice(
        Option(
            "Handle Open WebUI's requests for titles, tags and search queries without tools: on, off, "
            "or auto to detect it."
        ),
        "auto", "on", "off",
    )  # fmt: skip
    task_profile: str = setting(
        "",
        Option(
            "Profile that handles Open WebUI's background tasks, such as titles; if empty, the agent that they name."
        ),
    )
    shared_workspace: bool = setting(
        False,
        Option("Let all principals of an agent work in the same folder instead of one each: on or off."),
    )  # fmt: skip
    sandbox: str = choice(
        Option(
            "Isolation of the programs that tools start: auto to use bubblewrap if it works, require to refuse "
            "to start without it, or off.",
            "--sandbox", "MODE",
        ),
        "auto", "require", "off",
    )  # fmt: skip
    sandbox_network: bool = setting(
        False, Option("Allow programs in the sandbox to use the network: on or off.")
    )
    sandbox_paths: tuple[str, ...] = setting(
        (),
        Option(
            "Folders that programs in the sandbox may read, in addition to those of the system."
        ),
        validators.validate_texts,
    )
    tool_items: str = choice(
        Option(
            "How the Responses API shows tool calls that the server runs: mcp_call, function_call, hidden, "
            "or auto to choose by client."
        ),
        "auto", "mcp_call", "function_call", "hidden",
    )  # fmt: skip
    agent_failure_status: int = setting(
        424,
        Option("Status of a reply that is not streamed and whose agent failed after it had begun: 424, 422, 400 or 500. Clients retry 500."),
        validators.OneOf((424, 422, 400, 500)),
    )  # fmt: skip

    on_disconnect: str = setting(
        "interrupt",
        Option(
            "What happens to a run when its client disconnects: interrupt, grace:SECONDS or detach."
        ),
        validators.validate_disconnect_policy,
    )
    stream_durability: str = choice(
        Option(
            "When clients get the events of a stored run: at once (normal), or after they are stored (strict)."
        ),
        "normal", "strict",
    )  # fmt: skip
    busy_session: str = choice(
        Option("What happens to a turn in a session that is busy with another: refuse (status 409) or wait."),
        "refuse", "wait",
    )  # fmt: skip
    timezone: str = setting(
        "",
        Option("Time zone of the schedules of jobs, such as Europe/Berlin; that of the machine if empty.",
               variables=("HERMES_TIMEZONE",)),
        validators.validate_timezone,
    )  # fmt: skip
    missed_jobs: str = choice(
        Option("What happens to the times of jobs that passed while no server ran: run the job once, or skip them."),
        "run", "skip",
    )  # fmt: skip
    busy_wait_seconds: float = setting(
        60.0,
        Option("How long a turn waits for a busy session before it is refused."),
        validators.AtLeast(0),
    )
    max_stored_runs: int = setting(
        100_000,
        Option(
            "Maximum number of ended runs to keep; the least recently used go first; 0 means no limit."
        ),
        validators.AtLeast(0),
    )
    max_stored_bytes: int = setting(
        0,
        Option("Maximum total size of stored runs, sessions and conversations; 0 means no limit."),
        validators.AtLeast(0),
    )
    replay_seconds: float = setting(
        3600.0,
        Option(
            "How long the events of an ended run can be replayed.",
            deprecated_name="log_keep_seconds",
        ),
        validators.AtLeast(0),
    )
    idempotency_seconds: float = setting(
        86_400.0, Option("How long an Idempotency-Key is remembered."), validators.AtLeast(0)
    )
    ticket_seconds: int = setting(
        60,
        Option("How long a stream ticket can be used to open its run's event stream."),
        validators.Between(1, 3_600),
    )
    page_session_seconds: int = setting(
        43_200,
        Option("How long a browser stays signed in to the web page."),
        validators.Between(1, 2_592_000),
    )

    # Tables of the file rather than options. The last two may contain secrets.
    profiles: Mapping[str, Profile] = EMPTY
    channels: ChannelSettings = NO_CHANNELS
    mcp: Mapping[str, Mapping[str, Any]] = attrs.field(default=EMPTY, repr=False)
    agent_options: Mapping[str, Any] = attrs.field(default=EMPTY, repr=False)

    # Whether ``model_name`` was set, be it to the default; otherwise the agent may have its own.
    is_model_named: bool = attrs.field(default=False, eq=False, repr=False)
    key_variable: str = attrs.field(default="", eq=False, repr=False)  # that ``api_key`` came from

    def __attrs_post_init__(self) -> None:
        """Reject options that contradict each other."""
        if self.certfile and not self.keyfile:
            raise InvalidValueError("certfile", "requires keyfile as well")
        if self.keyfile and not self.certfile:
            raise InvalidValueError("keyfile", "requires certfile as well")
        if self.workers > 1 and self.store_fallback != "off":
            complaint = f"{self.workers} processes cannot share records in memory; use one worker"
            raise InvalidValueError("store_fallback", complaint)

    @property
    def agent_name(self) -> str:
        """Name of the agent, after the default was applied."""
        return resolve_agent(self.agent, self.base_url)

    @property
    def store_location(self) -> StoreLocation:
        """The parsed ``store``."""
        return parse_store_url(self.store, self.data_dir)


def options() -> dict[str, Option]:
    """Return every option by name, in the order of the class."""
    return {
        field.name: field.metadata[OPTION]
        for field in attrs.fields(Settings)
        if OPTION in field.metadata
    }


def deprecated_names() -> dict[str, str]:
    """Map the former names of options to the current ones."""
    return {
        option.deprecated_name: name for name, option in options().items() if option.deprecated_name
    }


def own_variable(name: str) -> str:
    """Return the environment variable of an option that belongs to this program alone."""
    return f"{ENV_PREFIX}{name.upper()}"
