"""The Quart application: its configuration, hooks, error handlers and routes."""

from __future__ import annotations

import math
from collections.abc import Generator
from functools import partial
from typing import Any, TypeAlias

import trio
from quart import Response, request
from quart_trio import QuartTrio
from quart_trio.wrappers.request import TrioBody, TrioRequest
from werkzeug.exceptions import HTTPException, InternalServerError, RequestEntityTooLarge

from hermes_trio.core.errors import ApiError
from hermes_trio.stores.base import StoreError
from hermes_trio.web import auth, errors
from hermes_trio.web.api import (
    approvals,
    chat,
    conversations,
    info,
    inventory,
    jobs,
    log_stream,
    metric_history,
    responses,
    runs,
    sessions,
    status,
)
from hermes_trio.web.metrics import Metrics
from hermes_trio.web.middleware import AllowedHosts, BoundaryMiddleware, Cors
from hermes_trio.web.request import CURRENT, STATE_KEY, RequestContext, app_state, current_request
from hermes_trio.web.state import AppState, WebOptions
from hermes_trio.web.static import load_page, make_page_blueprint

Application: TypeAlias = QuartTrio

STORE_HEADER = "X-Hermes-Store-Fallback"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})


class LimitedBody(TrioBody):
    """A request body that waits for room in memory, and is refused as soon as it exceeds the limit.

    Quart 0.22 does the latter itself, in ``append``. Quart 0.23 calls ``put`` instead, which buffers
    everything and leaves the check to the end of the body. Delete ``put`` when Quart checks
    while it receives again.
    """

    context: RequestContext | None = None  # without one, there is always room
    seconds = math.inf
    _received = 0

    async def put(self, data: bytes) -> None:
        """Take in a part of the body."""
        if self._must_raise is not None:
            return
        self._received += len(data)
        if self._max_content_length is not None and self._received > self._max_content_length:
            self._must_raise = RequestEntityTooLarge()
            self.set_complete()
        else:
            await super().put(data)  # type: ignore[misc]  # only in Quart 0.23

    async def reserve(self) -> None:
        """Wait until there is room for all of the body.

        Raises:
            ApiError: 503 or 429 when there was none for too long.
            RequestTimeout: the client does not send it.
        """
        if self.context is not None:
            await self.context.upload.wait_size(self.seconds)
            if not self.context.upload.is_free:
                await self.context.upload.reserve(app_state().bodies, self.context.principal.name)

    def __await__(self) -> Generator[Any, None, bytes]:
        """Receive the whole body."""
        yield from self.reserve().__await__()
        data: bytes = yield from super().__await__()
        return data

    async def __anext__(self) -> bytes:
        """Receive the next part, which needs no room: it is not kept."""
        if self.context is not None:
            self.context.upload.let_come()
        return await super().__anext__()


class LimitedRequest(TrioRequest):
    """A request with a limited body."""

    body_class = LimitedBody

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        assert isinstance(self.body, LimitedBody)
        self.body.context = CURRENT.get(None)
        self.body.seconds = math.inf if self.body_timeout is None else self.body_timeout

    async def get_data(self, *args: Any, **options: Any) -> Any:
        """Receive the whole body. ``body_timeout`` does not count while it waits for room."""
        assert isinstance(self.body, LimitedBody)
        await self.body.reserve()
        return await super().get_data(*args, **options)


def make_app(options: WebOptions) -> Application:
    """Make the application of a server. Call ``attach_state`` before it takes requests.

    It is a plain Quart application: more hooks, signals and routes can be added, and its test
    client works.
    """
    app = QuartTrio("hermes_trio", static_folder=None)
    app.request_class = LimitedRequest
    # Quart's default ends every response after a minute, silently
    app.config["RESPONSE_TIMEOUT"] = None
    app.config["BODY_TIMEOUT"] = options.body_seconds
    app.config["MAX_CONTENT_LENGTH"] = options.max_body_bytes
    app.url_map.strict_slashes = False
    # Werkzeug would answer "//" with a redirect, in HTML and to whatever host the client names.
    app.url_map.merge_slashes = False

    app.before_request(auth.authenticate)
    app.after_request(count_response)
    app.after_request(add_rate_headers)
    app.after_request(add_store_header)
    app.register_error_handler(ApiError, errors.handle_api_error)
    app.register_error_handler(StoreError, errors.handle_store_error)
    app.register_error_handler(HTTPException, errors.handle_http_exception)
    # Not for Exception: Quart logs and signals an exception only if nothing but this handles it.
    app.register_error_handler(InternalServerError, errors.handle_internal_error)

    for api in (
        info,
        inventory,
        status,
        metric_history,
        log_stream,
        chat,
        responses,
        conversations,
        runs,
        approvals,
        sessions,
        jobs,
    ):
        app.register_blueprint(api.blueprint)
    app.register_blueprint(auth.blueprint)
    app.register_blueprint(make_page_blueprint(load_page()))

    app.asgi_app = BoundaryMiddleware(  # type: ignore[method-assign]  # Quart's documented place for middleware
        app.asgi_app,
        Cors(frozenset(options.cors_origins)),
        options.max_body_bytes,
        options.access_log,
        options.write_through,
        AllowedHosts(options.allowed_hosts, options.own_hosts),
        app.extensions,
        options.root_path,
    )
    return app


def attach_state(app: Application, state: AppState) -> None:
    """Give an application what its requests share."""
    app.extensions[STATE_KEY] = state


def detach_state(app: Application) -> None:
    """Take from an application what ``attach_state`` gave it."""
    del app.extensions[STATE_KEY]


def has_state(app: Application) -> bool:
    """Return whether an application can take requests."""
    return STATE_KEY in app.extensions


async def count_response(response: Response) -> Response:
    """Count a response by route, method and status."""
    route = request.url_rule.rule if request.url_rule is not None else "unknown"
    # Clients may invent methods, and each label value is kept for good.
    method = request.method if request.method in METHODS else "other"
    metrics, context = app_state().metrics, current_request()
    metrics.response_started(route, method, response.status_code)
    context.on_close(partial(_count_end, metrics, route, context.started_at))
    return response


def _count_end(metrics: Metrics, route: str, started_at: float) -> None:
    metrics.request_ended(route, trio.current_time() - started_at)


async def add_rate_headers(response: Response) -> Response:
    """Tell a client that starts a run how many more it may start, as the OpenAI API does."""
    context = current_request()
    rate = None
    if context.starts_run:
        caller = context.principal
        rate = app_state().admission.rate_status(caller.name, caller.access.quota)
    if rate is not None:
        response.headers["x-ratelimit-limit-requests"] = str(rate.limit)
        response.headers["x-ratelimit-remaining-requests"] = str(rate.remaining)
        response.headers["x-ratelimit-reset-requests"] = f"{math.ceil(rate.reset_seconds * 1e3)}ms"
    return response


async def add_store_header(response: Response) -> Response:
    """Say on every response that records will be lost, if the store could not be opened."""
    if app_state().health.store_fallback:
        response.headers[STORE_HEADER] = "memory"
    return response
