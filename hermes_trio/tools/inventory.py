"""The toolsets that a profile's tools belong to, for clients that list them."""

from __future__ import annotations

from collections.abc import Iterable

from hermes_trio.agent.inventory import Inventory, Toolset
from hermes_trio.tools.base import Tool

# The built-in ones, as in ``SHIPPED`` of the registry, under the names that Hermes uses.
BUILT_IN = (
    Toolset(
        "file",
        ("patch", "read_file", "search_files", "write_file"),
        "Files",
        "Read, search, write and change the files of the workspace",
    ),
    Toolset("terminal", ("terminal",), "Terminal", "Run shell commands"),
    Toolset("web", ("web_fetch",), "Web", "Fetch web pages"),
)
OWN = Toolset("custom", (), "Own tools", "Functions that the settings name")


def mcp_toolset(server: str) -> str:
    """Return the name of the toolset of an MCP server."""
    return f"mcp-{server}"


def describe_tools(tools: Iterable[Tool], mcp_servers: Iterable[str]) -> Inventory:
    """Return the toolsets of a profile.

    Built-in ones without a tool in use are listed as not enabled. An MCP server that did not
    respond has no tools.
    """
    used: dict[str, list[str]] = {}
    names = {name: toolset.name for toolset in BUILT_IN for name in toolset.tools}
    for tool in tools:
        used.setdefault(tool.toolset or names.get(tool.name, OWN.name), []).append(tool.name)
    toolsets = [
        _with_tools(known, used[known.name])
        if known.name in used
        else Toolset(known.name, known.tools, known.label, known.description, is_enabled=False)
        for known in BUILT_IN
    ]
    if OWN.name in used:
        toolsets.append(_with_tools(OWN, used[OWN.name]))
    for server in sorted(mcp_servers):
        name = mcp_toolset(server)
        label, description = f"MCP: {server}", f"Tools of the MCP server {server}"
        toolsets.append(Toolset(name, tuple(sorted(used.get(name, ()))), label, description))
    return Inventory(tuple(toolsets))


def _with_tools(known: Toolset, names: Iterable[str]) -> Toolset:
    return Toolset(known.name, tuple(sorted(names)), known.label, known.description)
