"""Tools of MCP servers. Needs the package ``mcp``, which the extra of the same name installs.

Each server has a task that holds its connection open, because Trio requires that the task that
opens a connection also closes it. A call that finds no connection opens one; a call that loses it
fails, and the next call reconnects. A server that cannot be reached at startup is logged, and its
tools are missing.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import structlog
import trio
from attrs import define, field

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.base import Tool, ToolError, ToolUse, safe_environment
from hermes_trio.tools.inventory import mcp_toolset

if TYPE_CHECKING:
    import mcp
    from mcp.types import CallToolResult

CALL_SECONDS = 60.0
CONNECT_SECONDS = 20.0
CLOSE_SECONDS = 5.0
CONNECT_ATTEMPTS = 3
FIRST_RETRY_SECONDS = 0.5  # doubled after each failure
MAX_PAGES = 100
MAX_NAME_CHARS = 64  # what model servers accept
MAX_RESULT_CHARS = 50_000

_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_INVALID_IN_TOOL_NAME = re.compile(r"[^A-Za-z0-9_-]")
_INVALID_PARAMS, _METHOD_NOT_FOUND, _CLOSED = -32602, -32601, -32000

log = structlog.get_logger(__name__)


# -- configuration --


class ProcessServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that is started as a child process and connected over its pipes."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""  # relative to the workspace
    seconds: float = CALL_SECONDS


class HttpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server that is already running, reached over HTTP."""

    url: str
    headers: dict[str, str] = {}
    seconds: float = CALL_SECONDS


McpServer = ProcessServer | HttpServer


def read_server(name: str, table: Mapping[str, Any]) -> McpServer:
    """Parse one server's table of the settings.

    Raises:
        ConfigurationError: the table is malformed. The message is one line.
    """
    if not _SERVER_NAME.fullmatch(name):
        raise ConfigurationError(
            f"mcp: invalid server name {name!r}: use up to 32 letters, digits, - and _"
        )
    if ("command" in table) == ("url" in table):
        raise ConfigurationError(f"mcp server {name!r}: give either command or url")
    try:
        if "command" in table:
            return msgspec.convert(dict(table), ProcessServer)
        return msgspec.convert(dict(table), HttpServer)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"mcp server {name!r}: {error}") from error


def tool_name(server: str, tool: str) -> str:
    """Return the name under which the model sees a server's tool.

    Distinct tools get distinct names.
    """
    plain = f"{server}__{tool}"
    name = _INVALID_IN_TOOL_NAME.sub("_", plain)
    if name == plain and len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARS - 9]}_{digest}"


# -- connections --


@asynccontextmanager
async def open_servers(
    servers: Mapping[str, Mapping[str, Any]], workspace: Path
) -> AsyncIterator[tuple[Tool, ...]]:
    """Connect to MCP servers and yield the tools of those that respond.

    Args:
        servers: tables by name, with ``command``, ``args``, ``env``, ``cwd``, or with ``url``,
            ``headers``; and
            ``seconds``, the time limit of a call.
        workspace: the working directory of servers that do not set ``cwd``.

    Raises:
        ConfigurationError: a table is malformed, or the package is missing. The message is one
            line.
    """
    configured = {name: read_server(name, table) for name, table in servers.items()}
    if configured:
        try:
            import mcp  # noqa: F401, PLC0415 - an optional dependency
        except ImportError as error:
            raise ConfigurationError(
                "mcp: the package is missing: pip install '.[mcp]' in a clone of the repository"
            ) from error
    async with trio.open_nursery() as nursery:
        connections = [
            _Connection(name, server, workspace, nursery) for name, server in configured.items()
        ]
        async with trio.open_nursery() as connecting:
            for connection in connections:
                connecting.start_soon(connection.connect)
        yield tuple(tool for connection in connections for tool in connection.tools)
        for connection in connections:
            connection.disconnect()
        nursery.cancel_scope.deadline = trio.current_time() + CLOSE_SECONDS


