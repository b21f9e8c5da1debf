"""The Responses API: ``POST /v1/responses``, and everything that can be done with a response afterwards."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import Any

from attrs import evolve
from quart import Blueprint, Response, request

from hermes_trio.core.changes import Change, Ended
from hermes_trio.core.dialects.chat import BatchReply
from hermes_trio.core.dialects.responses import (
    APPROVAL_ITEMS,
    KIND,
    TOOL_ITEMS,
    ResponsesCollector,
    ResponsesStream,
    response_items,
    response_object,
)
from hermes_trio.core.dialects.responses_items import ToolItems
from hermes_trio.core.dialects.wire import STATUS_LINE
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.events import Choice
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import EndedRun, LiveRun, NoRun, RunHeader
from hermes_trio.core.shorten import shorten
from hermes_trio.runs.admission import Slot
from hermes_trio.runs.disconnects import DETACH
from hermes_trio.runs.log import load_changes
from hermes_trio.runs.spec import ContinuedRun, Items, Persistence
from hermes_trio.schema.chat import derive_session_id
from hermes_trio.schema.conversations import (
    REFERENCE,
    ApprovalResponseItem,
    find_approval_replies,
    find_references,
    item_list,
    items_to_messages,
    with_ids,
)
from hermes_trio.schema.front_ends import ClientIds, read_client_ids
from hermes_trio.schema.parsing import SESSION_ID_HEADER, SESSION_KEY_HEADER, parse_session_headers
from hermes_trio.schema.responses import ResponsesRequest, join_instructions, parse_responses
from hermes_trio.web.errors import json_response
from hermes_trio.web.history import (
    TurnHistory,
    find_session_target,
    load_history,
    lock_session,
    resolve_references,
    session_target,
)
from hermes_trio.web.request import (
    MAX_INTEGER,
    app_state,
    approvals_header,
    bool_param,
    current_request,
    header,
    int_param,
    is_background_task,
    is_open_webui,
    order_param,
    principal,
    wants_status_line,
)
from hermes_trio.web.sse import collected_response, sse_response
from hermes_trio.web.start_run import (
    NewRun,
    RunKind,
    TurnInput,
    disconnect_policy,
    end_elsewhere,
    find_run,
    new_task_id,
    read_turn,
    response_not_found,
    start_run,
    task_run,
)

RESPONSES = RunKind(KIND, "resp_", 28)
TOOL_ITEMS_HEADER = "X-Hermes-Tool-Items"

blueprint = Blueprint("responses", __name__)


@blueprint.post("/v1/responses")
async def create_response() -> Response:
    """Run one turn: streamed, collected, or in the background."""
    # The request may continue with a suspended agent, which has its slot already.
    needs_slot = not app_state().services.suspended.has_any(principal())
    fingerprint, asked = await read_turn(parse_responses, needs_slot)
    headers = current_request().headers
    session = parse_session_headers(headers)
    has_approval_items = asked.answers_approval or _choose_approval_items(asked)
    asked = evolve(asked, echo={**asked.echo, **_presentation(has_approval_items)})
    ids = read_client_ids(headers, asked.ids, _derived_id(asked))
    new = (
        task_run(RESPONSES, fingerprint, session, partial(_load_task, asked))
        if is_background_task(asked, ids) and not (asked.background or asked.is_chained)
        else NewRun(
            RESPONSES,
            fingerprint,
            session,
            partial(_load_input, asked, ids),
            persistence=Persistence.FULL if asked.store else Persistence.NONE,
            on_disconnect=DETACH if asked.background else disconnect_policy(),
            is_background=asked.background,
            can_ask=asked.stream or asked.background or has_approval_items,
            to_items=to_items,
            ids=ids,
            can_suspend=has_approval_items,
            answers_approval=asked.answers_approval,
        )
    )
    started = await start_run(new)
    if asked.stream:
        return sse_response(started, ResponsesStream(started.header))
    if asked.background:
        return json_response(await _load_object(started.header.run_id), 200, started.headers)
    collector = ResponsesCollector(started.header)

    async def make_reply() -> BatchReply:
        return collector.reply()

    return await collected_response(started, collector, make_reply)


def _presentation(has_approval_items: bool) -> dict[str, Any]:
    """Return what the run's header notes about the form of its events, where it is not the default.

    Raises:
        ApiError: 400 if the header has an unknown value.
    """
    chosen = _choose_tool_items()
    form: dict[str, Any] = {} if chosen is ToolItems.FUNCTION_CALL else {TOOL_ITEMS: str(chosen)}
    if has_approval_items:
        form[APPROVAL_ITEMS] = True
    return {**form, STATUS_LINE: True} if wants_status_line() else form


def _choose_approval_items(asked: ResponsesRequest) -> bool:
    """Choose by header, or by the tools: a client that knows hosted MCP servers can answer in items.

    Raises:
        ApiError: 400 if the header has an unknown value.
    """
    given = approvals_header("items", "events")
    return given == "items" or (not given and asked.wants_approval_items)


def _choose_tool_items() -> ToolItems:
    """Choose by header, by setting, or by client: most clients would run a ``function_call`` again.

    Open WebUI and the clients of hermes-agent, which name their session in headers, show calls and
    outputs as cards.
    """
    if given := header(TOOL_ITEMS_HEADER).strip().lower():
        if given not in set(ToolItems):
            known = ", ".join(ToolItems)
            raise bad_request(
                f"'{TOOL_ITEMS_HEADER}' must be one of {known}.",
                TOOL_ITEMS_HEADER,
                "invalid_tool_items",
            )
        return ToolItems(given)
    configured = app_state().options.tool_items
    if configured != "auto":
        return ToolItems(configured)
    is_hermes_client = bool(header(SESSION_ID_HEADER) or header(SESSION_KEY_HEADER))
    return ToolItems.FUNCTION_CALL if is_open_webui() or is_hermes_client else ToolItems.MCP_CALL


async def _load_input(asked: ResponsesRequest, ids: ClientIds, run_id: str) -> TurnInput:
    asked = await resolve_references(asked)
    if asked.answers_approval:
        return await _load_continuation(asked, ids, run_id)
    _refuse_early_answers(asked)
    if (session_id := ids.session_id or ids.derived_id) and not asked.is_chained:
        # Not locked: the input has all that was said, and a front end may ask several models at once.
        return turn_input(run_id, asked, await load_history(asked, session_id), None)
    target = await find_session_target(asked)
    # A response that is not stored adds nothing to its session, so it need not wait for other turns
    # either.
    lock = await lock_session(target) if asked.store else None
    return turn_input(run_id, asked, await load_history(asked, target.session_id), lock)


def _derived_id(asked: ResponsesRequest) -> str:
    """Return the session id that follows from how the input begins, "" if nothing can.

    Only a client that names the beginning of its prompts, for caching, resends all of it each time.
    """
    if not asked.ids.prompt_cache_key:
        return ""
    if not find_references(asked.input_items):
        return derive_session_id(asked.instructions, asked.messages)
    # They are not resolved yet, so only what comes before them can tell.
    known = [*takewhile(lambda item: item["type"] != REFERENCE, asked.input_items)]
    messages = items_to_messages(known)
    if all(message.role != "user" for message in messages):
        return ""
    return derive_session_id(join_instructions(asked.instructions, known), messages)


async def _load_task(asked: ResponsesRequest, run_id: str) -> TurnInput:
    """Build the input of a front end's background task, which belongs to no session."""
    history = TurnHistory(new_task_id(), asked.history, asked.instructions)
    hidden = evolve(asked, echo={**asked.echo, "store": False})
    return turn_input(run_id, hidden, history, None)


