"""Call Meta's Graph API: one endpoint, which sends messages and shows the typing indicator."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx2
import structlog
import trio
from attrs import frozen

from hermes_trio.channels.base import DeliveryError
from hermes_trio.settings.channels import WhatsAppSettings

log = structlog.get_logger(__name__)

# Meta answers some of these with status 400: https://developers.facebook.com/documentation/business-messaging/whatsapp/support/error-codes
RATE_CODES = frozenset({4, 80007, 130429, 131056})
FIRST_DELAY = 1.0
# Meta's advice for too many messages to one number: 4, 16, 64, … seconds.
RATE_BASE = 4.0
LONGEST_DELAY = 60.0


@frozen
class FailedCall:
    """Why a call failed. Without the text that Meta sends, which may repeat the token."""

    text: str
    is_transient: bool = False
    is_rate: bool = False
    retry_after: float = -1.0  # seconds, negative if the server does not say

    def delay(self, retries: int) -> float:
        """Return how long to wait before the next try."""
        if self.retry_after >= 0:
            return self.retry_after
        delay = RATE_BASE ** (retries + 1) if self.is_rate else FIRST_DELAY * 2.0**retries
        return min(delay, LONGEST_DELAY)


@frozen
class GraphApi:
    """Calls ``/PHONE_NUMBER_ID/messages``."""

    client: httpx2.AsyncClient
    url: str
    retries: int

    async def post(self, body: Mapping[str, Any], retries: int | None = None) -> Mapping[str, Any]:
        """Make a call, and repeat it while its failure is transient.

        A call that took effect although its response was lost is repeated, too: a message may
        arrive twice, rather than not at all.

        Raises:
            DeliveryError: it failed. The text is one line without secrets.
        """
        left = self.retries if retries is None else retries
        number = 0
        while True:
            outcome = await self._attempt(body)
            if not isinstance(outcome, FailedCall):
                return outcome
            delay = outcome.delay(number)
            if number >= left or not outcome.is_transient or delay > LONGEST_DELAY:
                raise DeliveryError(outcome.text)
            log.info("retrying a call of the Graph API", problem=outcome.text, seconds=delay)
            await trio.sleep(delay)
            number += 1

    async def _attempt(self, body: Mapping[str, Any]) -> Mapping[str, Any] | FailedCall:
        try:
            response = await self.client.post(self.url, json=body)
        except httpx2.HTTPError as error:
            return FailedCall(f"the Graph API cannot be reached: {type(error).__name__}", True)
        try:
            found = response.json()
        except ValueError:
            found = {}
        reply = found if isinstance(found, dict) else {}
        return reply if response.is_success else _read_failure(response, reply)


def _read_failure(response: httpx2.Response, reply: Mapping[str, Any]) -> FailedCall:
    error = reply.get("error")
    error = error if isinstance(error, dict) else {}
    code = error.get("code")
    code = code if isinstance(code, int) else 0
    status = response.status_code
    is_rate = status == 429 or code in RATE_CODES
    text = f"the Graph API answered {status}, error {code}"
    if status == 401 or code == 190:
        text += ": it does not accept access_token, which may have expired"
    return FailedCall(
        text,
        is_transient=is_rate or status >= 500 or error.get("is_transient") is True,
        is_rate=is_rate,
        retry_after=_read_seconds(response.headers.get("retry-after", "")),
    )


def _read_seconds(value: str) -> float:
    return float(value) if value.isascii() and value.isdecimal() and len(value) < 10 else -1.0


@cache
def _ssl_context() -> ssl.SSLContext:
    """Load the certificates, which takes long enough to do it only once."""
    return httpx2.create_ssl_context()


@asynccontextmanager
async def open_graph_api(settings: WhatsAppSettings) -> AsyncIterator[GraphApi]:
    """Open the connections to the Graph API. Nothing is sent before the first call."""
    # Redirects are not followed: the token must not be sent to another host.
    async with httpx2.AsyncClient(
        verify=_ssl_context(),
        timeout=settings.send_seconds,
        headers={"Authorization": f"Bearer {settings.access_token}"},
    ) as client:
        url = f"{settings.graph_url.rstrip('/')}/{settings.phone_number_id}/messages"
        yield GraphApi(client, url, settings.retries)
