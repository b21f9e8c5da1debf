"""Answering an agent that asks, and what is remembered of the answers."""

from __future__ import annotations

from typing import Any

from quart import Response, request

from hermes_trio.core.approvals import Grant
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.lifecycle import ENDED_STATES
from hermes_trio.core.record import NoRun
from hermes_trio.runs.approvals import Answer, NotOffered, NotPending
from hermes_trio.runs.run import Run
from hermes_trio.schema.approvals import ApprovalAnswer, parse_approval
from hermes_trio.web.asked import body, principal
from hermes_trio.web.errors import json_response
from hermes_trio.web.options import Site
from hermes_trio.web.starting import not_found


async def answer_run(site: Site, run_id: str) -> Response:
    """Answer a run that asks, whatever API it was started by."""
    missing = ApiError(404, f"There is no run '{run_id}'.", param="run_id", code="run_not_found")
    return await _answered(site, run_id, missing)


async def answer_response(site: Site, response_id: str) -> Response:
    """The same for a response."""
    return await _answered(site, response_id, not_found(response_id))


async def _answered(site: Site, run_id: str, missing: ApiError) -> Response:
    said = parse_approval(await body())
    run = await _live(site, run_id, missing)
    resolved = await _answer(run, said)
    return json_response(
        {
            "object": "hermes.run.approval_response",
            "run_id": run_id,
            "choice": str(said.choice),
            "resolved": resolved,
        }
    )


async def _live(site: Site, run_id: str, missing: ApiError) -> Run:
    run = site.services.registry.find(principal(), run_id)
    if run is not None and run.standing.state not in ENDED_STATES:
        return run
    if run is None and isinstance(await site.services.store.find_run(principal(), run_id), NoRun):
        raise missing
    raise _not_active()


def _not_active() -> ApiError:
    return ApiError(409, "The run is over: nobody waits for an answer.", code="approval_not_active")


async def _answer(run: Run, said: ApprovalAnswer) -> int:
    try:
        resolved = await run.answer(Answer(said.choice, said.approval_id, said.everything))
    except NotPending:
        message = "There is no such question, or it has been answered."
        raise ApiError(409, message, param="approval_id", code="approval_not_pending") from None
    except NotOffered:
        message = f"'{said.choice}' is not among the choices of this question."
        raise bad_request(message, "choice", "invalid_approval_choice") from None
    if not resolved:  # it ended while the answer was being remembered
        raise _not_active()
    return resolved


async def list_approvals(site: Site) -> Response:
    """Everything that need not be asked again."""
    grants = await site.services.store.grants(principal())
    return json_response({"object": "list", "data": [_shown(each) for each in grants]})


def _shown(grant: Grant) -> dict[str, Any]:
    return {
        "object": "hermes.approval",
        "pattern": grant.pattern,
        "session_id": grant.session_id or None,
        "created_at": grant.made_at,
    }


async def revoke_approval(site: Site) -> Response:
    """Ask again from now on."""
    pattern, session_id = request.args.get("pattern", ""), request.args.get("session_id", "")
    if not pattern:
        raise bad_request("Missing required parameter: 'pattern'.", "pattern")
    if not await site.services.store.revoke(principal(), session_id, pattern):
        raise ApiError(
            404, "There is no such remembered approval.", param="pattern", code="approval_not_found"
        )
    gone = {"pattern": pattern, "session_id": session_id or None, "deleted": True}
    return json_response({"object": "hermes.approval.deleted", **gone})
