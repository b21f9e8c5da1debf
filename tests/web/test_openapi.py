"""The OpenAPI document: complete, sound, and the same as in the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from hermes_trio import __version__
from hermes_trio.schema.openapi import OPERATIONS, Operation, document
from hermes_trio.web.static import ASSETS
from scripts.update_openapi import PLACE, current
from tests.support.fakes import make_harness

DOCUMENT = document(__version__)


def routes() -> set[tuple[str, str]]:
    """Method and path of every route of the API, in the document's spelling.

    The page is for people.
    """
    rules = [
        (rule.rule, method)
        for rule in make_harness().app.url_map.iter_rules()
        for method in rule.methods or ()
    ]
    rules = [
        (path, method) for path, method in rules if path != "/" and not path.startswith(ASSETS)
    ]
    named = {(method.lower(), re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path)) for path, method in rules}
    return {(method, path) for method, path in named if method not in {"head", "options"}}


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document."""
    if isinstance(value, dict):
        yield value
    for child in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from nodes(child)


async def test_every_route_is_described_and_every_description_is_a_route() -> None:
    assert {(op.method, op.path) for op in OPERATIONS} == routes()


def test_the_reference_is_up_to_date() -> None:
    written = PLACE.read_text(encoding="utf-8") if PLACE.exists() else ""
    assert written == current(), (
        f"{PLACE} is stale: run `nox -s openapi` or `python -m scripts.update_openapi`"
    )


async def test_the_document_is_served() -> None:
    answer = await make_harness().client.get("/openapi.json")
    assert answer.json == DOCUMENT
    assert answer.json["info"]["version"] == __version__


def test_references_lead_somewhere() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    named = {node["$ref"] for node in nodes(DOCUMENT) if "$ref" in node}
    assert named == {f"#/components/schemas/{name}" for name in schemas}


def test_operation_ids_are_unique() -> None:
    ids = [node["operationId"] for node in nodes(DOCUMENT["paths"]) if "operationId" in node]
    assert len(ids) == len(set(ids)) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: f"{op.method} {op.path}")
def test_path_parameters_are_declared(operation: Operation) -> None:
    assert tuple(re.findall(r"{(\w+)}", operation.path)) == operation.parameters


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: f"{op.method} {op.path}")
async def test_the_document_tells_which_routes_are_open(operation: Operation) -> None:
    client = make_harness().client
    client.headers = {}
    answer = await client.get(operation.path, method=operation.method.upper())
    assert (answer.status != 401) is operation.is_open
    described = DOCUMENT["paths"][operation.path][operation.method]
    ticket: list[dict[str, Any]] = [{"ticket": []}] if operation.takes_ticket else []
    assert described["security"] == ([] if operation.is_open else [{"key": []}, *ticket])
    assert ("401" in described["responses"]) is not operation.is_open
