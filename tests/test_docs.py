"""The documentation matches the code: every example runs, and every table is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from hermes_trio.agent.emitter import ToolCallHandle
from hermes_trio.agent.interface import AgentContext, TurnRequest
from hermes_trio.core.events import Result, Verdict
from hermes_trio.core.messages import Message, ToolCall, Usage
from hermes_trio.core.outcome import Reason, Status
from hermes_trio.schema.openapi import OPERATIONS
from hermes_trio.schema.replies import ResponseReply
from hermes_trio.schema.responses import ResponsesBody
from hermes_trio.settings import Profile, Settings, options
from hermes_trio.settings.channels import WhatsAppSettings
from hermes_trio.settings.model import own_variable
from tests.support.doc_examples import (
    INERT,
    ROOT,
    DocServer,
    PageRunner,
    Shell,
    blocks_of,
    make_environment,
)

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts),
]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader's home folder."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def environ(home: Path) -> dict[str, str]:
    """The reader's environment before there is a key."""
    return make_environment(home)


@pytest.fixture(scope="session")
def demo(home: Path, environ: dict[str, str]) -> Iterator[DocServer]:
    """The server that a first ``hermes-trio serve`` starts, with one difference.

    A ``curl`` whose reader has left sees that when it has something to write: at the next
    keep-alive.
    """
    impatient = {**environ, "HERMES_TRIO_KEEPALIVE_SECONDS": "0.5"}
    with Shell(home, impatient).serving("hermes-trio serve --port 0") as server:
        yield server


@pytest.fixture
def reader(home: Path, environ: dict[str, str], demo: DocServer, tmp_path: Path) -> Shell:
    """A reader with the key in hand."""
    key = (home / ".local/share/hermes-trio/api-key").read_text(encoding="utf-8").strip()
    return Shell(tmp_path, {**environ, "API_SERVER_KEY": key})


RUNNABLE = [page for page in PAGES if any(block.kind not in INERT for block in blocks_of(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_of_a_page_works(page: Path, reader: Shell, demo: DocServer) -> None:
    with ExitStack() as servers:
        walk = PageRunner(reader, demo, servers)
        for block in blocks_of(page):
            walk.take(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    assert all(block.value for block in blocks_of(page) if block.kind == "not run")


def settings_table() -> list[str]:
    """The table of all options, as the reference must have it."""
    head = ["| option | flag | environment | default | meaning |", "|---|---|---|---|---|"]
    return head + [
        _row(attribute) for attribute in attrs.fields(Settings) if attribute.name in options()
    ]


def _row(attribute: attrs.Attribute[Any]) -> str:
    option = options()[attribute.name]
    variables = ", ".join(f"`{name}`" for name in (own_variable(attribute.name), *option.variables))
    flag = f"`{option.flag}`" if option.flag else ""
    return f"| `{attribute.name}` | {flag} | {variables} | {_default(attribute.default)} | {option.help} |"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "`on`" if value else "`off`"
    if isinstance(value, str | int | float) and value != "":
        return f"`{value}`"
    return "" if not value else "see below"


def reference(name: str) -> str:
    """The text of a page of the reference."""
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def test_the_settings_table_is_that_of_the_class() -> None:
    table = "\n".join(settings_table())
    assert table in reference("settings.md"), f"the table should be\n{table}"


def test_every_option_of_a_profile_is_documented() -> None:
    text = reference("settings.md").partition("## Profiles")[2]
    names = [attribute.name for attribute in attrs.fields(Profile) if attribute.name != "name"]
    assert [name for name in [*names, "api_key_env"] if f"| `{name}` |" not in text] == []


def test_every_option_of_a_channel_is_documented() -> None:
    text = reference("settings.md").partition("## Channels")[2]
    names = [attribute.name for attribute in attrs.fields(WhatsAppSettings)]
    assert [name for name in names if f"| `{name}` |" not in text] == []


def test_every_route_is_documented() -> None:
    text = reference("http_api.md")
    assert [op.path for op in OPERATIONS if f"{op.method.upper()} {op.path}`" not in text] == []


@pytest.mark.parametrize("kind", [ResponsesBody, ResponseReply])
def test_every_field_of_a_response_is_documented(kind: type) -> None:
    text = reference("http_api.md").partition("## `POST /v1/responses`")[2]
    assert [field.name for field in attrs.fields(kind) if f"`{field.name}`" not in text] == []


def test_every_error_code_is_documented() -> None:
    text = reference("http_api.md")
    sources = [path.read_text("utf-8") for path in sorted((ROOT / "hermes_trio").rglob("*.py"))]
    codes = {code for source in sources for code in re.findall(r'code="([a-z_]+)"', source)}
    assert [code for code in sorted(codes) if f"`{code}`" not in text] == []


def test_every_way_to_end_is_documented() -> None:
    text = reference("events_and_outcomes.md")
    names = [*filter(None, map(str, [*Status, *Reason])), *(verdict.name for verdict in Verdict)]
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    "kind", [AgentContext, TurnRequest, Message, ToolCall, ToolCallHandle, Result, Usage]
)
def test_every_field_that_an_agent_meets_is_documented(kind: type) -> None:
    text = reference("agent_interface.md")
    names = [attribute.name for attribute in attrs.fields(kind)]
    assert [
        name for name in names if f"`{name}`" not in text and f"`call.{name}`" not in text
    ] == []


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"\]\((docs/[^)#]+)", PAGES[0].read_text("utf-8"))))
)
def test_links_of_the_readme_lead_somewhere(target: str) -> None:
    assert (ROOT / target).is_file()


def test_every_path_in_the_architecture_page_exists() -> None:
    text = (DOCS / "discussion" / "architecture.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*(?:\.py|/))`", text))
    roots = (ROOT / "hermes_trio", ROOT)
    assert len(paths) > 40
    assert [
        path for path in sorted(paths) if not any((root / path).exists() for root in roots)
    ] == []
