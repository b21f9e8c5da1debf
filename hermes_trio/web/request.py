"""The current request: its context, and checked access to its headers, query and body."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any, TypeVar

import trio
from attrs import define, field
from quart import request
from werkzeug.exceptions import RequestTimeout

from hermes_trio.core.access import Principal
from hermes_trio.core.errors import bad_request
from hermes_trio.core.records import NOTHING, record_owner
from hermes_trio.runs.admission import Admission, BodyBudget, BodyClaim, Slot
from hermes_trio.runs.delivery import TrySend
from hermes_trio.schema.chat import ChatRequest
from hermes_trio.schema.front_ends import ClientIds, is_task_prompt
from hermes_trio.schema.responses import ResponsesRequest
from hermes_trio.web.state import AppState

A = TypeVar("A")
T = TypeVar("T")

STATE_KEY = "hermes_trio"  # where the application keeps its state, in ``app.extensions``

ANONYMOUS = Principal("")
LAST_EVENT_HEADER = "Last-Event-ID"
APPROVALS_HEADER = "X-Hermes-Approvals"
FREE_BYTES = 65_536  # of a body that needs no room in the budget
MAX_INLINE_BYTES = 100_000  # of a body that is parsed or rendered in the event loop
MAX_INTEGER = 2**53  # what JavaScript clients can count to
_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Upload:
    """The body of a request on its way to the view.

    A body of at most ``FREE_BYTES`` is received at once. The rest of a larger one is received when
    the view wants it and the server has room for it, and discarded if the response starts before
    that. So a request that is refused costs little memory.
    """

    def __init__(self, length: int | None = None, max_bytes: int = 0) -> None:
        self._length = length  # as the client declared it
        self._max_bytes = max_bytes
        self._received = 0
        self._claim: BodyClaim | None = None
        self._is_wanted = self._is_discarded = False
        self._is_seen = trio.Event()  # all of it, or more than is free or allowed
        self._can_continue = trio.Event()  # there is room, or the response has started

    @property
    def is_free(self) -> bool:
        """Whether the body needs no room in the budget, as far as is known."""
        return max(self._received, self._length or 0) <= FREE_BYTES

    async def receive(self, message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Take in a part of the body, and return it when there is room for it."""
        self._received += len(message.get("body", b""))
        has_more = message.get("more_body", False)
        if not (has_more and self.is_free and self._received <= self._max_bytes):
            self._is_seen.set()
        if self.is_free:
            return message
        await self._can_continue.wait()
        if self._is_wanted:
            return message
        self._is_discarded = True
        return {**message, "body": b""}

    async def wait_size(self, seconds: float) -> None:
        """Wait until it is known whether the body is free.

        Raises:
            RequestTimeout: the client has not sent enough of it after some time.
        """
        if self._length is None:
            with trio.move_on_after(seconds) as waiting:
                await self._is_seen.wait()
            if waiting.cancelled_caught:
                raise RequestTimeout

    async def reserve(self, budget: BodyBudget, principal: str) -> None:
        """Let the rest of the body come when there is room for it. Only the first call counts.

        A client that did not declare the length may need the maximum. The request releases the
        room when it ends, if nothing did before.

        Raises:
            ApiError: 503 or 429 when there was no room for too long.
        """
        if self._claim is None:
            self._claim = budget.claim(principal, self._length or self._max_bytes)
            await self._claim.wait()
            self.let_come()

    def let_come(self) -> None:
        """Let the rest of the body come.

        Raises:
            RuntimeError: a part of it has been discarded.
        """
        if self._is_discarded:
            raise RuntimeError("the body was not read before the response started")
        self._is_wanted = True
        self._can_continue.set()

    def response_started(self) -> None:
        """Receive what is left all the same: a disconnect comes behind it."""
        if self._claim is None:
            self._can_continue.set()

    def release(self) -> None:
        """Give the room back: the body has been parsed, or is not needed any more."""
        if self._claim is not None:
            self._claim.release()

    async def return_memory(self) -> None:
        """Return the memory of a large body to the system, unless there are others."""
        if self._claim is not None:
            await self._claim.budget.return_memory_if_idle()


