"""What ends a run decides its status."""

from __future__ import annotations

import pytest

from hermes_trio.core.outcome import Outcome, Reason, Status


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.STOP_REQUESTED, Status.CANCELLED),
        (Reason.SERVER_ERROR, Status.FAILED),
        (Reason.TIMEOUT, Status.INCOMPLETE),
        (Reason.CLIENT_DISCONNECTED, Status.INCOMPLETE),
    ],
)
def test_who_cuts_decides_the_status(reason: Reason, status: Status) -> None:
    assert Outcome.from_cancellation(reason).status is status
