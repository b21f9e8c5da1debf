"""The answer to an agent's question: what is read, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_trio.core.errors import ApiError
from hermes_trio.core.events import Choice
from hermes_trio.schema.runs import ApprovalAnswer, parse_approval


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"choice": "deny"}, ApprovalAnswer(Choice.DENY, "", everything=False)),
        ({"choice": "Always", "approval_id": "q"}, ApprovalAnswer(Choice.ALWAYS, "q", everything=False)),
        ({"choice": "allow", "all": True}, ApprovalAnswer(Choice.ONCE, "", everything=True)),
        ({"choice": "session", "resolve_all": "yes"}, ApprovalAnswer(Choice.SESSION, "", everything=True)),
    ],
)
def test_answers(body: dict[str, Any], answer: ApprovalAnswer) -> None:
    assert parse_approval(json.dumps(body).encode()) == answer


@pytest.mark.parametrize("choice", ["", "perhaps", 1, None])
def test_no_answers(choice: object) -> None:
    with pytest.raises(ApiError) as refused:
        parse_approval(json.dumps({"choice": choice}).encode())
    assert (refused.value.status, refused.value.param) == (400, "choice")
