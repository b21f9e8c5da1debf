"""Generated requests to every operation: never a 5xx, never a hang, always the envelope, never a secret in an error."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from hermes_trio.schema.openapi import OPERATIONS
from tests.robustness.book import BOOK, Sought
from tests.robustness.mangling import BODIES, SECRET, Mangler, Sent
from tests.robustness.report import Tally
from tests.robustness.scenes import HELLO, LIMITS
from tests.robustness.schedule import repeatable
from tests.robustness.wires import Wire, hear
from tests.robustness.witness import House, open_house
from tests.support.asgi import Exchange, HttpResponse, make_scope
from tests.support.fakes import KEY

SESSIONS = 10  # parts of the full session, so that they can run side by side
REQUESTS = 5_500  # in each of them
SHORT = 700
PATIENCE = 500.0  # seconds of the mock clock


def test_there_is_a_body_for_every_operation_that_takes_one() -> None:
    assert set(BODIES) == {(op.method, op.path) for op in OPERATIONS if op.body is not None}


async def ids_of(house: House) -> dict[str, list[str]]:
    """One of everything, with its id."""
    client = house.harness.client
    response = (await client.send("/v1/responses", {"input": "Hi"})).json["id"]
    run = (await client.send("/v1/runs", {"input": "Hi"})).json["run_id"]
    session = (await client.send("/api/sessions", {"id": "s1"})).json["session"]["id"]
    item = {"type": "message", "role": "user", "content": "Hi"}
    conversation = (await client.send("/v1/conversations", {"items": [item]})).json["id"]
    items = (await client.get(f"/v1/conversations/{conversation}/items")).json["data"]
    return {
        "response_id": [response, run],
        "run_id": [run, response],
        "session_id": [session, "s2"],
        "conversation_id": [conversation, "c"],
        "item_id": [items[0]["id"]],
        "model_id": ["hermes-agent"],
    }


async def answered(house: House, sent: Sent) -> HttpResponse:
    """The whole answer; fails if there is none."""
    headers = {**house.harness.client.headers, **sent.headers}
    exchange = Exchange(make_scope(sent.method, sent.target, headers))
    exchange.upload(sent.body)
    with trio.fail_after(PATIENCE):
        await exchange.run(house.harness.client.app)
    BOOK.look(Sought.SERVER_ERROR, exchange.answer.status >= 500)
    return exchange.answer


def check_answer(sent: Sent, answer: HttpResponse) -> None:
    """What must hold of whatever is answered."""
    assert 200 <= answer.status < 500, (sent, answer)
    kind = dict(answer.raw_headers).get("content-type", "")
    if answer.status >= 400 and sent.method != "HEAD":
        check_refusal(sent, answer)
    elif kind == "application/json" and answer.body:
        json.loads(answer.body)
    elif kind == "text/event-stream" and answer.body:
        wire = next(wire for part, wire in _WIRES.items() if part in sent.target)
        assert hear(wire, answer.body).is_closed, (sent, answer)


_WIRES = {"/chat/completions": Wire.CHAT, "/api/sessions": Wire.SESSION, "/v1/runs": Wire.RUNS, "/v1/responses": Wire.RESPONSES}  # fmt: skip


def check_refusal(sent: Sent, answer: HttpResponse) -> None:
    """In the envelope, with a text, and without anything that should not be seen."""
    error = answer.error
    assert set(error) == {"message", "type", "param", "code"}, (sent, answer)
    assert error["message"], (sent, answer)
    text = answer.body.decode("utf-8")
    assert KEY not in text, (sent, answer)
    assert SECRET not in text, (sent, answer)
    assert "Traceback" not in text, (sent, answer)


async def test_the_name_of_a_field_may_be_a_secret() -> None:
    async with open_house(HELLO) as house:
        await ids_of(house)
        sent = Sent(
            "PATCH",
            "/api/sessions/s1",
            {"Content-Type": "application/json"},
            json.dumps({SECRET: 1}).encode(),
        )
        answer = await answered(house, sent)
        assert answer.status == 400
        check_refusal(sent, answer)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(SESSIONS))
def test_generated_requests(part: int, full: bool, tally: Tally) -> None:
    if part and not full:
        pytest.skip("only in the full session")
    statuses: Counter[str] = Counter()

    async def main() -> None:
        async with open_house(HELLO, limits=LIMITS, max_runs=100) as house:
            ids = await ids_of(house)
            mangler = Mangler(part, lambda name: ids[name])
            for _ in range(REQUESTS if full else SHORT):
                sent = mangler.next()
                answer = await answered(house, sent)
                check_answer(sent, answer)
                statuses[f"{answer.status // 100}xx"] += 1
                house.runs.clear()
            await house.until_quiet()
            assert list(house.left_over()) == []

    with repeatable(part), capture_logs():
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert min(statuses["2xx"], statuses["4xx"]) > sum(statuses.values()) // 10, statuses
    tally.add("bad input", statuses)
