"""What must hold after a request, whatever ended it."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import EndedRun
from hermes_trio.runs.spec import Persistence
from tests.robustness.invariants import (
    check,
    faults_between,
    faults_of_stream,
    kept_of_record,
    kept_of_response,
)
from tests.robustness.scenes import Scene, Script
from tests.robustness.wires import Heard, Wire, hear
from tests.robustness.witness import Bug


@frozen
class Leeway:
    """What may be otherwise when a part of ours failed. Nothing else may."""

    text: bool = False  # what was said in that very moment may be lost
    record: bool = False  # of a run that is to be stored only at its end; then its client is told
    order: bool = False  # the end may be told as a failure to store it, and be stored later


STRICT = Leeway()


async def judge(scene: Scene, script: Script, reasons: frozenset[Reason], leeway: Leeway = STRICT) -> None:
    """Look at everything that one request left.

    Raises:
        Broken: an invariant does not hold.
    """
    house, about = scene.house, (scene.route.name, script.name, scene.number, leeway)
    await house.until_quiet()
    house.store.break_at(0, Bug(), 0)  # what looks at it must not fail
    check(await house.faults(leeway.record), about)
    for exchange in scene.exchanges():
        check(() if leeway.order else exchange.faults, about)
    for run in (each for each in house.runs if each.has_begun):
        found = await house.store.find_run(run.header.principal, run.header.run_id)
        if isinstance(found, EndedRun):
            check(_faults_of_end(scene, script, found, reasons, leeway), about)
    check(_faults_of_answers(scene), about)
    await _compare_wires(scene, leeway, about)


def _faults_of_end(
    scene: Scene, script: Script, record: EndedRun, reasons: frozenset[Reason], leeway: Leeway
) -> Iterator[str]:
    own = {Reason.AGENT_ERROR} if script.end else {Reason.NONE}
    if record.outcome.reason not in own | reasons:
        yield f"ended as {record.outcome}"
    taken = scene.house.agents.taken.get(record.header.run_id, "")
    if kept_of_record(record).text != taken and not leeway.text:
        yield f"the agent was heard to say {taken!r}, the record has {kept_of_record(record).text!r}"
    told = [(str(record.outcome.status), str(record.outcome.reason))]
    if scene.house.harness.ends != told:
        yield f"counted as {scene.house.harness.ends}, stored as {told}"


def _faults_of_answers(scene: Scene) -> Iterator[str]:
    """Whatever is not a stream is JSON, and an error has its envelope."""
    for exchange in scene.exchanges():
        answer = exchange.answer
        if answer.status >= 400 and answer.body and set(answer.json) != {"error"}:
            yield f"no envelope: {answer}"


async def _compare_wires(scene: Scene, leeway: Leeway, about: object) -> None:
    for exchange in scene.exchanges():
        if exchange.wire is not None and exchange.answer.status == 200:
            heard = hear(exchange.wire, exchange.raw)
            check(faults_of_stream(heard, _first(exchange.wire)), about)
            if heard.run_id:
                check(await _against_store(scene, heard, leeway), about)
    if scene.route.wire is None and not scene.route.follow:
        check(await _faults_of_whole(scene, leeway), about)


def _first(wire: Wire) -> int:
    return 1 if wire is Wire.SESSION else 0


async def _against_store(scene: Scene, heard: Heard, leeway: Leeway) -> list[str]:
    if scene.route.keep is Persistence.NONE:
        return _against_agent(scene, heard, leeway)
    found = await scene.house.store.find_run("ann", heard.run_id)
    if isinstance(found, EndedRun):
        return list(faults_between(heard, kept_of_record(found)))
    is_told = not heard.ends or heard.ends[-1] == frozenset({"failed", "incomplete"})
    if scene.route.keep is Persistence.FINAL and leeway.record and is_told:
        return []
    return [f"a client knows of {heard.run_id}, the store does not: {found}"]


def _against_agent(scene: Scene, heard: Heard, leeway: Leeway) -> list[str]:
    """Of a run that is not stored there is only what its agent was heard to say."""
    taken = scene.house.agents.taken.get(heard.run_id, "")
    is_same = taken == heard.text if heard.ends else taken.startswith(heard.text)
    return [] if is_same or leeway.text else [f"said {taken!r}, heard {heard.text!r}"]


async def _faults_of_whole(scene: Scene, leeway: Leeway) -> list[str]:
    """An answer in one piece is the record."""
    answer = scene.exchange.answer if scene.exchange is not None else None
    if answer is None or answer.status != 200 or not answer.body:
        return []
    body = answer.json
    [run] = scene.house.runs
    found = await scene.house.store.find_run("ann", run.header.run_id)
    if not isinstance(found, EndedRun):
        has_failed = body.get("choices", [{}])[0].get("finish_reason") == "error"
        return [] if leeway.record and has_failed else [f"answered and not stored: {found}"]
    kept = kept_of_record(found)
    if body.get("object") == "response":
        shown = kept_of_response(body)
        return [] if (shown.text, shown.status) == (kept.text, kept.status) else [f"{shown} is not {kept}"]
    return []
