"""Asking servers: the one on our port, and those of the models. Keys are sent to where the settings send them, nowhere else."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import trio
from attrs import frozen

from hermes_trio.cli.target import find_target, server_url
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.doctor import findings_remote as findings
from hermes_trio.doctor.findings import Finding
from hermes_trio.doctor.findings_remote import (
    Answers,
    Offers,
    PortFree,
    PortOurs,
    PortTaken,
    PortUnusable,
    Silent,
    Upstream,
)
from hermes_trio.doctor.processes import listener
from hermes_trio.server.sockets import CannotListen, PortInUse, open_listening_sockets
from hermes_trio.settings import Settings

PLATFORM = "hermes-agent"
LARGEST = 5_000_000
_NEEDS_URL = "upstream"


@frozen
class Reply:
    """What a server answered."""

    status: int
    body: Any  # JSON, or None
    date: float | None = None


@frozen
class NoReply(Exception):
    """It did not answer."""

    why: str


async def port(settings: Settings, seconds: float) -> list[Finding]:
    """Whether our port is free; if a server of ours has it, what that offers."""
    place = f"{settings.host} port {settings.port}"
    fact = await trio.to_thread.run_sync(_try_to_listen, settings, abandon_on_cancel=True)
    if not isinstance(fact, PortTaken):
        return [findings.port(place, fact)]
    ours = await _ours(settings, seconds)
    if isinstance(ours, PortOurs):
        return [findings.port(place, ours), await _models(settings, seconds)]
    by = await trio.to_thread.run_sync(listener, settings.port, abandon_on_cancel=True)
    return [findings.port(place, PortTaken(by))]


def _try_to_listen(settings: Settings) -> PortFree | PortTaken | PortUnusable:
    try:
        for opened in open_listening_sockets(settings.host, settings.port):
            opened.close()
    except PortInUse:
        return PortTaken()
    except CannotListen as error:
        return PortUnusable(str(error))
    return PortFree()


async def _ours(settings: Settings, seconds: float) -> PortOurs | PortTaken:
    """A server that says so. No key is sent: it may be anybody's."""
    url = server_url(settings)
    try:
        health = await get(f"{url}/health", {}, seconds, trust=_anything(), is_near=True)
        version = await get(f"{url}/version", {}, seconds, trust=_anything(), is_near=True)
    except NoReply:
        return PortTaken()
    told = _field(version.body, "version")
    is_ours = _field(health.body, "platform") == PLATFORM and isinstance(told, str)
    return PortOurs(told[:20]) if is_ours else PortTaken()


async def _models(settings: Settings, seconds: float) -> Finding:
    try:
        target = find_target(settings)
        headers = {"Authorization": f"Bearer {target.key}"}
        reply = await get(f"{target.url}/v1/models", headers, seconds, target.verify, target.is_near)
    except (ConfigurationError, NoReply) as error:
        return findings.models_refused(error.why if isinstance(error, NoReply) else str(error))
    names = _names(reply.body)
    return findings.models_refused(f"status {reply.status}") if names is None else findings.models(names)


# -- models --


def upstreams(settings: Settings) -> dict[Upstream, str]:
    """The servers of models that the settings name, each once, and the keys to them."""
    own = [("", settings.base_url, settings.upstream_model, settings.upstream_api_key)]
    others = [(each.name, each.base_url, each.model, each.api_key) for each in settings.profiles.values()]
    found: dict[tuple[str, str, str], tuple[Upstream, str]] = {}
    for label, url, model, key in (*own, *others):
        if url:
            found.setdefault((url, model, key), (Upstream(label, url, model, bool(key)), key))
    return dict(found.values())


def wanting(settings: Settings) -> list[str]:
    """The agents that cannot do without one: "agent", or their profiles."""
    named = {"agent": settings.agent_name} | {
        each.name: each.agent_name for each in settings.profiles.values()
    }
    return [label for label, agent in named.items() if agent == _NEEDS_URL]


@frozen
class Asked:
    """What became of asking the server of a model, and what time it has."""

    finding: Finding
    dates: tuple[float, ...] = ()


async def upstream(asked: Upstream, key: str, seconds: float) -> Asked:
    """Ask for the list of models, as nearly every server has one."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = await get(f"{asked.url.rstrip('/')}/models", headers, seconds)
    except NoReply as error:
        return Asked(findings.upstream(asked, Silent(error.why)))
    names = _names(reply.body) if reply.status == 200 else None
    fact = Answers(reply.status) if names is None else Offers(names)
    return Asked(findings.upstream(asked, fact), () if reply.date is None else (reply.date,))


async def get(
    url: str, headers: Mapping[str, str], seconds: float, trust: Any = True, is_near: bool = False
) -> Reply:
    """One request.

    Raises:
        NoReply: there was no answer in time.
    """
    try:
        with trio.fail_after(seconds):
            async with httpx2.AsyncClient(timeout=seconds, verify=trust, trust_env=not is_near) as client:
                answer = await client.get(url, headers=dict(headers))
    except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError) as error:
        raise NoReply(str(error) or type(error).__name__) from error
    except trio.TooSlowError:
        raise NoReply(f"no answer within {seconds:g} s") from None
    return Reply(answer.status_code, _json(answer.content), _date(answer.headers.get("Date", "")))


def _json(content: bytes) -> Any:
    try:
        return json.loads(content) if len(content) <= LARGEST else None
    except ValueError:
        return None


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except ValueError:
        return None


def _field(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None


def _names(body: Any) -> tuple[str, ...] | None:
    data = _field(body, "data")
    return tuple(_ids(data)) if isinstance(data, list) else None


def _ids(data: Iterable[Any]) -> Iterable[str]:
    return (str(_field(entry, "id"))[:100] for entry in data if _field(entry, "id"))


def _anything() -> ssl.SSLContext:
    """For asking who somebody is, without telling anything."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
