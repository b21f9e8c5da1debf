"""One turn at a time per session.

A new session is locked too: the response names it, and a request that names it next must find it busy.
"""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.errors import ApiError
from hermes_trio.runs.admission import RETRY_SOON, Slot
from hermes_trio.web.request import app_state, current_request, principal


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
