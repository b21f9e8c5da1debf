"""Chat Completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

from functools import partial

from quart import Blueprint, Response

from hermes_trio.core.approvals import parse_reply
from hermes_trio.core.dialects.chat import ChatCollector, ChatOptions, ChatStream
from hermes_trio.core.dialects.wire import STATUS_LINE
from hermes_trio.core.errors import bad_request
from hermes_trio.core.messages import Message, continue_answer, join_continued
from hermes_trio.core.sessions import is_derived, restore_tool_calls
from hermes_trio.runs.disconnects import INTERRUPT
from hermes_trio.runs.spec import Persistence
from hermes_trio.schema.chat import ChatRequest, parse_chat
from hermes_trio.schema.front_ends import ClientIds, read_client_ids
from hermes_trio.schema.parsing import SESSION_ID_HEADER, SessionHeaders, parse_session_headers
from hermes_trio.web.chat_questions import Asked, answer_question, withdraw_question
from hermes_trio.web.history import lock_session, restore_turns, session_target
from hermes_trio.web.media import reply_with_media
from hermes_trio.web.request import (
    APPROVALS_HEADER,
    app_state,
    approvals_header,
    current_request,
    header,
    is_background_task,
    principal,
    wants_status_line,
)
from hermes_trio.web.sse import collected_response, sse_response
from hermes_trio.web.start_run import (
    NewRun,
    RunKind,
    StartedRun,
    TurnInput,
    disconnect_policy,
    new_task_id,
    read_turn,
    start_run,
    task_run,
)

CHAT = RunKind("chat", "chatcmpl-", 29)

blueprint = Blueprint("chat", __name__)


@blueprint.post("/v1/chat/completions")
async def chat_completions() -> Response:
    """Run one turn, streamed or collected."""
    form = approvals_header("replies", "events")
    takes_replies = form == "replies" or (not form and app_state().options.approval_replies)
    # A reply needs no slot: its run has one.
    fingerprint, chat = await read_turn(parse_chat, needs_slot=not takes_replies)
    headers = current_request().headers
    session = parse_session_headers(headers)
    ids = read_client_ids(headers, chat.ids, chat.derived_session_id)
    policy = disconnect_policy()
    if is_background_task(chat, ids):
        new = task_run(CHAT, fingerprint, session, partial(_load_task, chat))
        return await _respond(chat, await start_run(new))
    session_id = session.session_id or ids.session_id
    asks_in_chat = takes_replies and _can_ask_in_chat(session_id)
    if asks_in_chat and (answered := await _answer_question(chat, session, ids)):
        return await _respond(chat, answered)
    new = NewRun(
        CHAT,
        fingerprint,
        session,
        partial(_load_new_turn if asks_in_chat else _load_input, chat, session.session_id, ids),
        # What a session is to remember, and what may outlive its client, is logged while it runs,
        # so that it survives a crash, too.
        persistence=Persistence.FULL if session_id or policy != INTERRUPT else Persistence.FINAL,
        on_disconnect=policy,
        # Even if others watch it: a front end's stop button is a disconnect. Only a question may wait.
        ends_with_request=policy == INTERRUPT and not asks_in_chat,
        can_ask=chat.stream or asks_in_chat,
        ids=ids,
        asks_in_chat=asks_in_chat,
    )
    return await _respond(chat, await start_run(new))


def _can_ask_in_chat(session_id: str) -> bool:
    """Return whether the next message of a session can answer a question.

    Other people may share a session that is derived from how a conversation begins.

    Raises:
        ApiError: 400 if the request insists and does not name its session.
    """
    can_ask = bool(session_id) and not is_derived(session_id)
    if not can_ask and header(APPROVALS_HEADER):
        message = f"'{APPROVALS_HEADER}' needs a session: send '{SESSION_ID_HEADER}'."
        raise bad_request(message, APPROVALS_HEADER, "session_required")
    return can_ask


async def _answer_question(
    chat: ChatRequest, session: SessionHeaders, ids: ClientIds
) -> StartedRun | None:
    """Answer the question that the last reply ended with, if there is one and the message does."""
    choice = parse_reply(chat.message) if isinstance(chat.message, str) else None
    if choice is None:
        return None
    return await answer_question(_asked(chat, session.session_id, ids), choice, session)


def _asked(chat: ChatRequest, given_id: str, ids: ClientIds) -> Asked:
    return Asked(CHAT.name, given_id or ids.session_id, chat.model, ids.end_user)


async def _respond(chat: ChatRequest, started: StartedRun) -> Response:
    run = started.header
    if chat.stream:
        # As the first request had them: a replay is the same to the byte.
        options = ChatOptions(run.request["include_usage"], run.request[STATUS_LINE])
        return sse_response(started, ChatStream(run.stamp, options))
    collector = ChatCollector(run.stamp, app_state().options.agent_failure_status)
    return await collected_response(
        started, collector, partial(reply_with_media, collector, chat.model)
    )


async def _load_new_turn(
    chat: ChatRequest, given_id: str, ids: ClientIds, run_id: str
) -> TurnInput:
    """Withdraw the question that the last reply ended with, and stop its run. Then load the input."""
    await withdraw_question(_asked(chat, given_id, ids))
    return await _load_input(chat, given_id, ids, run_id)


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
