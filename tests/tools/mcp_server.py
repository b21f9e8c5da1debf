"""A small MCP server, run as a program.

Over its pipes, or as ``http`` on a free port, which it prints.
"""

from __future__ import annotations

import os
import socket
import sys

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from opentelemetry import propagate

server = MCPServer("tests")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(name="read env.names")
def environment() -> str:
    """Tell the environment."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items())


@server.tool()
def folder() -> str:
    """Tell the working directory."""
    return os.getcwd()


@server.tool()
def trace() -> str:
    """Tell the trace context of the call."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers.get("traceparent", "none")


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("it did not work")


@server.tool()
def picture() -> Image:
    """Draw."""
    return Image(data=b"x", format="png")


@server.tool()
async def hang(context: Context) -> str:
    """Never return."""
    await context.report_progress(1, 2, "hanging")
    await anyio.sleep_forever()
    return ""


@server.tool()
def die() -> str:
    """End the server in the middle of a call."""
    os._exit(1)


def serve_http() -> None:
    """Serve on a free port, or on the one that is given."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    listener.listen()
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    anyio.run(lambda: uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        serve_http()
    else:
        server.run()
