"""Bodies of the Jobs API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_trio.core.errors import ApiError
from hermes_trio.schema.jobs import JobUpdate, NewJob, parse_fire, parse_job, parse_job_update


def raw(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_a_new_job() -> None:
    plain = parse_job(raw(name=" n ", schedule="1h", prompt="p", repeat=2, unknown=1))
    assert plain == NewJob("n", "1h", "p", (), 2)
    skilled = parse_job(raw(name="n", schedule="1h", skills=["a", " a", "", "b"], deliver="local"))
    assert skilled == NewJob("n", "1h", "", ("a", "b"), 0)
    assert parse_job(raw(name="n", schedule="1h", skill="a")).skills == ("a",)
    assert parse_job(raw(name="n", schedule="1h", skills="a", prompt=None)).skills == ("a",)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": ""}, "name"),
        ({"name": "n" * 201}, "name"),
        ({"schedule": None}, "schedule"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "p" * 5001}, "prompt"),
        ({"repeat": 0}, "repeat"),
        ({"deliver": "email"}, "deliver"),
        ({"skills": ["s" * 201]}, "skills"),
        ({"skills": 3}, "skills"),
    ],
)
def test_a_new_job_that_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_job(raw(**{"name": "n", "schedule": "1h", "prompt": "p", **fields}))
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize(
    ("fields", "update"),
    [
        ({"name": " n "}, JobUpdate(name="n")),
        ({"schedule": "1h"}, JobUpdate(schedule="1h")),
        ({"prompt": None}, JobUpdate(prompt="")),
        ({"skills": ["a"]}, JobUpdate(skills=("a",))),
        ({"skill": None}, JobUpdate(skills=())),
        ({"repeat": None}, JobUpdate(max_runs=0)),
        ({"repeat": 3, "unknown": 1}, JobUpdate(max_runs=3)),
        ({"enabled": False}, JobUpdate(is_enabled=False)),
        ({"deliver": "local"}, JobUpdate()),
    ],
)
def test_changes(fields: dict[str, Any], update: JobUpdate) -> None:
    assert parse_job_update(raw(**fields)) == update


def test_no_change_is_refused() -> None:
    with pytest.raises(ApiError, match="No valid fields"):
        parse_job_update(raw(unknown=1))


def test_the_job_to_fire() -> None:
    assert parse_fire(raw(job_id="x")) == "x"
    with pytest.raises(ApiError) as refused:
        parse_fire(raw())
    assert refused.value.param == "job_id"
