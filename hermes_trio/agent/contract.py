"""What a user implements to put an agent behind the server.

An agent is an object with one method, ``run``. If it is a plain function it runs in a thread of its own and speaks
through a :class:`~hermes_trio.agent.port.Port`; if it is ``async`` it runs as a Trio task and speaks through an
:class:`~hermes_trio.agent.port.AsyncPort`. A factory makes a new agent for each turn::

    class Parrot:
        def run(self, turn, say):
            with say.tool("lookup", {"word": turn.text}) as call:
                call.result = "a parrot repeats"
            say.text(f"You said: {turn.text}")

    def factory(context):
        return Parrot()

``hermes-trio serve --agent my_module:factory`` serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, runtime_checkable

from attrs import frozen

from hermes_trio.agent.config import DEFAULT_CONFIG, AgentConfig
from hermes_trio.agent.port import AsyncPort, Port
from hermes_trio.core.events import Result
from hermes_trio.core.messages import Content, Message

NOTHING: Mapping[str, Any] = MappingProxyType({})


@frozen
class TurnRequest:
    """One turn: what the user said, what was said before, and who is asking."""

    run_id: str
    session_id: str
    message: Content
    history: tuple[Message, ...] = ()
    instructions: str = ""  # layers on the agent's own system prompt
    model: str = ""
    session_key: str = ""  # the client's long-term memory scope
    principal: str = "default"
    profile: str = ""  # the one that was asked for; "" for the server's own agent
    options: Mapping[str, Any] = NOTHING  # sampling and tool fields of the request, as the client sent them

    @property
    def text(self) -> str:
        """The user's message as plain text; images are left out."""
        if isinstance(self.message, str):
            return self.message
        return "\n".join(str(part["text"]) for part in self.message if part.get("type") == "text")


@frozen
class AgentContext:
    """What a factory may use to make an agent for one turn."""

    turn: TurnRequest
    workspace: Path  # a folder that tools may write to
    config: AgentConfig = DEFAULT_CONFIG


@runtime_checkable
class Agent(Protocol):
    """Runs in a thread.

    May also have ``interrupt(reason)``. It is called from another thread, perhaps just before ``run`` is, and must
    return at once.
    """

    def run(self, turn: TurnRequest, say: Port) -> Result | str | None:
        """Do the turn. Return the final text, or a result that says more, or nothing if all was streamed."""
        ...


class AsyncAgent(Protocol):
    """Runs as a Trio task; an interrupt reaches it as a cancellation."""

    async def run(self, turn: TurnRequest, say: AsyncPort) -> Result | str | None:
        """Do the turn."""
        ...


AgentFactory = Callable[[AgentContext], Agent | AsyncAgent]


F = TypeVar("F", bound=AgentFactory)


def quick(factory: F) -> F:
    """Mark a factory that returns at once: it reads no file, waits for nothing and takes no lock.

    Its agents are made without a thread, and those that are ``async`` then need none at all.
    """
    factory.is_quick = True  # type: ignore[attr-defined]  # functions take attributes
    return factory


@runtime_checkable
class AgentProvider(Protocol):
    """For agents that share something which lives as long as the server: connections, child processes, a warm-up.

    Named where a factory could be named. It is opened once for each profile, when the server starts.
    """

    def open(self, config: AgentConfig, workspace: Path) -> AbstractAsyncContextManager[AgentFactory]:
        """Make what is shared, and the factory that hands it to each agent.

        Raises:
            ConfigurationError: it cannot work as it is configured. The text is one line.
        """
        ...
