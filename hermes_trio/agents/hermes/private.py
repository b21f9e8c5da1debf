"""Every name of ``hermes-agent`` that we use, in one place.

Most of them are private there and may move with any release. They are looked up when they are needed. Where one is gone,
a warning says so once, and what remains still works; only what would be wrong or unsafe without it fails.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Any

import structlog
from attrs import frozen

from hermes_trio.core.errors import ConfigurationError

log = structlog.get_logger(__name__)

MADE_FOR = "0.19."
PLATFORM = (
    "api_server"  # what Hermes calls its own server: it chooses tools, prompt and approvals by this name
)
DEFAULT_TOOLSETS = frozenset({"hermes-api-server"})
DEFAULT_ITERATIONS = 90
NOT_INSTALLED = 'agent: hermes needs the package hermes-agent: pip install "hermes-trio[hermes]"'


class Moved(Exception):
    """This release of ``hermes-agent`` has no such name. The text is one line."""


# -- looking up --


def check_installed() -> None:
    """See that the package is there, without importing it.

    Raises:
        ConfigurationError: it is not.
    """
    if importlib.util.find_spec("run_agent") is None:
        raise ConfigurationError(NOT_INSTALLED)
    if not release().startswith(MADE_FOR):
        log.warning("the hermes agent is made for another release", made_for=MADE_FOR, found=release())


@cache
def release() -> str:
    """The installed release of ``hermes-agent``; "" if nobody knows."""
    try:
        return version("hermes-agent")
    except PackageNotFoundError:
        return ""


def find(module: str, name: str) -> Any:
    """A name, with dots for attributes of attributes.

    Raises:
        Moved: it is not there.
    """
    try:
        return attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise Moved(f"hermes-agent {release()} has no {module}.{name}") from error


def soft(default: Any, module: str, name: str, *args: Any) -> Any:
    """Call something, or take the default where it is gone."""
    try:
        function = find(module, name)
    except Moved as moved:
        _warn_once(str(moved))
        return default
    return function(*args)


@cache
def _warn_once(text: str) -> None:
    log.warning("a name moved; going on without it", missing=text)


# -- the agent and its configuration, as the gateway of Hermes resolves it --


def agent_class() -> Callable[..., Any]:
    """``AIAgent``.

    Raises:
        ConfigurationError: it cannot be imported.
    """
    try:
        found: Callable[..., Any] = find("run_agent", "AIAgent")
    except Moved as moved:
        raise ConfigurationError(f"agent: hermes: {moved}: {_cause(moved)}") from moved
    return found


def _cause(error: BaseException) -> str:
    return " ".join(str(error.__cause__).split())


def runtime(provider: str) -> dict[str, Any]:
    """The model's address and credentials, as arguments of the agent. ``model`` is there if a fallback took over."""
    if provider:
        name, args = "_resolve_runtime_agent_kwargs_for_provider", (provider,)
        return dict(soft({"provider": provider}, "gateway.run", name, *args))
    return dict(soft({}, "gateway.run", "_resolve_runtime_agent_kwargs"))


def model() -> str:
    """The model's name in the configuration of Hermes."""
    return str(soft("", "gateway.run", "_resolve_gateway_model") or "")


def toolsets() -> list[str]:
    """The toolsets that Hermes gives to its own server."""
    config = soft({}, "gateway.run", "_load_gateway_config")
    return sorted(soft(DEFAULT_TOOLSETS, "hermes_cli.tools_config", "_get_platform_tools", config, PLATFORM))


def max_iterations() -> int:
    """Model calls in one turn."""
    return int(soft(DEFAULT_ITERATIONS, "gateway.run", "_current_max_iterations"))


def fallback_model() -> Any:
    """The chain of models to turn to when one fails."""
    return soft(None, "gateway.run", "GatewayRunner._load_fallback_model")


def reasoning(effort: str) -> Any:
    """How hard the model shall think."""
    if effort:
        return soft(None, "hermes_constants", "parse_reasoning_effort", effort)
    return soft(None, "gateway.run", "GatewayRunner._load_reasoning_config")


def set_up_logging() -> None:
    """Open the log files of Hermes, which every agent would do."""
    soft(None, "hermes_logging", "setup_logging")


