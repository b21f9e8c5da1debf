"""Check what must hold after a request, whatever ended it."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import EndedRun
from hermes_trio.runs.spec import Persistence
from tests.robustness.invariants import (
    check,
    faults_against_record,
    faults_of_stream,
    stored_run_of_record,
    stored_run_of_response,
)
from tests.robustness.observed_server import InjectedError
from tests.robustness.scenarios import AgentScript, RequestScenario
from tests.robustness.streams import Dialect, ReceivedStream, read_stream


@frozen
class Tolerance:
    """Deviations that are allowed when an internal part failed. No others are."""

    text: bool = False  # what was said in that very moment may be lost
    record: bool = False  # of a run that is to be stored only at its end; then its client is told
    order: bool = False  # the end may be told as a failure to store it, and be stored later


STRICT = Tolerance()


async def check_scenario(
    scenario: RequestScenario,
    script: AgentScript,
    reasons: frozenset[Reason],
    tolerance: Tolerance = STRICT,
) -> None:
    """Check everything that one request left.

    Raises:
        Broken: an invariant does not hold.
    """
    server, about = scenario.server, (scenario.route.name, script.name, scenario.number, tolerance)
    await server.until_quiet()
    server.store.break_at(0, InjectedError(), 0)  # what looks at it must not fail
    check(await server.faults(tolerance.record), about)
    for exchange in scenario.exchanges():
        check(() if tolerance.order else exchange.faults, about)
    for run in (each for each in server.runs if each.has_begun):
        found = await server.store.find_run(run.header.principal, run.header.run_id)
        if isinstance(found, EndedRun):
            check(_faults_of_end(scenario, script, found, reasons, tolerance), about)
    check(_faults_of_answers(scenario), about)
    await _compare_streams(scenario, tolerance, about)


def _faults_of_end(
    scenario: RequestScenario,
    script: AgentScript,
    record: EndedRun,
    reasons: frozenset[Reason],
    tolerance: Tolerance,
) -> Iterator[str]:
    own = {Reason.AGENT_ERROR} if script.end else {Reason.NONE}
    if record.outcome.reason not in own | reasons:
        yield f"ended as {record.outcome}"
    accepted_text = scenario.server.agents.accepted_text.get(record.header.run_id, "")
    if stored_run_of_record(record).text != accepted_text and not tolerance.text:
        yield f"the agent was heard to say {accepted_text!r}, the record has {stored_run_of_record(record).text!r}"
    told = [(str(record.outcome.status), str(record.outcome.reason))]
    if scenario.server.harness.ends != told:
        yield f"counted as {scenario.server.harness.ends}, stored as {told}"


def _faults_of_answers(scenario: RequestScenario) -> Iterator[str]:
    """Check that every reply that is not a stream is JSON, and that errors have the envelope."""
    for exchange in scenario.exchanges():
        answer = exchange.answer
        if answer.status >= 400 and answer.body and set(answer.json) != {"error"}:
            yield f"no envelope: {answer}"


async def _compare_streams(scenario: RequestScenario, tolerance: Tolerance, about: object) -> None:
    for exchange in scenario.exchanges():
        if exchange.dialect is not None and exchange.answer.status == 200:
            received = read_stream(exchange.dialect, exchange.raw)
            check(faults_of_stream(received, _first(exchange.dialect)), about)
            if received.run_id:
                check(await _against_store(scenario, received, tolerance), about)
    if scenario.route.dialect is None and not scenario.route.follow:
        check(await _faults_of_whole(scenario, tolerance), about)


def _first(dialect: Dialect) -> int:
    return 1 if dialect is Dialect.SESSION else 0


async def _against_store(
    scenario: RequestScenario, received: ReceivedStream, tolerance: Tolerance
) -> list[str]:
    if scenario.route.keep is Persistence.NONE:
        return _against_agent(scenario, received, tolerance)
    found = await scenario.server.store.find_run("ann", received.run_id)
    if isinstance(found, EndedRun):
        return list(faults_against_record(received, stored_run_of_record(found)))
    is_told = not received.ends or received.ends[-1] == frozenset({"failed", "incomplete"})
    if scenario.route.keep is Persistence.FINAL and tolerance.record and is_told:
        return []
    return [f"a client knows of {received.run_id}, the store does not: {found}"]


def _against_agent(
    scenario: RequestScenario, received: ReceivedStream, tolerance: Tolerance
) -> list[str]:
    """Check a run that is not stored against the recorded events of its agent."""
    accepted_text = scenario.server.agents.accepted_text.get(received.run_id, "")
    is_same = (
        accepted_text == received.text if received.ends else accepted_text.startswith(received.text)
    )
    return [] if is_same or tolerance.text else [f"said {accepted_text!r}, heard {received.text!r}"]


async def _faults_of_whole(scenario: RequestScenario, tolerance: Tolerance) -> list[str]:
    """Check that a reply that is not streamed equals the record."""
    answer = scenario.exchange.answer if scenario.exchange is not None else None
    if answer is None or answer.status != 200 or not answer.body:
        return []
    body = answer.json
    [run] = scenario.server.runs
    found = await scenario.server.store.find_run("ann", run.header.run_id)
    if not isinstance(found, EndedRun):
        has_failed = body.get("choices", [{}])[0].get("finish_reason") == "error"
        return [] if tolerance.record and has_failed else [f"answered and not stored: {found}"]
    stored = stored_run_of_record(found)
    if body.get("object") == "response":
        shown = stored_run_of_response(body)
        return (
            []
            if (shown.text, shown.status) == (stored.text, stored.status)
            else [f"{shown} is not {stored}"]
        )
    return []
