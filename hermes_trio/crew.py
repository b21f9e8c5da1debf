"""The agents that a server serves: found by their names, told what the settings say, and opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio
from attrs import frozen

from hermes_trio.agent.bridge import AgentHost
from hermes_trio.agent.config import AgentConfig
from hermes_trio.agent.contract import AgentFactory, AgentProvider
from hermes_trio.agents.lookup import AgentNotFound, find_agent
from hermes_trio.agents.opening import open_agent
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.runs.run import Desk
from hermes_trio.settings import Settings

DEFAULT = ""  # the profile that the server's own settings describe


@frozen
class Member:
    """One configured agent, found but not yet opened."""

    agent: AgentFactory | AgentProvider
    config: AgentConfig
    workspace: Path


Crew = Mapping[str, Member]  # by profile


@frozen
class Hiring:
    """What the hosts of all agents share: ``AgentHost`` without the factory."""

    threads: trio.CapacityLimiter
    interrupts: trio.CapacityLimiter
    grace_seconds: float


def find_crew(settings: Settings) -> Crew:
    """Every agent that the settings name.

    Raises:
        ConfigurationError: there is no such agent. One line, which names the option.
    """
    member = Member(_find(settings.agent, "agent"), AgentConfig(), settings.data_dir / "workspace")
    return {DEFAULT: member}


def _find(name: str, option: str) -> AgentFactory | AgentProvider:
    try:
        return find_agent(name)
    except AgentNotFound as error:
        raise ConfigurationError(f"{option}: {error}") from error


@asynccontextmanager
async def open_crew(crew: Crew, hiring: Hiring) -> AsyncIterator[Mapping[str, Desk]]:
    """Open all agents, one after the other; at the end of the block they are closed in the opposite order.

    Raises:
        ConfigurationError: one of them cannot work as it is configured.
    """
    async with AsyncExitStack() as stack:
        yield {name: await _open(member, hiring, stack) for name, member in crew.items()}


async def _open(member: Member, hiring: Hiring, stack: AsyncExitStack) -> Desk:
    _make_workspace(member.workspace)
    try:
        opening = open_agent(member.agent, member.config, member.workspace)
        factory = await stack.enter_async_context(opening)
    except ConfigurationError as error:
        raise _named(error, member.config.profile) from error
    host = AgentHost(factory, hiring.threads, hiring.interrupts, hiring.grace_seconds, member.config)
    return Desk(host, member.workspace)


def _named(error: ConfigurationError, profile: str) -> ConfigurationError:
    return ConfigurationError(f"profiles.{profile}: {error}") if profile else error


def _make_workspace(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"data_dir: {path} cannot be made: {error.strerror}") from None
