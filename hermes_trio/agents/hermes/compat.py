"""Every name of ``hermes-agent`` that we use, in one place.

Most of them are private and may move with any release. They are looked up on use. If one is
missing, a warning is logged once and the rest still works; only what would be wrong or unsafe
without it fails.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Any

import structlog
from attrs import frozen

from hermes_trio.agent.inventory import Inventory, Skill, Toolset
from hermes_trio.core.errors import ConfigurationError

log = structlog.get_logger(__name__)

SUPPORTED_RELEASE = "0.19."
# The name of Hermes' own server, by which it chooses tools, prompt and approvals.
PLATFORM = "api_server"
DEFAULT_TOOLSETS = frozenset({"hermes-api-server"})
DEFAULT_ITERATIONS = 90
_PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_UNNAMED_PROFILES = frozenset({"default", "custom"})  # what Hermes calls homes that are no profiles
NOT_INSTALLED = "agent: hermes needs the package hermes-agent: pip install '.[hermes]' in a clone of the repository"


class MissingName(Exception):
    """The installed release of ``hermes-agent`` has no such name. The message is one line."""


# -- lookup --


def check_installed() -> None:
    """Check that the package is installed, without importing it.

    Raises:
        ConfigurationError: it is not installed.
    """
    if importlib.util.find_spec("run_agent") is None:
        raise ConfigurationError(NOT_INSTALLED)
    if not installed_release().startswith(SUPPORTED_RELEASE):
        log.warning(
            "unsupported release of hermes-agent",
            supported=SUPPORTED_RELEASE,
            found=installed_release(),
        )


@cache
def installed_release() -> str:
    """Return the installed release of ``hermes-agent``, or "" if unknown."""
    try:
        return version("hermes-agent")
    except PackageNotFoundError:
        return ""


def find(module: str, name: str) -> Any:
    """Return the object with a dotted name in a module.

    Raises:
        MissingName: there is no such object.
    """
    try:
        return attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise MissingName(f"hermes-agent {installed_release()} has no {module}.{name}") from error


def call_or_default(default: Any, module: str, name: str, *args: Any, **options: Any) -> Any:
    """Call a function, or return the default if the function is missing."""
    try:
        function = find(module, name)
    except MissingName as missing:
        _warn_once(str(missing))
        return default
    return function(*args, **options)


@cache
def _warn_once(text: str) -> None:
    log.warning("continuing without a missing name of hermes-agent", missing=text)


# -- the agent and its configuration, resolved as the gateway of Hermes does --


def agent_class() -> Callable[..., Any]:
    """Return ``AIAgent``.

    Raises:
        ConfigurationError: it cannot be imported.
    """
    try:
        found: Callable[..., Any] = find("run_agent", "AIAgent")
    except MissingName as missing:
        raise ConfigurationError(f"agent: hermes: {missing}: {_cause(missing)}") from missing
    return found


def _cause(error: BaseException) -> str:
    return " ".join(str(error.__cause__).split())


def endpoint(provider: str) -> dict[str, Any]:
    """Return the model's URL and credentials as arguments of the agent.

    With ``model`` if a fallback took over.
    """
    if provider:
        name, args = "_resolve_runtime_agent_kwargs_for_provider", (provider,)
        return dict(call_or_default({"provider": provider}, "gateway.run", name, *args))
    return dict(call_or_default({}, "gateway.run", "_resolve_runtime_agent_kwargs"))


def model() -> str:
    """Return the model name in the configuration of Hermes."""
    return str(call_or_default("", "gateway.run", "_resolve_gateway_model") or "")


def toolsets() -> list[str]:
    """Return the toolsets that Hermes gives to its own server."""
    config = call_or_default({}, "gateway.run", "_load_gateway_config")
    return sorted(
        call_or_default(
            DEFAULT_TOOLSETS, "hermes_cli.tools_config", "_get_platform_tools", config, PLATFORM
        )
    )


def inventory(chosen: Collection[str]) -> Inventory:
    """Return the toolsets and skills as Hermes' own server lists them.

    Args:
        chosen: the toolsets that agents are given; empty for those that Hermes is configured to.
    """
    module = "hermes_cli.tools_config"
    config = call_or_default({}, "hermes_cli.config", "load_config")
    enabled = set(chosen) or call_or_default(
        set(), module, "_get_platform_tools", config, PLATFORM, include_default_mcp_servers=False
    )
    known = call_or_default((), module, "_get_effective_configurable_toolsets")
    skills = call_or_default((), "tools.skills_tool", "_find_all_skills")
    return Inventory(
        tuple(
            Toolset(
                name,
                _tools_of(name),
                label,
                description,
                name in enabled,
                bool(call_or_default(True, module, "_toolset_has_keys", name, config)),
            )
            for name, label, description in known
        ),
        tuple(
            Skill(
                str(each["name"]),
                str(each.get("description") or ""),
                str(each.get("category") or ""),
            )
            for each in call_or_default(skills, "tools.skills_tool", "_sort_skills", skills)
        ),
    )


def _tools_of(toolset: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(set(call_or_default((), "toolsets", "resolve_toolset", toolset))))
    except Exception as error:  # noqa: BLE001 - a toolset that is broken must not hide the others
        log.warning("cannot list the tools of a toolset", toolset=toolset, error=str(error))
        return ()


def max_iterations() -> int:
    """Return the limit of model calls per turn."""
    return int(call_or_default(DEFAULT_ITERATIONS, "gateway.run", "_current_max_iterations"))


def fallback_model() -> Any:
    """Return the chain of models to fall back to."""
    return call_or_default(None, "gateway.run", "GatewayRunner._load_fallback_model")


def reasoning(effort: str) -> Any:
    """Return the reasoning configuration for an effort; "" for the configured one."""
    if effort:
        return call_or_default(None, "hermes_constants", "parse_reasoning_effort", effort)
    return call_or_default(None, "gateway.run", "GatewayRunner._load_reasoning_config")


def set_up_logging() -> None:
    """Open the log files of Hermes, which creating an agent would do as well."""
    call_or_default(None, "hermes_logging", "setup_logging")


def probe_environment() -> None:
    """Probe the machine for command-line tools.

    Takes seconds; cached for the first turn, which would do it otherwise.
    """
    call_or_default("", "tools.env_probe", "get_environment_probe_line")


# -- homes --


def home_of(profile: str) -> Path:
    """Return the home of a Hermes profile.

    Raises:
        ConfigurationError: there is no such profile.
    """
    try:
        if find("hermes_cli.profiles", "profile_exists")(profile):
            return Path(find("hermes_cli.profiles", "get_profile_dir")(profile))
    except (MissingName, ValueError) as error:
        raise ConfigurationError(f"hermes_profile: {error}") from error
    raise ConfigurationError(f"hermes_profile: Hermes has no profile {profile!r}")


def current_home() -> Path:
    """Return the home that is active in this thread."""
    return Path(call_or_default(default_home(), "hermes_constants", "get_hermes_home"))


def default_home() -> Path:
    """Return the home of this process."""
    return Path(os.environ.get("HERMES_HOME", "").strip() or Path.home() / ".hermes")


def profile_of(home: Path) -> str:
    """Return the name of the profile whose home this is, "" for none.

    Profiles live in the folder ``profiles`` of another home. Does not import Hermes, whose own
    function needs the home to be the active one.
    """
    resolved = home.resolve()
    is_profile = resolved.parent.name == "profiles" and _PROFILE_NAME.fullmatch(resolved.name)
    return resolved.name if is_profile and resolved.name not in _UNNAMED_PROFILES else ""


def home_scope(home: str) -> AbstractContextManager[object]:
    """Activate a home (configuration, memory, credentials) for this thread and what it starts.

    "" for the default.

    Raises:
        MissingName: the home cannot be activated. Continuing would use the wrong credentials.
    """
    if not home:
        return nullcontext()
    scope: AbstractContextManager[object] = find("gateway.run", "_profile_runtime_scope")(
        Path(home)
    )
    return scope


def open_session_db(home: Path) -> Any:
    """Open the session database of a home; return None, which the agent accepts, if that fails."""
    try:
        return find("hermes_state", "SessionDB")(db_path=home / "state.db")
    except Exception as error:  # noqa: BLE001 - turns work without it; Hermes just does not list them
        log.warning("cannot open the session database of Hermes", error=str(error))
        return None


# -- turns --


@frozen
class Identity:
    """What tools may know about the turn that they work for."""

    session_id: str
    session_key: str
    cwd: str = ""


@contextmanager
def session_variables(identity: Identity) -> Iterator[None]:
    """Tell the tools of this thread whose turn it is, and that nothing can be delivered after its end."""
    try:
        set_vars = find("gateway.session_context", "set_session_vars")
        clear_vars = find("gateway.session_context", "clear_session_vars")
    except MissingName as missing:
        _warn_once(str(missing))
        yield
        return
    tokens = set_vars(
        platform=PLATFORM,
        chat_id=identity.session_id,
        session_key=identity.session_key,
        session_id=identity.session_id,
        cwd=identity.cwd,
        async_delivery=False,
    )
    try:
        yield
    finally:
        _call_quietly(clear_vars, tokens)


Notify = Callable[[Mapping[str, Any]], None]


@contextmanager
def approvals(run_id: str, notify: Notify) -> Iterator[None]:
    """Send approval requests for dangerous commands to ``notify`` within a block.

    At its end, open ones are dropped.

    If the names are missing, Hermes refuses such commands by itself.

    Args:
        run_id: the key under which Hermes keeps the requests of this turn.
        notify: called in the tool's thread with the request.
    """
    with ExitStack() as stack:
        try:
            names = ("set_current_session_key", "reset_current_session_key")
            set_key, reset_key = (find("tools.approval", name) for name in names)
            names = ("register_gateway_notify", "unregister_gateway_notify")
            register, unregister = (find("tools.approval", name) for name in names)
        except MissingName as missing:
            _warn_once(str(missing))
        else:
            stack.callback(_call_quietly, reset_key, set_key(run_id))
            stack.callback(_call_quietly, unregister, run_id)
            register(run_id, notify)
        yield


def answer(run_id: str, question: Mapping[str, Any], choice: str) -> None:
    """Answer one approval request, unless it was dropped meanwhile.

    The public function answers the oldest request of a run. If that is not this one, because this
    one timed out or several tools ask at once, it would allow a command that the user was not
    shown.
    """
    try:
        lock, queues = find("tools.approval", "_lock"), find("tools.approval", "_gateway_queues")
    except MissingName as missing:
        _warn_once(f"{missing}; dangerous commands are denied")
        find("tools.approval", "resolve_gateway_approval")(run_id, "deny")
        return
    with lock:
        queue = queues.get(run_id, [])
        entry = next((entry for entry in queue if entry.data is question), None)
        if entry is not None:
            queue.remove(entry)
            entry.result = choice
    if entry is not None:
        entry.event.set()


def asking_call() -> str:
    """Return the id of the call that asks in this thread, or "" if unknown."""
    try:
        return str(find("tools.approval", "_approval_tool_call_id").get("") or "")
    except (MissingName, TypeError, LookupError):
        return ""


def _call_quietly(function: Callable[..., object], *args: object) -> None:
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001 - must not replace the result of the turn
        log.warning("clean-up after a turn of hermes-agent failed", error=str(error))
