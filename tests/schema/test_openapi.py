"""The OpenAPI document as a document.

Every reference leads somewhere, every operation is described.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hermes_trio.schema.openapi import OPERATIONS, document

DOCUMENT = document("1.2.3")


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_reference_leads_to_a_schema() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(references(DOCUMENT)) <= known


def test_every_operation_has_an_answer_and_its_refusals() -> None:
    for operation in OPERATIONS:
        described = DOCUMENT["paths"][operation.path][operation.method]
        assert str(operation.success) in described["responses"]
        assert ("204" in described["responses"]) is operation.may_be_empty
        assert ("401" in described["responses"]) is not operation.is_open
        assert bool(described["security"]) is not operation.is_open
        assert ("requestBody" in described) is (operation.body is not None)


def test_operation_ids_are_unique() -> None:
    ids = [entry["operationId"] for path in DOCUMENT["paths"].values() for entry in path.values()]
    assert len(ids) == len(set(ids)) == len(OPERATIONS)


def test_the_document_is_json_and_has_its_version() -> None:
    assert json.loads(json.dumps(DOCUMENT))["info"]["version"] == "1.2.3"


def test_path_parameters_are_declared() -> None:
    described = DOCUMENT["paths"]["/v1/models/{model_id}"]["get"]["parameters"]
    assert [(entry["name"], entry["in"]) for entry in described] == [("model_id", "path")]
