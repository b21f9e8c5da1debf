"""The Quart-Trio application: routes, and what surrounds each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from quart import Response
from quart.wrappers import Request
from werkzeug.exceptions import HTTPException

from hermes_trio.core.errors import ApiError
from hermes_trio.stores.contract import StoreError
from hermes_trio.web import (
    approvals,
    conversations,
    errors,
    info,
    page,
    responses,
    runs,
    session_api,
    session_chat,
)
from hermes_trio.web.asked import visit
from hermes_trio.web.auth import identify
from hermes_trio.web.chat import chat_completions
from hermes_trio.web.gate import Gate
from hermes_trio.web.headers import Cors
from hermes_trio.web.lean import App
from hermes_trio.web.metrics import Metrics
from hermes_trio.web.options import Site
from hermes_trio.web.page import is_page, load_page
from hermes_trio.web.profiles import check_profile
from hermes_trio.web.run_list import list_runs

View = Callable[..., Awaitable[Response]]

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})


def make_app(site: Site, metrics: Metrics) -> Gate:
    """The ASGI application of a server."""
    app = App("hermes_trio", static_folder=None)
    _configure(app, site)
    _add_routes(app, site, metrics)
    app.know_routes()
    _add_error_handlers(app)
    app.before, app.after = partial(_identify, site), partial(_count, metrics)
    return Gate(app, Cors(frozenset(site.options.cors_origins)), site.options.max_body_bytes)


def _configure(app: App, site: Site) -> None:
    app.config["RESPONSE_TIMEOUT"] = None  # Quart's default cuts every answer after a minute
    app.config["BODY_TIMEOUT"] = site.options.body_seconds
    app.config["MAX_CONTENT_LENGTH"] = site.options.max_body_bytes
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False  # it would answer with a redirect, as HTML and to whatever Host says


def _add_routes(app: App, site: Site, metrics: Metrics) -> None:
    _route(app, "GET", "/health", info.health)
    _route(app, "GET", "/v1/health", info.health)
    _route(app, "GET", "/health/live", info.health)
    _route(app, "GET", "/health/ready", partial(info.ready, site))
    _route(app, "GET", "/health/detailed", partial(info.detailed, site))
    _route(app, "GET", "/version", info.version)
    _route(app, "GET", "/openapi.json", info.openapi)
    _route(app, "GET", "/metrics", partial(info.metrics, site, metrics))
    _route(app, "GET", "/v1/models", partial(info.models, site))
    _route(app, "GET", "/v1/models/<path:model_id>", partial(info.model, site))
    _route(app, "GET", "/v1/capabilities", partial(info.capabilities, site))
    _route(app, "GET", "/v1/settings", partial(info.settings, site))
    _route(app, "POST", "/v1/chat/completions", partial(chat_completions, site))
    _add_responses(app, site)
    _add_conversations(app, site)
    _add_runs(app, site)
    _add_approvals(app, site)
    _add_sessions(app, site)
    _add_page(app)


def _add_responses(app: App, site: Site) -> None:
    one = "/v1/responses/<response_id>"
    _route(app, "POST", "/v1/responses", partial(responses.create_response, site))
    _route(app, "GET", one, partial(responses.get_response, site))
    _route(app, "DELETE", one, partial(responses.delete_response, site))
    _route(app, "POST", f"{one}/cancel", partial(responses.cancel_response, site))
    _route(app, "GET", f"{one}/input_items", partial(responses.input_items, site))


def _add_conversations(app: App, site: Site) -> None:
    one = "/v1/conversations/<conversation_id>"
    _route(app, "POST", "/v1/conversations", partial(conversations.create, site))
    _route(app, "GET", one, partial(conversations.show, site))
    _route(app, "POST", one, partial(conversations.update, site))
    _route(app, "DELETE", one, partial(conversations.delete, site))
    _route(app, "GET", f"{one}/items", partial(conversations.list_items, site))
    _route(app, "POST", f"{one}/items", partial(conversations.add_items, site))
    _route(app, "GET", f"{one}/items/<item_id>", partial(conversations.show_item, site))
    _route(app, "DELETE", f"{one}/items/<item_id>", partial(conversations.delete_item, site))


def _add_runs(app: App, site: Site) -> None:
    one = "/v1/runs/<run_id>"
    _route(app, "POST", "/v1/runs", partial(runs.create_run, site))
    _route(app, "GET", "/v1/runs", partial(list_runs, site))
    _route(app, "GET", one, partial(runs.get_run, site))
    _route(app, "GET", f"{one}/events", partial(runs.run_events, site))
    _route(app, "POST", f"{one}/stop", partial(runs.stop_run, site))


def _add_approvals(app: App, site: Site) -> None:
    _route(app, "POST", "/v1/runs/<run_id>/approval", partial(approvals.answer_run, site))
    _route(app, "POST", "/v1/responses/<response_id>/approval", partial(approvals.answer_response, site))
    _route(app, "GET", "/v1/approvals", partial(approvals.list_approvals, site))
    _route(app, "DELETE", "/v1/approvals", partial(approvals.revoke_approval, site))


def _add_sessions(app: App, site: Site) -> None:
    one = "/api/sessions/<session_id>"
    _route(app, "GET", "/api/sessions", partial(session_api.list_sessions, site))
    _route(app, "POST", "/api/sessions", partial(session_api.create_session, site))
    _route(app, "GET", one, partial(session_api.get_session, site))
    _route(app, "PATCH", one, partial(session_api.update_session, site))
    _route(app, "DELETE", one, partial(session_api.delete_session, site))
    _route(app, "GET", f"{one}/messages", partial(session_api.list_messages, site))
    _route(app, "POST", f"{one}/fork", partial(session_api.fork_session, site))
    _route(app, "POST", f"{one}/chat", partial(session_chat.chat, site))
    _route(app, "POST", f"{one}/chat/stream", partial(session_chat.chat_stream, site))
    _route(app, "GET", f"{one}/chat/stream", partial(session_chat.chat_events, site))


def _add_page(app: App) -> None:
    files = load_page()
    _route(app, "GET", "/", partial(page.document, files))
    _route(app, "GET", "/page/<digest>/<path:name>", partial(page.asset, files))


def _route(app: App, method: str, path: str, view: View) -> None:
    app.add_url_rule(path, f"{method} {path}", view, methods=[method])


def _add_error_handlers(app: App) -> None:
    app.register_error_handler(ApiError, errors.refused)
    app.register_error_handler(StoreError, errors.store_failed)
    app.register_error_handler(HTTPException, errors.refused_by_framework)
    app.register_error_handler(Exception, errors.failed)


def _identify(site: Site, request: Request) -> None:
    identify(site.keyring, request)
    if visit().profile and not is_page(request.path):
        check_profile(site)  # afterwards: whoever has no key does not learn which there are


def _count(metrics: Metrics, request: Request, response: Response) -> None:
    route = request.url_rule.rule if request.url_rule is not None else "unknown"
    # Anybody may invent methods, and each label value is kept for good.
    method = request.method if request.method in METHODS else "other"
    metrics.answered(route, method, response.status_code)
