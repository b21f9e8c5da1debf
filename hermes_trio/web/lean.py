"""Quart-Trio less what our routes do not need.

For every request Quart looks for signals, blueprints, sessions and functions that are not async, and Werkzeug prepares to build
URLs: together that takes longer than most views. Here a request has one look before it and one after, its context is set and
taken back, and a path without variables is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from attrs import frozen
from quart import Response
from quart.ctx import RequestContext
from quart.globals import _cv_request
from quart.sessions import NullSession
from quart.wrappers import Request
from quart_trio import QuartTrio
from werkzeug.routing import Rule

from hermes_trio.web.connection import Connection
from hermes_trio.web.visit import CURRENT, visit_of

_NO_SESSION = NullSession()


@frozen
class Known:
    """In place of Werkzeug's adapter: the rule of a path is known."""

    rule: Rule

    def match(self, *, return_rule: bool) -> tuple[Rule, dict[str, Any]]:  # noqa: ARG002 - as Quart asks
        """The rule, and that its path has no variables."""
        return self.rule, {}


class App(QuartTrio):
    """The application."""

    asgi_http_class = Connection
    before: Callable[[Request], None]
    after: Callable[[Request, Response], None]

    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self._known: dict[tuple[str, str], Known] = {}

    def know_routes(self) -> None:
        """All routes are there: note those without variables."""
        for rule in self.url_map.iter_rules():
            for method in () if rule.arguments else rule.methods or ():
                self._known[method, rule.rule] = Known(rule)

    def __call__(self, scope: Any, receive: Any, send: Any) -> Coroutine[Any, Any, None]:
        """Answer a request. It is the connection that is awaited, without Quart's two layers around every wait."""
        if scope["type"] == "http":
            return self.asgi_http_class(self, scope)(receive, send)
        return super().__call__(scope, receive, send)

    def create_url_adapter(self, request: Any) -> Any:
        """What finds the route of a request."""
        known = None if request is None else self._known.get((request.method, request.path))
        return known or super().create_url_adapter(request)

    def ensure_async(self, func: Any) -> Any:
        """As it is: all of our views and handlers are coroutine functions."""
        return func

    async def handle_request(self, request: Request) -> Any:
        """Answer a request, in its context."""
        context = RequestContext(self, request, _NO_SESSION)
        context.match_request()
        token = _cv_request.set(context)
        CURRENT.set(visit_of(request.scope))  # type: ignore[arg-type]  # the scope is a dictionary
        try:
            return await self._respond(request)
        except Exception as error:  # noqa: BLE001 - the error handlers themselves failed
            return await self.handle_exception(error)
        finally:
            _cv_request.reset(token)

    async def _respond(self, request: Request) -> Any:
        try:
            self.before(request)
            response = await self._view(request)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - one of the error handlers takes it
            response = await self.handle_user_exception(error)
        self.after(request, response)  # our views and handlers return nothing else
        return response

    def _view(self, request: Any) -> Coroutine[Any, Any, Any]:
        """What answers the current request: its view, if it has one of its own."""
        if request.routing_exception is not None or request.method == "OPTIONS":
            return self.dispatch_request()
        view: Any = self.view_functions[request.url_rule.endpoint]  # a coroutine function, as all are
        answering: Coroutine[Any, Any, Any] = view(**request.view_args)
        return answering
