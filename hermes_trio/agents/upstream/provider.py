"""What the turns of a profile share.

HTTP connections, what was learned about the model server, and the tools.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import httpx2
import trio

from hermes_trio import __version__
from hermes_trio.agent.interface import (
    AgentConfig,
    AgentContext,
    AgentFactory,
    can_continue,
    nonblocking,
)
from hermes_trio.agent.inventory import with_inventory
from hermes_trio.agents.upstream.client import HttpClients, ModelClient, chat_url
from hermes_trio.agents.upstream.errors import SecretMasker
from hermes_trio.agents.upstream.loop import UpstreamAgent
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.inventory import describe_tools
from hermes_trio.tools.mcp import open_servers
from hermes_trio.tools.registry import apply_approval_rules, find_tools, read_approval_rules
from hermes_trio.tools.sandbox import open_sandbox

MAX_IDLE_CONNECTIONS = 100


class UpstreamProvider:
    """Provides agents that run the tool loop on an OpenAI-compatible endpoint."""

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
        """Start the MCP servers. The model server is not contacted before the first turn.

        Raises:
            ConfigurationError: the URL, the key, a header or a tool cannot be used. The message is
                one line.
        """
        check_config(config)
        rules = read_approval_rules(config.options)
        own = find_tools(config.tools, config.options)
        sandbox = await trio.to_thread.run_sync(open_sandbox, config.sandbox)
        async with open_servers(config.mcp, workspace) as others, open_model(config) as model:
            tools = {tool.name: tool for tool in apply_approval_rules((*others, *own), rules)}
            inventory = describe_tools(tools.values(), config.mcp)

            @can_continue
            @nonblocking
            @with_inventory(lambda: inventory)
            def factory(context: AgentContext) -> UpstreamAgent:
                return UpstreamAgent(config, model, tools, context.workspace, sandbox)

            yield factory


@asynccontextmanager
async def open_model(config: AgentConfig) -> AsyncIterator[ModelClient]:
    """Open the HTTP clients of a profile's model."""
    async with (
        _http_client(config, MAX_IDLE_CONNECTIONS) as pooled,
        _http_client(config, 0) as fresh,
    ):
        masker = SecretMasker.for_secrets([config.api_key, *_extra_headers(config).values()])
        yield ModelClient(config, HttpClients(pooled, fresh), masker)


def check_config(config: AgentConfig) -> None:
    """Check what would otherwise fail in every turn.

    Raises:
        ConfigurationError: in one line, which never contains the key.
    """
    if not config.base_url:
        raise ConfigurationError(
            "base_url is missing: set it to the URL of the model server, such as http://host:8000/v1"
        )
    try:
        url = chat_url(config.base_url)
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"base_url: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError("base_url must start with http:// or https:// and have a host")
    if not _is_header_text(config.api_key):
        raise ConfigurationError("api_key has characters that are not allowed in an HTTP header")
    _extra_headers(config)


@cache
def _ssl_context() -> ssl.SSLContext:
    """Load the certificates, which takes long enough to do it only once."""
    return httpx2.create_ssl_context()


def _http_client(config: AgentConfig, max_idle: int) -> httpx2.AsyncClient:
    # Admission bounds the turns, and so the connections: a second limit would only make turns wait
    # unnoticed.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=max_idle)
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",  # compression would delay events
        "User-Agent": f"hermes-trio/{__version__}",
        **({"Authorization": f"Bearer {config.api_key}"} if config.api_key else {}),
        **_extra_headers(config),
    }
    return httpx2.AsyncClient(verify=_ssl_context(), limits=limits, headers=headers)


def _extra_headers(config: AgentConfig) -> dict[str, str]:
    """Return the ``headers`` table of the profile."""
    found = config.options.get("headers", {})
    if not isinstance(found, Mapping):
        raise ConfigurationError("headers must be a table of strings")
    for name, value in found.items():
        if not (isinstance(value, str) and _is_header_text(value) and _is_header_text(name)):
            raise ConfigurationError(
                f"headers: the value of {name!r} must be a valid HTTP header value"
            )
    return dict(found)


def _is_header_text(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not text)


provider = UpstreamProvider()
