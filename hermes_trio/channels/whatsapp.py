"""The channel to WhatsApp: webhook and messages of Meta's Cloud API.

A sent message cannot be edited there, so the progress of tools is one short message at most, and
the typing indicator; ``docs/how_to/connect_whatsapp.md`` has the evidence.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import structlog
import trio
from attrs import define, field, frozen
from quart import Blueprint, Response, current_app, request

from hermes_trio.channels.base import (
    MAX_AGE_SECONDS,
    ChannelMessage,
    ChannelPolicy,
    DeliveryError,
)
from hermes_trio.channels.chats import Chats
from hermes_trio.channels.graph_api import GraphApi, open_graph_api
from hermes_trio.channels.splitting import split_text
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.settings.channels import ANYONE, WhatsAppSettings
from hermes_trio.web.request import app_state, header, parse_body
from hermes_trio.web.state import AppState

log = structlog.get_logger(__name__)

NAME = "whatsapp"
EXTENSION_KEY = "hermes_trio.whatsapp"  # in ``app.extensions``
SIGNATURE_HEADER = "X-Hub-Signature-256"
MAX_CHARS = 4_096  # of one message
MAX_PARTS = 25  # messages for one answer
TYPING_SECONDS = 20.0  # WhatsApp shows it for 25
MAX_SENT_IDS = 1_000
MAX_LOGGED_SENDERS = 1_000
CUT = "(The answer is longer than this. Ask me for the rest.)"

# What is answered with a note. Everything else that is not text, such as reactions and edits, is
# ignored.
MEDIA = frozenset({"audio", "contacts", "document", "image", "location", "sticker", "video"})

blueprint = Blueprint("whatsapp", __name__, url_prefix="/webhooks/whatsapp")


# -- what the webhook receives --


@frozen
class ReceivedMessage:
    """A message of a webhook, as far as it concerns the channel."""

    message_id: str
    kind: str  # text, image, reaction, …
    text: str  # "" unless it is a text
    sender: str  # a phone number, or the id that WhatsApp gives to a user who hides it
    user_id: str
    sent_at: float  # seconds since the epoch; 0 if unknown
    group: str  # "" outside of groups


@frozen
class Notification:
    """The messages that a webhook reports, and the errors of replies that were not delivered."""

    messages: tuple[ReceivedMessage, ...]
    failures: tuple[int, ...]  # error codes


def verify_signature(raw: bytes, signature: str, secret: str) -> bool:
    """Return whether a body was signed with a secret, in constant time."""
    digest = hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
    return _is_same(signature, f"sha256={digest}")


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def parse_notification(raw: bytes, phone_number_id: str) -> Notification:
    """Parse the body of a webhook. What is not for the phone number, or has another form, is left out.

    Raises:
        ApiError: 400 if it is not JSON.
    """
    try:
        payload = json.loads(raw)
    except (ValueError, RecursionError):
        raise bad_request("The body is not JSON.", code="invalid_json") from None
    messages: list[ReceivedMessage] = []
    failures: list[int] = []
    for value in _values(payload):
        metadata = _table(value, "metadata")
        own_number = _digits(_text(metadata, "display_phone_number"))
        if _text(metadata, "phone_number_id") != phone_number_id:
            log.debug("ignored a notification for another phone number")
            continue
        received = map(_read_message, _tables(value, "messages"))
        messages += [each for each in received if each.sender not in ("", own_number)]
        for status in _tables(value, "statuses"):
            failures += [_integer(error, "code") for error in _tables(status, "errors")]
    return Notification(tuple(messages), tuple(failures))


def _values(payload: object) -> Iterator[Mapping[str, Any]]:
    """Yield the changes of the one field that has messages. Echoes of what is sent have another."""
    for entry in _tables(payload, "entry"):
        for change in _tables(entry, "changes"):
            if change.get("field") == "messages":
                yield _table(change, "value")


def _read_message(message: Mapping[str, Any]) -> ReceivedMessage:
    kind = _text(message, "type")
    user_id = _text(message, "from_user_id")
    return ReceivedMessage(
        message_id=_text(message, "id"),
        kind=kind,
        text=_text(_table(message, "text"), "body").strip() if kind == "text" else "",
        sender=_digits(_text(message, "from")) or user_id,
        user_id=user_id,
        sent_at=float(_digits(_text(message, "timestamp"))[:12] or 0),
        group=_text(message, "group_id"),
    )


def _tables(value: object, name: str) -> Iterator[Mapping[str, Any]]:
    found = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(found, list):
        yield from (each for each in found if isinstance(each, Mapping))


def _table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def _text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _integer(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name)
    return found if isinstance(found, int) else 0


def _digits(text: str) -> str:
    return "".join(character for character in text if character in "0123456789")


# -- the channel --


@define(eq=False)
class WhatsApp:
    """The channel to one phone number. A :class:`~hermes_trio.channels.base.Channel`."""

    settings: WhatsAppSettings
    policy: ChannelPolicy
    api: GraphApi
    name: str = NAME
    typing_seconds: float = TYPING_SECONDS
    _sent_ids: deque[str] = field(factory=lambda: deque(maxlen=MAX_SENT_IDS))
    _logged_senders: set[str] = field(factory=set)

    def is_allowed(self, chat: str) -> bool:
        """Return whether a sender is on the list."""
        return ANYONE in self.settings.allow or chat in self.settings.allow

    async def send_text(self, chat: str, text: str) -> None:
        """Send a text. See :meth:`Channel.send_text`."""
        whole = _well_formed(f"{self.settings.reply_prefix}{text}")
        bodies = [part.text for part in split_text(whole, MAX_CHARS)]
        if len(bodies) > MAX_PARTS:
            log.warning("an answer was cut; its session has all of it", parts=len(bodies))
            bodies = [*bodies[: MAX_PARTS - 1], CUT]
        for body in bodies:
            if not body.strip():  # WhatsApp refuses messages of white space
                continue
            reply = await self.api.post(
                {
                    "messaging_product": "whatsapp",
                    "recipient_type": "individual",
                    # Users who hide their number have an id instead, which has another name.
                    "to" if chat.isdecimal() else "recipient": chat,
                    "type": "text",
                    "text": {"body": body, "preview_url": False},
                }
            )
            self._sent_ids.extend(_text(sent, "id") for sent in _tables(reply, "messages"))

    async def show_typing(self, message: ChannelMessage) -> None:
        """Show the typing indicator, and mark the message as read."""
        body = {
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": message.message_id,
            "typing_indicator": {"type": "text"},
        }
        try:
            await self.api.post(body, retries=0)
        except DeliveryError as error:
            log.debug("the typing indicator was not shown", error=str(error))

    def select(self, received: ReceivedMessage, now: float) -> ChannelMessage | None:
        """Return the message to answer, None if it is to be ignored."""
        is_ours = received.message_id in self._sent_ids
        is_known = received.text or received.kind in MEDIA
        if is_ours or not received.message_id or not is_known:
            log.debug("ignored a message", kind=received.kind, echo=is_ours)
            return None
        if not (self.is_allowed(received.sender) or self.is_allowed(received.user_id)):
            self._log_refusal(received.sender)
            return None
        if received.group:
            log.info("ignored a message in a group")
            return None
        if received.sent_at and now - received.sent_at > MAX_AGE_SECONDS:
            log.warning("ignored a message that is more than a day old")
            return None
        return ChannelMessage(received.message_id, received.sender, received.text)

    def _log_refusal(self, sender: str) -> None:
        """Log a sender once, in the form in which it can be added to the list."""
        if sender not in self._logged_senders and len(self._logged_senders) < MAX_LOGGED_SENDERS:
            self._logged_senders.add(sender)
            log.warning(
                "ignored messages of a sender who is not allowed",
                sender=sender,
                setting="channels.whatsapp.allow",
            )


def _well_formed(text: str) -> str:
    """Join surrogate pairs, and replace surrogates without a partner, which are not valid JSON."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# -- the webhook --


