"""Approvals: answering an agent's approval requests, and the approvals that are remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from quart import Blueprint, Response, request

from hermes_trio.core.approvals import Grant
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.records import LiveRun, NoRun
from hermes_trio.core.state import ENDED_STATES
from hermes_trio.runs.approvals import ApprovalResponse, NotOffered, NotPending
from hermes_trio.runs.cluster import OwnerUnreachable
from hermes_trio.schema.runs import parse_approval
from hermes_trio.web.errors import json_response
from hermes_trio.web.request import app_state, parse_body, principal
from hermes_trio.web.start_run import owner_unreachable, response_not_found

Answer = Callable[[ApprovalResponse], Awaitable[int]]

blueprint = Blueprint("approvals", __name__)


@blueprint.post("/v1/runs/<run_id>/approval")
async def answer_run(run_id: str) -> Response:
    """Answer an approval request of a run, whichever API started it."""
    missing = ApiError(404, f"There is no run '{run_id}'.", param="run_id", code="run_not_found")
    return await _answer(run_id, missing)


@blueprint.post("/v1/responses/<response_id>/approval")
async def answer_response(response_id: str) -> Response:
    """Answer an approval request of a response."""
    return await _answer(response_id, response_not_found(response_id))


async def _answer(run_id: str, missing: ApiError) -> Response:
    said = await parse_body(parse_approval)
    answer = await _find_live(run_id, missing)
    try:
        resolved = await answer(ApprovalResponse(said.choice, said.approval_id, said.everything))
    except OwnerUnreachable:
        raise owner_unreachable() from None
    except NotPending:
        message = "There is no such question, or it has been answered."
        raise ApiError(409, message, param="approval_id", code="approval_not_pending") from None
    except NotOffered:
        message = f"'{said.choice}' is not among the choices of this question."
        raise bad_request(message, "choice", "invalid_approval_choice") from None
    if not resolved:  # the run ended while the answer was being stored
        raise _not_active()
    return json_response(
        {
            "object": "hermes.run.approval_response",
            "run_id": run_id,
            "choice": str(said.choice),
            "resolved": resolved,
        }
    )


async def _find_live(run_id: str, missing: ApiError) -> Answer:
    """Return what answers the requests of a live run, whichever node executes it."""
    services = app_state().services
    run = services.registry.find(principal(), run_id)
    if run is not None and run.status.state not in ENDED_STATES:
        return run.answer
    found = NoRun() if run is not None else await services.store.find_run(principal(), run_id)
    if isinstance(found, LiveRun) and services.cluster is not None:
        return partial(services.cluster.answer, principal(), run_id)
    raise missing if run is None and isinstance(found, NoRun) else _not_active()


def _not_active() -> ApiError:
    return ApiError(409, "The run is over: nobody waits for an answer.", code="approval_not_active")


@blueprint.get("/v1/approvals")
async def list_approvals() -> Response:
    """List the remembered approvals."""
    grants = await app_state().services.store.list_grants(principal())
    return json_response({"object": "list", "data": [_approval_object(grant) for grant in grants]})


def _approval_object(grant: Grant) -> dict[str, Any]:
    return {
        "object": "hermes.approval",
        "pattern": grant.pattern,
        "session_id": grant.session_id or None,
        "created_at": grant.made_at,
        **({"end_user": grant.end_user} if grant.end_user else {}),
    }


@blueprint.delete("/v1/approvals")
async def revoke_approval() -> Response:
    """Forget a remembered approval, of one end user or of all: the agent has to ask again."""
    pattern, session_id = request.args.get("pattern", ""), request.args.get("session_id", "")
    if not pattern:
        raise bad_request("Missing required parameter: 'pattern'.", "pattern")
    end_user = request.args.get("end_user")
    if not await app_state().services.store.revoke(principal(), session_id, pattern, end_user):
        message = "There is no such remembered approval."
        raise ApiError(404, message, param="pattern", code="approval_not_found")
    deleted = {"pattern": pattern, "session_id": session_id or None, "deleted": True}
    return json_response({"object": "hermes.approval.deleted", **deleted})
