"""Imports point one way: this file is the architecture, in a form that can fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hermes_trio"

# part -> the parts of ours that it may import (always itself too)
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "schema": {"core"},
    "agent": {"core", "tracing"},
    "stores": {"core"},
    "tools": {"core", "agent"},
    "agents": {"core", "agent", "tools", "tracing"},
    "runs": {"core", "agent", "stores.base", "tracing"},
    "jobs": {"core", "runs", "stores.base"},
    "tracing": {"core"},
    "settings": {"core", "stores.factory"},
    "keys": {"core"},
    "oidc": {"core", "keys"},
    "tokens": {"keys"},
    "client": {"core"},
    "gateway_probe": {"core", "keys"},
    "log_tail": set(),
    "testing": {"core", "agent", "agents"},
    "web": {
        "core", "jobs", "keys", "log_tail", "tokens", "schema", "agent", "runs", "stores.base", "tracing",
    },
    "channels": {
        "core", "agent", "runs", "stores.base", "settings.channels", "web.request", "web.state",
    },
}  # fmt: skip

# The pure parts may not even reach for a clock, a thread, randomness or a socket.
IMPURE = {
    "asyncio", "datetime", "hypercorn", "httpx2", "io", "os", "pathlib", "quart", "quart_trio", "random", "secrets",
    "select", "socket", "sqlite3", "structlog", "subprocess", "sys", "tempfile", "threading", "time", "trio", "uuid",
}  # fmt: skip
PURE_PARTS = ("core", "schema")

# Third-party packages that belong to one part only.
RESERVED = {
    "hypercorn": {"server"},
    "quart": {"web", "channels"},
    "quart_trio": {"web"},
    "sqlite3": {"stores"},
    "psycopg": {"stores"},
    "click": {"cli"},
    "typed_settings": {"settings"},
    "rich": {"client"},
    "joserfc": {"oidc"},
}

# Parts of ours that only some others may import: no server needs a client or a doctor.
USERS = {
    "client": {"client", "cli"},
    "cli": {"cli", "__main__", "doctor"},
    "doctor": {"doctor", "cli"},
}


def sources() -> list[Path]:
    """Every module of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The part of the package a file belongs to.

    Its first folder, or its own name on the top level.
    """
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """The absolute names that a module imports, wherever in the file, with their lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def is_allowed(part: str, target: str) -> bool:
    """Whether code of one part may import a name below ``hermes_trio.``."""
    permitted = ALLOWED.get(part)
    if permitted is None or target == "__version__":
        return True
    return any(target == name or target.startswith(f"{name}.") for name in permitted | {part})


def named(paths: list[Path]) -> list[str]:
    """Readable ids for parametrised files."""
    return [str(path.relative_to(PACKAGE)) for path in paths]


@pytest.mark.parametrize("path", sources(), ids=named(sources()))
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(path)
    for name, line in imports(path):
        if name.startswith("hermes_trio."):
            assert is_allowed(part, name.removeprefix("hermes_trio.")), (
                f"{path.name}:{line} imports {name}"
            )


PURE = [path for path in sources() if part_of(path) in PURE_PARTS]


@pytest.mark.parametrize("path", PURE, ids=named(PURE))
def test_pure_parts_import_no_effect(path: Path) -> None:
    for name, line in imports(path):
        assert name.split(".")[0] not in IMPURE, f"{path.name}:{line} imports {name}"


@pytest.mark.parametrize("path", PURE, ids=named(PURE))
def test_pure_parts_never_await(path: Path) -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    assert not found


@pytest.mark.parametrize("path", sources(), ids=named(sources()))
def test_libraries_stay_in_their_part(path: Path) -> None:
    for name, line in imports(path):
        homes = RESERVED.get(name.split(".")[0])
        assert homes is None or part_of(path) in homes, f"{path.name}:{line} imports {name}"


@pytest.mark.parametrize("path", sources(), ids=named(sources()))
def test_servers_know_nothing_of_clients(path: Path) -> None:
    for name, line in imports(path):
        users = (
            USERS.get(name.removeprefix("hermes_trio.").split(".")[0])
            if name.startswith("hermes_trio.")
            else None
        )
        assert users is None or part_of(path) in users, f"{path.name}:{line} imports {name}"


def test_the_checks_can_fail() -> None:
    assert not is_allowed("core", "web.app")
    assert not is_allowed("runs", "stores.sqlite")
    assert is_allowed("runs", "stores.base")
    assert is_allowed("agents", "agent.interface.Agent")
