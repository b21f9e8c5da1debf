"""A scripted Graph API: real HTTP on a loopback socket, and webhooks signed like Meta's."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import trio
from attrs import define, field, frozen

from hermes_trio.channels.whatsapp import OpenChannel, blueprint, open_whatsapp
from hermes_trio.settings.channels import WhatsAppSettings
from tests.support.asgi import HttpResponse, real_timeout
from tests.support.fakes import EPOCH, AppHarness, open_harness
from tests.support.scripted_upstream import ReceivedRequest, Reply, ScriptedUpstream, Step

NUMBER_ID = "106540352242922"
OWN_NUMBER = "+1 555-078-3881"
ANN = "4915112345678"
BOB = "16505551234"
WEBHOOK = "/webhooks/whatsapp"
TOKEN, SECRET, VERIFY = (secrets.token_hex(16) for _ in range(3))


@define(eq=False)
class ScriptedGraphApi(ScriptedUpstream):
    """Accepts every message, unless ``replies`` says otherwise, and keeps what was sent."""

    replies: deque[Step] = field(factory=deque)  # to the next messages, in place of success
    holds: deque[Step] = field(factory=deque)  # what happens before the next messages are accepted
    accepts_typing: bool = True
    _ids: count[int] = field(factory=count)
    _changed: trio.Event = field(factory=trio.Event)

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Every text that was accepted, with its recipient."""
        bodies = [asked.json for asked in self.accepted]
        return [(body.get("to") or body["recipient"], body["text"]["body"]) for body in bodies]

    @property
    def typed(self) -> list[str]:
        """The messages for which typing was shown."""
        return [asked.json["message_id"] for asked in self.requests if _is_typing(asked)]

    accepted: list[ReceivedRequest] = field(factory=list)

    def _steps(self, asked: ReceivedRequest) -> Sequence[Step]:
        if _is_typing(asked):
            self._tell()
            return [Reply(200, {"success": True}) if self.accepts_typing else _failure(500, 131000)]
        if self.replies:
            self._tell()
            return [self.replies.popleft()]
        self.accepted.append(asked)
        self._tell()
        hold = [self.holds.popleft()] if self.holds else []
        reply = {"messaging_product": "whatsapp", "messages": [{"id": f"wamid.{next(self._ids)}"}]}
        return [*hold, Reply(200, reply)]

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, texts: int = 0, typed: int = 0, requests: int = 0) -> None:
        """Wait until these numbers of texts were accepted, indicators shown, and calls made."""
        with real_timeout():
            while (
                len(self.texts) < texts or len(self.typed) < typed or len(self.requests) < requests
            ):
                await self._changed.wait()


def _is_typing(asked: ReceivedRequest) -> bool:
    return "typing_indicator" in asked.json


def _failure(
    status: int, code: int, headers: Mapping[str, str] | None = None, **more: Any
) -> Reply:
    message = f"(#{code}) Malformed access token {TOKEN}"
    return Reply(status, {"error": {"message": message, "code": code, **more}}, headers or {})


failure = _failure


@asynccontextmanager
async def serve_graph_api() -> AsyncIterator[ScriptedGraphApi]:
    """Serve on a loopback socket for as long as the block runs."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    graph = ScriptedGraphApi(f"http://127.0.0.1:{port}/v25.0", deque())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, graph.serve, listeners))
        yield graph
        nursery.cancel_scope.cancel()


@frozen
class ChannelHarness:
    """A server with the channel, and the Graph API that it calls."""

    server: AppHarness
    graph: ScriptedGraphApi
    opened: OpenChannel

    async def deliver(
        self, *messages: dict[str, Any], headers: Mapping[str, str] | None = None, **value: Any
    ) -> HttpResponse:
        """Send a signed webhook with some messages."""
        return await self.deliver_raw(notification(*messages, **value), headers)

    async def deliver_raw(
        self, raw: bytes, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """Send a signed webhook."""
        signed = {"Authorization": "", **sign(raw), **(headers or {})}
        return await self.server.client.send_raw(WEBHOOK, raw, headers=signed)

    async def until_idle(self) -> None:
        """Wait until every message has been handled."""
        with real_timeout():
            while self.opened.chats._active:
                await self.opened.chats._idle.wait()


@asynccontextmanager
async def open_channel(
    *server: Any, settings: Mapping[str, Any] | None = None, **more: Any
) -> AsyncIterator[ChannelHarness]:
    """Open a server with the channel. The arguments are those of ``open_harness``."""
    async with serve_graph_api() as graph, open_harness(*server, **more) as harness:
        chosen = settings_of(graph, **(settings or {}))
        harness.app.register_blueprint(blueprint)
        async with open_whatsapp(harness.app, chosen, harness.state) as opened:
            yield ChannelHarness(harness, graph, opened)


def settings_of(graph: ScriptedGraphApi, **more: Any) -> WhatsAppSettings:
    """Return settings for the Graph API of a test."""
    chosen: dict[str, Any] = {
        "phone_number_id": NUMBER_ID,
        "access_token": TOKEN,
        "app_secret": SECRET,
        "verify_token": VERIFY,
        "allow": (ANN, BOB),
        "principal": "ann",
        "graph_url": graph.base_url,
        **more,
    }
    return WhatsAppSettings(**chosen)


_numbers = count(1)


def text_message(text: str, sender: str = ANN, **more: Any) -> dict[str, Any]:
    """Return a text message in Meta's form, with a new id."""
    return {
        "from": sender,
        "id": f"wamid.in.{next(_numbers)}",
        "timestamp": str(int(EPOCH)),
        "type": "text",
        "text": {"body": text},
        **more,
    }


def media_message(kind: str, sender: str = ANN) -> dict[str, Any]:
    """Return a message that is not a text."""
    plain = text_message("", sender, type=kind)
    del plain["text"]
    return {**plain, kind: {"id": "1234"}}


def notification(*messages: dict[str, Any], field: str = "messages", **value: Any) -> bytes:
    """Return the body of a webhook."""
    change = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": OWN_NUMBER, "phone_number_id": NUMBER_ID},
        **({"messages": list(messages)} if messages else {}),
        **value,
    }
    entry = {"id": "102290129340398", "changes": [{"field": field, "value": change}]}
    return json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode()


def sign(raw: bytes, secret: str = SECRET) -> dict[str, str]:
    """Return the header that signs a body."""
    digest = hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}"}
