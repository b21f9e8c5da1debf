"""Checks over the network: the server on our port, and the model servers.

Keys are sent only to where the settings send them. Each ``assess_…`` function is pure and turns a
fact into a finding.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx2
import trio
from attrs import frozen

from hermes_trio.cli.target import find_target, server_url
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.doctor.findings import Finding, fail, ok, warn
from hermes_trio.server.sockets import CannotListen, PortInUse, open_listening_sockets
from hermes_trio.settings import Settings

PLATFORM = "hermes-agent"
MAX_BODY_BYTES = 5_000_000
_NEEDS_URL = "upstream"
_MAX_LISTED = 5
_PROC = Path("/proc")
_LISTENING = "0A"  # the state of a socket in /proc/net/tcp


# -- the port --


@frozen
class PortFree:
    """The port can be listened on."""


@frozen
class PortOurs:
    """A hermes-trio server listens on the port."""

    version: str


@frozen
class PortTaken:
    """Another program listens on the port."""

    by: str = ""  # a process, if visible


@frozen
class PortUnusable:
    """The port cannot be listened on."""

    reason: str


async def check_port(settings: Settings, seconds: float) -> list[Finding]:
    """Check whether the port is free.

    If a hermes-trio server has it, also check which models that offers.
    """
    address = f"{settings.host} port {settings.port}"
    fact = await trio.to_thread.run_sync(_try_listen, settings, abandon_on_cancel=True)
    if not isinstance(fact, PortTaken):
        return [assess_port(address, fact)]
    ours = await _identify(settings, seconds)
    if ours is not None:
        return [assess_port(address, ours), await _check_models(settings, seconds)]
    by = await trio.to_thread.run_sync(find_listener, settings.port, abandon_on_cancel=True)
    return [assess_port(address, PortTaken(by))]


def _try_listen(settings: Settings) -> PortFree | PortTaken | PortUnusable:
    try:
        for opened in open_listening_sockets(settings.host, settings.port):
            opened.close()
    except PortInUse:
        return PortTaken()
    except CannotListen as error:
        return PortUnusable(str(error))
    return PortFree()


async def _identify(settings: Settings, seconds: float) -> PortOurs | None:
    """Ask the program on the port whether it is a hermes-trio server. No key is sent to it."""
    url = server_url(settings)
    # The certificate proves nothing here, and nothing secret is sent.
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    try:
        health = await get(f"{url}/health", {}, seconds, trust=trust, is_local=True)
        version = await get(f"{url}/version", {}, seconds, trust=trust, is_local=True)
    except NoReplyError:
        return None
    number = _field(version.body, "version")
    is_ours = _field(health.body, "platform") == PLATFORM and isinstance(number, str)
    return PortOurs(number[:20]) if is_ours else None


def assess_port(address: str, fact: PortFree | PortOurs | PortTaken | PortUnusable) -> Finding:
    """Judge whether a server can listen."""
    match fact:
        case PortFree():
            return ok("port", f"{address} is free")
        case PortOurs(version):
            return ok("port", f"a hermes-trio server (version {version}) listens on {address}")
        case PortTaken(by):
            message = f"{address} is in use by {by or 'another program'}"
            return fail("port", message, "stop that program, or use another --port")
        case PortUnusable(reason):
            return fail("port", reason, "use another --host or --port")


def find_listener(port: int) -> str:
    """Return the process that listens on a port, such as ``nginx (pid 17)``; "" if it is not visible. Blocks."""
    # The sockets that listen on the port, and then the process that has one of them open.
    wanted: set[str] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == _LISTENING:
                    wanted.add(f"socket:[{fields[9]}]")
    for folder in _PROC.iterdir() if wanted else ():
        if folder.name.isdigit() and not wanted.isdisjoint(_open_files(folder)):
            name = "a process"
            with suppress(OSError):
                name = (folder / "comm").read_text().strip()
            return f"{name} (pid {folder.name})"
    return ""


def _open_files(folder: Path) -> Iterator[str]:
    with suppress(OSError):  # the process has ended, or belongs to another user
        for link in (folder / "fd").iterdir():
            with suppress(OSError):
                yield str(link.readlink())


async def _check_models(settings: Settings, seconds: float) -> Finding:
    try:
        target = find_target(settings)
        headers = {"Authorization": f"Bearer {target.key}"}
        reply = await get(
            f"{target.url}/v1/models", headers, seconds, target.verify, target.is_local
        )
    except NoReplyError as error:
        return assess_models_refused(error.reason)
    except ConfigurationError as error:
        return assess_models_refused(str(error))
    names = _model_names(reply.body)
    return (
        assess_models_refused(f"status {reply.status}") if names is None else assess_models(names)
    )


def assess_models(names: Sequence[str]) -> Finding:
    """Judge the models that the running server offers."""
    if not names:
        return warn(
            "models", "the server offers no model to this key", "check the keys of the profiles"
        )
    return ok("models", f"the server offers {_join_names(names)}")


def assess_models_refused(reason: str) -> Finding:
    """Report that the running server does not accept the key of these settings."""
    return warn(
        "models",
        f"the running server does not list its models: {reason}",
        "run the doctor with the settings of that server, or restart it",
    )


# -- model servers --


@frozen
class Upstream:
    """A model server that an agent needs."""

    label: str  # "" or the name of a profile
    url: str
    model: str
    has_key: bool

    @property
    def check(self) -> str:
        """Name of the check."""
        return f"upstream of {self.label}" if self.label else "upstream"


@frozen
class ModelsListed:
    """The server answered with a list of models."""

    names: tuple[str, ...]


@frozen
class UnexpectedStatus:
    """The server answered with something else."""

    status: int


@frozen
class UpstreamUnreachable:
    """The server did not answer."""

    reason: str


@frozen
class UpstreamResult:
    """The finding about a model server, and the time by its clock."""

    finding: Finding
    date: float | None = None


def list_upstreams(settings: Settings) -> dict[Upstream, str]:
    """Return the model servers in the settings, each once, with their keys."""
    own = [("", settings.base_url, settings.upstream_model, settings.upstream_api_key)]
    others = [
        (each.name, each.base_url, each.model, each.api_key) for each in settings.profiles.values()
    ]
    found: dict[tuple[str, str, str], tuple[Upstream, str]] = {}
    for label, url, model, key in (*own, *others):
        if url:
            found.setdefault((url, model, key), (Upstream(label, url, model, bool(key)), key))
    return dict(found.values())


def list_agents_without_upstream(settings: Settings) -> list[str]:
    """Return what configures an agent that needs a model server.

    "agent", or the names of profiles.
    """
    agents = {"agent": settings.agent_name}
    agents |= {each.name: each.agent_name for each in settings.profiles.values()}
    return [label for label, agent in agents.items() if agent == _NEEDS_URL]


async def check_upstream(upstream: Upstream, key: str, seconds: float) -> UpstreamResult:
    """Ask for the list of models, which nearly every server has."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = await get(f"{upstream.url.rstrip('/')}/models", headers, seconds)
    except NoReplyError as error:
        return UpstreamResult(assess_upstream(upstream, UpstreamUnreachable(error.reason)))
    names = _model_names(reply.body) if reply.status == 200 else None
    fact = UnexpectedStatus(reply.status) if names is None else ModelsListed(names)
    return UpstreamResult(assess_upstream(upstream, fact), reply.date)


