"""Ask another gateway how it is: ``/health/detailed``, then ``/health``. Our own API key is never sent."""

from __future__ import annotations

import json
import ssl
from typing import Any
from urllib.parse import urlsplit

import httpx2
import trio
from attrs import field, frozen

from hermes_trio.core.gateway import (
    DETAILS,
    HEALTH,
    GatewayStatus,
    HealthAnswer,
    NoHealth,
    needs_plain_health,
    read_gateway,
)
from hermes_trio.keys import is_loopback

MAX_BODY_BYTES = 1_000_000
_MAX_REASON_CHARS = 200


@frozen
class Gateway:
    """A gateway to ask."""

    url: str  # from ``normalize_gateway_url``
    seconds: float  # for each of its health routes
    key: str = field(default="", repr=False)  # its own; "" to send none
    verify: Any = True  # as httpx2 takes it


async def probe(gateway: Gateway) -> GatewayStatus:
    """Return how a gateway is. Takes at most twice its ``seconds``, and raises nothing."""
    is_local = is_loopback(urlsplit(gateway.url).hostname or "")
    headers = {"Authorization": f"Bearer {gateway.key}"} if gateway.key else {}
    try:
        # Redirects are not followed: they could lead the key elsewhere.
        client = httpx2.AsyncClient(
            timeout=gateway.seconds, verify=gateway.verify, trust_env=not is_local
        )
    except (
        OSError,
        ValueError,
    ) as error:  # such as an unusable proxy or certificate in the environment
        return read_gateway(gateway.url, NoHealth(_describe(error)), None)
    async with client:
        details = await _ask(client, gateway, DETAILS, headers)
        health = await _ask(client, gateway, HEALTH, {}) if needs_plain_health(details) else None
    return read_gateway(gateway.url, details, health)


async def _ask(
    client: httpx2.AsyncClient, gateway: Gateway, path: str, headers: dict[str, str]
) -> HealthAnswer | NoHealth:
    try:
        with trio.fail_after(gateway.seconds):
            async with client.stream("GET", f"{gateway.url}{path}", headers=headers) as answer:
                return HealthAnswer(answer.status_code, await _read_json(answer))
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.InvalidURL) as error:
        return NoHealth(f"it cannot be reached: {_describe(error)}")
    except (trio.TooSlowError, httpx2.TimeoutException):
        return NoHealth(f"no answer within {gateway.seconds:g} s", is_reachable=True)
    except (httpx2.HTTPError, ssl.SSLError) as error:
        return NoHealth(_describe(error), is_reachable=True)


async def _read_json(answer: httpx2.Response) -> Any:
    """Read the body to its end, and keep what may be a report. The caller limits the time."""
    content = b""
    async for piece in answer.aiter_bytes():
        content += piece[: MAX_BODY_BYTES + 1 - len(content)]
    try:
        return json.loads(content) if len(content) <= MAX_BODY_BYTES else None
    except (ValueError, RecursionError):
        return None


def _describe(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_MAX_REASON_CHARS]
