"""The chats of a channel: turns in order, their answers, progress, limits, crashes and failures."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.channels import chats as chats_module
from hermes_trio.channels.chats import BUSY, FULL, INTERRUPTED, TEXT_ONLY
from hermes_trio.channels.turns import FAILED, NO_ANSWER, RESTARTING
from hermes_trio.channels.whatsapp import CUT, MAX_CHARS, MAX_PARTS
from hermes_trio.core.events import Result, Text, ToolCompleted, ToolStarted, Verdict
from hermes_trio.core.messages import Message
from hermes_trio.core.outcome import Outcome, Reason
from hermes_trio.core.records import EndedRun, RunHeader, Stamp
from hermes_trio.core.sessions import Session
from hermes_trio.runs.admission import Admission
from hermes_trio.stores.sqlite import MemoryStore
from tests.support.asgi import real_timeout
from tests.support.fakes import EPOCH, HELLO, BrokenStore, Pause, ScriptedAgentFactory, Step
from tests.support.graph_api import (
    ANN,
    BOB,
    TOKEN,
    ChannelHarness,
    failure,
    media_message,
    open_channel,
    text_message,
)
from tests.support.scripted_upstream import Close, Reset

SESSION = f"whatsapp-{ANN}"


async def answers_to(channel: ChannelHarness, *texts: str) -> list[str]:
    """What one chat is told when it sends some texts, one after the other."""
    before = len(channel.graph.texts)
    for text in texts:
        assert (await channel.deliver(text_message(text))).status == 200
        await channel.until_idle()
    return [text for _, text in channel.graph.texts[before:]]


class TestTurns:
    async def test_a_chat_is_a_session_and_its_turns_are_runs(self) -> None:
        async with open_channel() as channel:
            assert await answers_to(channel, "Hi", "Again") == ["Hello world"] * 2
            assert await channel.server.transcript(SESSION) == [
                ("user", "Hi"), ("assistant", "Hello world"),
                ("user", "Again"), ("assistant", "Hello world"),
            ]  # fmt: skip
            _, second = channel.server.agents.turns
            assert [message.content for message in second.history] == ["Hi", "Hello world"]
            assert (second.principal, second.session_key) == ("ann", SESSION)
            listed = (await channel.server.client.get("/v1/runs?kind=whatsapp")).json["data"]
            assert [run["status"] for run in listed] == ["completed"] * 2
            assert channel.server.is_idle

    async def test_the_answer_is_acknowledged_before_it_is_there(self) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
        async with open_channel(agents) as channel:
            assert (await channel.deliver(text_message("Hi"))).status == 200
            await pause.wait_reached()
            assert channel.graph.texts == []
            pause.go()
            await channel.graph.until(texts=1)

    async def test_calls_are_made_as_meta_wants_them(self) -> None:
        async with open_channel(settings={"reply_prefix": "*Bot*\\n"}) as channel:
            message = text_message("Hi")
            await channel.deliver(message)
            await channel.graph.until(texts=1, typed=1)
            [sent] = channel.graph.accepted
            assert sent.path == "/v25.0/106540352242922/messages"
            assert sent.headers["authorization"] == f"Bearer {TOKEN}"
            assert sent.json == {
                "messaging_product": "whatsapp",
                "recipient_type": "individual",
                "to": ANN,
                "type": "text",
                "text": {"body": "*Bot*\nHello world", "preview_url": False},
            }
            assert channel.graph.typed == [message["id"]]

    async def test_the_session_keeps_its_system_prompt(self) -> None:
        store = MemoryStore()
        await store.create_session(
            Session("ann", SESSION, "sessions", EPOCH, EPOCH, system_prompt="Rhyme.")
        )
        async with open_channel(store=store) as channel:
            await answers_to(channel, "Hi")
            assert channel.server.agents.turns[0].instructions == "Rhyme."

    async def test_a_chat_goes_on_where_its_agent_went(self) -> None:
        agents = ScriptedAgentFactory(HELLO, Result(session_id="later"))
        async with open_channel(agents) as channel:
            await answers_to(channel, "Hi")
            agents.end = None
            await answers_to(channel, "Again", "And again")
            assert [turn.session_id for turn in agents.turns] == [SESSION, "later", "later"]

    async def test_a_profile(self) -> None:
        other = ScriptedAgentFactory([Text("Ahoy")])
        async with open_channel(
            profile_agents={"pirate": other}, settings={"profile": "pirate"}
        ) as channel:
            assert await answers_to(channel, "Hi") == ["Ahoy"]
            assert other.turns[0].profile == "pirate"


class TestAnswers:
    @pytest.mark.parametrize(
        ("script", "end", "expected"),
        [
            ((), RuntimeError("the password is 1234"), FAILED),
            ((Text("Half"),), RuntimeError("the password is 1234"), f"Half\n\n{FAILED}"),
            ((), None, FAILED),
            ((ToolStarted("a", "t", {}), ToolCompleted("a", "ok")), None, NO_ANSWER),
            (
                (Text("Half"),),
                Result(verdict=Verdict.TRUNCATED),
                "Half\n\n(The answer was cut off, because it became too long.)",
            ),
            ((Text("  Hi\n"),), None, "Hi"),
        ],
    )
    async def test_ends(self, script: Any, end: Any, expected: str) -> None:
        async with open_channel(script, end) as channel:
            assert await answers_to(channel, "Hi") == [expected]

    async def test_a_long_answer_is_several_messages_in_order(self) -> None:
        text = "".join(f"Sentence {number}. " for number in range(1_000)).strip()
        async with open_channel([Text(text)]) as channel:
            parts = await answers_to(channel, "Hi")
            assert "".join(parts) == text
            assert len(parts) == 4
            assert all(len(part) <= MAX_CHARS for part in parts)

    async def test_an_endless_answer_is_cut_but_kept(self) -> None:
        text = "x" * (MAX_PARTS + 1) * MAX_CHARS
        async with open_channel([Text(text)]) as channel:
            parts = await answers_to(channel, "Hi")
            assert (len(parts), parts[-1]) == (MAX_PARTS, CUT)
            assert (await channel.server.transcript(SESSION))[-1] == ("assistant", text)

    async def test_surrogates_are_made_valid(self) -> None:
        async with open_channel([Text("\ud83d\ude00 and \ud83d")]) as channel:
            assert await answers_to(channel, "Hi") == ["😀 and \ufffd"]

    async def test_media_are_explained_once_for_an_album(self, autojump_clock: MockClock) -> None:
        async with open_channel() as channel:
            for kind in ("image", "audio", "sticker"):
                await channel.deliver(media_message(kind))
            await channel.until_idle()
            assert channel.graph.texts == [(ANN, TEXT_ONLY)]
            assert channel.server.agents.turns == []
            await trio.sleep(chats_module.TEXT_ONLY_SECONDS)
            await channel.deliver(media_message("image"), media_message("image", BOB))
            await channel.until_idle()
            assert channel.graph.texts[1:] == [(ANN, TEXT_ONLY), (BOB, TEXT_ONLY)]


class TestProgress:
    SCRIPT = (ToolStarted("a", "web_search", {"query": "tides"}),)

    async def test_one_message_says_which_tool_runs(self, mock_clock: MockClock) -> None:
        pauses = Pause(), Pause()
        script: list[Step] = [
            *self.SCRIPT, pauses[0], ToolCompleted("a", "ok"),
            ToolStarted("b", "terminal", {"command": "date"}), pauses[1], ToolCompleted("b", "ok"),
            Text("Done"),
        ]  # fmt: skip
        agents = ScriptedAgentFactory(script, is_async=True)
        async with open_channel(agents) as channel:
            await channel.deliver(text_message("Hi"))
            await pauses[0].wait_reached()
            await channel.graph.until(typed=1)
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(9)
            await wait_all_tasks_blocked(0.01)
            assert channel.graph.texts == []
            mock_clock.jump(2)
            await channel.graph.until(texts=1, typed=2)
            [(to, status)] = channel.graph.texts
            assert to == ANN
            assert "tides" in status
            pauses[0].go()
            await pauses[1].wait_reached()
            for _ in range(5):
                mock_clock.jump(21)
                await wait_all_tasks_blocked(0.01)
            assert len(channel.graph.texts) == 1
            pauses[1].go()
            await channel.graph.until(texts=2)
            assert channel.graph.texts[1] == (ANN, "Done")

    async def test_typing_is_shown_for_as_long_as_it_takes(self, mock_clock: MockClock) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([pause, Text("Done")], is_async=True)
        async with open_channel(agents) as channel:
            await channel.deliver(text_message("Hi"))
            await pause.wait_reached()
            for number in range(1, 4):
                await channel.graph.until(typed=number)
                await wait_all_tasks_blocked(0.01)
                mock_clock.jump(20)
            pause.go()
            await channel.graph.until(texts=1)
            assert channel.graph.texts == [(ANN, "Done")]

    async def test_it_can_be_switched_off(self, mock_clock: MockClock) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([*self.SCRIPT, pause, Text("Done")], is_async=True)
        async with open_channel(agents, settings={"progress_seconds": 0}) as channel:
            await channel.deliver(text_message("Hi"))
            await pause.wait_reached()
            mock_clock.jump(100)
            await channel.graph.until(typed=2)
            pause.go()
            await channel.until_idle()
            assert channel.graph.texts == [(ANN, "Done")]


class TestQueue:
    async def test_the_messages_of_a_chat_are_answered_in_order(self) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
        async with open_channel(agents) as channel:
            for text in ("one", "two", "three"):
                assert (await channel.deliver(text_message(text))).status == 200
            await pause.wait_reached()
            await wait_all_tasks_blocked()
            assert [turn.text for turn in agents.turns] == ["one"]
            pause.go()
            await channel.until_idle()
            assert [turn.text for turn in agents.turns] == ["one", "two", "three"]
            assert [len(turn.history) for turn in agents.turns] == [0, 2, 4]

    async def test_chats_do_not_wait_for_each_other(self) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
        async with open_channel(agents) as channel:
            await channel.deliver(text_message("one"), text_message("two", BOB))
            with real_timeout():
                while len(agents.turns) < 2:
                    await trio.lowlevel.checkpoint()
            pause.go()
            await channel.graph.until(texts=2)

    async def test_a_full_queue_is_explained_once_until_there_is_room(self) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
        async with open_channel(agents, settings={"max_waiting": 2}) as channel:
            await channel.deliver(text_message("one"))
            await pause.wait_reached()
            for text in ("two", "three", "four", "five"):
                assert (await channel.deliver(text_message(text))).status == 200
            await channel.graph.until(texts=1)
            assert channel.graph.texts == [(ANN, FULL)]
            pause.go()
            await channel.until_idle()
            assert [turn.text for turn in agents.turns] == ["one", "two", "three"]
            assert [text for _, text in channel.graph.texts[1:]] == ["Hi"] * 3

    async def test_too_many_chats_are_for_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chats_module, "MAX_CHATS", 1)
        pause = Pause()
        agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
        async with open_channel(agents) as channel:
            message = text_message("two", BOB)
            await channel.deliver(text_message("one"))
            refused = await channel.deliver(message)
            assert (refused.status, refused.error["code"]) == (503, "channel_not_ready")
            pause.go()
            await channel.until_idle()
            assert (await channel.deliver(message)).status == 200
            await channel.graph.until(texts=2)

    async def test_a_turn_waits_for_a_slot_and_for_other_clients_of_the_session(
        self, autojump_clock: MockClock
    ) -> None:
        async with open_channel(admission=Admission(1)) as channel:
            state = channel.server.state
            slot = state.admission.admit("bob")
            lock = state.session_locks.acquire_nowait("ann", SESSION)
            await channel.deliver(text_message("Hi"))
            await trio.sleep(5)
            slot.release()
            await trio.sleep(5)
            assert channel.server.agents.turns == []
            lock.release()
            await channel.until_idle()
            assert channel.graph.texts == [(ANN, "Hello world")]

    async def test_but_not_for_ever(self, autojump_clock: MockClock) -> None:
        async with open_channel(admission=Admission(1)) as channel:
            slot = channel.server.state.admission.admit("bob")
            assert await answers_to(channel, "Hi") == [BUSY]
            slot.release()
            assert await answers_to(channel, "Hi") == ["Hello world"]
            assert channel.server.is_idle


class TestEnds:
    async def test_while_the_server_drains_meta_keeps_the_messages(self) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
        async with open_channel(agents) as channel:
            await channel.deliver(text_message("one"), text_message("two"), text_message("three"))
            await pause.wait_reached()
            channel.server.state.admission.is_draining = True
            assert (await channel.deliver(text_message("four"))).status == 503
            pause.go()
            await channel.until_idle()
            assert [text for _, text in channel.graph.texts] == ["Hi", RESTARTING]
            assert [turn.text for turn in agents.turns] == ["one"]

    async def test_a_run_that_is_stopped_by_the_shutdown_says_so(self) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([Text("Half"), pause], is_async=True)
        async with open_channel(agents) as channel:
            await channel.deliver(text_message("one"))
            await pause.wait_reached()
            channel.server.state.services.registry.stop_all(Reason.SERVER_SHUTDOWN)
            await channel.until_idle()
            assert channel.graph.texts == [(ANN, f"Half\n\n{RESTARTING}")]

    async def test_closing_waits_for_the_last_answers(self) -> None:
        """Leaving the block closes the channel while Meta has not accepted the answer yet."""
        hold = Pause()
        async with open_channel() as channel:
            channel.graph.holds.append(hold)
            await channel.deliver(text_message("one"))
            await hold.wait_reached()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.opened.chats.close)
                await wait_all_tasks_blocked()
                refused = await channel.deliver(text_message("two"))
                assert refused.status == 503
                hold.go()
            assert channel.graph.texts == [(ANN, "Hello world")]

    async def test_closing_does_not_wait_for_ever(self, autojump_clock: MockClock) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([pause], is_async=True)
        async with open_channel(agents) as channel:
            await channel.deliver(text_message("one"))
            await pause.wait_reached()
            started_at = trio.current_time()
            await channel.opened.chats.close()
            assert trio.current_time() - started_at == chats_module.CLOSE_SECONDS

    async def test_after_a_crash_the_chat_is_told_once(self) -> None:
        store = MemoryStore()
        for header, ended_after in (
            (_header("run_1", EPOCH - 60), 50.0),
            (_header("run_2", EPOCH - 90_000), 89_990.0),  # its message is too old
            (_header("run_3", EPOCH - 60, "999999"), 50.0),  # no longer allowed
            (_header("run_4", EPOCH - 9_000), 50.0),  # recovered long ago
        ):
            died = Outcome.from_cancellation(Reason.PROCESS_DIED)
            await store.end_run(EndedRun(header, (), died, ended_after))
        note = (ANN, INTERRUPTED.format(preview="What about tides?"))
        for expected in ([note], []):
            async with open_channel(store=store) as channel:
                await channel.graph.until(texts=len(expected))
                await wait_all_tasks_blocked(0.01)
                assert channel.graph.texts == expected
        async with open_channel(store=store) as channel:
            await answers_to(channel, "Again")
            [turn] = channel.server.agents.turns
            assert [message.content for message in turn.history][-1] == "What about tides?"


def _header(run_id: str, created_at: float, chat: str = ANN) -> RunHeader:
    return RunHeader(
        "ann",
        Stamp(run_id, created_at, "hermes-agent"),
        "whatsapp",
        f"whatsapp-{chat}",
        (Message("user", "What about tides?"),),
        request={"chat": chat},
    )


class TestFailures:
    async def test_a_busy_or_failing_api_is_asked_again(self, autojump_clock: MockClock) -> None:
        async with open_channel(settings={"retries": 6}) as channel:
            channel.graph.replies += [
                failure(429, 130429, {"Retry-After": "7"}),
                failure(400, 131056),
                failure(500, 131000),
                failure(400, 2, is_transient=True),
                Reset(),
                Close(),
            ]
            started_at = trio.current_time()
            assert await answers_to(channel, "Hi") == ["Hello world"]
            # as the server asks; Meta's advice; then doubling
            assert trio.current_time() - started_at == pytest.approx(7 + 16 + 4 + 8 + 16 + 32)

    @pytest.mark.parametrize(
        ("reply", "calls"),
        [
            (failure(401, 190), 1),
            (failure(400, 131047), 1),
            (failure(429, 4, {"Retry-After": "86400"}), 1),
            (failure(503, 131016), 4),
        ],
    )
    async def test_an_answer_that_cannot_be_sent_is_logged_and_kept(
        self, autojump_clock: MockClock, reply: Any, calls: int
    ) -> None:
        with capture_logs() as logs:
            async with open_channel() as channel:
                channel.graph.replies += [reply] * calls
                assert await answers_to(channel, "Hi") == []
                assert not channel.graph.replies
                assert (await channel.server.transcript(SESSION))[-1][1] == "Hello world"
                assert await answers_to(channel, "Again") == ["Hello world"]
        [error] = [entry for entry in logs if entry["log_level"] == "error"]
        assert error["event"] == "a message was not sent"
        assert TOKEN not in str(logs)

    async def test_the_rest_of_an_answer_is_not_sent_without_its_beginning(self) -> None:
        async with open_channel([Text("a " * 5_000)]) as channel:
            channel.graph.replies.append(failure(400, 100))
            assert await answers_to(channel, "Hi") == []

    async def test_typing_is_optional(self) -> None:
        async with open_channel() as channel:
            channel.graph.accepts_typing = False
            assert await answers_to(channel, "Hi") == ["Hello world"]

    @pytest.mark.parametrize("broken", ["read", "begin"])
    async def test_a_store_that_fails(self, broken: str) -> None:
        store = BrokenStore(broken)
        async with open_channel(store=store) as channel:
            assert await answers_to(channel, "Hi") == [FAILED]
            store._broken = ()
            assert await answers_to(channel, "Hi") == ["Hello world"]
            assert channel.server.is_idle

    async def test_no_secret_is_logged_nor_shown(self) -> None:
        with capture_logs() as logs:
            async with open_channel() as channel:
                channel.graph.replies.append(failure(401, 190))
                await answers_to(channel, "Hi")
                shown = repr((channel.opened.channel.settings, channel.opened.channel))
        assert TOKEN not in shown + str(logs)