@define
class _Connection:
    """One server: its client while connected, and its tools."""

    name: str
    server: McpServer
    workspace: Path
    nursery: trio.Nursery
    tools: tuple[Tool, ...] = ()
    _client: mcp.Client | None = None
    _disconnected: trio.Event = field(factory=trio.Event)
    _connect_lock: trio.Lock = field(factory=trio.Lock)

    async def connect(self) -> None:
        """Connect for the first time and list the tools.

        A server that does not respond has no tools.
        """
        try:
            with trio.fail_after(CONNECT_SECONDS):
                client: mcp.Client = await self.nursery.start(self._hold)
                self.tools = await self._list_tools(client)
        except Exception as error:  # noqa: BLE001 - a broken server must not keep ours from starting
            self.disconnect()
            log.warning("mcp_server_failed", server=self.name, error=_message(error))
        else:
            log.info("mcp_server_ready", server=self.name, tools=len(self.tools))

    def disconnect(self) -> None:
        """Close the connection, if there is one."""
        self._disconnected.set()
        self._client = None

    async def _hold(self, task_status: trio.TaskStatus[mcp.Client]) -> None:
        """Keep a connection open until :meth:`disconnect`.

        A failure to connect is raised in ``nursery.start``.
        """
        disconnected = trio.Event()
        is_open = False
        try:
            async with self._open() as client:
                self._disconnected, self._client, is_open = disconnected, client, True
                task_status.started(client)
                await disconnected.wait()
        except Exception as error:
            if not is_open:
                raise
            log.warning("mcp_server_lost", server=self.name, error=_message(error))
        finally:
            if self._disconnected is disconnected:
                self.disconnect()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[mcp.Client]:
        from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415 - an optional dependency
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

        async with AsyncExitStack() as stack:
            if isinstance(self.server, ProcessServer):
                server = self.server
                parameters = StdioServerParameters(
                    command=server.command,
                    args=list(server.args),
                    env=safe_environment(os.environ) | server.env,
                    cwd=self.workspace / server.cwd,
                )
                transport = stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)
            else:
                http = httpx2.AsyncClient(headers=self.server.headers, timeout=self.server.seconds)
                await stack.enter_async_context(http)
                transport = streamable_http_client(self.server.url, http_client=http)
            yield await stack.enter_async_context(Client(transport))

    async def _list_tools(self, client: mcp.Client) -> tuple[Tool, ...]:
        tools: dict[str, Tool] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for listed in page.tools:
                tool = self._make_tool(listed.name, listed.description or "", listed.input_schema)
                tools[tool.name] = tool
            cursor = page.next_cursor
            if not cursor:
                break
        return tuple(tools.values())

    def _make_tool(self, name: str, description: str, schema: Mapping[str, Any]) -> Tool:
        async def run(arguments: Mapping[str, Any], use: ToolUse) -> str:
            return await self._call(name, arguments, use)

        return Tool(tool_name(self.name, name), description, schema, run, mcp_toolset(self.name))

    async def _call(self, name: str, arguments: Mapping[str, Any], use: ToolUse) -> str:
        async def show(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            if message:
                await use.output(f"{message}\n")

        with trio.move_on_after(self.server.seconds):
            client = await self._connected_client()
            try:
                result = await client.call_tool(name, dict(arguments), progress_callback=show)
            except Exception as error:
                raise self._call_error(client, error) from error
            return result_text(result)
        raise ToolError(f"{self.name}: took more than {self.server.seconds:g} seconds")

    async def _connected_client(self) -> mcp.Client:
        """Return the client, reconnecting if the connection was lost.

        Raises:
            ToolError: the server cannot be reached.
        """
        failure: Exception = ConnectionError("the connection closes as soon as it is open")
        async with self._connect_lock:
            for attempt in range(CONNECT_ATTEMPTS):
                if self._client is not None:
                    return self._client
                try:
                    await self.nursery.start(self._hold)
                except Exception as error:  # noqa: BLE001 - reported to the model
                    failure = error
                    await trio.sleep(FIRST_RETRY_SECONDS * 2**attempt)
        if self._client is not None:
            return self._client
        raise ToolError(f"{self.name}: the server cannot be reached: {_message(failure)}")

    def _call_error(self, client: mcp.Client, error: Exception) -> ToolError:
        """Describe a failed call for the model, and disconnect unless the server has answered."""
        code = getattr(error, "code", _CLOSED)
        has_answered = code in (_INVALID_PARAMS, _METHOD_NOT_FOUND)
        if isinstance(self.server, ProcessServer):
            has_answered = code != _CLOSED
        if has_answered:
            return ToolError(f"{self.name}: {_message(error)}")
        if self._client is client:
            self.disconnect()
        return ToolError(
            f"{self.name}: the connection was lost during the call: {_message(error)}; the next call reconnects"
        )


def _message(error: BaseException) -> str:
    """Return an error as one line; for a group, its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split()) or type(error).__name__


# -- results --


def result_text(result: CallToolResult) -> str:
    """Return the text of a result.

    Raises:
        ToolError: with the same text, if the tool reports a failure.
    """
    parts: list[str] = []
    for content in result.content:
        resource = getattr(content, "resource", content)
        text = getattr(resource, "text", None)
        if not isinstance(text, str):  # a placeholder for what is not text
            media_type = getattr(resource, "mime_type", None) or content.type
            uri = getattr(resource, "uri", "")
            text = f"[{media_type}{f' {uri}' if uri else ''}]"
        parts.append(text)
    if not parts and result.structured_content is not None:
        parts = [msgspec.json.encode(result.structured_content).decode()]
    text = "\n".join(parts)
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:MAX_RESULT_CHARS]}\n[{len(text) - MAX_RESULT_CHARS} more characters]"
    if result.is_error:
        raise ToolError(text or "the tool failed without saying why")
    return text or "(empty)"
