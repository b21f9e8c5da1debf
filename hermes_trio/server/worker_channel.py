"""The connection between the supervisor and a worker: plan, orders, and reports.

It is a socket pair, so each side also notices when the other has died.
"""

from __future__ import annotations

import copyreg
import io
import json
import pickle
import socket
import struct
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

from hermes_trio.keys import Credentials
from hermes_trio.settings import Settings

_LENGTH = struct.Struct("!Q")


class Order(IntEnum):
    """What a supervisor asks of a worker. A higher order includes the lower."""

    DRAIN = 1
    STOP_NOW = 2  # end the runs that are left


@frozen
class WorkerPlan:
    """Everything that a worker gets from its supervisor."""

    number: int  # from 1
    settings: Settings
    credentials: Credentials
    reports_dir: Path  # where each worker has a socket, on which it reports to the others
    sockets: tuple[int, ...]  # descriptors of the listening sockets
    # the secrets that are not in the environment of the process; agents may need them at import
    environment: Mapping[str, str] = field(factory=dict, repr=False)


@frozen
class Ready:
    """The worker serves."""


@frozen
class Refused:
    """The worker cannot start as it is configured; the text is one line."""

    message: str


def _read_only(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)


def _reduce_mapping(mapping: MappingProxyType[Any, Any]) -> Any:
    return _read_only, (dict(mapping),)


class _PlanPickler(pickle.Pickler):
    """Pickles the read-only mappings of settings, too."""

    dispatch_table = copyreg.dispatch_table | {MappingProxyType: _reduce_mapping}


def encode_plan(plan: WorkerPlan) -> bytes:
    """Return a plan as bytes, as they are sent first."""
    buffer = io.BytesIO()
    _PlanPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(plan)
    return _LENGTH.pack(len(buffer.getbuffer())) + buffer.getvalue()


def read_plan(channel: io.BufferedIOBase) -> WorkerPlan:
    """Read the plan. Blocks.

    Raises:
        EOFError: The supervisor is gone.
    """
    [length] = _LENGTH.unpack(_read_exactly(channel, _LENGTH.size))
    # The bytes come from the process that started this one, over a socket that only the two have.
    plan = pickle.loads(_read_exactly(channel, length))  # noqa: S301
    assert isinstance(plan, WorkerPlan)
    return plan


def _read_exactly(channel: io.BufferedIOBase, size: int) -> bytes:
    data = channel.read(size)
    if len(data) < size:
        raise EOFError
    return data


def encode_order(order: Order) -> bytes:
    """Return an order as a line."""
    return f"{order.name}\n".encode()


def decode_order(line: bytes) -> Order:
    """Return the order of a line."""
    return Order[line.decode().strip()]


def encode_report(report: Ready | Refused) -> bytes:
    """Return what a worker reports as a line."""
    refused = report.message if isinstance(report, Refused) else None
    return json.dumps({"refused": refused}).encode() + b"\n"


def decode_report(line: bytes) -> Ready | Refused:
    """Return what a worker reported in a line."""
    refused = json.loads(line)["refused"]
    return Ready() if refused is None else Refused(refused)


def own(descriptor: int) -> socket.socket:
    """Return an inherited socket, which the children of this process do not inherit."""
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    return sock
