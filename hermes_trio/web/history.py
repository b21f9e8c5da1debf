"""The session of a turn: its id, its lock, and its history.

One turn runs at a time per session. A new session is locked too: the response names it, and a
request that names it next must find it busy. The history comes from the client, from an earlier
response, or from a conversation.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import defaultdict
from itertools import dropwhile

from attrs import evolve, frozen

from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.messages import Message, join_continued, restore_calls
from hermes_trio.core.records import EndedRun, LiveRun, NoConversation, NoRun
from hermes_trio.core.sessions import NoSession
from hermes_trio.core.shorten import shorten
from hermes_trio.runs.admission import RETRY_SOON, Slot
from hermes_trio.schema.conversations import find_references, items_to_messages
from hermes_trio.schema.responses import ResponsesRequest, with_input
from hermes_trio.web.request import app_state, current_request, principal

MAX_TRUNCATED = 100  # messages that `truncation: auto` keeps
MAX_RECORDED = 1000  # messages of a session, the latest, in which turns are looked up
CONVERSATION_PREFIX = "conv_"


@frozen
class SessionTarget:
    """The session that a turn is to run in."""

    session_id: str
    busy: ApiError  # the response while another turn runs in it


def session_target(session_id: str, param: str) -> SessionTarget:
    """Return the target for a session id and the request parameter that led to it."""
    return SessionTarget(
        session_id, busy_error(f"Another turn is under way in session '{session_id}'.", param)
    )


def busy_error(message: str, param: str, code: str = "session_busy") -> ApiError:
    """Return a conflict that a client may retry soon."""
    return ApiError(409, message, param=param, code=code, headers=RETRY_SOON)


async def lock_session(target: SessionTarget) -> Slot:
    """Acquire the session, waiting for it if the server is configured to.

    The run releases the lock; if none begins, the end of the request does.

    Raises:
        ApiError: 409 while another turn holds it; 503 if the server began to drain in the meantime.
    """
    state = app_state()
    slot = await state.session_locks.acquire(principal(), target.session_id, target.busy)
    lock = current_request().release_on_close(slot)
    state.admission.require_open()
    return lock


async def restore_turns(session_id: str, history: tuple[Message, ...]) -> tuple[Message, ...]:
    """Restore the calls of the server's tools in turns that ended with calls of the client's tools.

    They come from the record of the session: Chat Completions has no item for them, so a client
    cannot resend them.
    """
    store, owner = app_state().services.store, principal()
    session = await store.find_session(owner, session_id)
    if isinstance(session, NoSession):
        return history
    after = max(0, session.counters.message_count - MAX_RECORDED)
    page = await store.list_messages(owner, session_id, after, MAX_RECORDED)
    turns: defaultdict[str, list[Message]] = defaultdict(list)
    for stored in page.messages:
        turns[stored.run_id].append(stored.message)
    return restore_calls(history, map(tuple, turns.values()))


@frozen
class TurnHistory:
    """The messages before the one to be answered, and their session."""

    session_id: str
    messages: tuple[Message, ...] = ()
    instructions: str = ""
    parent: str = ""  # the run that the turn continues


async def find_session_target(asked: ResponsesRequest) -> SessionTarget:
    """Find the session that a request continues, or generate a new one.

    Reads nothing from it: lock it first.

    Raises:
        ApiError: 404 if the request continues a response that does not exist.
    """
    if asked.conversation:
        message = f"Another turn is under way in conversation '{asked.conversation}'."
        busy = busy_error(message, "conversation", "conversation_busy")
        return SessionTarget(_conversation_session(asked.conversation), busy)
    if asked.previous_response_id and not asked.explicit_history:
        run = await _find_previous(asked.previous_response_id)
        if isinstance(run, LiveRun):  # the error says so, unless waiting for its end helps
            return SessionTarget(run.header.session_id, _in_progress(run.header.run_id))
        return session_target(_final_session(run), "previous_response_id")
    return new_session_target(secrets.token_hex(16))


def new_session_target(session_id: str) -> SessionTarget:
    """Return the target for a session that begins with this turn."""
    return session_target(session_id, "session_id")


async def resolve_references(asked: ResponsesRequest) -> ResponsesRequest:
    """Replace the references in the input of a request by the stored items of the principal.

    Raises:
        ApiError: 400, naming the reference, if the principal has no such item.
    """
    references = find_references(asked.input_items)
    if not references:
        return asked
    found = await app_state().services.store.find_items(principal(), [*references.values()])
    for n, item_id in references.items():
        if item_id not in found:
            message = f"input[{n}]: there is no item '{shorten(item_id, 100)}' to refer to."
            raise bad_request(message, f"input[{n}]", "item_not_found")
    items = enumerate(asked.input_items)
    return with_input(
        asked, tuple(found[item["id"]] if n in references else item for n, item in items)
    )


async def load_history(asked: ResponsesRequest, session_id: str) -> TurnHistory:
    """Load what a request continues. Its session must be locked.

    Raises:
        ApiError: 404 if what it continues does not exist, 409 if that has not ended.
    """
    history = await _load(asked, session_id)
    messages = (*history.messages, *asked.history)
    if asked.truncate:
        # A tool result whose call is cut off goes too: models reject one without the other.
        last = messages[-MAX_TRUNCATED:]
        messages = tuple(dropwhile(lambda message: message.role == "tool", last))
    instructions = asked.instructions if asked.has_instructions else history.instructions
    return evolve(history, messages=messages, instructions=instructions)


async def _load(asked: ResponsesRequest, session_id: str) -> TurnHistory:
    if asked.explicit_history:
        # Not what was said in the conversation, if there is one, so it must not go into that
        # transcript.
        return TurnHistory(
            secrets.token_hex(16) if asked.conversation else session_id, asked.explicit_history
        )
    if response_id := asked.previous_response_id:
        run = await _find_previous(response_id)
        if isinstance(run, LiveRun):
            raise _in_progress(response_id)
        messages = await app_state().services.store.load_history(principal(), response_id)
        return TurnHistory(
            _final_session(run), join_continued(messages), run.header.instructions, response_id
        )
    if asked.conversation:
        return await _of_conversation(asked.conversation)
    return TurnHistory(session_id)


async def _find_previous(response_id: str) -> LiveRun | EndedRun:
    run = await app_state().services.store.find_run(principal(), response_id)
    if isinstance(run, NoRun) or not run.header.is_stored:
        message = f"There is no response '{response_id}' to continue."
        raise ApiError(
            404, message, param="previous_response_id", code="previous_response_not_found"
        )
    return run


def _in_progress(response_id: str) -> ApiError:
    message = f"Response '{response_id}' has not ended yet."
    return busy_error(message, "previous_response_id", "previous_response_in_progress")


def _final_session(run: EndedRun) -> str:
    return run.outcome.session_id or run.header.session_id


async def _of_conversation(name: str) -> TurnHistory:
    """Load a conversation.

    An unused name begins one; an id that the server would have made must exist.
    """
    store, owner = app_state().services.store, principal()
    if isinstance(await store.find_conversation(owner, name), NoConversation):
        if name.startswith(CONVERSATION_PREFIX):
            message = f"There is no conversation '{name}'."
            raise ApiError(404, message, param="conversation", code="conversation_not_found")
        return TurnHistory(_conversation_session(name))
    page = await store.list_items(owner, name)
    latest = await store.find_latest_run(owner, name)
    instructions = "" if isinstance(latest, NoRun) else latest.header.instructions
    return TurnHistory(_conversation_session(name), items_to_messages(page.items), instructions)


def _conversation_session(name: str) -> str:
    """Derive the session of a conversation, whose name may hold characters that a session id may not."""
    return f"conv-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
