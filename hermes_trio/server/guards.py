"""The guards for a server that Hypercorn's own command line starts.

``hermes_trio.server.worker.serve`` uses guarded connections by itself. Under ``hypercorn -k trio`` the worker is
Hypercorn's, which looks up its connection class when it begins to serve: by then this class is ours.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import hypercorn.trio.run
from hypercorn.trio.tcp_server import TCPServer

from hermes_trio.server.connection import GuardedTCPServer
from hermes_trio.server.faults import OnFault
from hermes_trio.server.keeping import Guards
from hermes_trio.server.selfcheck import check_stack

_worker: Any = hypercorn.trio.run


def installed_guards() -> Guards | None:
    """The guards that are in Hypercorn's worker now, if any."""
    current = _worker.TCPServer
    if isinstance(current, partial) and current.func is GuardedTCPServer:
        guards = current.args[0]
        assert isinstance(guards, Guards)
        return guards
    return None


def install_guards(write_seconds: float = 30.0, on_fault: OnFault | None = None) -> Guards:
    """Make Hypercorn's Trio worker use guarded connections. A second call changes nothing.

    Raises:
        StackChanged: Hypercorn is not the one that the guards were written for.
    """
    if (guards := installed_guards()) is not None:
        return guards
    check_stack()
    guards = Guards(write_seconds, on_fault)
    _worker.TCPServer = partial(GuardedTCPServer, guards)
    return guards


def remove_guards() -> None:
    """Give Hypercorn its own connections back."""
    _worker.TCPServer = TCPServer