@frozen
class OpenChannel:
    """The channel of an application, and its chats."""

    channel: WhatsApp
    chats: Chats


def _open_channel() -> OpenChannel:
    found: OpenChannel = current_app.extensions[EXTENSION_KEY]
    return found


@blueprint.get("")
async def verify() -> Response:
    """Answer Meta's challenge, if the request has the verify token."""
    given, expected = (
        request.args.get("hub.verify_token", ""),
        _open_channel().channel.settings.verify_token,
    )
    challenge = request.args.get("hub.challenge", "")
    if request.args.get("hub.mode") != "subscribe" or not _is_same(given, expected):
        log.warning("refused to verify the webhook", setting="channels.whatsapp.verify_token")
        message = "The verify token is not the one of this server."
        raise ApiError(403, message, param="hub.verify_token", code="invalid_verify_token")
    return Response(challenge, 200, content_type="text/plain; charset=utf-8")


@blueprint.post("")
async def receive() -> Response:
    """Accept the messages of a notification. They are answered later."""
    opened = _open_channel()
    channel, state = opened.channel, app_state()
    signature = header(SIGNATURE_HEADER)
    if not signature:
        raise _invalid_signature()  # before the body is received
    notification = await parse_body(partial(_read_notification, channel.settings, signature))
    for code in notification.failures:
        log.error("WhatsApp did not deliver a message", error_code=code)
    for received in notification.messages:
        message = channel.select(received, state.services.wall_clock())
        if message is not None:
            await opened.chats.accept(message)
    return Response(b"", 200)


def _read_notification(settings: WhatsAppSettings, signature: str, raw: bytes) -> Notification:
    if not verify_signature(raw, signature, settings.app_secret):
        raise _invalid_signature()
    return parse_notification(raw, settings.phone_number_id)


def _invalid_signature() -> ApiError:
    log.warning(
        "refused a webhook without a valid signature", setting="channels.whatsapp.app_secret"
    )
    message = f"'{SIGNATURE_HEADER}' is not a signature of this body with the app secret."
    return ApiError(401, message, param=SIGNATURE_HEADER, code="invalid_signature")


@asynccontextmanager
async def open_whatsapp(
    app: Any, settings: WhatsAppSettings, state: AppState
) -> AsyncIterator[OpenChannel]:
    """Open the channel of an application that has the blueprint.

    At the end of the block, chats whose message is not answered yet are told so.
    """
    if not settings.allow:
        log.warning("nobody may write to the channel", setting="channels.whatsapp.allow")
    policy = ChannelPolicy(
        principal=settings.principal,
        profile=settings.profile,
        model=_model_of(settings.profile, state),
        progress_seconds=settings.progress_seconds,
        max_waiting=settings.max_waiting,
    )
    async with open_graph_api(settings) as api, trio.open_nursery() as nursery:
        channel = WhatsApp(settings, policy, api)
        opened = OpenChannel(channel, Chats(channel, state, nursery))
        app.extensions[EXTENSION_KEY] = opened
        nursery.start_soon(opened.chats.report_interrupted)
        try:
            yield opened
        finally:
            await opened.chats.close()  # noqa: ASYNC102 - it is shielded, and bounds its own time
            nursery.cancel_scope.cancel()


def _model_of(profile: str, state: AppState) -> str:
    """Return the id under which clients know the agent of a profile."""
    names = {each.name: each.model_name for each in state.options.profiles}
    return names.get(profile, state.options.model_name)
