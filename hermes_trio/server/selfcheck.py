"""Are the parts of Hypercorn and Quart-Trio that we build on still what they were?

We override private methods of both. A release that moves one would not fail, it would quietly take a protection away:
so the start of the server does fail, and names what moved.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import reduce
from importlib import import_module
from types import CodeType

from attrs import frozen


class StackChanged(Exception):
    """A library is not the one that this server was written for; the text names the attribute."""


@frozen
class Part:
    """A class or function that we rely on: its parameters, and the names that its code must mention.

    Both are space-separated, and None for parameters means that any will do.
    """

    module: str
    path: str
    parameters: str | None = None
    mentions: str = ""

    @property
    def name(self) -> str:
        """The full dotted name."""
        return f"{self.module}.{self.path}"


_PROTOCOL = "self app config context task_group connection_state ssl client server send"
_TCP = "hypercorn.trio.tcp_server"
_H11 = "hypercorn.protocol.h11"
_H2 = "hypercorn.protocol.h2"

_SETTINGS = (  # Hypercorn accepts unknown settings without a word
    "certfile keyfile alpn_protocols ssl_handshake_timeout graceful_timeout keep_alive_timeout "
    "keep_alive_max_requests read_timeout backlog h11_max_incomplete_size h2_max_header_list_size "
    "include_server_header accesslog errorlog logger_class"
)

PARTS = (
    Part("hypercorn.trio.run", "TCPServer"),
    Part("hypercorn.trio.run", "worker_serve", None, "TCPServer serve_listeners"),
    Part(_TCP, "TCPServer.__init__", "self app config context state stream", "send_lock stream"),
    Part(_TCP, "TCPServer.__await__", "self", "run"),
    Part(_TCP, "TCPServer.run", "self", "protocol_send _read_data _close _idle_timeout initiate"),
    Part(_TCP, "TCPServer.protocol_send", "self event", "_close protocol"),
    Part(_TCP, "TCPServer._read_data", "self", "protocol handle"),
    Part(_TCP, "TCPServer._close", "self", "send_eof aclose"),
    Part(_TCP, "TCPServer._idle_timeout", "self", "terminated keep_alive_timeout"),
    Part(
        "hypercorn.trio.task_group", "TaskGroup.spawn_app", "self app config scope send", "_handle _nursery"
    ),
    Part("hypercorn.trio.task_group", "_handle", "app config scope receive send sync_spawn call_soon"),
    Part("hypercorn.trio.lifespan", "Lifespan.__init__", "self app config state"),
    Part("hypercorn.trio.lifespan", "Lifespan.wait_for_startup", "self"),
    Part("hypercorn.trio.lifespan", "Lifespan.wait_for_shutdown", "self"),
    Part("hypercorn.trio.worker_context", "WorkerContext.__init__", "self max_requests", "terminated"),
    Part("hypercorn.trio.worker_context", "EventWrapper.wait", "self", "_event"),
    Part(_H11, "H11Protocol.__init__", _PROTOCOL, "connection can_read"),
    Part(_H11, "H11Protocol.handle", "self event", "_handle_events"),
    Part(_H11, "H11Protocol.stream_send", "self event"),
    Part(_H11, "H11Protocol._handle_events", "self", "_check_protocol can_read"),
    Part(_H11, "H11Protocol._check_protocol", "self event", "H2ProtocolAssumedError trailing_data"),
    Part(_H11, "H11Protocol._send_h11_event", "self event"),
    Part(_H11, "H11Protocol._maybe_recycle", "self", "can_read send"),
    Part(_H11, "H11Protocol._close_stream", "self", "stream handle"),
    Part(_H11, "H2ProtocolAssumedError.__init__", "self data"),
    Part(
        "h11", "Connection.send_with_data_passthrough", "self event", "_clean_up_response_headers_for_sending"
    ),
    Part(_H2, "H2Protocol.__init__", _PROTOCOL, "connection local_settings streams stream_buffers priority"),
    Part(_H2, "H2Protocol.idle"),
    Part(_H2, "H2Protocol.handle", "self event", "_handle_events"),
    Part(_H2, "H2Protocol.stream_send", "self event", "stream_buffers push drain _close_stream"),
    Part(_H2, "H2Protocol._handle_events", "self events", "_create_stream streams"),
    Part(_H2, "H2Protocol._create_stream", "self request", "StreamBuffer HTTPStream mark_request"),
    Part(_H2, "H2Protocol._send_data", "self stream_id", "stream_buffers pop complete"),
    Part(_H2, "H2Protocol._flush", "self"),
    Part(_H2, "StreamBuffer.__init__", "self event_class", "buffer _complete _is_empty _paused"),
    Part(_H2, "StreamBuffer.push", "self data", "BUFFER_HIGH_WATER"),
    Part(_H2, "StreamBuffer.pop", "self max_length", "BUFFER_LOW_WATER"),
    Part(_H2, "StreamBuffer.close", "self"),
    Part(_H2, "StreamBuffer.drain", "self", "_is_empty"),
    Part(
        "hypercorn.protocol.http_stream",
        "HTTPStream.__init__",
        "self app config context task_group ssl client server send stream_id",
    ),
    Part(
        "hypercorn.protocol.http_stream",
        "HTTPStream.handle",
        "self event",
        "start_time scope valid_server_name spawn_app app_put closed access",
    ),
    Part("hypercorn.utils", "valid_server_name", "config request", "server_names"),
    *(Part("hypercorn.config", f"Config.{name}") for name in _SETTINGS.split()),
    Part("quart_trio.asgi", "TrioASGIHTTPConnection.__call__", "self receive send", "handle_messages"),
    Part("quart_trio.asgi", "TrioASGIHTTPConnection.handle_messages", "self nursery request receive"),
    Part("quart_trio.asgi", "TrioASGIHTTPConnection.handle_request", "self nursery request send"),
    Part("quart_trio.app", "QuartTrio.handle_request", "self request", "full_dispatch_request"),
    Part("quart.app", "Quart.asgi_app", "self scope receive send", "asgi_http_class"),
    Part(
        "quart.app",
        "Quart.dispatch_request",
        "self request_context",
        "raise_routing_exception view_functions",
    ),
    Part("quart.ctx", "RequestContext.__init__", "self app request session"),
    Part("quart.ctx", "RequestContext.match_request", "self", "url_adapter match"),
    Part("quart.app", "Quart.create_url_adapter", "self request", "bind_to_request"),
    Part("quart.globals", "_cv_request"),
    Part("quart.wrappers.base", "BaseRequestWebsocket.__init__", None, "http_version scope"),
    Part(
        "werkzeug.sansio.request",
        "Request.__init__",
        "self method scheme server root_path path query_string headers remote_addr",
    ),
    Part("werkzeug.sansio.response", "Response.status.fset", "self value", "_status _status_code"),
)


def check_stack(parts: Iterable[Part] = PARTS) -> None:
    """Compare what is installed with what we were written for.

    Raises:
        StackChanged: something is missing, takes other parameters or works on other attributes.
    """
    for part in parts:
        _check(part, _find(part))


def _find(part: Part) -> object:
    try:
        return reduce(getattr, part.path.split("."), import_module(part.module))
    except (ImportError, AttributeError) as error:
        raise StackChanged(f"{part.name} is missing") from error


def _check(part: Part, found: object) -> None:
    if part.parameters is not None:
        _check_parameters(part, found)
    code = getattr(found, "__code__", None)
    for name in part.mentions.split():
        if code is None or name not in _names(code):
            raise StackChanged(f"{part.name} does not use {name} any more")


def _check_parameters(part: Part, found: object) -> None:
    if not callable(found):
        raise StackChanged(f"{part.name} cannot be called any more")
    now = " ".join(inspect.signature(found).parameters)
    if now != part.parameters:
        raise StackChanged(f"{part.name} takes ({now}) instead of ({part.parameters})")


def _names(code: CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return {*code.co_names, *(name for part in inner for name in _names(part))}
