"""What the turns of a profile share: the connections to the model's server, what was learned about it, the tools."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import httpx2

from hermes_trio import __version__
from hermes_trio.agent.interface import AgentConfig, AgentContext, AgentFactory, nonblocking
from hermes_trio.agents.upstream.client import Lines, ModelClient, chat_url
from hermes_trio.agents.upstream.loop import UpstreamAgent
from hermes_trio.agents.upstream.problems import Scrub
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.approval_policy import apply_approval_rules, read_approval_rules
from hermes_trio.tools.mcp import open_servers
from hermes_trio.tools.registry import find_tools

KEPT_CONNECTIONS = 100


class UpstreamProvider:
    """Makes agents that run the tool loop on an OpenAI-compatible endpoint."""

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
        """Start the servers of tools. The model's server is not asked before the first turn.

        Raises:
            ConfigurationError: the address, the key, a header or a tool cannot be used. The text is one line.
        """
        check(config)
        rules = read_approval_rules(config.options)
        own = find_tools(config.tools, config.options)
        async with open_servers(config.mcp, workspace) as others, open_model(config) as model:
            tools = {tool.name: tool for tool in apply_approval_rules((*others, *own), rules)}

            @nonblocking
            def factory(context: AgentContext) -> UpstreamAgent:
                return UpstreamAgent(config, model, tools, context.workspace)

            yield factory


@asynccontextmanager
async def open_model(config: AgentConfig) -> AsyncIterator[ModelClient]:
    """The model that a profile describes."""
    async with _client(config, KEPT_CONNECTIONS) as kept, _client(config, 0) as fresh:
        yield ModelClient(config, Lines(kept, fresh), Scrub.of([config.api_key, *_headers(config).values()]))


def check(config: AgentConfig) -> None:
    """Look at what would fail in every turn.

    Raises:
        ConfigurationError: in one line, which never holds the key.
    """
    if not config.base_url:
        raise ConfigurationError(
            "base_url is missing: the address of the model's server, such as http://host:8000/v1"
        )
    try:
        url = chat_url(config.base_url)
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"base_url: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError("base_url must begin with http:// or https:// and name a host")
    if not _fits_header(config.api_key):
        raise ConfigurationError("api_key has characters that no HTTP header can carry")
    _headers(config)


@cache
def _trust() -> ssl.SSLContext:
    """Whom to believe that they are who they say. Reading all certificates takes long enough to do it once."""
    return httpx2.create_ssl_context()


def _client(config: AgentConfig, kept: int) -> httpx2.AsyncClient:
    # Admission bounds the turns, and so the connections: a second limit would only make turns wait unseen.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=kept)
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",  # packers hold events back
        "User-Agent": f"hermes-trio/{__version__}",
        **({"Authorization": f"Bearer {config.api_key}"} if config.api_key else {}),
        **_headers(config),
    }
    return httpx2.AsyncClient(verify=_trust(), limits=limits, headers=headers)


def _headers(config: AgentConfig) -> dict[str, str]:
    """More headers, from the profile's table."""
    found = config.options.get("headers", {})
    if not isinstance(found, Mapping):
        raise ConfigurationError("headers must be a table of texts")
    for name, value in found.items():
        if not (isinstance(value, str) and _fits_header(value) and _fits_header(name)):
            raise ConfigurationError(f"headers: the value of {name!r} must be a text that HTTP can carry")
    return dict(found)


def _fits_header(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not text)


provider = UpstreamProvider()
