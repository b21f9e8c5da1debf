"""The agents that a server serves: found by their names, told what the settings say, and opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio
from attrs import frozen

from hermes_trio.agent.interface import AgentConfig, AgentFactory, AgentProvider, UpstreamLimits
from hermes_trio.agent.runner import AgentRuntime
from hermes_trio.agents.registry import AgentNotFound, find_agent, open_agent
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.runs.spec import AgentEnvironment
from hermes_trio.settings import Profile, Settings

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
    """What the hosts of all agents share: ``AgentRuntime`` without the factory."""

    threads: trio.CapacityLimiter
    interrupts: trio.CapacityLimiter
    grace_seconds: float


def find_crew(settings: Settings) -> Crew:
    """Every agent that the settings name.

    Raises:
        ConfigurationError: there is no such agent. One line, which names the option.
    """
    own = Member(_find(settings.agent_name, "agent"), own_config(settings), settings.data_dir / "workspace")
    return {DEFAULT: own, **{name: _member(settings, name) for name in settings.profiles}}


def _member(settings: Settings, name: str) -> Member:
    profile = settings.profiles[name]
    agent = _find(profile.agent_name, f"profiles.{name}.agent")
    return Member(
        agent, profile_config(settings, profile), settings.data_dir / "profiles" / name / "workspace"
    )


def own_config(settings: Settings) -> AgentConfig:
    """What the top level of the settings says about the server's own agent."""
    return AgentConfig(
        model=settings.upstream_model,
        base_url=settings.base_url,
        api_key=settings.upstream_api_key,
        model_path=settings.model_path,
        system_prompt=settings.system_prompt,
        tools=settings.tools,
        max_iterations=settings.max_iterations,
        limits=_limits(settings),
        mcp=settings.mcp,
        options=settings.agent_options,
    )


def profile_config(settings: Settings, profile: Profile) -> AgentConfig:
    """What the settings say about the agent of a profile."""
    return AgentConfig(
        profile=profile.name,
        model=profile.model,
        base_url=profile.base_url,
        api_key=profile.api_key,
        model_path=profile.model_path,
        system_prompt=profile.system_prompt,
        tools=profile.tools,
        max_iterations=profile.max_iterations,
        limits=_limits(settings),
        mcp={name: settings.mcp[name] for name in profile.mcp},
        options=profile.options,
    )


def _limits(settings: Settings) -> UpstreamLimits:
    return UpstreamLimits(
        connect=settings.upstream_connect_seconds,
        read=settings.upstream_read_seconds,
        write=settings.upstream_write_seconds,
        pool=settings.upstream_pool_seconds,
        retries=settings.upstream_retries,
    )


def _find(name: str, option: str) -> AgentFactory | AgentProvider:
    try:
        return find_agent(name)
    except AgentNotFound as error:
        raise ConfigurationError(f"{option}: {error}") from error


@asynccontextmanager
async def open_crew(crew: Crew, hiring: Hiring) -> AsyncIterator[Mapping[str, AgentEnvironment]]:
    """Open all agents, one after the other; at the end of the block they are closed in the opposite order.

    Raises:
        ConfigurationError: one of them cannot work as it is configured.
    """
    async with AsyncExitStack() as stack:
        yield {name: await _open(member, hiring, stack) for name, member in crew.items()}


async def _open(member: Member, hiring: Hiring, stack: AsyncExitStack) -> AgentEnvironment:
    _make_workspace(member.workspace)
    try:
        opening = open_agent(member.agent, member.config, member.workspace)
        factory = await stack.enter_async_context(opening)
    except ConfigurationError as error:
        raise _named(error, member.config.profile) from error
    host = AgentRuntime(factory, hiring.threads, hiring.interrupts, hiring.grace_seconds, member.config)
    return AgentEnvironment(host, member.workspace)


def _named(error: ConfigurationError, profile: str) -> ConfigurationError:
    return ConfigurationError(f"profiles.{profile}: {error}") if profile else error


def _make_workspace(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"data_dir: {path} cannot be made: {error.strerror}") from None
