"""Every possible turn survives encoding, and a store behaves like a simple model of it."""

from __future__ import annotations

from typing import Any

import attrs
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.events import Event
from hermes_trio.core.messages import transcript
from hermes_trio.core.outcome import Outcome, Reason, Status
from hermes_trio.core.records import EndedRun, LiveRun, NoRun, Ownership, RunHeader, Stamp
from hermes_trio.core.turn import Turn
from hermes_trio.stores.base import Store
from hermes_trio.stores.codec import RunRow, decode_header, decode_run, encode_header, encode_run
from hermes_trio.stores.sqlite import open_memory
from tests.stores.samples import KEEP_ALL, ended, header, history_texts, texts_of
from tests.stores.test_codec import messages, parts, text, values
from tests.support.strategies import last_words, scripts
from tests.support.turn_rules import feed

ids = st.text(max_size=5)
numbers = st.floats(allow_nan=False)
headers = st.builds(
    RunHeader,
    ids,
    st.builds(Stamp, ids, numbers, text),
    ids,
    ids,
    st.lists(messages, max_size=3).map(tuple),
    ids,
    ids,
    text,
    st.booleans(),
    st.dictionaries(text, values, max_size=3),
    parts,
)
outcomes = st.builds(Outcome, st.sampled_from(Status), st.sampled_from(Reason), session_id=ids)


@settings(deadline=None)
@given(headers)
def test_a_header_round_trips(given_header: RunHeader) -> None:
    assert decode_header(encode_header(given_header), "x") == given_header


def turn_of(script: list[Event], last: Event) -> Turn:
    """Return the ended run of a scripted turn."""
    turn = Turn()
    feed(turn, [*script, last])
    return turn


@settings(deadline=None)
@given(scripts, last_words, headers, numbers)
def test_a_run_round_trips(
    script: list[Event], last: Event, given_header: RunHeader, after: float
) -> None:
    turn = turn_of(script, last)
    run = EndedRun(given_header, turn.items, turn.outcome, after)
    written = encode_run(run)
    row = RunRow(False, written.header, written.items, written.outcome.encode("ascii"), after)
    assert decode_run(row, "x") == run


@settings(deadline=None, max_examples=40)
@given(scripts, last_words, outcomes)
def test_a_run_round_trips_through_a_store(
    script: list[Event], last: Event, outcome: Outcome
) -> None:
    trio.run(_check_stored, EndedRun(header("a"), turn_of(script, last).items, outcome, 1.0))


async def _check_stored(run: EndedRun) -> None:
    async with open_memory() as store:
        await store.end_run(run)
        assert await store.find_run("ann", "a") == run
        said = (*run.header.messages, *transcript(run.items))
        assert await store.load_history("ann", "a") == said
        assert await store.load_messages("ann", run.outcome.session_id or "s") == said


@attrs.define
class Known:
    """A run in the model."""

    parent: str
    is_live: bool = True
    is_hidden: bool = False
    used: float = 0.0


class Model:
    """The simplest implementation of the contract for runs."""

    def __init__(self) -> None:
        self.runs: dict[str, Known] = {}
        self.gone: set[str] = set()

    def begin(self, run_id: str, parent: str) -> None:
        if run_id not in self.gone:
            self.runs.setdefault(run_id, Known(parent))

    def end(self, run_id: str, parent: str, at: float) -> None:
        self.begin(run_id, parent)
        known = self.runs.get(run_id)
        if known is not None and known.is_live:
            known.is_live, known.used = False, at

    def look(self, run_id: str, at: float) -> None:
        if self.state(run_id) is not NoRun:
            self.runs[run_id].used = at

    def state(self, run_id: str) -> type[LiveRun | EndedRun | NoRun]:
        known = self.runs.get(run_id)
        if known is None or known.is_hidden:
            return NoRun
        return LiveRun if known.is_live else EndedRun

    def delete(self, run_id: str) -> bool:
        if self.state(run_id) is not EndedRun:
            return False
        self.runs[run_id].is_hidden = True
        while idle := self._unneeded():
            self.gone |= idle
            self.runs = {name: known for name, known in self.runs.items() if name not in idle}
        return True

    def _unneeded(self) -> set[str]:
        parents = {known.parent for known in self.runs.values()}
        return {
            name for name, known in self.runs.items() if known.is_hidden and name not in parents
        }

    def forget(self, keep: int) -> int:
        kept = [name for name in self.runs if self.state(name) is EndedRun]
        surplus = sorted(kept, key=lambda name: self.runs[name].used)[: max(0, len(kept) - keep)]
        return sum(map(self.delete, surplus))

    def history(self, run_id: str) -> list[str]:
        if run_id not in self.runs:
            return []
        known = self.runs[run_id]
        return [*self.history(known.parent), *texts_of(run_id)[: 1 if known.is_live else 2]]


# Few runs, so that they meet; a run continues one with a smaller number, or none.
names = [f"r{number}" for number in range(7)]
links = st.integers(0, 6).flatmap(
    lambda child: st.tuples(st.just(child), st.integers(-1, child - 1))
)
steps = st.one_of(
    st.tuples(st.sampled_from(["begin", "end", "end"]), links),
    st.tuples(st.sampled_from(["look", "delete"]), st.sampled_from(names)),
    st.tuples(st.just("forget"), st.integers(1, 5)),
)


@settings(deadline=None, max_examples=80)
@given(st.lists(steps, max_size=30))
def test_runs_live_and_die_as_the_model_says(script: list[tuple[str, Any]]) -> None:
    trio.run(_follow, script)


async def _follow(script: list[tuple[str, Any]]) -> None:
    model = Model()
    async with open_memory() as store:
        for at, (action, value) in enumerate(script, 1):
            await _step(store, model, action, value, float(at))
            for name in names:
                assert await history_texts(store, name) == model.history(name)
        for name in names:
            assert isinstance(await store.find_run("ann", name), model.state(name))


async def _step(store: Store, model: Model, action: str, value: Any, at: float) -> None:
    if action in {"begin", "end"}:
        child, parent = names[value[0]], names[value[1]] if value[1] >= 0 else ""
        await _begin_or_end(store, model, action, (child, parent), at)
    elif action == "look":
        assert isinstance(await store.find_run("ann", value), model.state(value))
        model.look(value, 1e9 + at)  # the store looks at the clock; ends are given small times here
    elif action == "delete":
        assert await store.delete_run("ann", value) == model.delete(value)
    else:
        found = await store.purge(attrs.evolve(KEEP_ALL, max_runs=value), at)
        assert found.runs == model.forget(value)


async def _begin_or_end(
    store: Store, model: Model, action: str, link: tuple[str, str], at: float
) -> None:
    child, parent = link
    if action == "begin":
        await store.begin_run(header(child, at, parent=parent), Ownership("me"))
        model.begin(child, parent)
    else:
        await store.end_run(ended(child, at, parent=parent))
        model.end(child, parent, at)
