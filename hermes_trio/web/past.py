"""What a turn continues: an explicit history, an earlier response, or a conversation."""

from __future__ import annotations

import hashlib
import secrets
from itertools import dropwhile

from attrs import evolve, frozen

from hermes_trio.core.errors import ApiError
from hermes_trio.core.messages import Message
from hermes_trio.core.record import EndedRun, LiveRun, NoConversation, NoRun, RunHeader
from hermes_trio.schema.input_items import items_to_messages
from hermes_trio.schema.responses import ResponsesRequest
from hermes_trio.web.asked import principal
from hermes_trio.web.options import Site

TRUNCATED_TO = 100  # messages
CONVERSATION_PREFIX = "conv_"


@frozen
class Past:
    """What was said before the message that is to be answered, and in which session."""

    session_id: str
    messages: tuple[Message, ...] = ()
    instructions: str = ""
    parent: str = ""


def is_unstored(header: RunHeader) -> bool:
    """Whether a client asked not to store this run: if it is kept, then only to answer the same request again."""
    return header.is_unstored


async def find_past(site: Site, asked: ResponsesRequest) -> Past:
    """Look up what a request continues.

    Raises:
        ApiError: 404 if it is not there, 409 if it has not ended.
    """
    past = await _past(site, asked)
    messages = (*past.messages, *asked.history)
    instructions = asked.instructions if asked.has_instructions else past.instructions
    return evolve(
        past, messages=_truncated(messages) if asked.truncate else messages, instructions=instructions
    )


def _truncated(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The last of them. A result whose call is cut off goes with it: no model takes one without the other."""
    return tuple(dropwhile(lambda message: message.role == "tool", messages[-TRUNCATED_TO:]))


async def _past(site: Site, asked: ResponsesRequest) -> Past:
    if asked.explicit_history:
        return Past(_new_session(), asked.explicit_history)
    if asked.previous_response_id:
        return await _of_response(site, asked.previous_response_id)
    if asked.conversation:
        return await _of_conversation(site, asked.conversation)
    return Past(_new_session())


async def _of_response(site: Site, response_id: str) -> Past:
    run = await site.services.store.find_run(principal(), response_id)
    if isinstance(run, NoRun) or is_unstored(run.header):
        message = f"There is no response '{response_id}' to continue."
        raise ApiError(404, message, param="previous_response_id", code="previous_response_not_found")
    if isinstance(run, LiveRun):
        message = f"Response '{response_id}' has not ended yet."
        raise ApiError(409, message, param="previous_response_id", code="previous_response_in_progress")
    messages = await site.services.store.history(principal(), response_id)
    return Past(_session_of(run), messages, run.header.instructions, response_id)


def _session_of(run: EndedRun) -> str:
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


def _new_session() -> str:
    return secrets.token_hex(16)