def assess_upstream(
    upstream: Upstream, fact: ModelsListed | UnexpectedStatus | UpstreamUnreachable
) -> Finding:
    """Judge whether an agent can use its model."""
    check, url = upstream.check, upstream.url
    match fact:
        case UpstreamUnreachable(reason):
            return fail(
                check,
                f"{url} cannot be reached: {reason}",
                "start that server, or correct base_url",
            )
        case UnexpectedStatus(401 | 403):
            problem = "does not accept the key" if upstream.has_key else "requires a key"
            advice = "set upstream_api_key (OPENAI_API_KEY), or api_key of the profile"
            return fail(check, f"{url} {problem}", advice)
        case UnexpectedStatus(status):
            advice = "it may work nevertheless; most servers need /v1 at the end of base_url"
            return warn(check, f"{url} answers /models with status {status}", advice)
        case ModelsListed(names) if upstream.model and names and upstream.model not in names:
            message = f"{url} does not list the model {upstream.model}; it has {_join_names(names)}"
            return warn(check, message, "correct upstream_model, or model of the profile")
        case ModelsListed(names):
            return ok(check, f"{url} answers, with {_join_names(names)}")


def assess_no_upstream(agents: Sequence[str]) -> Finding:
    """Judge settings without a model server, given what configures an agent that needs one."""
    if agents:
        message = f"base_url is not set, but an agent needs it: {_join_names(agents)}"
        return fail("upstream", message, "set base_url (OPENAI_BASE_URL), or use another --agent")
    return ok("upstream", "none is configured, and no agent needs one")


def _join_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{shown}{more}" if names else "no model listed"


# -- requests --


@frozen
class HttpReply:
    """The answer of a server."""

    status: int
    body: Any  # JSON, or None
    date: float | None = None


@frozen
class NoReplyError(Exception):
    """A server did not answer."""

    reason: str


async def get(
    url: str, headers: Mapping[str, str], seconds: float, trust: Any = True, is_local: bool = False
) -> HttpReply:
    """Make one GET request. For a server on this machine (``is_local``), proxies are ignored.

    Raises:
        NoReplyError: There was no answer in time.
    """
    try:
        with trio.fail_after(seconds):
            async with httpx2.AsyncClient(
                timeout=seconds, verify=trust, trust_env=not is_local
            ) as client:
                answer = await client.get(url, headers=dict(headers))
    except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError) as error:
        raise NoReplyError(str(error) or type(error).__name__) from error
    except trio.TooSlowError:
        raise NoReplyError(f"no answer within {seconds:g} s") from None
    return HttpReply(
        answer.status_code, _parse_json(answer.content), _parse_date(answer.headers.get("Date", ""))
    )


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content) if len(content) <= MAX_BODY_BYTES else None
    except ValueError:
        return None


def _parse_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except ValueError:
        return None


def _field(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None


def _model_names(body: Any) -> tuple[str, ...] | None:
    data = _field(body, "data")
    if not isinstance(data, list):
        return None
    return tuple(str(_field(entry, "id"))[:100] for entry in data if _field(entry, "id"))
