"""Find the agents and the keys that the settings name: all that can fail before anything runs."""

from __future__ import annotations

import secrets
from collections.abc import Container, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from attrs import evolve, field, frozen

from hermes_trio.agent.interface import (
    AgentConfig,
    AgentFactory,
    AgentProvider,
    NamedProvider,
    SandboxConfig,
    UpstreamLimits,
)
from hermes_trio.agents.registry import AgentNotFound, find_agent, is_provider
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import (
    DEFAULT_PRINCIPAL,
    Credentials,
    Keyring,
    KeySources,
    OpenedKeys,
    check_keys,
    check_secret,
    is_loopback,
    log_doubtful_keys,
    open_credentials,
)
from hermes_trio.settings import Profile, Settings
from hermes_trio.settings.model import DEFAULT_MODEL_NAME
from hermes_trio.web.workers import Workers

log = structlog.get_logger(__name__)

DEFAULT_PROFILE = ""  # the profile that the server's own settings describe


@frozen
class ConfiguredAgent:
    """An agent with its configuration, found but not yet opened."""

    agent: AgentFactory | AgentProvider
    config: AgentConfig
    workspace: Path


Agents = Mapping[str, ConfiguredAgent]  # by profile


@frozen
class Prepared:
    """The agents and keys of a server that has not been opened."""

    settings: Settings
    keys: OpenedKeys
    agents: Agents
    # signs tokens; one that is not read from the data folder ends with the process
    token_secret: bytes = field(factory=partial(secrets.token_bytes, 32), repr=False)
    workers: Workers | None = None  # if this process is one of several that serve together


def prepare(
    settings: Settings,
    agent: AgentFactory | AgentProvider | None = None,
    credentials: Credentials | None = None,
) -> Prepared:
    """Find the agents and open the keys.

    Generates a key if none is configured and the host is loopback, and the secret for tokens at the
    first start.

    Args:
        settings: those of the server.
        agent: the server's own agent, if it is not the one that the settings name.
        credentials: keys and secret of a server of which this process is a worker.

    Raises:
        ConfigurationError: the server cannot start as it is configured. The text is one line.
    """
    if credentials is None:
        check(settings, agent)
        credentials = open_credentials(key_sources(settings))
        log_doubtful_keys(credentials.keys.keyring, settings.profiles)
    else:
        _check_profiles(settings, credentials.keys.keyring)
    agents = find_agents(settings, agent)
    named = evolve(settings, model_name=_served_name(settings, agents[DEFAULT_PROFILE]))
    return Prepared(named, credentials.keys, agents, credentials.token_secret)


def _served_name(settings: Settings, own: ConfiguredAgent) -> str:
    """Return the model id of the server's own agent: the configured one, or else the agent's own.

    Unless a profile has that name: requests that name it belong to the profile.
    """
    is_set = settings.is_model_named or settings.model_name != DEFAULT_MODEL_NAME
    if is_set or not (is_provider(own.agent) and isinstance(own.agent, NamedProvider)):
        return settings.model_name
    taken = {profile.model_name for profile in settings.profiles.values()}
    name = own.agent.default_model_name(own.config)
    return name if name and name not in taken else settings.model_name


def check(settings: Settings, agent: AgentFactory | AgentProvider | None = None) -> None:
    """Check whether ``prepare`` would succeed, without writing anything.

    Raises:
        ConfigurationError: it would not. The text is one line.
    """
    find_agents(settings, agent)
    # An agent whose model server is this server would call itself until the server is full.
    named = [("base_url (OPENAI_BASE_URL)", settings.agent_name, settings.base_url)]
    named += [
        (f"profiles.{profile.name}.base_url", profile.agent_name, profile.base_url)
        for profile in settings.profiles.values()
    ]
    for option, agent_name, url in named:
        if agent_name == "upstream" and _is_own_address(settings, url):
            raise ConfigurationError(f"{option}: {url} is the address of this server itself")
    check_secret(settings.data_dir)
    _check_profiles(settings, check_keys(key_sources(settings)))


