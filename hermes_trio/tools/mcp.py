"""Tools of MCP servers. Needs the package ``mcp``, which the extra of the same name installs.

Each server has a task that holds its connection open, because what opens a connection must also close it. A call that
finds no connection has one opened; a call that loses it says so, and the next one tries again. A server that cannot be
reached when we start is logged, and its tools are missing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import structlog
import trio
from attrs import define, field

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.base import Tool, ToolError, ToolUse
from hermes_trio.tools.environment import plain_environment
from hermes_trio.tools.mcp_config import ProcessServer, Server, read_server, tool_name
from hermes_trio.tools.mcp_results import result_text

if TYPE_CHECKING:
    import mcp

OPENING_SECONDS = 20.0
CLOSING_SECONDS = 5.0
TRIES = 3
PAUSE = 0.5  # after the first failure; doubled after each
MOST_PAGES = 100

_INVALID_PARAMS, _METHOD_NOT_FOUND, _CLOSED = -32602, -32601, -32000

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_servers(
    servers: Mapping[str, Mapping[str, Any]], workspace: Path
) -> AsyncIterator[tuple[Tool, ...]]:
    """Connect to servers; gives the tools of all that answer.

    Args:
        servers: tables by name, with ``command``, ``args``, ``env``, ``cwd``, or with ``url``, ``headers``; and
            ``seconds`` for each call.
        workspace: where servers start that have no folder of their own.

    Raises:
        ConfigurationError: a table is wrong, or the package is missing. The text is one line.
    """
    read = {name: read_server(name, table) for name, table in servers.items()}
    if read:
        _need_package()
    async with trio.open_nursery() as nursery:
        links = [_Link(name, server, workspace, nursery) for name, server in read.items()]
        async with trio.open_nursery() as opening:
            for link in links:
                opening.start_soon(link.begin)
        yield tuple(tool for link in links for tool in link.tools)
        for link in links:
            link.let_go()
        nursery.cancel_scope.deadline = trio.current_time() + CLOSING_SECONDS


def _need_package() -> None:
    try:
        import mcp  # noqa: F401, PLC0415 - only those who name a server need it
    except ImportError as error:
        raise ConfigurationError("mcp: the package is missing: pip install 'hermes-trio[mcp]'") from error


@define
class _Link:
    """One server: its connection if there is one, and its tools."""

    name: str
    server: Server
    workspace: Path
    nursery: trio.Nursery
    tools: tuple[Tool, ...] = ()
    _client: mcp.Client | None = None
    _lost: trio.Event = field(factory=trio.Event)
    _opening: trio.Lock = field(factory=trio.Lock)

    async def begin(self) -> None:
        """Connect for the first time. A server that does not answer has no tools."""
        try:
            with trio.fail_after(OPENING_SECONDS):
                client: mcp.Client = await self.nursery.start(self._hold)
                self.tools = await self._listed(client)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is that server's and not ours
            self.let_go()
            log.warning("mcp_server_failed", server=self.name, error=_said(error))
        else:
            log.info("mcp_server_ready", server=self.name, tools=len(self.tools))

    def let_go(self) -> None:
        """Close the connection, if there is one."""
        self._lost.set()
        self._client = None

    async def _hold(self, task_status: trio.TaskStatus[mcp.Client]) -> None:
        """Keep a connection open until it is let go. A failure before it is open belongs to who wanted it."""
        lost = trio.Event()
        is_open = False
        try:
            async with self._connection() as client:
                self._lost, self._client, is_open = lost, client, True
                task_status.started(client)
                await lost.wait()
        except Exception as error:
            if not is_open:
                raise
            log.warning("mcp_server_lost", server=self.name, error=_said(error))
        finally:
            if self._lost is lost:
                self.let_go()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[mcp.Client]:
        from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415 - see above
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

        async with AsyncExitStack() as stack:
            if isinstance(self.server, ProcessServer):
                server = self.server
                parameters = StdioServerParameters(
                    command=server.command,
                    args=list(server.args),
                    env=plain_environment(os.environ) | server.env,
                    cwd=self.workspace / server.cwd,
                )
                transport = stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)
            else:
                http = httpx2.AsyncClient(headers=self.server.headers, timeout=self.server.seconds)
                await stack.enter_async_context(http)
                transport = streamable_http_client(self.server.url, http_client=http)
            yield await stack.enter_async_context(Client(transport))

    async def _listed(self, client: mcp.Client) -> tuple[Tool, ...]:
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools.extend(
                self._tool(each.name, each.description or "", each.input_schema) for each in page.tools
            )
            cursor = page.next_cursor
            if not cursor:
                break
        return tuple({tool.name: tool for tool in tools}.values())

    def _tool(self, name: str, description: str, schema: Mapping[str, Any]) -> Tool:
        async def run(arguments: Mapping[str, Any], use: ToolUse) -> str:
            return await self._call(name, arguments, use)

        return Tool(tool_name(self.name, name), description, schema, run)

    async def _call(self, name: str, arguments: Mapping[str, Any], use: ToolUse) -> str:
        async def show(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
            if message:
                await use.output(f"{message}\n")

        with trio.move_on_after(self.server.seconds):
            client = await self._connected()
            try:
                result = await client.call_tool(name, dict(arguments), progress_callback=show)
            except Exception as error:
                raise self._problem(client, error) from error
            return result_text(result)
        raise ToolError(f"{self.name}: took more than {self.server.seconds:g} seconds")

    async def _connected(self) -> mcp.Client:
        """The connection; opened anew if it was lost.

        Raises:
            ToolError: the server does not answer.
        """
        problem: Exception = ConnectionError("it ends as soon as it has begun")
        async with self._opening:
            for number in range(TRIES):
                if self._client is not None:
                    return self._client
                try:
                    await self.nursery.start(self._hold)
                except Exception as error:  # noqa: BLE001 - whatever it is, the model reads it
                    problem = error
                    await trio.sleep(PAUSE * 2**number)
        if self._client is not None:
            return self._client
        raise ToolError(f"{self.name}: the server cannot be reached: {_said(problem)}")

    def _problem(self, client: mcp.Client, error: Exception) -> ToolError:
        """What the model reads of a call that failed. The connection is kept if the server has answered."""
        code = getattr(error, "code", _CLOSED)
        has_answered = code in (_INVALID_PARAMS, _METHOD_NOT_FOUND)
        if isinstance(self.server, ProcessServer):
            has_answered = code != _CLOSED
        if has_answered:
            return ToolError(f"{self.name}: {_said(error)}")
        if self._client is client:
            self.let_go()
        return ToolError(
            f"{self.name}: the server was lost in the middle of the call: {_said(error)}; the next call connects anew"
        )


def _said(error: BaseException) -> str:
    """An error in one line; of a group, its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split()) or type(error).__name__
