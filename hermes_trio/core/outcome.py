"""How a run ends: decided only here, from the agent's own result or from what ended the run early."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from hermes_trio.core.events import AgentFailed, Result, Verdict
from hermes_trio.core.messages import NO_USAGE, Usage
from hermes_trio.core.redact import redact_message


class Status(StrEnum):
    """The terminal states of a run."""

    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a run did not complete normally."""

    NONE = ""
    MAX_OUTPUT_TOKENS = "max_output_tokens"
    AGENT_INCOMPLETE = "agent_incomplete"
    AGENT_ERROR = "agent_error"
    CLIENT_DISCONNECTED = "client_disconnected"
    STALLED_READER = "stalled_reader"
    STOP_REQUESTED = "stop_requested"
    TIMEOUT = "timeout"
    SERVER_SHUTDOWN = "server_shutdown"
    SERVER_ERROR = "server_error"
    PROCESS_DIED = "process_died"


@frozen
class Failure:
    """An error as a client may see it. Secrets are masked before one is created."""

    message: str
    kind: str


NO_FAILURE = Failure("", "")


# The agent's verdict on its turn -> status and reason of the run.
_BY_VERDICT = {
    Verdict.COMPLETED: (Status.COMPLETED, Reason.NONE),
    Verdict.TRUNCATED: (Status.INCOMPLETE, Reason.MAX_OUTPUT_TOKENS),
    Verdict.INCOMPLETE: (Status.INCOMPLETE, Reason.AGENT_INCOMPLETE),
    Verdict.INTERRUPTED: (Status.CANCELLED, Reason.STOP_REQUESTED),
    Verdict.FAILED: (Status.FAILED, Reason.AGENT_ERROR),
}

# A requested stop is a cancellation, a fault of the server a failure; every other early end is
# incomplete.
_BY_CANCELLATION = {Reason.STOP_REQUESTED: Status.CANCELLED, Reason.SERVER_ERROR: Status.FAILED}

_CANCELLATION_MESSAGES = {
    Reason.TIMEOUT: "The run reached its time limit.",
    Reason.SERVER_SHUTDOWN: "The server is shutting down.",
    Reason.STALLED_READER: "The client stopped reading.",
    Reason.CLIENT_DISCONNECTED: "The client disconnected.",
    Reason.PROCESS_DIED: "The server process ended during the run.",
    Reason.SERVER_ERROR: "The server failed during the run.",
}


@frozen
class Outcome:
    """The one end of a run."""

    status: Status
    reason: Reason = Reason.NONE
    failure: Failure = NO_FAILURE
    usage: Usage = NO_USAGE
    raised: bool = False  # the agent raised instead of returning
    session_id: str = ""  # the session the agent ended in, if it moved to another one

    @classmethod
    def from_result(cls, result: Result, is_empty: bool) -> Outcome:
        """Return the outcome of a turn whose agent returned.

        A turn without any output (``is_empty``) is a failure even if the agent calls it completed.
        """
        verdict = (
            Verdict.FAILED if is_empty and result.verdict is Verdict.COMPLETED else result.verdict
        )
        status, reason = _BY_VERDICT[verdict]
        failure = NO_FAILURE
        if status is not Status.COMPLETED:
            message = result.error
            if status is Status.FAILED:
                message = message or result.text or "The agent gave no answer."
            failure = Failure(redact_message(message), "agent_error")
        return cls(status, reason, failure, result.usage, session_id=result.session_id)

    @classmethod
    def from_failure(cls, event: AgentFailed) -> Outcome:
        """Return the outcome of a turn whose agent raised."""
        failure = Failure(redact_message(event.message), event.kind)
        return cls(Status.FAILED, Reason.AGENT_ERROR, failure, raised=True)

    @classmethod
    def from_cancellation(cls, reason: Reason) -> Outcome:
        """Return the outcome of a turn that was ended from outside."""
        failure = Failure(_CANCELLATION_MESSAGES.get(reason, ""), str(reason))
        return cls(_BY_CANCELLATION.get(reason, Status.INCOMPLETE), reason, failure)