@define(eq=False)
class RequestContext:
    """The web layer's data on one request, in addition to Quart's.

    Made by the middleware, filled in by authentication and routing, closed by the middleware when
    the request has ended, whatever ended it.
    """

    request_id: str
    headers: Mapping[str, str] = NOTHING  # the first of each name, in lower case
    extensions: Mapping[str, Any] = NOTHING  # of the application
    started_at: float = field(factory=trio.current_time)
    upload: Upload = field(factory=Upload)
    profile: str = ""  # from the path prefix /p/NAME
    principal: Principal = ANONYMOUS
    # whose records an administrator asked for; "" for the caller's own
    other_principal: str = ""
    has_key: bool = False  # authenticated by an API key, not by a token that stands for one
    route: str = ""  # the rule that matched, for logs and metrics
    starts_run: bool = False  # it counts towards the rate of its principal
    _slot: Slot | None = None
    # writes a part of the response through, where the server offers that
    try_send: TrySend | None = None
    _on_close: list[Callable[[], object]] = field(factory=list)

    @property
    def owner(self) -> str:
        """The owner of the records that this request reads and writes."""
        return record_owner(self.other_principal or self.principal.name, self.profile)

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call back when the request ends. The last callback registered is called first."""
        self._on_close.append(callback)

    def release_on_close(self, slot: Slot) -> Slot:
        """Release a reserved slot when the request ends, unless a run has taken it by then."""
        self.on_close(slot.release_unused)
        return slot

    async def run_slot(self, admission: Admission) -> Slot:
        """Return the slot for this request's run; the first call reserves it.

        Raises:
            ApiError: 429 when all slots, or those of the principal, are taken; 503 while the server
                drains.
            StoreError: the nodes count the runs of a principal together, and the store fails.
        """
        if self._slot is None:
            slot = await admission.admit_run(self.principal.name, self.principal.access.quota)
            self._slot = self.release_on_close(slot)
        return self._slot

    def close(self) -> None:
        """Run the callbacks, all of them even if one raises."""
        with ExitStack() as stack:
            stack.callback(self.upload.release)
            for callback in self._on_close:
                stack.callback(callback)


# Set by the middleware. A lookup through Quart's proxies costs ten times as much.
CURRENT: ContextVar[RequestContext] = ContextVar("hermes_trio.request")


def current_request() -> RequestContext:
    """Return the context of the request being handled."""
    return CURRENT.get()


def app_state() -> AppState:
    """Return the state of the application that handles the request."""
    state: AppState = CURRENT.get().extensions[STATE_KEY]
    return state


def is_open_webui() -> bool:
    """Return whether the headers name Open WebUI, which it can be configured to send."""
    headers = current_request().headers
    return any(name.startswith("x-openwebui-") for name in headers) or (
        "open webui" in headers.get("user-agent", "").lower().replace("-", " ")
    )


def wants_status_line() -> bool:
    """Return whether the client gets status events: as configured, or because it shows them."""
    mode = app_state().options.open_webui_status
    return is_open_webui() if mode == "auto" else mode == "on"


def is_background_task(asked: ChatRequest | ResponsesRequest, ids: ClientIds) -> bool:
    """Return whether a request is a front end's own: for a title, tags, follow-up questions, search queries.

    A header says so, or the request comes from Open WebUI and has one of its prompts.
    """
    mode = app_state().options.open_webui_tasks
    if mode == "off":
        return False
    if ids.names_task:
        return True
    may_be = not asked.stream and not asked.options.get("tools")
    return (
        may_be
        and (mode == "on" or is_open_webui())
        and is_task_prompt(asked.message, asked.history)
    )


def is_same_origin(origin: str, host: str) -> bool:
    """Return whether an ``Origin`` header names the host of the request.

    The scheme is not compared: behind a proxy that terminates TLS, the server does not know it.
    """
    return origin.isprintable() and origin.partition("://")[2] == host != ""


def approvals_header(*known: str) -> str:
    """Return the form of approval requests that the client asks for, "" if it names none.

    Raises:
        ApiError: 400 if this route does not know the form.
    """
    given = header(APPROVALS_HEADER).strip().lower()
    if given not in {"", *known}:
        message = f"'{APPROVALS_HEADER}' must be one of {', '.join(known)}."
        raise bad_request(message, APPROVALS_HEADER, "invalid_approvals")
    return given


def principal() -> str:
    """Return the owner of the records in question.

    The caller, or the principal that an administrator asked for; below ``/p/NAME`` narrowed to that
    profile.
    """
    return current_request().owner


def principal_name() -> str:
    """Return the name of the caller, whatever the path."""
    return current_request().principal.name


def header(name: str) -> str:
    """Return the first header of this name, "" if there is none."""
    return current_request().headers.get(name.lower(), "")


async def body() -> bytes:
    """Receive the whole body, once.

    Raises:
        ApiError: 503 or 429 when the server has no room for it.
        RequestEntityTooLarge: it exceeds the limit, which Content-Length did not tell.
        RequestTimeout: it did not arrive in time.
    """
    data: bytes = await request.get_data(cache=True, as_text=False, parse_form_data=False)
    if not current_request().upload.is_free:  # a small one is kept, for hooks of other programs
        request.body.clear()
    return data


async def parse_body(parse: Callable[[bytes], T]) -> T:
    """Receive and parse the whole body.

    A large one is parsed in a thread, so that no other request has to wait for it.

    Raises:
        ApiError: 400; 503 or 429 when the server has no room for it.
    """
    raw = await body()
    try:
        return parse(raw) if len(raw) <= MAX_INLINE_BYTES else await in_thread(parse, raw)
    finally:
        current_request().upload.release()


async def in_thread(work: Callable[[A], T], argument: A) -> T:
    """Do some work in a thread, or here if the process cannot start a thread any more.

    The work must not raise RuntimeError.
    """
    try:
        return await trio.to_thread.run_sync(work, argument)
    except RuntimeError:
        return work(argument)


def int_param(name: str, default: int, low: int, high: int) -> int:
    """Read an integer from the query string.

    Raises:
        ApiError: 400, naming the parameter.
    """
    text = request.args.get(name, "")
    return parse_int(text, name, low, high) if text else default


def parse_int(text: str, name: str, low: int, high: int) -> int:
    """Parse an integer that a header or query parameter holds.

    Raises:
        ApiError: 400, naming the header or parameter.
    """
    number = int(text) if _INTEGER.fullmatch(text) else low - 1
    if not low <= number <= high:
        raise bad_request(f"'{name}' must be a whole number from {low} to {high}.", name)
    return number


def bool_param(name: str) -> bool:
    """Read a switch from the query string; absent means off."""
    return request.args.get(name, "").lower() in {"1", "true", "yes", "on"}


def order_param() -> str:
    """Read the order of a list: "asc" or, by default, "desc".

    Raises:
        ApiError: 400.
    """
    order = request.args.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise bad_request("'order' must be 'asc' or 'desc'.", "order")
    return order


def last_event_id() -> str:
    """Return the ``Last-Event-ID`` that a reconnecting browser sends, "" if there is none."""
    return header(LAST_EVENT_HEADER).strip()


def last_seq(event_id: str, default: int) -> int:
    """Return the number of the last event that the client has.

    ``Last-Event-ID`` wins over ``?last_seq=``: a browser that reconnects repeats the query of its
    first request.

    Raises:
        ApiError: 400, naming the header or parameter.
    """
    if event_id:
        return parse_int(event_id, LAST_EVENT_HEADER, default, MAX_INTEGER)
    return int_param("last_seq", default, default, MAX_INTEGER)
