"""The place of a turn in its session: two turns never work on one session at the same time.

A session that nobody knows of yet is always free. Its place is taken all the same: the answer names the session, and
whoever names it next has to find it busy.
"""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.errors import ApiError
from hermes_trio.runs.admission import RETRY_SOON, Slot
from hermes_trio.web.asked import principal, visit
from hermes_trio.web.options import Site


@frozen
class Session:
    """The session that a turn belongs to."""

    session_id: str
    busy: ApiError  # what a client hears while another turn is under way in it


def named(session_id: str, param: str) -> Session:
    """A session, and the parameter that led to it."""
    return Session(session_id, refusal(f"Another turn is under way in session '{session_id}'.", param))


def refusal(message: str, param: str, code: str = "session_busy") -> ApiError:
    """What may work a moment later."""
    return ApiError(409, message, param=param, code=code, headers=RETRY_SOON)


async def enter(site: Site, session: Session) -> Slot:
    """Take the place in a session, which the client may have to wait for. It is given back with the request or the run.

    Raises:
        ApiError: 409 if another turn has it; 503 if the server began to shut down while the client waited.
    """
    place = visit().take(await site.turnstile.enter(principal(), session.session_id, session.busy))
    site.admission.require_open()
    return place