async def _load_continuation(asked: ResponsesRequest, ids: ClientIds, run_id: str) -> TurnInput:
    """Reserve the suspended run whose approval requests the input answers.

    Answers to other requests are part of the history that some clients send along. The form of the
    response is that of the one before it.

    Raises:
        ApiError: 400 if the last answer is for no request that waits; 409 while another turn runs in
            the session.
    """
    suspended_runs = app_state().services.suspended
    replies = find_approval_replies(asked.input_items)
    suspended = suspended_runs.find(principal(), replies[-1].request_id)
    if suspended is None or not suspended.may_be_answered_by(ids.end_user):
        raise _not_waiting(replies[-1])
    before = suspended.header
    target = session_target(before.session_id, "input")
    lock = await lock_session(target) if asked.store else None
    if not suspended.reserve():
        raise _not_waiting(replies[-1])
    current_request().on_close(suspended.release_unused)
    waiting = suspended.approval_ids
    choices = {
        waiting[reply.request_id]: Choice.ONCE if reply.is_approved else Choice.DENY
        for reply in replies
        if reply.request_id in waiting
    }
    form = {
        name: before.request[name]
        for name in (TOOL_ITEMS, APPROVAL_ITEMS, STATUS_LINE)
        if name in before.request
    }
    echo = {
        name: value for name, value in asked.echo.items() if name not in (TOOL_ITEMS, STATUS_LINE)
    }
    history = TurnHistory(
        before.session_id,
        instructions=before.instructions,
        parent=before.run_id if before.is_stored else "",
    )
    turn = turn_input(run_id, evolve(asked, echo={**echo, **form}), history, lock)
    return evolve(turn, continued_run=ContinuedRun(suspended, choices))


def _not_waiting(reply: ApprovalResponseItem) -> ApiError:
    return bad_request(
        f"input[{reply.position}]: approval request '{shorten(reply.request_id, 100)}' does not wait "
        "for an answer. It was answered before, or not in time, or the server was restarted.",
        f"input[{reply.position}].approval_request_id",
        "approval_not_pending",
    )


def _refuse_early_answers(asked: ResponsesRequest) -> None:
    """Refuse a new message after the answer to a request that still waits.

    The agent cannot take a message in the middle of its work, and the answer must not be lost.

    Raises:
        ApiError: 400.
    """
    for reply in find_approval_replies(asked.input_items):
        if app_state().services.suspended.find(principal(), reply.request_id) is not None:
            place = f"input[{reply.position}]"
            message = (
                f"{place}: the answer to an approval request must be the last item of 'input'."
            )
            raise bad_request(message, place, "approval_not_last")