def _is_own_address(settings: Settings, url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if port != settings.port:
        return False
    is_wildcard = settings.host in ("0.0.0.0", "::", "")  # noqa: S104 - compared, not listened on
    is_local = is_loopback(settings.host) or is_wildcard
    return host == settings.host or (is_local and is_loopback(host))


def _check_profiles(settings: Settings, keys: Keyring) -> None:
    # Without any, a key of the default principal is generated.
    generated = frozenset({DEFAULT_PRINCIPAL} if keys.is_empty else ())
    for profile in settings.profiles.values():
        for name in sorted(profile.keys):
            if not (keys.may_have(name) or name in generated):
                raise ConfigurationError(
                    f"profiles.{profile.name}.keys: there is no key of {name!r}"
                )
    if settings.task_profile and settings.task_profile not in settings.profiles:
        raise ConfigurationError(f"task_profile: there is no profile {settings.task_profile!r}")
    # A channel has no token, so its principal needs a key.
    _check_channels(settings, {named.principal for named in keys.keys} | generated)


def _check_channels(settings: Settings, principals: Container[str]) -> None:
    whatsapp, profiles = settings.channels.whatsapp, settings.profiles
    if whatsapp is None:
        return
    name, profile = whatsapp.principal, profiles.get(whatsapp.profile)
    if name not in principals:
        raise ConfigurationError(f"channels.whatsapp.principal: there is no key of {name!r}")
    if whatsapp.profile and profile is None:
        raise ConfigurationError(
            f"channels.whatsapp.profile: there is no profile {whatsapp.profile!r}"
        )
    if profile is not None and profile.keys and name not in profile.keys:
        raise ConfigurationError(
            f"channels.whatsapp.profile: {name!r} may not use {whatsapp.profile!r}"
        )


def key_sources(settings: Settings) -> KeySources:
    """Return the settings that decide about the keys."""
    return KeySources(settings.host, settings.data_dir, settings.api_key, settings.api_key_file)


def find_agents(settings: Settings, agent: AgentFactory | AgentProvider | None = None) -> Agents:
    """Import every agent that the settings name, unless the server's own agent is given.

    Raises:
        ConfigurationError: there is no such agent. The text is one line, which names the option.
    """
    agents = {
        DEFAULT_PROFILE: ConfiguredAgent(
            agent or _find_agent(settings.agent_name, "agent"),
            server_agent_config(settings),
            settings.data_dir / "workspace",
        )
    }
    for name, profile in settings.profiles.items():
        agents[name] = ConfiguredAgent(
            _find_agent(profile.agent_name, f"profiles.{name}.agent"),
            profile_agent_config(settings, profile),
            settings.data_dir / "profiles" / name / "workspace",
        )
    return agents


def _find_agent(name: str, option: str) -> AgentFactory | AgentProvider:
    try:
        return find_agent(name)
    except AgentNotFound as error:
        raise ConfigurationError(f"{option}: {error}") from error


def server_agent_config(settings: Settings) -> AgentConfig:
    """Return the configuration of the server's own agent, from the top level of the settings."""
    return AgentConfig(
        model=settings.upstream_model,
        base_url=settings.base_url,
        api_key=settings.upstream_api_key,
        model_path=settings.model_path,
        system_prompt=settings.system_prompt,
        tools=settings.tools,
        max_iterations=settings.max_iterations,
        limits=_upstream_limits(settings),
        mcp=settings.mcp,
        options=settings.agent_options,
        sandbox=_sandbox_config(settings),
    )


def profile_agent_config(settings: Settings, profile: Profile) -> AgentConfig:
    """Return the configuration of the agent of a profile."""
    return AgentConfig(
        profile=profile.name,
        model=profile.model,
        base_url=profile.base_url,
        api_key=profile.api_key,
        model_path=profile.model_path,
        system_prompt=profile.system_prompt,
        tools=profile.tools,
        max_iterations=profile.max_iterations,
        limits=_upstream_limits(settings),
        mcp={name: settings.mcp[name] for name in profile.mcp},
        options=profile.options,
        sandbox=_sandbox_config(settings),
    )


def _sandbox_config(settings: Settings) -> SandboxConfig:
    readable = tuple(Path(path).expanduser() for path in settings.sandbox_paths)
    return SandboxConfig(settings.sandbox, settings.sandbox_network, readable)


def _upstream_limits(settings: Settings) -> UpstreamLimits:
    return UpstreamLimits(
        connect=settings.upstream_connect_seconds,
        read=settings.upstream_read_seconds,
        write=settings.upstream_write_seconds,
        pool=settings.upstream_pool_seconds,
        retries=settings.upstream_retries,
    )
