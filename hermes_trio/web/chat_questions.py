"""Approval requests that end a chat reply: the next message answers or withdraws them, on any node."""

from __future__ import annotations

from functools import partial

from attrs import frozen

from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.events import Choice
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import LiveRun, RunHeader, RunQuery
from hermes_trio.runs.approvals import ApprovalResponse, NotOffered, NotPending
from hermes_trio.runs.cluster import OwnerUnreachable
from hermes_trio.runs.run import Run
from hermes_trio.runs.supervisor import attach_until_question
from hermes_trio.schema.parsing import SessionHeaders
from hermes_trio.web.auth import choose_agent
from hermes_trio.web.request import app_state, current_request, principal
from hermes_trio.web.start_run import (
    StartedRun,
    owner_unreachable,
    require_cluster,
    session_headers,
    wait_ended_elsewhere,
)

MAX_RUNS = 20
"""Live runs of one session that are looked at, on other nodes."""


@frozen
class Asked:
    """Who was asked: an end user in a session, by a model.

    A front end may ask several models in one chat, and then sends the answer to each.
    """

    kind: str  # of the runs
    session_id: str
    model: str  # as the client names it
    end_user: str


async def answer_question(
    asked: Asked, choice: Choice, session: SessionHeaders
) -> StartedRun | None:
    """Answer the question that the last reply ended with, and read on from there.

    Return None if nobody waits for an answer.

    Raises:
        ApiError: 409 if it has been answered in the meantime; 400 if it does not offer the choice; 503 if
            the node that waits does not answer.
        StoreError: the answer was to be remembered and cannot be, or the runs of other nodes cannot
            be found.
    """
    try:
        run = _find_here(asked)
        started = (
            await _answer_elsewhere(asked, choice)
            if run is None
            else await _answer_here(run, choice)
        )
    except NotPending:
        message = "The question has been answered in the meantime."
        raise ApiError(409, message, code="approval_not_pending") from None
    except NotOffered:
        message = f"'{choice}' is not among the choices of this question."
        raise bad_request(message, "messages", "invalid_approval_choice") from None
    except OwnerUnreachable:
        raise owner_unreachable() from None
    if started is None:
        return None
    run_header, start = started.header, started.open
    return StartedRun(run_header, start, session_headers(session, run_header.session_id))


async def withdraw_question(asked: Asked) -> None:
    """Stop the run whose reply ended with a question, if there is one, and wait for its end.

    Raises:
        ApiError: 503 if the node that executes it does not answer.
        StoreError: the store fails.
    """
    run = _find_here(asked)
    if run is not None:
        run.stop(Reason.STOP_REQUESTED)
        await run.ended.wait()
        return
    try:
        for header in await _live_elsewhere(asked):
            if await require_cluster().withdraw(header, asked.end_user):
                await wait_ended_elsewhere(header)
    except OwnerUnreachable:
        raise owner_unreachable() from None


def _find_here(asked: Asked) -> Run | None:
    """Return the run of this node that waits for the next message."""
    model = choose_agent(asked.model).model
    for run in app_state().services.registry.in_session(principal(), asked.session_id):
        is_asked = (run.end_user, run.header.stamp.model) == (asked.end_user, model)
        if run.question is not None and is_asked:
            return run
    return None


async def _live_elsewhere(asked: Asked) -> list[RunHeader]:
    """Return the runs in progress of other nodes that may wait for the next message."""
    services, owner = app_state().services, principal()
    if services.cluster is None:
        return []
    query = RunQuery(
        limit=MAX_RUNS,
        ends=frozenset(),
        kinds=frozenset({asked.kind}),
        session_id=asked.session_id,
    )
    model = choose_agent(asked.model).model
    page = await services.store.list_runs(owner, query)
    return [
        run.header
        for run in page.runs
        if isinstance(run, LiveRun)
        and run.header.stamp.model == model
        and services.registry.find(owner, run.header.run_id) is None
    ]


async def _answer_here(run: Run, choice: Choice) -> StartedRun:
    question = run.question
    client = run.clients.connect()  # before the answer, or the run would be without a client
    current_request().on_close(client.disconnect)
    if question is None:
        raise NotPending
    await run.answer(ApprovalResponse(choice, question.approval_id))
    start = partial(attach_until_question, run, client, first=question.position)
    return StartedRun(run.header, start)


async def _answer_elsewhere(asked: Asked, choice: Choice) -> StartedRun | None:
    for header in await _live_elsewhere(asked):
        cluster = require_cluster()
        position = await cluster.reply(header, asked.end_user, choice)
        if position is not None:
            return StartedRun(header, partial(cluster.follow_until_question, header, position))
    return None
