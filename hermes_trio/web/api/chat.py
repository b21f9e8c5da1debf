"""Chat Completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from hermes_trio.core.dialects.chat import ChatCollector, ChatOptions, ChatStream
from hermes_trio.core.dialects.wire import STATUS_LINE
from hermes_trio.core.messages import Message, continue_answer, join_continued
from hermes_trio.core.sessions import restore_tool_calls
from hermes_trio.runs.disconnects import INTERRUPT
from hermes_trio.runs.spec import Persistence
from hermes_trio.schema.chat import ChatRequest, parse_chat
from hermes_trio.schema.front_ends import ClientIds
from hermes_trio.schema.parsing import SESSION_ID_HEADER
from hermes_trio.web.history import lock_session, restore_turns, session_target
from hermes_trio.web.media import reply_with_media
from hermes_trio.web.request import (
    SessionHeaders,
    app_state,
    body,
    client_ids,
    is_background_task,
    principal,
    wants_status_line,
)
from hermes_trio.web.sse import collected_response, sse_response
from hermes_trio.web.start_run import (
    NewRun,
    RunKind,
    TurnInput,
    disconnect_policy,
    new_task_id,
    reserve_slot,
    start_run,
    task_run,
)

CHAT = RunKind("chat", "chatcmpl-", 29)

blueprint = Blueprint("chat", __name__)


@blueprint.post("/v1/chat/completions")
async def chat_completions() -> Response:
    """Run one turn, streamed or collected."""
    reserve_slot()
    raw = await body()
    chat, session = parse_chat(raw), SessionHeaders.from_request()
    ids, policy = client_ids(chat.ids, chat.derived_session_id), disconnect_policy()
    is_named = bool(session.session_id or ids.session_id)
    new = (
        task_run(CHAT, raw, session, partial(_load_task, chat))
        if is_background_task(chat, ids)
        else NewRun(
            CHAT,
            raw,
            session,
            partial(_load_input, chat, session.session_id, ids),
            # What a session is to remember, and what may outlive its client, is logged while it
            # runs, so that it survives a crash, too.
            persistence=Persistence.FULL if is_named or policy != INTERRUPT else Persistence.FINAL,
            on_disconnect=policy,
            # Whoever watches it: a front end's stop button is a disconnect.
            ends_with_request=policy == INTERRUPT,
            can_ask=chat.stream,
            ids=ids,
        )
    )
    started = await start_run(new)
    header = started.header
    if chat.stream:
        # As the first request had them: a replay is the same to the byte.
        options = ChatOptions(header.request["include_usage"], header.request[STATUS_LINE])
        return sse_response(started, ChatStream(header.stamp, options))
    collector = ChatCollector(header.stamp, app_state().options.agent_failure_status)
    return await collected_response(
        started, collector, partial(reply_with_media, collector, chat.model)
    )


async def _load_input(chat: ChatRequest, given_id: str, ids: ClientIds, _: str) -> TurnInput:
    """Lock and read the session that the client names.

    Otherwise it is that of the front end's chat, or one derived from the messages. Neither is
    locked: the client says what was said before, a front end may ask several models in one chat at
    once, and clients whose chats begin alike must not wait for each other.
    """
    lock = await lock_session(session_target(given_id, SESSION_ID_HEADER)) if given_id else None
    history, new = await _load_history(chat, given_id, ids)
    return TurnInput(
        session_id=given_id or ids.session_id or ids.derived_id,
        message=chat.message,
        history=history,
        instructions=chat.instructions,
        model=chat.model,
        messages=new,
        session_lock=lock,
        options=chat.options,
        echo=_echo(chat),
        continues=_continues(chat),
    )


async def _load_history(
    chat: ChatRequest, given_id: str, ids: ClientIds
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return what the agent is told of the past, and the messages that are new in this turn.

    The past is the stored transcript of the session that the client names, else what the client
    sent. That is completed by the calls of the server's tools that the record has: in a front end's
    chat all of them, else those before a call of the client's tools.
    """
    history, new = chat.history, chat.messages
    if given_id:
        stored = await _load_transcript(given_id)
        if chat.is_continuation:
            return continue_answer(stored, new)
        return stored if chat.message else (*stored, *new), new
    if any(message.tool_calls for message in history):
        history = await restore_turns(ids.session_id or ids.derived_id, history)
    if ids.session_id and history:
        stored = await _load_transcript(ids.session_id)
        history = restore_tool_calls(history, stored)
        if chat.is_continuation:
            new = continue_answer(stored, new)[1]
    return history, new


async def _load_transcript(session_id: str) -> tuple[Message, ...]:
    return join_continued(await app_state().services.store.load_messages(principal(), session_id))


async def _load_task(chat: ChatRequest, _: str) -> TurnInput:
    """Build the input of a front end's background task, which belongs to no session."""
    return TurnInput(
        session_id=new_task_id(),
        message=chat.message,
        history=chat.history,
        instructions=chat.instructions,
        model=chat.model,
        messages=chat.messages,
        options=chat.options,
        echo={**_echo(chat), "store": False},
        continues=_continues(chat),
    )


def _continues(chat: ChatRequest) -> str:
    return "messages" if chat.is_continuation else ""


def _echo(chat: ChatRequest) -> dict[str, bool]:
    return {"include_usage": chat.include_usage, STATUS_LINE: wants_status_line()}
