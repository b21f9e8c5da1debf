"""Nodes of a shared store follow, stop and answer each other's runs.

A client may reach any node. A node that does not execute a run sends a command to the one that
does: a row in the store, which cannot get lost, and a notice, which only speeds it up. The node
that executes the run finds the command, executes it once, and stores an answer in the same way,
which ends the command. So it does not matter which of these calls to the store have to be repeated.

A node that follows a run announces that with a command, too. It is then notified whenever the run's
log grows in the store, and counts as a connected client of the run.
"""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from enum import StrEnum
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import structlog
import trio
from attrs import define, field

from hermes_trio.core.events import Choice
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import Command, CommandAnswer, Notice, RunHeader, Topic
from hermes_trio.runs.approvals import ApprovalResponse, NotOffered, NotPending, OpenQuestion
from hermes_trio.runs.disconnects import ClientHandle
from hermes_trio.runs.following import LogFollower
from hermes_trio.runs.log import ChangeReader
from hermes_trio.runs.questions import QuestionReader
from hermes_trio.runs.registry import RunRegistry
from hermes_trio.stores.base import SharedStore, Store, StoreError

if TYPE_CHECKING:
    from hermes_trio.runs.run import Run

log = structlog.get_logger(__name__)

COMMAND_SECONDS = 10.0  # how long the answer to a command may take
LOOK_SECONDS = 1.0  # how often the store is looked at without a notice
BLIND_LOOK_SECONDS = 0.1  # the same where the store cannot notify
LISTEN_SECONDS = 30.0
RETRY_SECONDS = 1.0
COALESCE_SECONDS = 0.005  # logs that grow within this time are in one notice
RENEW_SECONDS = 10.0  # how often a node says that it still follows a run
WATCH_SECONDS = 30.0  # how long it counts if it does not


class CommandKind(StrEnum):
    """What a node can ask of another."""

    STOP = "stop"
    APPROVE = "approve"
    REPLY = "reply"  # answer or withdraw the question that a chat reply ended with
    PAUSE = "pause"  # a chat reply, read by the sender, ends with a question
    WATCH = "watch"  # notify the sender when the log grows, and count it as a client
    UNWATCH = "unwatch"


_IN_ORDER = frozenset({CommandKind.WATCH, CommandKind.UNWATCH})  # they wait for nothing


class OwnerUnreachable(Exception):
    """The node that executes a run does not answer, and no other has taken the run over yet."""


@define(eq=False)
class _Watch:
    """A node that follows a run of ours."""

    client: ClientHandle
    run_ended: trio.Event
    expires_at: float
    number: int  # of the latest command about it

    def is_over(self, now: float) -> bool:
        """Whether the run has ended, or the node has not renewed the watch."""
        return self.run_ended.is_set() or self.expires_at <= now


