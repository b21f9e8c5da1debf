"""Repairs of Hypercorn's Trio worker, each one a subclass hook or a wrapper.

| module       | what it guards                                                      |
|--------------|---------------------------------------------------------------------|
| `connection` | the server nursery, against exceptions of a connection              |
| `stream`     | writes, idle connections, clients that leave, the close             |
| `middleware` | requests whose application does not read, or is cancelled           |
| `http1`      | upgrades, pipelined requests, the end of a response                 |
| `http2`      | memory and streams of an HTTP/2 connection                          |

`installed` puts them into Hypercorn for the length of a block, `install` for good. `INTERNALS`
lists everything of Hypercorn's that they touch; a test fails when one of them moves.
``docs/discussion/stack_guards.md`` describes each defect, and every docstring says when its guard
can be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import hypercorn.protocol
import hypercorn.protocol.h2
import hypercorn.trio.run

from hermes_trio.server.guards.connection import Guards, OnFault, handle_connection
from hermes_trio.server.guards.http1 import GuardedH11Protocol
from hermes_trio.server.guards.http2 import BoundedStreamBuffer, GuardedH2Protocol

__all__ = ["INTERNALS", "Guards", "OnFault", "install", "installed"]

_RUN: Any = hypercorn.trio.run
_PROTOCOL: Any = hypercorn.protocol
_H2: Any = hypercorn.protocol.h2

_PROTOCOL_ARGS = "self app config context task_group connection_state ssl client server send"

INTERNALS = {
    # Names that `installed` replaces, with the parameters they are called with.
    "hypercorn.trio.run.TCPServer": "app config context state stream",
    "hypercorn.protocol.H11Protocol": _PROTOCOL_ARGS.removeprefix("self "),
    "hypercorn.protocol.H2Protocol": _PROTOCOL_ARGS.removeprefix("self "),
    "hypercorn.protocol.h2.StreamBuffer": "event_class",
    # Methods that are overridden or called.
    "hypercorn.trio.tcp_server.TCPServer.run": "self",
    "hypercorn.trio.worker_context.EventWrapper.wait": "self",
    "hypercorn.protocol.h11.H11Protocol.stream_send": "self event",
    "hypercorn.protocol.h11.H11Protocol._check_protocol": "self event",
    "hypercorn.protocol.h11.H11Protocol._create_stream": "self request",
    "hypercorn.protocol.h11.H11Protocol._send_h11_event": "self event",
    "hypercorn.protocol.h2.H2Protocol.initiate": "self headers settings",
    "hypercorn.protocol.h2.H2Protocol.handle": "self event",
    "hypercorn.protocol.h2.H2Protocol.stream_send": "self event",
    "hypercorn.protocol.h2.H2Protocol.send_task": "self",
    "hypercorn.protocol.h2.H2Protocol._handle_events": "self events",
    "hypercorn.protocol.h2.H2Protocol._create_stream": "self request",
    "hypercorn.protocol.h2.H2Protocol._flush": "self",
    "hypercorn.protocol.h2.StreamBuffer.push": "self data",
    "hypercorn.protocol.h2.StreamBuffer.pop": "self max_length",
    "hypercorn.protocol.h2.StreamBuffer.drain": "self",
    "hypercorn.protocol.h2.StreamBuffer.close": "self",
    # Attributes of instances, by the constructor that sets them.
    "hypercorn.trio.tcp_server.TCPServer.__init__": "send_lock protocol",
    "hypercorn.protocol.h11.H11Protocol.__init__": "can_read connection",
    "hypercorn.protocol.h2.H2Protocol.__init__": "keep_alive_requests priority streams stream_buffers",
    "hypercorn.protocol.h2.StreamBuffer.__init__": "buffer _complete _is_empty _paused",
}
"""What the guards touch of Hypercorn.

Dotted names, with parameters or, for constructors, the attributes they set.
"""


def install(guards: Guards) -> None:
    """Put the guards into Hypercorn's Trio worker, which looks all four names up when it serves."""
    _RUN.TCPServer = partial(handle_connection, guards)
    _PROTOCOL.H11Protocol = GuardedH11Protocol
    _PROTOCOL.H2Protocol = GuardedH2Protocol
    _H2.StreamBuffer = BoundedStreamBuffer


@contextmanager
def installed(guards: Guards) -> Iterator[None]:
    """Put the guards into Hypercorn's Trio worker for the length of a block."""
    before = (_RUN.TCPServer, _PROTOCOL.H11Protocol, _PROTOCOL.H2Protocol, _H2.StreamBuffer)
    install(guards)
    try:
        yield
    finally:
        _RUN.TCPServer, _PROTOCOL.H11Protocol, _PROTOCOL.H2Protocol, _H2.StreamBuffer = before
