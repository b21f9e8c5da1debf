"""The interface that an agent implements, and the values it is given.

An agent is an object with one method, ``run``. If it is a plain function, it runs in a thread of
its own and emits through an :class:`~hermes_trio.agent.emitter.Emitter`; if it is ``async``, it
runs as a Trio task and emits through an :class:`~hermes_trio.agent.emitter.AsyncEmitter`. A factory
makes a new agent for each turn::

    class Parrot:
        def run(self, turn, emitter):
            with emitter.tool("lookup", {"word": turn.text}) as call:
                call.result = "a parrot repeats"
            emitter.text(f"You said: {turn.text}")

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

from attrs import field, frozen

from hermes_trio.agent.emitter import AsyncEmitter, Emitter
from hermes_trio.core.events import Result
from hermes_trio.core.messages import Content, Message

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@frozen
class UpstreamLimits:
    """Timeouts for the model server, in seconds, and the number of retries."""

    connect: float = 10.0
    read: float = 60.0  # between two pieces of an answer
    write: float = 60.0
    pool: float = 30.0
    retries: int = 2


DEFAULT_LIMITS = UpstreamLimits()


@frozen
class SandboxConfig:
    """Whether the programs that tools start are isolated, and what they may use."""

    mode: str = "off"  # auto, require or off
    network: bool = False
    readable: tuple[Path, ...] = ()  # in addition to the system's own folders


NO_SANDBOX = SandboxConfig()


@frozen
class AgentConfig:
    """The settings of one profile. An agent uses those that concern it."""

    profile: str = ""  # "" for the agent that the server's own settings describe
    model: str = ""  # the name that the model server knows
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    model_path: Path | None = None  # for agents that serve the model themselves
    system_prompt: str = ""
    tools: tuple[str, ...] = ()  # names of tools, or module:attribute
    max_iterations: int = 50  # model calls in one turn
    limits: UpstreamLimits = DEFAULT_LIMITS
    # MCP servers by name, and options without a field of their own, as the settings file has them.
    # Both may hold secrets.
    mcp: Mapping[str, Mapping[str, Any]] = field(default=_EMPTY, repr=False)
    options: Mapping[str, Any] = field(default=_EMPTY, repr=False)
    sandbox: SandboxConfig = NO_SANDBOX


DEFAULT_CONFIG = AgentConfig()


@frozen
class TurnRequest:
    """One turn: the user's message, the messages before it, and who asks."""

    run_id: str
    session_id: str
    message: Content
    history: tuple[Message, ...] = ()
    instructions: str = ""  # added to the agent's own system prompt
    model: str = ""
    session_key: str = ""  # the client's long-term memory scope
    principal: str = "default"
    profile: str = ""  # the profile that was requested; "" for the server's own agent
    # sampling and tool fields of the request, as the client sent them
    options: Mapping[str, Any] = _EMPTY
    # False if the answer is for the client program itself, such as the title of a chat: an agent
    # should only write text then, and neither use tools nor remember anything
    allows_tools: bool = True
    # the tools that the API key of the request allows, by name; None for all. The agents of this
    # package obey it, your own agent has to ask ``permits_tool``
    permitted_tools: frozenset[str] | None = None

    def permits_tool(self, name: str) -> bool:
        """Return whether the API key of the request allows a tool."""
        return self.permitted_tools is None or name in self.permitted_tools

    @property
    def text(self) -> str:
        """The user's message as plain text, without its images."""
        if isinstance(self.message, str):
            return self.message
        return "\n".join(str(part["text"]) for part in self.message if part.get("type") == "text")

    @property
    def is_continuation(self) -> bool:
        """Whether the history ends with the start of the answer, for the agent to continue.

        There is no message then. Only agents of a factory marked ``@can_continue`` get such a turn.
        """
        return self.message == "" and bool(self.history) and self.history[-1].is_answer


@frozen
class AgentContext:
    """What a factory may use to make an agent for one turn."""

    turn: TurnRequest
    workspace: Path  # a folder that tools may write to
    config: AgentConfig = DEFAULT_CONFIG


@runtime_checkable
class Agent(Protocol):
    """An agent that runs in a thread.

    It may also have a method ``interrupt(reason)``, which is called when the run is cancelled: from
    another thread, possibly just before ``run`` is called. It must return at once.
    """

    def run(self, turn: TurnRequest, emitter: Emitter, /) -> Result | str | None:
        """Do the turn.

        Return the final text, a :class:`Result` that says more, or ``None`` if everything was
        emitted.
        """
        ...


class AsyncAgent(Protocol):
    """An agent that runs as a Trio task. An interrupt reaches it as a cancellation."""

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter, /) -> Result | str | None:
        """Do the turn. The return value is that of :meth:`Agent.run`."""
        ...


AgentFactory = Callable[[AgentContext], Agent | AsyncAgent]


FactoryT = TypeVar("FactoryT", bound=AgentFactory)


def nonblocking(factory: FactoryT) -> FactoryT:
    """Mark a factory that never blocks: it reads no file, waits for nothing and takes no lock.

    It is then called in the Trio thread, so an asynchronous agent needs no thread at all.
    """
    factory.is_nonblocking = True  # type: ignore[attr-defined]  # functions take attributes
    return factory


def can_continue(factory: FactoryT) -> FactoryT:
    """Mark a factory whose agents continue an answer that has begun.

    Without the mark, a request that ends with an assistant message is refused: an agent that does
    not look for it would answer something else, or take it for the user's words.
    """
    factory.can_continue = True  # type: ignore[attr-defined]  # functions take attributes
    return factory


@runtime_checkable
class AgentProvider(Protocol):
    """Opens what the agents of a profile share, such as connections, child processes or caches.

    It can be named wherever a factory can. It is opened once per profile when the server starts,
    and stays open as long as the server runs.
    """

    def open(
        self, config: AgentConfig, workspace: Path
    ) -> AbstractAsyncContextManager[AgentFactory]:
        """Open the shared resources, and return the factory that hands them to each agent.

        Raises:
            ConfigurationError: the configuration cannot work. The text is one line.
        """
        ...


@runtime_checkable
class NamedProvider(Protocol):
    """A provider whose agent has a name of its own, for clients that list the models."""

    def default_model_name(self, config: AgentConfig) -> str:
        """Return the model id under which to serve the agent if the settings give none; "" for no preference.

        Raises:
            ConfigurationError: the configuration cannot work. The text is one line.
        """
        ...