def probe_environment() -> None:
    """Look for the tools of the machine, which the first turn would do; takes seconds, and is remembered."""
    soft("", "tools.env_probe", "get_environment_probe_line")


# -- homes --


def home_of(profile: str) -> Path:
    """The home of a profile of Hermes.

    Raises:
        ConfigurationError: there is no such profile.
    """
    try:
        if find("hermes_cli.profiles", "profile_exists")(profile):
            return Path(find("hermes_cli.profiles", "get_profile_dir")(profile))
    except (Moved, ValueError) as error:
        raise ConfigurationError(f"hermes_profile: {error}") from error
    raise ConfigurationError(f"hermes_profile: Hermes has no profile {profile!r}")


def current_home() -> Path:
    """The home that counts in this thread."""
    usual = Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")
    return Path(soft(usual, "hermes_constants", "get_hermes_home"))


def home_scope(home: str) -> AbstractContextManager[object]:
    """Configuration, memory and credentials of a home, for this thread and what it starts; "" for the usual one.

    Raises:
        Moved: it cannot be set. Going on would use somebody else's credentials.
    """
    if not home:
        return nullcontext()
    scope: AbstractContextManager[object] = find("gateway.run", "_profile_runtime_scope")(Path(home))
    return scope


def open_session_db(home: Path) -> Any:
    """The database of sessions in a home; None, which the agent takes, where it cannot be opened."""
    try:
        return find("hermes_state", "SessionDB")(db_path=home / "state.db")
    except Exception as error:  # noqa: BLE001 - without it turns work, and are only not listed by Hermes
        log.warning("the session database of Hermes cannot be opened", error=str(error))
        return None


# -- around a turn --


@frozen
class Identity:
    """What tools may know of the turn that they work for."""

    session_id: str
    session_key: str
    cwd: str = ""


@contextmanager
def session_variables(identity: Identity) -> Iterator[None]:
    """Tell the tools of this thread whose turn it is, and that nobody waits for news after its end."""
    try:
        set_vars = find("gateway.session_context", "set_session_vars")
        clear_vars = find("gateway.session_context", "clear_session_vars")
    except Moved as moved:
        _warn_once(str(moved))
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
        _quietly(clear_vars, tokens)


Notify = Callable[[Mapping[str, Any]], None]


@contextmanager
def approvals(run_id: str, notify: Notify) -> Iterator[None]:
    """Send questions about dangerous commands to ``notify``; afterwards nobody waits for an answer any more.

    Where the names moved, Hermes refuses such commands by itself.

    Args:
        run_id: the name under which the questions of this turn are kept.
        notify: called in the tool's thread, with the question.
    """
    with ExitStack() as stack:
        try:
            _register(stack, run_id, notify)
        except Moved as moved:
            _warn_once(str(moved))
        yield


def _register(stack: ExitStack, run_id: str, notify: Notify) -> None:
    names = ("set_current_session_key", "reset_current_session_key")
    set_key, reset_key = (find("tools.approval", name) for name in names)
    names = ("register_gateway_notify", "unregister_gateway_notify")
    register, unregister = (find("tools.approval", name) for name in names)
    stack.callback(_quietly, reset_key, set_key(run_id))
    stack.callback(_quietly, unregister, run_id)
    register(run_id, notify)


def answer(run_id: str, question: Mapping[str, Any], choice: str) -> None:
    """Answer one question. One that was given up meanwhile stays so.

    The public way answers the oldest question of a run. If that one is not ours, because ours timed out or because
    several tools ask at once, it would allow a command that nobody was shown.
    """
    try:
        lock, queues = find("tools.approval", "_lock"), find("tools.approval", "_gateway_queues")
    except Moved as moved:
        _warn_once(f"{moved}; dangerous commands are denied")
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
    """The id of the call that asks in this thread, "" if nobody knows."""
    try:
        return str(find("tools.approval", "_approval_tool_call_id").get("") or "")
    except (Moved, TypeError, LookupError):
        return ""


def _quietly(function: Callable[..., object], *args: object) -> None:
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001 - cleaning up goes on, and the turn's own end counts
        log.warning("cleaning up after a turn of hermes-agent failed", error=str(error))