@define(eq=False)
class Cluster:
    """Commands, answers and notices of one node. :meth:`run` is its task.

    Args:
        store: the store that all nodes share.
        shared: the same store.
        node: the name of this node.
        registry: the runs that this node executes.
    """

    store: Store
    shared: SharedStore
    node: str
    registry: RunRegistry[Run]
    _follower: LogFollower = field(init=False)
    # Announcements, by run id. They are numbered, because commands may overtake each other.
    _to_send: dict[str, tuple[RunHeader, CommandKind, int]] = field(factory=dict)
    _numbers: Iterator[int] = field(factory=partial(count, 1))
    _has_to_send: trio.Event = field(factory=trio.Event)
    _has_commands: trio.Event = field(factory=trio.Event)
    _in_hand: set[str] = field(factory=set)  # ids of commands whose answers are not stored yet
    _answers: list[CommandAnswer] = field(factory=list)  # to be stored
    _has_answers: trio.Event = field(factory=trio.Event)
    _answered: dict[str, trio.Event] = field(factory=dict)  # by the id of a command that waits
    _watches: dict[str, dict[str, _Watch]] = field(factory=dict)  # by run id and node
    _grown: defaultdict[str, set[str]] = field(factory=lambda: defaultdict(set))  # by node
    _has_grown: trio.Event = field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self._follower = LogFollower(
            self.store,
            self.shared,
            partial(self._announce, CommandKind.WATCH),
            partial(self._announce, CommandKind.UNWATCH),
        )

    # -- for clients of this node --

    def follow(self, header: RunHeader) -> AbstractAsyncContextManager[ChangeReader]:
        """Read a run that another node executes, from its beginning to its end."""
        return self._follower.follow(header)

    async def wait_ended(self, header: RunHeader) -> None:
        """Wait until a run that another node executes has ended."""
        async with self.follow(header) as reader:
            async for _ in reader:
                pass

    async def stop(self, principal: str, run_id: str) -> None:
        """Stop a run that another node executes. Returns when that node has begun to, or it has ended.

        Raises:
            OwnerUnreachable: the node does not answer.
            StoreError: the store fails.
        """
        await self._ask(principal, run_id, CommandKind.STOP, {})

    async def answer(self, principal: str, run_id: str, answer: ApprovalResponse) -> int:
        """Answer approval requests of a run that another node executes; return how many.

        Raises:
            NotPending: there is nothing to answer.
            NotOffered: one of the requests does not offer this choice.
            OwnerUnreachable: the node does not answer.
            StoreError: the store fails.
        """
        arguments = {
            "choice": str(answer.choice),
            "approval_id": answer.approval_id,
            "everything": answer.everything,
        }
        reply = await self._ask(principal, run_id, CommandKind.APPROVE, arguments)
        _raise_error(reply)
        return int(reply.get("resolved", 0))

    # -- for chats of this node --

    async def reply(self, header: RunHeader, end_user: str, choice: Choice) -> int | None:
        """Answer the question with which a run of another node ended its last chat reply.

        Return the number of the change with which the next reply begins. None if the run does not wait
        for an answer of this end user. This node counts as a client of the run from then on.

        Raises:
            NotPending: it has been answered.
            NotOffered: it does not offer this choice.
            OwnerUnreachable: the node does not answer.
            StoreError: the store fails.
        """
        arguments = {
            "end_user": end_user,
            "choice": str(choice),
            "node": self.node,
            "number": next(self._numbers),
        }
        reply = await self._ask(header.principal, header.run_id, CommandKind.REPLY, arguments)
        _raise_error(reply)
        return int(reply["position"]) if "position" in reply else None

    async def withdraw(self, header: RunHeader, end_user: str) -> bool:
        """Stop a run of another node if it waits for an answer of this end user; return whether it does.

        Raises:
            OwnerUnreachable: the node does not answer.
            StoreError: the store fails.
        """
        arguments = {"end_user": end_user, "choice": ""}
        reply = await self._ask(header.principal, header.run_id, CommandKind.REPLY, arguments)
        return "position" in reply

    @asynccontextmanager
    async def follow_until_question(
        self, header: RunHeader, first: int
    ) -> AsyncIterator[ChangeReader]:
        """Read a run that another node executes from a change to its end, or to an open question."""
        async with self._follower.follow(header, first) as reader:
            yield QuestionReader(reader, partial(self._pause, header), first)

    async def _pause(self, header: RunHeader, question: OpenQuestion) -> bool:
        """Tell a run that a reply ends with a question; return False if it has been answered."""
        arguments = {"approval_id": question.approval_id, "position": question.position}
        while True:
            try:
                reply = await self._ask(
                    header.principal, header.run_id, CommandKind.PAUSE, arguments
                )
            except (OwnerUnreachable, StoreError) as error:
                # If the node is dead, another ends the run, and there is an empty answer.
                log.warning("a question could not be asked yet", error=repr(error))
                await trio.sleep(RETRY_SECONDS)
            else:
                return bool(reply.get("paused"))

    async def _ask(
        self, principal: str, run_id: str, kind: CommandKind, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Send a command and wait for its answer; empty if the run ended meanwhile."""
        command_id = f"cmd_{secrets.token_hex(16)}"
        try:
            with trio.move_on_after(COMMAND_SECONDS):
                command = Command(command_id, principal, run_id, kind, arguments, self.node)
                answered = self._answered[command_id] = trio.Event()
                await self.shared.send_command(command)
                while True:
                    with trio.move_on_after(self._look_seconds()):
                        await answered.wait()
                    answered = self._answered[command_id] = trio.Event()
                    with suppress(StoreError):  # the command is stored: its answer will be, too
                        # The owner first: it answers before the run ends.
                        is_over = not await self.shared.find_owner(principal, run_id)
                        if (answer := await self.shared.find_answer(command_id)) is not None:
                            return answer
                        if is_over:
                            return {}
        finally:
            del self._answered[command_id]
        raise OwnerUnreachable

    def _look_seconds(self) -> float:
        return LOOK_SECONDS if self.shared.can_listen else BLIND_LOOK_SECONDS

    # -- tasks --

    async def run(self) -> None:
        """Serve the other nodes until cancelled."""
        async with trio.open_nursery() as nursery:
            tasks = (
                self._listen,
                self._send_announcements,
                self._notify_watchers,
                partial(self._take_commands, nursery),
                self._store_answers,
            )
            for task in tasks:
                nursery.start_soon(_repeat, task)
            nursery.start_soon(self._follower.run)

    async def _listen(self) -> None:
        for notice in await self.shared.wait_notices(self.node, LISTEN_SECONDS):
            match notice.topic:
                case Topic.COMMANDS:
                    self._has_commands.set()
                case Topic.ANSWERED:
                    self._wake_senders(notice.subjects)
                case Topic.GROWN:
                    self._follower.wake(notice.subjects)
                case _:
                    self._has_commands.set()
                    self._wake_senders(tuple(self._answered))
                    self._follower.wake()

    def _wake_senders(self, command_ids: tuple[str, ...]) -> None:
        for command_id in command_ids:
            if (event := self._answered.get(command_id)) is not None:
                event.set()

    def _announce(self, kind: CommandKind, header: RunHeader) -> None:
        """Tell the owner of a run that this node begins or ceases to follow it."""
        self._to_send[header.run_id] = (header, kind, next(self._numbers))
        self._has_to_send.set()

    async def _send_announcements(self) -> None:
        with trio.move_on_after(RENEW_SECONDS) as scope:
            await self._has_to_send.wait()
        if scope.cancelled_caught:
            for header in self._follower.headers:
                self._announce(CommandKind.WATCH, header)
        self._has_to_send = trio.Event()
        announcements, self._to_send = self._to_send, {}
        for header, kind, number in announcements.values():
            command_id = f"cmd_{secrets.token_hex(16)}"
            arguments = {"node": self.node, "number": number}
            command = Command(command_id, header.principal, header.run_id, kind, arguments)
            await self.shared.send_command(command)

    # -- for other nodes --

    async def _take_commands(self, nursery: trio.Nursery) -> None:
        with trio.move_on_after(self._look_seconds()):
            await self._has_commands.wait()
        self._has_commands = trio.Event()
        self._expire_watches()
        known = self._in_hand.copy()  # some may be answered while the store is read
        for command in await self.shared.find_commands(self.node):
            if command.command_id not in known:
                self._in_hand.add(command.command_id)
                if command.kind in _IN_ORDER:
                    await self._execute(command)
                else:
                    nursery.start_soon(self._execute, command)

    async def _execute(self, command: Command) -> None:
        """Obey a command once. Its answer is kept until it has been stored."""
        try:
            answer = await self._obey(command)
        except Exception:
            # A bug of ours must not end the task that serves all nodes.
            log.exception("a command failed", kind=command.kind, run_id=command.run_id)
            answer = {"error": "the command failed"}
        self._answers.append(CommandAnswer(command, answer))
        self._has_answers.set()

    async def _store_answers(self) -> None:
        if not self._answers:
            self._has_answers = trio.Event()
            await self._has_answers.wait()
        answers = tuple(self._answers)
        await self.shared.answer_commands(answers)
        del self._answers[: len(answers)]
        self._in_hand.difference_update(each.command.command_id for each in answers)

    async def _obey(self, command: Command) -> Mapping[str, Any]:
        run = self.registry.find(command.principal, command.run_id)
        if run is None:
            return {}
        arguments = command.arguments
        match command.kind:
            case CommandKind.STOP:
                run.stop(Reason.STOP_REQUESTED)
            case CommandKind.APPROVE:
                return await _answer(run, arguments)
            case CommandKind.REPLY:
                return await self._reply(run, arguments)
            case CommandKind.PAUSE:
                question = OpenQuestion(arguments["approval_id"], arguments["position"])
                return {"paused": run.pause(question)}
            case CommandKind.WATCH:
                self._add_watch(run, arguments)
            case CommandKind.UNWATCH:
                self._end_watch(command.run_id, arguments)
            case unknown:
                log.warning("another node sent an unknown command", kind=unknown)
        return {}

    async def _reply(self, run: Run, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        question = run.question
        if question is None or run.end_user != arguments["end_user"]:
            return {}
        if not arguments["choice"]:
            run.stop(Reason.STOP_REQUESTED)
            return {"position": question.position}
        # Before the answer, or the run would be without a client.
        self._add_watch(run, arguments)
        answer = {**arguments, "approval_id": question.approval_id, "everything": False}
        return {"position": question.position, **await _answer(run, answer)}

    def _add_watch(self, run: Run, arguments: Mapping[str, Any]) -> None:
        run_id, node, number = run.header.run_id, arguments["node"], arguments.get("number", 0)
        watches = self._watches.setdefault(run_id, {})
        expires_at = trio.current_time() + WATCH_SECONDS
        if node in watches:
            watches[node].expires_at = expires_at
            watches[node].number = max(watches[node].number, number)
            return
        watches[node] = _Watch(run.clients.connect(), run.ended, expires_at, number)
        run.log.on_saved(partial(self._note_growth, run_id))
        # Something may have been saved since that node looked.
        self._note_growth(run_id)

    def _end_watch(self, run_id: str, arguments: Mapping[str, Any]) -> None:
        """End a watch, unless its node has begun another one meanwhile."""
        node, number = arguments["node"], arguments.get("number", math.inf)
        watch = self._watches.get(run_id, {}).get(node)
        if watch is not None and watch.number <= number:
            self._remove_watch(run_id, node)

    def _remove_watch(self, run_id: str, node: str) -> None:
        watches = self._watches.get(run_id, {})
        if (watch := watches.pop(node, None)) is not None:
            watch.client.disconnect()
        if not watches:
            self._watches.pop(run_id, None)

    def _expire_watches(self) -> None:
        now = trio.current_time()
        for run_id, watches in tuple(self._watches.items()):
            for node, watch in tuple(watches.items()):
                if watch.is_over(now):
                    self._remove_watch(run_id, node)

    def _note_growth(self, run_id: str) -> None:
        for node in self._watches.get(run_id, ()):
            self._grown[node].add(run_id)
        self._has_grown.set()

    async def _notify_watchers(self) -> None:
        await self._has_grown.wait()
        await trio.sleep(COALESCE_SECONDS)
        self._has_grown = trio.Event()
        grown, self._grown = self._grown, defaultdict(set)
        for node, run_ids in grown.items():
            await self.shared.notify(node, [Notice(Topic.GROWN, tuple(run_ids))])


def _raise_error(reply: Mapping[str, Any]) -> None:
    """Raise the error with which a node answered, if it did."""
    match reply.get("error", ""):
        case "":
            return
        case "not_pending":
            raise NotPending
        case "not_offered":
            raise NotOffered
        case error:
            raise StoreError(str(error))


async def _answer(run: Run, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    answer = ApprovalResponse(
        Choice(arguments["choice"]), arguments["approval_id"], arguments["everything"]
    )
    try:
        return {"resolved": await run.answer(answer)}
    except NotPending:
        return {"error": "not_pending"}
    except NotOffered:
        return {"error": "not_offered"}
    except StoreError as error:
        return {"error": str(error)}


async def _repeat(step: Callable[[], Awaitable[None]]) -> None:
    """Repeat a step of a task until cancelled; the store may fail at times."""
    while True:
        try:
            await step()
        except Exception as error:
            # A bug of ours must not end the task, either: what it missed is found in the store.
            expected = isinstance(error, StoreError)
            log.error("the other nodes cannot be served", error=str(error), exc_info=not expected)
            await trio.sleep(RETRY_SECONDS)
