"""Run one turn of a chat: start an ordinary run in the server's nursery, and read it to its end."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import ExitStack

import trio

from hermes_trio.agent.interface import TurnRequest
from hermes_trio.channels.base import ChannelMessage, ChannelPolicy
from hermes_trio.core.changes import CallEnded, CallStarted
from hermes_trio.core.dialects.chat import ChatCollector
from hermes_trio.core.errors import ApiError
from hermes_trio.core.messages import Message, join_continued
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import RunHeader, Stamp
from hermes_trio.core.sessions import COMPRESSED, NoSession, Session, SessionQuery
from hermes_trio.core.tool_display import emoji, label
from hermes_trio.runs.disconnects import DETACH, ClientHandle
from hermes_trio.runs.log import Changes
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import Persistence, RunSpec
from hermes_trio.runs.supervisor import attach
from hermes_trio.stores.base import Store
from hermes_trio.web.state import AppState

MAX_SUCCESSORS = 200  # sessions, the latest, among which the successor of a session is looked for
SESSION_BUSY = "session_busy"

FAILED = "Sorry, something went wrong. Please try again."
RESTARTING = (
    "I am being restarted and could not finish. Please send your message again in a minute."
)
NO_ANSWER = "There is no answer to this."
_NOTES: Mapping[Reason, str] = {
    Reason.MAX_OUTPUT_TOKENS: "(The answer was cut off, because it became too long.)",
    Reason.AGENT_INCOMPLETE: "(I stopped before I was done. Send “continue” to go on.)",
    Reason.STOP_REQUESTED: "(I was stopped.)",
    Reason.TIMEOUT: "(I stopped, because it took too long.)",
    Reason.SERVER_SHUTDOWN: RESTARTING,
    Reason.PROCESS_DIED: RESTARTING,
}


class RunningCalls:
    """The tool calls of a run that are in progress."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._changed = trio.Event()

    def take(self, changes: Changes) -> None:
        """Add changes of the run."""
        for change in changes:
            match change:
                case CallStarted(_, call_id, name, args):
                    self._labels[call_id] = f"{emoji(name)} {label(name, args)}"
                    self._changed.set()
                    self._changed = trio.Event()
                case CallEnded(_, call_id):
                    self._labels.pop(call_id, None)
                case _:
                    pass

    async def wait_label(self) -> str:
        """Wait until a call is under way, and return the label of the latest one."""
        while not self._labels:
            await self._changed.wait()
        return next(reversed(self._labels.values()))


def new_run_id() -> str:
    """Return a new run id."""
    return f"run_{secrets.token_hex(16)}"


def session_of_chat(channel: str, chat: str) -> str:
    """Return the id of the session that a chat begins in."""
    return f"{channel}-{chat}"


async def start_turn(
    state: AppState, channel: str, policy: ChannelPolicy, message: ChannelMessage, run_id: str
) -> tuple[Run, ClientHandle]:
    """Start the run that answers a message.

    Raises:
        ApiError: 403 if no key of the principal allows it; 409 while another turn runs in the
            session; 429 or 503 without a slot.
        StoreError: the store does not accept the run.
    """
    services, principal = state.services, policy.principal
    access = state.keys.keyring.find_access(principal, services.wall_clock())
    if access is None or not access.allows_profile(policy.profile):
        refusal = (
            f"The key of '{principal}' has expired or does not allow the agent of the channel."
        )
        raise ApiError(403, refusal, code="insufficient_scope")
    session = await _find_session(services.store, principal, channel, message.chat)
    session_id = session_of_chat(channel, message.chat) if session is None else session.session_id
    busy = ApiError(409, f"Another turn is under way in '{session_id}'.", code=SESSION_BUSY)
    with ExitStack() as unused:
        slot = await state.admission.admit_run(principal, access.quota)
        unused.callback(slot.release_unused)
        lock = await state.session_locks.acquire(principal, session_id, busy)
        unused.callback(lock.release_unused)
        messages = await services.store.load_messages(principal, session_id)
        turn = TurnRequest(
            run_id=run_id,
            session_id=session_id,
            message=message.text,
            history=join_continued(messages),
            instructions="" if session is None else session.system_prompt,
            model=policy.model,
            session_key=session_of_chat(channel, message.chat),
            principal=principal,
            profile=policy.profile,
            permitted_tools=access.tools,
        )
        header = RunHeader(
            principal=principal,
            stamp=Stamp(run_id, services.wall_clock(), policy.model),
            kind=channel,
            session_id=session_id,
            messages=(Message("user", message.text),),
            request={"chat": message.chat},
        )
        spec = RunSpec(
            header=header,
            turn=turn,
            slot=slot,
            session_lock=lock,
            persistence=Persistence.FULL,
            on_disconnect=DETACH,
            end_user=session_of_chat(channel, message.chat),
        )
        return await state.supervisor.start(spec)


async def _find_session(store: Store, principal: str, channel: str, chat: str) -> Session | None:
    """Return the session of a chat: the last one, if agents moved it on. None if there is none yet."""
    session_id, found = session_of_chat(channel, chat), None
    query = SessionQuery(MAX_SUCCESSORS, kind=channel, include_children=True)
    while session_id:
        session = await store.find_session(principal, session_id)
        if isinstance(session, NoSession):
            break
        found, session_id = session, ""
        if session.end_reason == COMPRESSED:
            page = await store.list_sessions(principal, query)
            successors = [each for each in page.sessions if each.parent == session.session_id]
            session_id = successors[0].session_id if successors else ""
    return found


async def read_answer(run: Run, client: ClientHandle, calls: RunningCalls) -> str:
    """Read a run to its end, and return what to send to its chat."""
    collector = ChatCollector(run.header.stamp)
    async with attach(run, client) as subscriber:
        async for changes in subscriber:
            collector.take(changes)
            calls.take(changes)
    return compose_answer(collector.answer, collector.outcome)


def compose_answer(answer: str, outcome: Outcome) -> str:
    """Return the text of an answer, and if it is not complete, why. Errors are for the operator."""
    note = _NOTES.get(outcome.reason, "" if outcome.status is Status.COMPLETED else FAILED)
    return "\n\n".join(filter(None, (answer.strip(), note))) or NO_ANSWER