def turn_input(
    run_id: str, asked: ResponsesRequest, history: TurnHistory, lock: Slot | None
) -> TurnInput:
    """Build the input of a turn that was requested in the form of the Responses API."""
    return TurnInput(
        session_id=history.session_id,
        message=asked.message,
        history=history.messages,
        instructions=history.instructions,
        model=asked.model,
        messages=(*asked.explicit_history, *asked.messages),
        session_lock=lock,
        options=asked.options,
        parent=history.parent,
        conversation=asked.conversation,
        echo=asked.echo,
        input_items=with_ids(run_id, asked.input_items),
        continues="input" if asked.is_continuation else "",
    )


def to_items(ended: EndedRun) -> Items:
    """Return what a conversation gains by a run: the input, and everything the agent did."""
    if not ended.header.conversation or not ended.header.is_stored:
        return ()
    return response_items(ended)


@blueprint.get("/v1/responses/<response_id>")
async def get_response(response_id: str) -> Response:
    """Return a response in its current state, or with ``?stream=true`` its events, after any one of them."""
    if not bool_param("stream"):
        return json_response(await _load_object(response_id))
    after = int_param("starting_after", -1, -1, MAX_INTEGER)
    found = await find_run(response_id)
    if not _is_visible(found.header):
        raise response_not_found(response_id)
    return sse_response(found, ResponsesStream(found.header, after))


def _is_visible(run: RunHeader) -> bool:
    return run.kind == RESPONSES.name and run.is_stored


async def _find(response_id: str) -> LiveRun | EndedRun:
    found = await app_state().services.store.find_run(principal(), response_id)
    if isinstance(found, NoRun) or not _is_visible(found.header):
        raise response_not_found(response_id)
    return found


async def _load_object(response_id: str) -> dict[str, Any]:
    found = await _find(response_id)
    changes = await _changes_so_far(response_id) if isinstance(found, LiveRun) else []
    if changes and isinstance(changes[-1], Ended):  # it ended between the two reads
        found = await _find(response_id)
    if isinstance(found, EndedRun):
        return response_object(found.header, found.items, found.outcome, found.ended_after)
    collector = ResponsesCollector(found.header)
    collector.take(changes)
    return collector.snapshot()


async def _changes_so_far(response_id: str) -> list[Change]:
    """Read the changes of a live run.

    The oldest from the store if need be, the others from memory.
    """
    services, owner = app_state().services, principal()
    run = services.registry.find(owner, response_id)
    changes: list[Change] = []
    while run is None or len(changes) < run.log.base:
        more = await load_changes(services.store, owner, response_id, len(changes))
        if not more:
            return changes
        changes += more
    return [*changes, *run.log.read(len(changes))]


@blueprint.delete("/v1/responses/<response_id>")
async def delete_response(response_id: str) -> Response:
    """Delete a response; one that still runs, or whose agent waits for approvals, is stopped first."""
    await _stop(await _find(response_id))
    app_state().services.suspended.stop_run(principal(), response_id, Reason.STOP_REQUESTED)
    if not await app_state().services.store.delete_run(principal(), response_id):
        raise response_not_found(response_id)
    return json_response({"id": response_id, "object": "response", "deleted": True})


@blueprint.post("/v1/responses/<response_id>/cancel")
async def cancel_response(response_id: str) -> Response:
    """Stop a running response.

    Cancelling a background response that has ended returns it unchanged.
    """
    found = await _find(response_id)
    if isinstance(found, EndedRun) and not found.header.background:
        raise bad_request(
            "Only a response that is running can be cancelled.", "response_id", "not_running"
        )
    await _stop(found)
    return json_response(await _load_object(response_id))


async def _stop(found: LiveRun | EndedRun) -> None:
    """Stop a live run and wait for its end, which the run itself bounds in time."""
    services = app_state().services
    run = services.registry.find(principal(), found.header.run_id)
    if run is not None:
        run.stop(Reason.STOP_REQUESTED)
        await run.ended.wait()
    elif isinstance(found, LiveRun) and services.cluster is not None:
        await end_elsewhere(found.header)


@blueprint.get("/v1/responses/<response_id>/input_items")
async def list_input_items(response_id: str) -> Response:
    """List the input of a response, with cursor pagination."""
    found = await _find(response_id)
    limit = int_param("limit", 20, 1, 100)
    items = list(found.header.input_items)
    if order_param() == "desc":
        items.reverse()
    rest = _items_after(items, request.args.get("after", ""))
    return json_response(item_list(rest[:limit], len(rest) > limit))


def _items_after(items: list[Any], item_id: str) -> list[Any]:
    if not item_id:
        return items
    found = [index for index, item in enumerate(items) if item["id"] == item_id]
    if not found:
        raise ApiError(404, f"There is no item '{item_id}'.", param="after", code="item_not_found")
    return items[found[0] + 1 :]
