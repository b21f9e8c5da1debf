"""What the guards touch of Hypercorn is still there and still has the same shape.

A release that moves one of these would not fail by itself; it would quietly take a protection away.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from typing import Any

import pytest
from hypercorn.config import Config
from hypercorn.protocol.h2 import H2Protocol, StreamBuffer
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from hermes_trio.server.config import hypercorn_config
from hermes_trio.server.guards import INTERNALS

METHODS = {name: shape for name, shape in INTERNALS.items() if not name.endswith("__init__")}


@pytest.mark.parametrize(("name", "shape"), METHODS.items(), ids=METHODS)
def test_it_takes_the_same_parameters(name: str, shape: str) -> None:
    assert " ".join(inspect.signature(pkgutil.resolve_name(name)).parameters) == shape


def instances() -> dict[str, Any]:
    """One of each, made by their constructors."""
    context, config = WorkerContext(None), Config()
    parts: tuple[Any, ...] = (None, config, context, None, {}, False, None, None, None)
    made: list[Any] = [
        TCPServer(None, config, context, {}, None),  # type: ignore[arg-type]
        H11Protocol(*parts),
        H2Protocol(*parts),
        StreamBuffer(context.event_class),
    ]
    return {f"{type(one).__module__}.{type(one).__name__}.__init__": one for one in made}


@pytest.mark.parametrize("name", instances())
async def test_its_instances_have_the_same_attributes(name: str) -> None:
    one = instances()[name]
    declared = {*vars(one), *inspect.get_annotations(type(one))}
    in_source = set(re.findall(r"self\.(\w+)\b", inspect.getsource(type(one))))
    assert set(INTERNALS[name].split()) <= declared | in_source


def test_every_constructor_is_checked() -> None:
    assert {name for name in INTERNALS if name.endswith("__init__")} == set(instances())


def test_there_are_few() -> None:
    assert len(INTERNALS) <= 25


def test_every_setting_exists() -> None:
    """Hypercorn accepts unknown settings without a word."""
    made = hypercorn_config()
    assert [name for name in vars(made) if not hasattr(Config, name.removeprefix("_"))] == []
