"""Contract for sessions: creation, lists, updates, forks, deletion."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from hermes_trio.core.approvals import Grant
from hermes_trio.core.messages import CallItem, Message, MessageItem, Usage
from hermes_trio.core.outcome import Outcome, Status
from hermes_trio.core.records import EndedRun, LiveRun, NoRun, Ownership
from hermes_trio.core.sessions import (
    BRANCHED,
    COMPRESSED,
    Counters,
    MessagePage,
    MessageSearch,
    NoSession,
    Session,
    SessionBusy,
    SessionChange,
    SessionDeleted,
    SessionExists,
    SessionFork,
    SessionPage,
    SessionQuery,
    TitleTaken,
)
from hermes_trio.core.state import CallState
from hermes_trio.stores.base import Store, StoreError
from tests.stores.helpers import completed_runs
from tests.stores.samples import (
    COMPLETED,
    ODD,
    RICH,
    batch,
    begin_and_log,
    conversation,
    end_chain,
    ended,
    ended_with_messages,
    header,
    history_texts,
    idempotency_record,
    item,
    item_ids,
    texts_of,
)

ALL = SessionQuery(limit=1000, include_children=True)


def session(session_id: str = "s", at: float = 1.0, /, **changes: Any) -> Session:
    """Return a session as a client creates it."""
    return attrs.evolve(Session("ann", session_id, "sessions", at, at), **changes)


async def ids(store: Store, query: SessionQuery = SessionQuery(), principal: str = "ann") -> str:  # noqa: B008
    """Return the ids of a page in order."""
    return "".join(
        each.session_id for each in (await store.list_sessions(principal, query)).sessions
    )


async def found(store: Store, session_id: str = "s", principal: str = "ann") -> Session:
    """Return an existing session."""
    one = await store.find_session(principal, session_id)
    assert isinstance(one, Session)
    return one


async def fork(store: Store, source: str = "s", child: str = "child", title: str = "") -> Session:
    """Fork a session."""
    made = await store.fork_session(SessionFork("ann", source, child, title, 50.0))
    assert isinstance(made, Session)
    return made


class SessionContract:
    """Sessions created by clients and by runs."""

    async def test_a_session_round_trips(self, store: Store) -> None:
        made = session(model="m", title="T", system_prompt=ODD, parent="p", preview="x")
        assert await store.create_session(made) == made
        assert await store.find_session("ann", "s") == made
        assert await store.list_sessions("ann", ALL) == SessionPage((made,), has_more=False)

    async def test_another_principal_does_not_see_it(self, store: Store) -> None:
        await store.create_session(session(title="T"))
        for who in ("bob", "", "ANN"):
            assert await store.find_session(who, "s") == NoSession()
            assert await store.list_sessions(who, ALL) == SessionPage((), has_more=False)
            assert await store.list_messages(who, "s") == MessagePage((), has_more=False)
            change = SessionChange(sets_title=True, title="other", end_reason="done")
            assert await store.update_session(who, "s", change, 2.0) == NoSession()
            assert await store.fork_session(SessionFork(who, "s", "child", "", 2.0)) == NoSession()
            assert await store.delete_session(who, "s") == NoSession()
        assert await found(store) == session(title="T")
        assert isinstance(await store.create_session(session(title="T", principal="bob")), Session)

    async def test_an_id_is_unique(self, store: Store) -> None:
        await store.create_session(session())
        await store.end_run(ended("a", session_id="run's"))
        for session_id in ("s", "run's"):
            assert await store.create_session(session(session_id, title="T")) == SessionExists()
        assert isinstance(await store.create_session(session("free", title="T")), Session)

    async def test_a_title_is_unique(self, store: Store) -> None:
        await store.create_session(session("a", title="T"))
        assert await store.create_session(session("b", title="T")) == TitleTaken()
        assert await store.find_session("ann", "b") == NoSession()
        for session_id in "cd":
            assert isinstance(await store.create_session(session(session_id)), Session)

    async def test_one_of_many_concurrent_creations_succeeds(self, store: Store) -> None:
        made: list[object] = []

        async def create() -> None:
            made.append(await store.create_session(session()))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(create)
        assert made.count(session()) == 1
        assert made.count(SessionExists()) == 9

    @pytest.mark.parametrize(
        "change", [{"session_id": "\ud800"}, {"title": "\ud800"}, {"principal": "\ud800"}]
    )
    async def test_names_outside_unicode_are_refused(
        self, store: Store, change: dict[str, Any]
    ) -> None:
        with pytest.raises(StoreError, match="Unicode"):
            await store.create_session(attrs.evolve(session(), **change))

    async def test_a_run_in_progress_shows_its_session(self, store: Store) -> None:
        await store.begin_run(header("a", 3.0), Ownership("me"))
        shown = session("s", 3.0, kind="responses", model="m", preview="ask a")
        assert await store.list_sessions("ann", SessionQuery()) == SessionPage(
            (shown,), has_more=False
        )
        await store.begin_run(header("a", 9.0), Ownership("me"))
        assert await found(store) == shown

    async def test_a_run_that_ends_is_counted_once(self, store: Store) -> None:
        call = CallItem("c", "t", {}, CallState.COMPLETED, "r", False, 0.0)
        usage = Usage(1, 2, 3, 4, 5)
        run = EndedRun(
            header("a"), (call, MessageItem("x")), Outcome(Status.COMPLETED, usage=usage), 0.5
        )
        await store.begin_run(run.header, Ownership("me"))
        for _ in range(2):
            await store.end_run(run)
        assert (await found(store)).counters == Counters(4, 1, 1, 1, 2, 3, 4, 5)
        await store.end_run(attrs.evolve(run, header=header("b")))
        assert (await found(store)).counters == Counters(8, 2, 2, 2, 4, 6, 8, 10)
        assert (await found(store)).updated_at == 1.5

    async def test_huge_numbers(self, store: Store) -> None:
        for run_id in "abc":
            run = attrs.evolve(
                ended(run_id), outcome=Outcome(Status.COMPLETED, usage=Usage(10**30, -5))
            )
            await store.end_run(run)
        assert (await found(store)).counters == Counters(6, 0, 3, 3 * 2**40, 0)

    async def test_a_run_keeps_what_a_session_has_and_adds_what_it_lacks(
        self, store: Store
    ) -> None:
        await store.create_session(session(title="T", system_prompt="P"))
        await store.begin_run(header("a", 2.0), Ownership("me"))
        await store.end_run(ended("b", 3.0, messages=(Message("user", "later"),)))
        shown = await found(store)
        assert (shown.kind, shown.title, shown.system_prompt) == ("sessions", "T", "P")
        assert (shown.model, shown.preview, shown.created_at, shown.updated_at) == (
            "m",
            "ask a",
            1.0,
            3.5,
        )

    @pytest.mark.parametrize(
        ("content", "shown"),
        [
            ("a\n\tb  c", "a b c"),
            ("x" * 61, "x" * 59 + "…"),
            ("x" * 60, "x" * 60),
            (({"type": "text", "text": "look"}, {"type": "image_url"}), "look"),
            ("\ud800", "\\ud800"),
            ("", ""),
        ],
    )
    async def test_a_preview_is_one_short_line(
        self, store: Store, content: Any, shown: str
    ) -> None:
        await store.end_run(
            ended_with_messages("a", Message("system", "no"), Message("user", content))
        )
        assert (await found(store)).preview == shown

    async def test_what_a_client_asked_not_to_store_is_in_no_session(self, store: Store) -> None:
        run = ended("a", request={"store": False})
        await store.begin_run(run.header, Ownership("me"))
        await store.end_run(run)
        assert await store.find_run("ann", "a") == run
        assert await ids(store, ALL) == ""
        assert await store.load_messages("ann", "s") == ()

    async def test_the_most_recently_active_session_is_first(self, store: Store) -> None:
        for number, session_id in enumerate("abcd"):
            await store.create_session(session(session_id, float(number)))
        await store.end_run(ended("r", 9.0, session_id="b"))
        assert await ids(store) == "bdca"
        assert await ids(store, SessionQuery(limit=2)) == "bd"
        assert await ids(store, SessionQuery(limit=2, offset=1)) == "dc"
        assert await ids(store, SessionQuery(kind="responses")) == ""
        assert await ids(store, SessionQuery(kind="sessions", offset=3)) == "a"
        for limit, has_more in ((3, True), (4, False), (10**30, False)):
            assert (await store.list_sessions("ann", SessionQuery(limit))).has_more is has_more

    async def test_a_compressed_session_is_listed_as_its_successor(self, store: Store) -> None:
        moved = attrs.evolve(COMPLETED, session_id="b")
        await store.end_run(ended("1", session_id="a"))
        await store.end_run(attrs.evolve(ended("2", 2.0, session_id="a"), outcome=moved))
        assert await ids(store) == "b"
        assert await ids(store, ALL) == "ba"
        assert (await found(store, "b")).parent == "a"
        before = await found(store, "a")
        assert (before.ended_at, before.end_reason, before.counters.api_call_count) == (
            2.5,
            COMPRESSED,
            1,
        )

    async def test_a_title_can_be_set_and_removed(self, store: Store) -> None:
        for session_id in "ab":
            await store.create_session(session(session_id, title=session_id))
        same = SessionChange(sets_title=True, title="a")
        assert await store.update_session("ann", "a", same, 2.0) == session("a", title="a")
        assert await store.update_session("ann", "b", same, 2.0) == TitleTaken()
        none = SessionChange(sets_title=True)
        assert await store.update_session("ann", "a", none, 2.0) == session("a")
        assert await store.update_session("ann", "b", same, 2.0) == session("b", title="a")

    async def test_the_first_end_reason_wins(self, store: Store) -> None:
        await store.create_session(session())
        over = session(ended_at=5.0, end_reason="done")
        assert await store.update_session("ann", "s", SessionChange(end_reason="done"), 5.0) == over
        assert await store.update_session("ann", "s", SessionChange(end_reason="more"), 6.0) == over
        assert await store.update_session("ann", "s", SessionChange(), 7.0) == over

    async def test_an_update_is_atomic(self, store: Store) -> None:
        for session_id in "ab":
            await store.create_session(session(session_id, title=session_id))
        change = SessionChange(sets_title=True, title="b", end_reason="done")
        assert await store.update_session("ann", "a", change, 2.0) == TitleTaken()
        assert await found(store, "a") == session("a", title="a")

    async def test_messages_come_page_by_page(self, store: Store) -> None:
        await store.end_run(ended_with_messages("a", *RICH))
        await store.end_run(ended("b", 7.0))
        whole = await store.list_messages("ann", "s")
        assert [each.number for each in whole.messages] == [*range(1, 8)]
        assert tuple(each.message for each in whole.messages) == await store.load_messages(
            "ann", "s"
        )
        assert [each.run_id for each in whole.messages] == ["a"] * 5 + ["b"] * 2
        assert {each.at for each in whole.messages} == {1.5, 7.5}
        assert not whole.has_more
        for after in range(8):
            page = await store.list_messages("ann", "s", after, 3)
            assert page == MessagePage(whole.messages[after : after + 3], has_more=after + 3 < 7)
        assert await store.list_messages("ann", "s", 10**30, 10**30) == MessagePage(
            (), has_more=False
        )


class PinContract:
    """Pinned sessions."""

    async def test_a_pin_is_set_and_removed(self, store: Store) -> None:
        await store.create_session(session(title="T"))
        pinned = session(title="T", is_pinned=True)
        change = SessionChange(pins=True)
        assert await store.update_session("ann", "s", change, 2.0) == pinned
        assert await store.update_session("ann", "s", SessionChange(), 2.0) == pinned
        assert (await store.list_sessions("ann", ALL)).sessions == (pinned,)
        change = SessionChange(pins=False)
        assert await store.update_session("ann", "s", change, 2.0) == session(title="T")


async def search(store: Store, *words: str, **more: Any) -> list[tuple[str, list[int]]]:
    """Return the numbers of the messages that a search finds, by session."""
    page = await store.search_messages("ann", MessageSearch(words, **more))
    return [(each.session_id, [hit.number for hit in hits]) for each, hits in page.found]


class SearchContract:
    """Search for messages."""

    async def test_every_word_must_be_there_in_any_case(self, store: Store) -> None:
        await store.end_run(
            ended_with_messages("a", Message("user", "Plant the RED plum 50%_ off"))
        )
        await store.end_run(ended_with_messages("b", Message("user", 'Äpfel, "rot"\nund\t😀 süß')))
        assert await search(store, "plum", "red") == [("s", [1])]
        assert await search(store, "plum", "blue") == []
        for word in ("äpfel", '"rot"', "und", "😀", "süß", "apfel", "0%_", "u00e4", "role"):
            expected = {"0%_": [1]}.get(word, [2] if word not in ("apfel", "u00e4", "role") else [])
            assert await search(store, word) == ([("s", expected)] if expected else []), word

    async def test_only_the_principals_own_latest_matches(self, store: Store) -> None:
        said = [Message("user", f"plum {number}") for number in range(5)]
        await store.end_run(ended_with_messages("a", *said))
        await store.end_run(ended_with_messages("b", said[0], principal="bob"))
        assert await search(store, "plum") == [("s", [5, 4, 3])]
        assert await search(store, "plum", "0") == [("s", [1])]

    async def test_it_goes_on_where_it_stopped(self, store: Store) -> None:
        for number in range(4):
            text = "plum" if number != 2 else "pear"
            asked = (Message("user", text),)
            await store.end_run(
                ended(f"r{number}", 10.0 + number, session_id=f"s{number}", messages=asked)
            )
        page = await store.search_messages("ann", MessageSearch(("plum",), limit=1))
        assert ([each.session_id for each, _ in page.found], page.searched) == (["s3"], 1)
        assert page.has_more
        page = await store.search_messages("ann", MessageSearch(("plum",), 1, sessions=2))
        assert ([each.session_id for each, _ in page.found], page.searched) == (["s1"], 2)
        page = await store.search_messages("ann", MessageSearch(("plum",), 3, sessions=2))
        assert ([each.session_id for each, _ in page.found], page.searched) == (["s0"], 1)
        assert not page.has_more
        assert await search(store, "plum", offset=10**30) == []


class ForkContract:
    """Forks."""

    async def test_a_fork_has_the_whole_transcript(self, store: Store) -> None:
        await store.create_session(session(model="x", title="T", system_prompt="P"))
        await end_chain(store, "a", "b")
        source = await found(store)
        child = await fork(store)
        counters = Counters(message_count=4)
        assert child == session(
            "child", 50.0, model="x", title="T #2", system_prompt="P", preview="ask a", parent="s",
            counters=counters,
        )  # fmt: skip
        assert await found(store, "child") == child
        assert await found(store) == attrs.evolve(source, ended_at=50.0, end_reason=BRANCHED)
        assert await completed_runs(store, "child") == ["a", "b"] == await completed_runs(store)
        before, after = (
            await store.list_messages("ann", "s"),
            await store.list_messages("ann", "child"),
        )
        assert before == after
        assert await ids(store) == "childs"

    async def test_a_fork_of_the_beginning(self, store: Store) -> None:
        await store.create_session(session(model="x", title="T"))
        await store.end_run(ended_with_messages("a", *RICH))
        await store.end_run(ended("b", 7.0))
        whole = (await store.list_messages("ann", "s")).messages
        calls = sum(len(each.message.tool_calls) for each in whole)
        assert calls > 0
        for before, child in ((1, "none"), (6, "some"), (8, "all"), (10**30, "more")):
            request = SessionFork("ann", "s", child, "", 50.0, before, "y")
            made = await store.fork_session(request)
            assert isinstance(made, Session)
            kept = min(before - 1, 7)
            assert (made.model, made.forked_messages, made.counters) == (
                "y",
                kept,
                Counters(message_count=kept, tool_call_count=calls if kept > 4 else 0),
            )
            assert made.preview == ("" if kept == 0 else (await found(store)).preview)
            assert (await store.list_messages("ann", child)).messages == whole[:kept]
        assert await ids(store, SessionQuery(parent="s")) == "somenonemoreall"
        assert await ids(store, SessionQuery(parent="some")) == ""

    async def test_what_is_said_after_a_fork_is_said_in_one_of_them(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await fork(store)
        await store.end_run(ended("b", 60.0))
        await store.end_run(ended("c", 70.0, session_id="child"))
        assert await completed_runs(store) == ["a", "b"]
        assert await completed_runs(store, "child") == ["a", "c"]
        page = await store.list_messages("ann", "child")
        assert [each.run_id for each in page.messages] == ["a", "a", "c", "c"]

    async def test_a_fork_duplicates_no_history(self, store: Store) -> None:
        await end_chain(store, "a", "b")
        await fork(store)
        await fork(store, "child", "grandchild")
        assert await history_texts(store, "b") == texts_of("a", "b")
        await store.end_run(ended("c", 60.0, parent="b"))
        assert await history_texts(store, "c") == texts_of("a", "b", "c")

    async def test_a_fork_uses_no_run_again(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await fork(store)
        await store.delete_session("ann", "s")
        await store.begin_run(header("a", session_id="new"), Ownership("me"))
        assert isinstance(await store.find_run("ann", "a"), LiveRun)

    async def test_a_run_of_the_sessions_api_continues_its_session(self, store: Store) -> None:
        await end_chain(store, "a", "b")
        await fork(store)
        await store.end_run(ended("c", 60.0, kind="sessions", session_id="child"))
        await store.begin_run(
            header("d", 70.0, kind="sessions", session_id="child"), Ownership("me")
        )
        assert await history_texts(store, "c") == texts_of("a", "b", "c")
        assert await history_texts(store, "d") == [*texts_of("a", "b", "c"), "ask d"]
        await store.end_run(ended("e", 80.0, parent="c", session_id="elsewhere"))
        assert await history_texts(store, "e") == texts_of("a", "b", "c", "e")
        assert await store.delete_run("ann", "c")
        assert await history_texts(store, "e") == texts_of("a", "b", "c", "e")

    async def test_refusals_change_nothing(self, store: Store) -> None:
        await store.create_session(session(title="T"))
        await store.create_session(session("other", title="U"))
        assert await store.fork_session(SessionFork("ann", "none", "child", "", 2.0)) == NoSession()
        for child in ("s", "other"):
            assert (
                await store.fork_session(SessionFork("ann", "s", child, "", 2.0)) == SessionExists()
            )
        assert await store.fork_session(SessionFork("ann", "s", "child", "U", 2.0)) == TitleTaken()
        assert await found(store) == session(title="T")
        assert await ids(store, ALL) == "sother"

    async def test_titles_are_numbered(self, store: Store) -> None:
        await store.create_session(session(title="T"))
        await store.create_session(session("taken", title="T #3"))
        titles = [(await fork(store, "s", f"child-{n}")).title for n in range(3)]
        assert titles == ["T #2", "T #4", "T #5"]
        assert (await fork(store, "child-1", "of a child")).title == "T #6"
        assert (await fork(store, "s", "named", "mine")).title == "mine"

    async def test_a_long_title_makes_room_for_its_number(self, store: Store) -> None:
        await store.create_session(session(title="x" * 100))
        titles = [(await fork(store, "s", f"child-{n}")).title for n in range(10)]
        assert titles[0] == "x" * 97 + " #2"
        assert titles[8:] == ["x" * 96 + " #10", "x" * 96 + " #11"]

    async def test_a_fork_of_an_untitled_session_is_untitled(self, store: Store) -> None:
        await store.create_session(session())
        assert [(await fork(store, "s", child)).title for child in ("a", "b")] == ["", ""]

    async def test_a_session_that_ended_keeps_its_reason(self, store: Store) -> None:
        await store.create_session(session())
        await store.update_session("ann", "s", SessionChange(end_reason="done"), 5.0)
        child = await fork(store)
        assert (child.ended_at, child.end_reason) == (0.0, "")
        assert (await found(store)).end_reason == "done"


class DeleteSessionContract:
    """Deletion of sessions."""

    async def test_its_approvals_go_with_it(self, store: Store) -> None:
        await store.end_run(ended("a", session_id="s"))
        always, other = Grant("ann", "", "rm", 1.0), Grant("ann", "t", "rm", 1.0)
        await store.grant([always, Grant("ann", "s", "rm", 1.0), other])
        await store.delete_session("ann", "s")
        assert set(await store.list_grants("ann")) == {always, other}

    async def test_a_deleted_session_leaves_nothing(self, store: Store) -> None:
        await store.create_session(session(title="T"))
        await store.claim_key(idempotency_record("a"))
        await begin_and_log(store, "a")
        await store.end_run(ended("a"), [batch("a", 2)])
        await store.end_run(ended("b", 2.0, parent="a"))
        assert await store.delete_session("ann", "s") == SessionDeleted()
        assert await store.delete_session("ann", "s") == NoSession()
        assert await store.find_session("ann", "s") == NoSession()
        assert await store.load_messages("ann", "s") == ()
        for run_id in "ab":
            assert await store.find_run("ann", run_id) == NoRun()
            assert await store.read_log("ann", run_id, 0) == ()
            assert await store.load_history("ann", run_id) == ()
        assert (await store.claim_key(idempotency_record("x"))).run_id == "x"
        assert isinstance(await store.create_session(session(title="T")), Session)

    async def test_a_run_in_progress_prevents_deletion(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await store.begin_run(header("b"), Ownership("me"))
        assert await store.delete_session("ann", "s") == SessionBusy()
        assert await completed_runs(store) == ["a"]
        await store.end_run(ended("b"))
        assert await store.delete_session("ann", "s") == SessionDeleted()

    async def test_others_and_other_sessions_are_kept(self, store: Store) -> None:
        for who in ("ann", "bob"):
            for session_id in ("s", "other"):
                await store.end_run(
                    ended(f"run in {session_id}", principal=who, session_id=session_id)
                )
        await store.delete_session("ann", "s")
        for who, session_id in (("ann", "other"), ("bob", "s"), ("bob", "other")):
            assert await completed_runs(store, session_id, who) == [f"run in {session_id}"]
            assert isinstance(await store.find_run(who, f"run in {session_id}"), EndedRun)
            await found(store, session_id, who)

    async def test_branches_and_conversations_are_kept(self, store: Store) -> None:
        await store.save_conversation(conversation())
        await store.end_run(ended("a", conversation="c"), items=[item("i")])
        await fork(store)
        await store.delete_session("ann", "s")
        assert await completed_runs(store, "child") == ["a"]
        assert await item_ids(store) == ["i"]
        assert await ids(store) == "child"

    async def test_what_continues_it_elsewhere_has_its_own_words_left(self, store: Store) -> None:
        await store.end_run(ended("a"))
        await store.end_run(ended("b", 2.0, parent="a", session_id="elsewhere"))
        assert await history_texts(store, "b") == texts_of("a", "b")
        await store.delete_session("ann", "s")
        assert await history_texts(store, "b") == texts_of("b")

    async def test_one_of_many_concurrent_deletions_succeeds(self, store: Store) -> None:
        answers: list[object] = []
        await store.end_run(ended("a"))

        async def delete() -> None:
            answers.append(await store.delete_session("ann", "s"))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(delete)
        assert answers.count(SessionDeleted()) == 1
        assert answers.count(NoSession()) == 9
