"""What a turn continues: an explicit history, an earlier response, or a conversation."""

from __future__ import annotations

import hashlib
from itertools import dropwhile

from attrs import evolve, frozen

from hermes_trio.core.errors import ApiError
from hermes_trio.core.messages import Message
from hermes_trio.core.record import EndedRun, LiveRun, NoConversation, NoRun
from hermes_trio.schema.input_items import items_to_messages
from hermes_trio.schema.responses import ResponsesRequest
from hermes_trio.web.asked import principal
from hermes_trio.web.ids import random_hex
from hermes_trio.web.options import Site
from hermes_trio.web.places import Session, named, refusal

TRUNCATED_TO = 100  # messages
CONVERSATION_PREFIX = "conv_"


@frozen
class Past:
    """What was said before the message that is to be answered, and in which session."""

    session_id: str
    messages: tuple[Message, ...] = ()
    instructions: str = ""
    parent: str = ""


async def session_of(site: Site, asked: ResponsesRequest) -> Session:
    """The session that a request leads to, or a new one. Nothing is read from it: that is for whoever has entered it.

    Raises:
        ApiError: 404 if the request continues what is not there.
    """
    if asked.conversation:
        message = f"Another turn is under way in conversation '{asked.conversation}'."
        busy = refusal(message, "conversation", "conversation_busy")
        return Session(_conversation_session(asked.conversation), busy)
    if asked.previous_response_id and not asked.explicit_history:
        return _session_after(await _previous(site, asked.previous_response_id))
    return new_session(random_hex(16))


def new_session(session_id: str) -> Session:
    """A session that begins with this turn."""
    return named(session_id, "session_id")


async def find_past(site: Site, asked: ResponsesRequest, session_id: str) -> Past:
    """Look up what a request continues; for a request that has entered its session.

    Raises:
        ApiError: 404 if it is not there, 409 if it has not ended.
    """
    past = await _past(site, asked, session_id)
    messages = (*past.messages, *asked.history)
    instructions = asked.instructions if asked.has_instructions else past.instructions
    return evolve(
        past, messages=_truncated(messages) if asked.truncate else messages, instructions=instructions
    )


def _truncated(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The last of them. A result whose call is cut off goes with it: no model takes one without the other."""
    return tuple(dropwhile(lambda message: message.role == "tool", messages[-TRUNCATED_TO:]))


async def _past(site: Site, asked: ResponsesRequest, session_id: str) -> Past:
    if asked.explicit_history:
        # It is not what was said in the conversation, if there is one, so it does not go into the transcript of that.
        return Past(random_hex(16) if asked.conversation else session_id, asked.explicit_history)
    if asked.previous_response_id:
        return await _of_response(site, asked.previous_response_id)
    if asked.conversation:
        return await _of_conversation(site, asked.conversation)
    return Past(session_id)


async def _of_response(site: Site, response_id: str) -> Past:
    run = await _previous(site, response_id)
    if isinstance(run, LiveRun):
        raise _in_progress(response_id)
    messages = await site.services.store.history(principal(), response_id)
    return Past(_ended_in(run), messages, run.header.instructions, response_id)


async def _previous(site: Site, response_id: str) -> LiveRun | EndedRun:
    run = await site.services.store.find_run(principal(), response_id)
    if isinstance(run, NoRun) or not run.header.is_stored:
        message = f"There is no response '{response_id}' to continue."
        raise ApiError(404, message, param="previous_response_id", code="previous_response_not_found")
    return run


def _session_after(run: LiveRun | EndedRun) -> Session:
    """Where a run can be continued; of one that is live the client hears just that, unless waiting helps."""
    if isinstance(run, LiveRun):
        return Session(run.header.session_id, _in_progress(run.header.run_id))
    return named(_ended_in(run), "previous_response_id")


def _in_progress(response_id: str) -> ApiError:
    message = f"Response '{response_id}' has not ended yet."
    return refusal(message, "previous_response_id", "previous_response_in_progress")


def _ended_in(run: EndedRun) -> str:
    return run.outcome.session_id or run.header.session_id


async def _of_conversation(site: Site, name: str) -> Past:
    """A name that nobody used yet begins a conversation; an id of ours must be there."""
    store, who = site.services.store, principal()
    if isinstance(await store.find_conversation(who, name), NoConversation):
        if name.startswith(CONVERSATION_PREFIX):
            raise ApiError(
                404,
                f"There is no conversation '{name}'.",
                param="conversation",
                code="conversation_not_found",
            )
        return Past(_conversation_session(name))
    page = await store.items(who, name)
    latest = await store.latest_run(who, name)
    instructions = "" if isinstance(latest, NoRun) else latest.header.instructions
    return Past(_conversation_session(name), items_to_messages(page.items), instructions)


def _conversation_session(name: str) -> str:
    """One session for one conversation. Its name may hold what a session id may not."""
    return f"conv-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
