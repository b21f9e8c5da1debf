"""A server beside a very simple model of it.

Whatever is done in whatever order, both tell the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
import trio
from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.records import EndedRun, LiveRun, NoRun, Retention
from hermes_trio.stores.sqlite import MemoryStore
from tests.robustness.commanded_agents import ServerLifetime, open_server_lifetime
from tests.robustness.guest_run import GuestRun
from tests.robustness.invariants import (
    check,
    faults_against_record,
    faults_of_record,
    faults_of_stream,
    stored_run_of_record,
)
from tests.robustness.report import CaseCounter
from tests.robustness.scenarios import LIMITS
from tests.robustness.schedule import repeatable
from tests.robustness.streams import Dialect, read_stream
from tests.support.asgi import JSON, Exchange, HttpResponse, make_scope

pytestmark = pytest.mark.usefixtures("write_through")

LATER = 1e12
T = TypeVar("T", bound=Callable[..., Any])
RULES: Counter[str] = Counter()  # how often each was tried


@define(eq=False)
class RunModel:
    """What is known of a run."""

    run_id: str
    text: str = ""
    status: str = "in_progress"
    calls: list[str] = field(factory=list)  # that are open
    made: int = 0
    is_asking: bool = False
    asked: int = 0
    is_detached: bool = True  # goes on when nobody listens
    listening: int = 0
    has_log: bool = True
    is_deleted: bool = False
    is_recovered: bool = False  # its process was killed
    received: bytes = b""  # the whole stream, once it was read

    @property
    def is_live(self) -> bool:
        """Whether the agent can still do something."""
        return self.status == "in_progress" and not self.is_deleted

    def end(self, status: str) -> None:
        """It ends, and everything in it."""
        self.status, self.is_asking = status, False
        self.calls.clear()


@define(eq=False)
class OpenRequest:
    """A request that is under way."""

    model: RunModel
    exchange: Exchange


def can_act(model: RunModel) -> bool:
    """Whether its agent waits for orders."""
    return model.is_live and not model.is_asking


def any_run(wanted: Callable[[RunModel], bool]) -> Callable[[T], T]:
    """A rule for machines that have such a run."""
    return precondition(lambda machine: any(map(wanted, machine.models)))


class ServerMachine(RuleBasedStateMachine):
    """Rules run one by one, each until all tasks wait."""

    runs: Bundle[RunModel] = Bundle("runs")
    listeners: Bundle[OpenRequest] = Bundle("listeners")

    def __init__(self) -> None:
        super().__init__()
        self._world = AsyncExitStack()
        self._quiet = self._enter_quiet()
        self.models: list[RunModel] = []
        self.store = MemoryStore()
        self.guest = GuestRun()
        self.guest.call(self._open)

    def _enter_quiet(self) -> Any:
        quiet = capture_logs()
        quiet.__enter__()
        return quiet

    async def _open(self) -> None:
        self._lifetimes = AsyncExitStack()
        self.lifetime: ServerLifetime = await self._lifetimes.enter_async_context(
            open_server_lifetime(self.store)
        )
        self._nursery = await self._lifetimes.enter_async_context(trio.open_nursery())

    async def _close(self) -> None:
        """As a kill does: nothing of it reaches the store any more."""
        self.lifetime.store_link.is_detached = True
        self._nursery.cancel_scope.cancel()
        await self._lifetimes.aclose()

    def teardown(self) -> None:
        self.guest.call(self._close)
        self.guest.close()
        self._quiet.__exit__(None, None, None)

    # -- requests --

    async def _start(self, method: str, path: str, body: Any = None) -> Exchange:
        scope = make_scope(method, path, {**self.lifetime.harness.client.headers, **JSON})
        exchange = Exchange(scope)
        exchange.upload(b"" if body is None else json.dumps(body).encode())
        self._nursery.start_soon(exchange.run, self.lifetime.harness.client.app)
        await wait_all_tasks_blocked()
        return exchange

    def _ask(self, method: str, path: str, body: Any = None) -> HttpResponse:
        exchange: Exchange = self.guest.call(self._start, method, path, body)
        assert exchange.over.is_set(), f"no answer to {method} {path}"
        assert exchange.answer.status < 500, exchange.answer
        return exchange.answer

    async def _order(self, model: RunModel, what: str, value: Any) -> None:
        self.lifetime.agents.by_run[model.run_id].command(what, value)
        await wait_all_tasks_blocked()

    def _do(self, model: RunModel, what: str, value: Any = None) -> None:
        self.guest.call(self._order, model, what, value)

    # -- rules --

    @rule(target=runs, kind=st.sampled_from(["/v1/runs", "/v1/responses"]))
    def start(self, kind: str) -> RunModel:
        """A run that goes on by itself."""
        RULES["start"] += 1
        told = self._ask(
            "POST", kind, {"input": "Hi", **({} if kind == "/v1/runs" else {"background": True})}
        ).json
        return self._new(told.get("run_id") or told["id"])

    @rule(target=listeners)
    def start_stream(self) -> OpenRequest:
        """A run that ends when nobody listens any more."""
        RULES["start"] += 1
        exchange: Exchange = self.guest.call(
            self._start, "POST", "/v1/responses", {"input": "Hi", "stream": True}
        )
        model = self._new(read_stream(Dialect.RESPONSES, exchange.raw).run_id)
        model.is_detached, model.listening = False, 1
        return OpenRequest(model, exchange)

    def _new(self, run_id: str) -> RunModel:
        model = RunModel(run_id)
        self.models.append(model)
        return model

    @any_run(can_act)
    @rule(number=st.integers(0, 9), text=st.text(min_size=1, max_size=5))
    def say(self, number: int, text: str) -> None:
        """An agent speaks."""
        if (model := self._pick(number, can_act)) is not None:
            RULES["say"] += 1
            self._do(model, "text", text)
            model.text += text

    @any_run(can_act)
    @rule(number=st.integers(0, 9))
    def use_tool(self, number: int) -> None:
        """An agent begins or ends a call."""
        if (model := self._pick(number, can_act)) is None:
            return
        RULES["tool"] += 1
        if model.calls:
            self._do(model, "complete", model.calls.pop())
        else:
            model.calls.append(f"c{model.made}")
            model.made += 1
            self._do(model, "start", model.calls[-1])

    @any_run(can_act)
    @rule(number=st.integers(0, 9))
    def ask(self, number: int) -> None:
        """An agent asks."""
        if (model := self._pick(number, can_act)) is not None:
            RULES["ask"] += 1
            self._do(model, "ask")
            model.is_asking = True
            model.asked += 1

    @any_run(lambda each: True)
    @rule(number=st.integers(0, 9), choice=st.sampled_from(["once", "deny"]))
    def approve(self, number: int, choice: str) -> None:
        """A client answers a run, which may not be asking."""
        if (model := self._pick(number)) is None:
            return
        RULES["approve"] += 1
        answer = self._ask("POST", f"/v1/runs/{model.run_id}/approval", {"choice": choice})
        if model.is_asking and model.is_live:
            assert answer.status == 200, answer.body
            assert self.lifetime.agents.by_run[model.run_id].decisions[-1] == choice
            model.is_asking = False
        else:
            assert answer.status == (404 if model.is_deleted else 409), answer.body

    @any_run(lambda each: each.is_asking)
    @rule()
    def time_passes(self) -> None:
        """Every question that waits is denied."""
        RULES["time passes"] += 1
        self.guest.call(self._jump)
        for model in self.models:
            if model.is_asking and model.is_live:
                assert self.lifetime.agents.by_run[model.run_id].decisions[-1] == "deny"
                model.is_asking = False

    async def _jump(self) -> None:
        self.guest.clock.jump(LIMITS.approval)
        await wait_all_tasks_blocked()

    @any_run(can_act)
    @rule(number=st.integers(0, 9), word=st.sampled_from(["finish", "fail"]))
    def finish(self, number: int, word: str) -> None:
        """An agent has its last word."""
        if (model := self._pick(number, can_act)) is not None:
            RULES["finish"] += 1
            self._do(model, word)
            is_answer = model.text or model.made
            model.end("completed" if word == "finish" and is_answer else "failed")

    @any_run(lambda each: True)
    @rule(number=st.integers(0, 9))
    def stop(self, number: int) -> None:
        """A client stops a run, which may have ended."""
        if (model := self._pick(number)) is None:
            return
        RULES["stop"] += 1
        answer = self._ask("POST", f"/v1/runs/{model.run_id}/stop")
        if model.is_deleted:
            assert answer.status == 404
        elif model.is_live:
            assert answer.json["status"] == "stopping"
            model.end("cancelled")
        else:
            assert answer.status == 200

    @rule(target=listeners, number=st.integers(0, 9))
    def read(self, number: int) -> Any:
        """One more client listens to a run from its beginning."""
        model = self._pick(number, lambda each: not each.is_deleted)
        if model is None:
            return multiple()
        RULES["read"] += 1
        exchange: Exchange = self.guest.call(self._start, "GET", f"/v1/runs/{model.run_id}/events")
        if not model.has_log and not model.is_live:
            assert exchange.answer.status == 404
            return multiple()
        assert exchange.answer.status == 200, exchange.answer
        model.listening += 1
        return OpenRequest(model, exchange)

    @rule(listener=consumes(listeners))
    def cut(self, listener: OpenRequest) -> None:
        """A client leaves."""
        RULES["cut"] += 1
        if listener.exchange.over.is_set():
            return
        self.guest.call(self._leave, listener.exchange)
        model = listener.model
        model.listening -= 1
        if model.is_live and not model.listening and not model.is_detached:
            model.end("incomplete")

    async def _leave(self, exchange: Exchange) -> None:
        exchange.disconnect()
        await wait_all_tasks_blocked()

    @any_run(lambda each: not each.is_live and not each.is_deleted)
    @rule(number=st.integers(0, 9), after=st.integers(0, 30))
    def resume(self, number: int, after: int) -> None:
        """A stream that has ended is read again, whole and from some point on.

        The same bytes, forever.
        """
        model = self._pick(number, lambda each: not each.is_live and not each.is_deleted)
        if model is None:
            return
        RULES["resume"] += 1
        path = f"/v1/runs/{model.run_id}/events"
        whole = self._ask("GET", path)
        if not model.has_log:
            assert whole.status == 404
            return
        assert model.received in {b"", whole.body}
        model.received = whole.body
        blocks = whole.body.split(b"\n\n")
        after = min(after, len(blocks) - 3)
        received = read_stream(Dialect.RUNS, whole.body)
        check(faults_of_stream(received, 0, gaps=model.is_recovered))
        last = received.numbers[after]
        assert self._ask("GET", f"{path}?last_seq={last}").body == b"\n\n".join(blocks[after + 1 :])
        record = self.guest.call(self.store.find_run, "ann", model.run_id)
        assert isinstance(record, EndedRun)
        check(faults_against_record(received, stored_run_of_record(record)))

    @any_run(lambda each: each.has_log and not each.is_live)
    @rule()
    def expire(self) -> None:
        """The logs of what has ended are forgotten."""
        RULES["expire"] += 1
        self.guest.call(self.store.purge, Retention(log_seconds=0.0), LATER)
        for model in self.models:
            model.has_log = model.has_log and model.is_live

    @any_run(lambda each: each.run_id.startswith("resp_"))
    @rule(number=st.integers(0, 9))
    def delete(self, number: int) -> None:
        """A response is deleted; one that runs is stopped first."""
        model = self._pick(number, lambda each: each.run_id.startswith("resp_"))
        if model is None:
            return
        RULES["delete"] += 1
        answer = self._ask("DELETE", f"/v1/responses/{model.run_id}")
        assert answer.status == (404 if model.is_deleted else 200), answer.body
        model.end("gone")
        model.is_deleted = True

    @any_run(lambda each: each.is_live)
    @rule()
    def restart(self) -> None:
        """The process is killed, and another one takes over."""
        RULES["restart"] += 1
        self.guest.call(self._close)
        self.guest.call(self._open)
        for model in self.models:
            if model.is_live:
                model.end("incomplete")
                model.is_recovered = True

    def _pick(self, number: int, wanted: Any = lambda each: True) -> RunModel | None:
        found = [model for model in self.models if wanted(model)]
        return found[number % len(found)] if found else None

    # -- what must hold at any time --

    @invariant()
    def both_tell_the_same(self) -> None:
        """The store holds what the model says."""
        for model in self.models:
            found = self.guest.call(self.store.find_run, "ann", model.run_id)
            match found:
                case NoRun():
                    assert model.is_deleted, model
                case LiveRun():
                    assert model.is_live, model
                case EndedRun():
                    stored = stored_run_of_record(found)
                    check(faults_of_record(stored), model)
                    assert (stored.status, stored.text) == (model.status, model.text), model

    @invariant()
    def nothing_is_left(self) -> None:
        """As many runs and slots as the model knows of."""
        live = sum(model.is_live for model in self.models)
        site = self.lifetime.harness.state
        assert (len(site.services.registry), site.admission.in_use) == (live, live)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_model(full: bool, cases: CaseCounter) -> None:
    RULES.clear()
    examples, steps = (400, 50) if full else (15, 40)
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    with repeatable():
        run_state_machine_as_test(ServerMachine, settings=limits)
    assert len(RULES) == 14, RULES  # all of them were tried
    cases.add("model", RULES)
