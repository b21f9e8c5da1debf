"""Starting a run for an API call: at most once, even when the client repeats the request.

With an ``Idempotency-Key`` the first request claims the key for the run that it starts. A repeated
request with the same body gets the response of that run: live while it runs, from the log once it
has ended. Another body is a conflict.

An API describes its runs with a ``NewRun`` and, per request, loads a ``TurnInput``; everything else
(admission, idempotency, the choice of the agent, the run's header) happens here.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import trio
from attrs import evolve, frozen
from quart import request

from hermes_trio.agent.interface import TurnRequest
from hermes_trio.core.access import Principal
from hermes_trio.core.changes import Change
from hermes_trio.core.errors import SERVER_ERROR, ApiError, bad_request
from hermes_trio.core.jobs import Job
from hermes_trio.core.messages import Content, Message
from hermes_trio.core.records import NOTHING, EndedRun, IdempotencyRecord, LiveRun, RunHeader, Stamp
from hermes_trio.runs.admission import RETRY_SOON, Slot
from hermes_trio.runs.cluster import Cluster, OwnerUnreachable
from hermes_trio.runs.disconnects import HEADER as POLICY_HEADER
from hermes_trio.runs.disconnects import INTERRUPT, DisconnectPolicy, parse_policy
from hermes_trio.runs.log import ChangeReader, StoredReader, load_changes
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import ContinuedRun, Items, Persistence, RunSpec
from hermes_trio.runs.supervisor import attach, attach_until_question, request_scoped_run
from hermes_trio.schema.conversations import InputItem
from hermes_trio.schema.front_ends import ClientIds, client_name
from hermes_trio.schema.parsing import SESSION_ID_HEADER, SESSION_KEY_HEADER, SessionHeaders
from hermes_trio.stores.base import Store, StoreError
from hermes_trio.web.auth import ChosenAgent, choose_agent, choose_task_agent
from hermes_trio.web.request import (
    app_state,
    current_request,
    header,
    parse_body,
    principal,
)

T = TypeVar("T")

KEY_HEADER = "Idempotency-Key"
MAX_KEY_LENGTH = 256
RESPONSE_NOT_FOUND = "response_not_found"
# how long to wait for a run that another request has claimed but not started yet
CLAIM_SECONDS = 10.0
END_SECONDS = 30.0  # how long to wait for the end of a run that another node was told to stop
CLAIM_LOOK_SECONDS = 0.2  # how often to look whether another node has started it


@frozen
class RunKind:
    """The name of an API's runs, and the form of their ids."""

    name: str
    id_prefix: str
    id_digits: int  # hexadecimal, random

    def new_id(self) -> str:
        """Return a new run id."""
        return self.id_prefix + secrets.token_hex((self.id_digits + 1) // 2)[: self.id_digits]


@frozen
class TurnInput:
    """What a run works on, loaded once its session is locked."""

    session_id: str
    message: Content
    history: tuple[Message, ...]
    instructions: str
    model: str  # as the client named it, "" if it did not
    messages: tuple[Message, ...]  # what the client said in this turn, for the record
    session_lock: Slot | None = None
    options: Mapping[str, Any] = NOTHING
    parent: str = ""
    conversation: str = ""
    echo: Mapping[str, Any] = NOTHING  # fields of the request that replies repeat
    input_items: tuple[InputItem, ...] = ()
    # the field of the request that ends with the start of an answer, "" if none does
    continues: str = ""
    continued_run: ContinuedRun | None = None


NO_CLIENT_IDS = ClientIds()


def _nothing() -> None:
    pass


@frozen
class NewRun:
    """A run to be started, as an API describes it."""

    kind: RunKind
    fingerprint: str  # of the body, compared when an Idempotency-Key is used again
    session: SessionHeaders
    load_input: Callable[
        [str], Awaitable[TurnInput]
    ]  # from the run's id; not called for a repeated request
    persistence: Persistence = Persistence.FINAL
    on_disconnect: DisconnectPolicy = INTERRUPT
    is_background: bool = False
    ends_with_request: bool = False  # even if it is stored from its beginning
    can_ask: bool = False  # the client sees approval requests in time to answer them
    # what the run's conversation gains; None: it has none
    to_items: Callable[[EndedRun], Items] | None = None
    ids: ClientIds = NO_CLIENT_IDS
    asks_in_chat: bool = (
        False  # an approval request ends the reply, and the next message answers it
    )
    is_task: bool = (
        False  # for the front end itself: without tools, and by the agent for such tasks
    )
    can_suspend: bool = False  # the client takes approval requests at the end of a run
    answers_approval: bool = False  # it continues with the agent of a suspended run, in its slot
    job: Job | None = None  # that starts it: what becomes of the job when the run begins


Start = Callable[[], AbstractAsyncContextManager[ChangeReader]]


@frozen
class StartedRun:
    """A run that a request can read from its beginning."""

    header: RunHeader
    open: Start
    headers: Mapping[str, str] = NOTHING  # for the response


def task_run(
    kind: RunKind,
    fingerprint: str,
    session: SessionHeaders,
    load_input: Callable[[str], Awaitable[TurnInput]],
) -> NewRun:
    """Describe the run of a front end's background task: nothing of it is kept."""
    return NewRun(
        kind, fingerprint, session, load_input, persistence=Persistence.NONE, is_task=True
    )


def new_task_id() -> str:
    """Return the id of a background task's session, which is never stored."""
    return f"task-{secrets.token_hex(16)}"


async def read_turn(parse: Callable[[bytes], T], needs_slot: bool = True) -> tuple[str, T]:
    """Receive and parse the body of a request that runs an agent. Return its fingerprint, too.

    While the server is full or drains, the request is refused before its body is read. The slot of
    the run is taken only when the request is complete: bodies that never end must not use up the
    slots. A request with an Idempotency-Key is not refused yet, as a repetition needs no slot.

    Raises:
        ApiError: 400, 429 or 503.
    """
    current_request().starts_run = True
    if needs_slot and not _idempotency_key():
        caller = current_request().principal
        app_state().admission.require_free(caller.name, caller.access.quota)
    return await parse_body(partial(_parse_and_hash, parse, bool(_idempotency_key())))


def _parse_and_hash(parse: Callable[[bytes], T], has_key: bool, raw: bytes) -> tuple[str, T]:
    parsed = parse(raw)
    return hashlib.sha256(raw).hexdigest() if has_key else "", parsed


def disconnect_policy() -> DisconnectPolicy:
    """Return what a disconnect does to the run.

    As the request says, else as the server is configured.

    Raises:
        ApiError: 400.
    """
    given = header(POLICY_HEADER)
    return parse_policy(given) if given else app_state().options.on_disconnect


async def start_run(new: NewRun) -> StartedRun:
    """Start a run, or find the one that the same request started before.

    Raises:
        ApiError: 409 if the key was used with another body; 429 or 503 without a slot; what
            ``load_input`` raises.
        StoreError: the store does not accept the run.
    """
    run_id = new.kind.new_id()
    key = _idempotency_key()
    if not key:
        spec = await _make_spec(new, run_id)
        return _with_headers(await _begin(spec, new.ends_with_request), new)
    claim = _make_claim(key, new.fingerprint, run_id)
    first = await app_state().services.store.claim_key(claim)
    if first.run_id != claim.run_id:
        return _with_headers(await _replay(claim, first), new, {"Idempotency-Replayed": "true"})
    try:
        # Stored from its beginning, whatever the API wants: a repeated request reads it from the
        # store.
        spec = evolve(await _make_spec(new, run_id), persistence=Persistence.FULL)
        return _with_headers(await _begin(spec), new)
    except BaseException:
        # No run has begun: the key can be used again.
        with trio.move_on_after(CLAIM_SECONDS, shield=True), suppress(StoreError):
            await app_state().services.store.release_key(claim)
        raise


def _with_headers(
    started: StartedRun, new: NewRun, headers: Mapping[str, str] | None = None
) -> StartedRun:
    session = session_headers(new.session, started.header.session_id)
    return evolve(started, headers={**session, **(headers or {})})


def session_headers(given: SessionHeaders, used_id: str) -> dict[str, str]:
    """Return the headers that tell the client which session was used."""
    key = {SESSION_KEY_HEADER: given.key} if given.key else {}
    return {SESSION_ID_HEADER: used_id, **key}


@frozen
class Caller:
    """Whose run it is, and the agent that it gets."""

    owner: str  # of the records
    principal: Principal
    agent: ChosenAgent
    client: str = ""  # what its program calls itself


async def _make_spec(new: NewRun, run_id: str) -> RunSpec:
    """Reserve a slot, load the input of the turn and build the specification of its run."""
    state = app_state()
    # The agent of a suspended run still has the slot of that run.
    has_slot = new.answers_approval
    slot = Slot(_nothing) if has_slot else await current_request().run_slot(state.admission)
    given = await new.load_input(run_id)
    chosen = choose_task_agent(given.model) if new.is_task else choose_agent(given.model)
    if given.continues and not state.services.environment(chosen.profile).runtime.can_continue:
        message = (
            f"The last message in '{given.continues}' is the assistant's, "
            "and the agent cannot continue an answer."
        )
        raise bad_request(message, given.continues, "cannot_continue")
    context = current_request()
    caller = Caller(principal(), context.principal, chosen, client_name(context.headers))
    stamp = Stamp(run_id, state.services.wall_clock(), chosen.model)
    return make_spec(new, given, caller, slot, stamp)


def make_spec(new: NewRun, given: TurnInput, caller: Caller, slot: Slot, stamp: Stamp) -> RunSpec:
    """Build the specification of a run."""
    turn = TurnRequest(
        run_id=stamp.run_id,
        session_id=given.session_id,
        message=given.message,
        history=given.history,
        instructions=given.instructions,
        model=caller.agent.model,
        session_key=new.session.key,
        principal=caller.principal.name,
        profile=caller.agent.profile,
        options=given.options,
        allows_tools=not new.is_task,
        permitted_tools=caller.principal.access.tools,
    )
    run_header = RunHeader(
        principal=caller.owner,
        stamp=stamp,
        kind=new.kind.name,
        session_id=given.session_id,
        messages=given.messages,
        parent=given.parent,
        conversation=given.conversation,
        instructions=given.instructions,
        background=new.is_background,
        request=given.echo,
        input_items=given.input_items,
        client=caller.client,
    )
    return RunSpec(
        header=run_header,
        turn=turn,
        slot=slot,
        session_lock=given.session_lock,
        persistence=new.persistence,
        on_disconnect=new.on_disconnect,
        can_ask=new.can_ask,
        to_items=new.to_items,
        end_user=new.ids.end_user,
        asks_in_chat=new.asks_in_chat,
        can_suspend=new.can_suspend,
        continues=given.continued_run,
        job=new.job,
    )


async def _begin(spec: RunSpec, ends_with_request: bool = False) -> StartedRun:
    """Start a stored run in the server's nursery.

    Any other run, and one that is to end with its request, starts and ends with the block that
    reads it.
    """
    state = app_state()
    if spec.persistence is not Persistence.FULL and not spec.can_suspend:
        return StartedRun(spec.header, partial(request_scoped_run, state.services, spec))
    if ends_with_request:
        owned = Run(state.services, spec, has_owner=True)
        current_request().on_close(owned.abandon)
        await owned.begin()
        return StartedRun(spec.header, partial(request_scoped_run, state.services, spec, owned))
    run, client = await state.supervisor.start(spec)
    current_request().on_close(client.disconnect)
    open_run = attach_until_question if spec.asks_in_chat else attach
    return StartedRun(
        spec.header,
        partial(open_run, run, client, applies_backpressure=spec.on_disconnect == INTERRUPT),
    )


def _idempotency_key() -> str:
    return header(KEY_HEADER).strip()


def _make_claim(key: str, fingerprint: str, run_id: str) -> IdempotencyRecord:
    if len(key) > MAX_KEY_LENGTH:
        raise bad_request(
            f"'{KEY_HEADER}' may have at most {MAX_KEY_LENGTH} characters.", KEY_HEADER
        )
    return IdempotencyRecord(
        principal(), request.path, key, fingerprint, run_id, app_state().services.wall_clock()
    )


async def _replay(claim: IdempotencyRecord, first: IdempotencyRecord) -> StartedRun:
    """Find the run that the first request with the same key started, or is about to start.

    Raises:
        ApiError: 409 for another body, or if the first request started no run after all; then the
            key is free, or
            will be at the next try.
    """
    if first.fingerprint != claim.fingerprint:
        message = f"This {KEY_HEADER} was used with another body."
        raise ApiError(409, message, param=KEY_HEADER, code="idempotency_key_conflict")
    if (found := await _find_or_none(first.run_id)) is not None:
        return found
    deadline = trio.current_time() + CLAIM_SECONDS
    while trio.current_time() < deadline:
        with trio.move_on_after(_look_seconds()):
            return await _attach(
                await app_state().services.registry.wait_listed(principal(), first.run_id)
            )
        # It began and ended between two looks, or on another node.
        if (found := await _find_or_none(first.run_id)) is not None:
            return found
    message = f"The first request with this {KEY_HEADER} began no run. Try again."
    raise ApiError(409, message, param=KEY_HEADER, code="idempotency_key_pending")


def _look_seconds() -> float:
    """Return how often to look into the store for a run that is about to begin.

    In this process it announces itself; on another node it does not.
    """
    return CLAIM_SECONDS if app_state().services.cluster is None else CLAIM_LOOK_SECONDS


async def _find_or_none(run_id: str) -> StartedRun | None:
    try:
        return await find_run(run_id)
    except ApiError as error:
        if error.code == RESPONSE_NOT_FOUND:
            return None
        raise


async def find_run(run_id: str) -> StartedRun:
    """Find a run of the calling principal, live or ended, to be read from its beginning.

    Raises:
        ApiError: 404 if it does not exist or its log has expired; 409 if another process runs it.
    """
    services, owner = app_state().services, principal()
    run = services.registry.find(owner, run_id)
    if run is not None and run.is_stored:
        return await _attach(run)
    match await services.store.find_run(owner, run_id):
        case EndedRun(run_header):
            if not await load_changes(services.store, owner, run_id, 0):
                raise events_expired()
            return StartedRun(run_header, partial(_open_stored, services.store, owner, run_id))
        case LiveRun(run_header):
            if (
                run := services.registry.find(owner, run_id)
            ) is not None:  # it began in the meantime
                return await _attach(run)
            return StartedRun(run_header, partial(require_cluster().follow, run_header))
        case _:
            raise response_not_found(run_id)


def require_cluster() -> Cluster:
    """Return what reaches the runs of other nodes.

    Raises:
        ApiError: 409 if the store is not shared with other nodes: the process that has the run is gone.
    """
    cluster = app_state().services.cluster
    if cluster is None:
        raise ApiError(409, "The run is not within reach of this server.", code="run_not_here")
    return cluster


def owner_unreachable() -> ApiError:
    """Return the error for a run whose node does not answer."""
    message = "The node that executes the run does not answer. Try again shortly."
    return ApiError(503, message, SERVER_ERROR, code="run_unreachable", headers=RETRY_SOON)


async def stop_elsewhere(run: RunHeader) -> None:
    """Stop a run that another node executes.

    Raises:
        ApiError: 409 if the store is not shared; 503 if the node does not answer.
        StoreError: the store fails.
    """
    try:
        await require_cluster().stop(run.principal, run.run_id)
    except OwnerUnreachable:
        raise owner_unreachable() from None


async def end_elsewhere(run: RunHeader) -> None:
    """Stop a run that another node executes, and wait for its end.

    If that node dies, another one ends the run.

    Raises:
        ApiError: 409 if the store is not shared; 503 if the run does not end in time.
        StoreError: the store fails.
    """
    await stop_elsewhere(run)
    await wait_ended_elsewhere(run)


async def wait_ended_elsewhere(run: RunHeader) -> None:
    """Wait for the end of a run that another node was told to stop.

    Raises:
        ApiError: 503 if the run does not end in time.
    """
    try:
        with trio.fail_after(END_SECONDS):
            await require_cluster().wait_ended(run)
    except trio.TooSlowError:
        raise owner_unreachable() from None


async def _attach(run: Run) -> StartedRun:
    await run.wait_begun()
    client = run.clients.connect()
    current_request().on_close(client.disconnect)
    open_run = attach_until_question if run.asks_in_chat else attach
    return StartedRun(run.header, partial(open_run, run, client))


async def load_log(run_id: str) -> list[Change]:
    """Load all changes that the store has of a run."""
    store, owner = app_state().services.store, principal()
    changes: list[Change] = []
    while more := await load_changes(store, owner, run_id, len(changes)):
        changes += more
    return changes


@asynccontextmanager
async def _open_stored(store: Store, owner: str, run_id: str) -> AsyncIterator[ChangeReader]:
    # Entered by the response body, when Quart has left the request context: no current_app here.
    yield StoredReader(store, owner, run_id)


def events_expired() -> ApiError:
    """Return the error for a run whose log no longer reaches back to its beginning."""
    return ApiError(404, "The events of this run are not kept any longer.", code="events_expired")


def response_not_found(run_id: str) -> ApiError:
    """Return the error for a response that does not exist or belongs to another principal."""
    return ApiError(
        404, f"There is no response '{run_id}'.", param="response_id", code=RESPONSE_NOT_FOUND
    )
