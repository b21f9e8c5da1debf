"""Generated requests to every operation.

Never a 5xx, never a hang, always the envelope, never a secret in an error.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from hermes_trio.schema.openapi import OPERATIONS
from tests.robustness.mangled_requests import BODIES, SECRET, MangledRequest, RequestMangler
from tests.robustness.observed_server import ObservedServer, open_observed_server
from tests.robustness.report import CaseCounter
from tests.robustness.scenarios import HELLO, LIMITS
from tests.robustness.schedule import repeatable
from tests.robustness.streams import Dialect, read_stream
from tests.robustness.violations import VIOLATIONS, Violation
from tests.support.asgi import Exchange, HttpResponse, make_scope
from tests.support.fakes import KEY

SESSIONS = 10  # parts of the full session, so that they can run side by side
REQUESTS = 5_500  # in each of them
SHORT = 700
PATIENCE = 500.0  # seconds of the mock clock


def test_there_is_a_body_for_every_operation_that_takes_one() -> None:
    assert set(BODIES) == {(op.method, op.path) for op in OPERATIONS if op.body is not None}


async def ids_of(server: ObservedServer) -> dict[str, list[str]]:
    """One of everything, with its id."""
    client = server.harness.client
    response = (await client.send("/v1/responses", {"input": "Hi"})).json["id"]
    run = (await client.send("/v1/runs", {"input": "Hi"})).json["run_id"]
    session = (await client.send("/api/sessions", {"id": "s1"})).json["session"]["id"]
    item = {"type": "message", "role": "user", "content": "Hi"}
    conversation = (await client.send("/v1/conversations", {"items": [item]})).json["id"]
    items = (await client.get(f"/v1/conversations/{conversation}/items")).json["data"]
    scheduled = {"name": "j", "schedule": "every 2h", "prompt": "Hi"}
    job = (await client.send("/api/jobs", scheduled)).json["job"]["id"]
    return {
        "response_id": [response, run],
        "run_id": [run, response],
        "session_id": [session, "s2"],
        "conversation_id": [conversation, "c"],
        "item_id": [items[0]["id"]],
        "model_id": ["hermes-agent"],
        "job_id": [job, "0123456789ab"],
    }


async def answered(server: ObservedServer, sent: MangledRequest) -> HttpResponse:
    """The whole answer; fails if there is none."""
    headers = {**server.harness.client.headers, **sent.headers}
    exchange = Exchange(make_scope(sent.method, sent.target, headers))
    exchange.upload(sent.body)
    with trio.fail_after(PATIENCE):
        await exchange.run(server.harness.client.app)
    VIOLATIONS.record(Violation.SERVER_ERROR, exchange.answer.status >= 500)
    return exchange.answer


def check_answer(sent: MangledRequest, answer: HttpResponse) -> None:
    """What must hold of whatever is answered."""
    assert 200 <= answer.status < 500, (sent, answer)
    kind = dict(answer.raw_headers).get("content-type", "")
    if answer.status >= 400 and sent.method != "HEAD":
        check_refusal(sent, answer)
    elif kind == "application/json" and answer.body:
        json.loads(answer.body)
    elif kind == "text/event-stream" and answer.body:
        dialect = next(dialect for part, dialect in _WIRES.items() if part in sent.target)
        assert read_stream(dialect, answer.body).is_closed, (sent, answer)


_WIRES = {"/chat/completions": Dialect.CHAT, "/api/sessions": Dialect.SESSION, "/v1/runs": Dialect.RUNS, "/v1/responses": Dialect.RESPONSES}  # fmt: skip


def check_refusal(sent: MangledRequest, answer: HttpResponse) -> None:
    """In the envelope, with a text, and without anything that should not be seen."""
    error = answer.error
    assert set(error) == {"message", "type", "param", "code"}, (sent, answer)
    assert error["message"], (sent, answer)
    text = answer.body.decode("utf-8")
    assert KEY not in text, (sent, answer)
    assert SECRET not in text, (sent, answer)
    assert "Traceback" not in text, (sent, answer)


async def test_the_name_of_a_field_may_be_a_secret() -> None:
    async with open_observed_server(HELLO) as server:
        await ids_of(server)
        sent = MangledRequest(
            "PATCH",
            "/api/sessions/s1",
            {"Content-Type": "application/json"},
            json.dumps({SECRET: 1}).encode(),
        )
        answer = await answered(server, sent)
        assert answer.status == 400
        check_refusal(sent, answer)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(SESSIONS))
def test_generated_requests(part: int, full: bool, cases: CaseCounter) -> None:
    if part and not full:
        pytest.skip("only in the full session")
    statuses: Counter[str] = Counter()

    async def main() -> None:
        async with open_observed_server(HELLO, limits=LIMITS, max_runs=100) as server:
            ids = await ids_of(server)
            mangler = RequestMangler(part, lambda name: ids[name])
            for _ in range(REQUESTS if full else SHORT):
                sent = mangler.next()
                answer = await answered(server, sent)
                check_answer(sent, answer)
                statuses[f"{answer.status // 100}xx"] += 1
                server.runs.clear()
            await server.until_quiet()
            assert list(server.left_over()) == []

    with repeatable(part), capture_logs():
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert min(statuses["2xx"], statuses["4xx"]) > sum(statuses.values()) // 10, statuses
    cases.add("bad input", statuses)
