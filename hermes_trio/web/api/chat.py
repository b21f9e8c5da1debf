"""Chat Completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from hermes_trio.core.dialects.chat import ChatCollector, ChatOptions, ChatStream
from hermes_trio.core.dialects.wire import STATUS_LINE
from hermes_trio.core.messages import Message
from hermes_trio.runs.disconnects import INTERRUPT
from hermes_trio.runs.spec import Persistence
from hermes_trio.schema.chat import ChatRequest, parse_chat
from hermes_trio.schema.parsing import SESSION_ID_HEADER
from hermes_trio.web.history import lock_session, session_target
from hermes_trio.web.media import reply_with_media
from hermes_trio.web.request import SessionHeaders, app_state, body, principal, wants_status_line
from hermes_trio.web.sse import collected_response, sse_response
from hermes_trio.web.start_run import (
    NewRun,
    RunKind,
    TurnInput,
    disconnect_policy,
    reserve_slot,
    start_run,
)

CHAT = RunKind("chat", "chatcmpl-", 29)

blueprint = Blueprint("chat", __name__)


@blueprint.post("/v1/chat/completions")
async def chat_completions() -> Response:
    """Run one turn, streamed or collected."""
    reserve_slot()
    raw = await body()
    chat, session = parse_chat(raw), SessionHeaders.from_request()
    policy = disconnect_policy()
    started = await start_run(
        NewRun(
            CHAT,
            raw,
            session,
            partial(_load_input, chat, session.session_id),
            # A turn that may outlive its client is logged while it runs, so that it survives a
            # crash, too.
            persistence=Persistence.FINAL if policy == INTERRUPT else Persistence.FULL,
            on_disconnect=policy,
            can_ask=chat.stream,
        )
    )
    header = started.header
    if chat.stream:
        # As the first request had them: a replay is the same to the byte.
        options = ChatOptions(header.request["include_usage"], header.request[STATUS_LINE])
        return sse_response(started, ChatStream(header.stamp, options))
    collector = ChatCollector(header.stamp)
    return await collected_response(
        started, collector, partial(reply_with_media, collector, chat.model)
    )


async def _load_input(chat: ChatRequest, given_id: str, _: str) -> TurnInput:
    """Lock and read the session that the client names.

    Otherwise the session id is derived from the messages.

    A derived session is not locked: its transcript is not read, and clients whose chats begin alike
    must not wait for each other.
    """
    lock = await lock_session(session_target(given_id, SESSION_ID_HEADER)) if given_id else None
    return TurnInput(
        session_id=given_id or chat.derived_session_id,
        message=chat.message,
        history=await _load_history(chat, given_id),
        instructions=chat.instructions,
        model=chat.model,
        messages=chat.messages,
        session_lock=lock,
        options=chat.options,
        echo={"include_usage": chat.include_usage, STATUS_LINE: wants_status_line()},
    )


async def _load_history(chat: ChatRequest, given_id: str) -> tuple[Message, ...]:
    """Return the stored transcript of the session that the client names, else the messages that the client sent."""
    if not given_id:
        return chat.history
    stored = await app_state().services.store.load_messages(principal(), given_id)
    return stored if chat.message else (*stored, *chat.messages)
