"""How a run ends. Decided here and nowhere else, from what the agent said or from what cut it short."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from hermes_trio.core.events import Crashed, Result, Verdict
from hermes_trio.core.messages import NO_USAGE, Usage
from hermes_trio.core.redact import redact


class Status(StrEnum):
    """The terminal states of a run."""

    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a run did not simply complete."""

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
    """An error as a client may see it: secrets are masked before it is made."""

    message: str
    kind: str


NO_FAILURE = Failure("", "")


@frozen
class Outcome:
    """The one end of a run."""

    status: Status
    reason: Reason = Reason.NONE
    failure: Failure = NO_FAILURE
    usage: Usage = NO_USAGE
    raised: bool = False  # the agent raised instead of returning
    session_id: str = ""  # the session the agent ended in, when it moved


# What the agent says of itself -> how the run ended.
_BY_VERDICT = {
    Verdict.COMPLETED: (Status.COMPLETED, Reason.NONE),
    Verdict.TRUNCATED: (Status.INCOMPLETE, Reason.MAX_OUTPUT_TOKENS),
    Verdict.INCOMPLETE: (Status.INCOMPLETE, Reason.AGENT_INCOMPLETE),
    Verdict.INTERRUPTED: (Status.CANCELLED, Reason.STOP_REQUESTED),
    Verdict.FAILED: (Status.FAILED, Reason.AGENT_ERROR),
}

# Ways out that are somebody's wish end as cancelled, ways out that are our fault as failed; the rest is incomplete.
_BY_CUT = {Reason.STOP_REQUESTED: Status.CANCELLED, Reason.SERVER_ERROR: Status.FAILED}

_CUT_MESSAGES = {
    Reason.TIMEOUT: "The run reached its time limit.",
    Reason.SERVER_SHUTDOWN: "The server is shutting down.",
    Reason.STALLED_READER: "The client stopped reading.",
    Reason.CLIENT_DISCONNECTED: "The client disconnected.",
    Reason.PROCESS_DIED: "The server process ended during the run.",
    Reason.SERVER_ERROR: "The server failed during the run.",
}


def of_result(result: Result, is_empty: bool) -> Outcome:
    """The outcome of a turn whose agent returned.

    A turn in which nothing was said and nothing was done is a failure, whatever the agent calls it.
    """
    verdict = Verdict.FAILED if is_empty and result.verdict is Verdict.COMPLETED else result.verdict
    status, reason = _BY_VERDICT[verdict]
    failure = NO_FAILURE if status is Status.COMPLETED else _failure(result, status)
    return Outcome(status, reason, failure, result.usage, session_id=result.session_id)


def of_crash(crash: Crashed) -> Outcome:
    """The outcome of a turn whose agent raised."""
    failure = Failure(redact(crash.message), crash.kind)
    return Outcome(Status.FAILED, Reason.AGENT_ERROR, failure, raised=True)


def of_cut(reason: Reason) -> Outcome:
    """The outcome of a turn that was ended from outside."""
    failure = Failure(_CUT_MESSAGES.get(reason, ""), str(reason))
    return Outcome(_BY_CUT.get(reason, Status.INCOMPLETE), reason, failure)


def _failure(result: Result, status: Status) -> Failure:
    said = result.error or (result.text if status is Status.FAILED else "")
    fallback = "The agent gave no answer." if status is Status.FAILED else ""
    return Failure(redact(said or fallback), "agent_error")
