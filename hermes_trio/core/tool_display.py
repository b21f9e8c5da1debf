"""How a tool call is shown to a person.

An emoji and one line of text, from its name and arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hermes_trio.core.redact import redact
from hermes_trio.core.shorten import encodable

Args = Mapping[str, Any]

DEFAULT_EMOJI = "⚡"
# A preview is one line on a screen; unbounded, a pasted file would be part of every progress event.
DEFAULT_LIMIT = 1_000
_SCANNED = 8_000  # longest prefix of an argument that is examined
_NESTED = 4  # deepest nesting of lists that is examined

_EMOJI = {
    "browser_back": "◀️",
    "browser_cdp": "🧪",
    "browser_click": "👆",
    "browser_console": "🖥️",
    "browser_dialog": "💬",
    "browser_get_images": "🖼️",
    "browser_navigate": "🌐",
    "browser_press": "⌨️",
    "browser_scroll": "📜",
    "browser_snapshot": "📸",
    "browser_type": "⌨️",
    "browser_vision": "👁️",
    "cronjob": "⏰",
    "delegate_task": "🔀",
    "execute_code": "🐍",
    "image_generate": "🎨",
    "memory": "🧠",
    "patch": "🔧",
    "process": "⚙️",
    "read_file": "📖",
    "search_files": "🔎",
    "session_search": "🔍",
    "skill_manage": "📝",
    "skill_view": "📚",
    "skills_list": "📚",
    "terminal": "💻",
    "todo": "📋",
    "vision_analyze": "👁️",
    "web_extract": "📄",
    "web_search": "🔍",
    "write_file": "✍️",
}

_MAIN_ARGUMENT = {
    "browser_click": "ref",
    "browser_navigate": "url",
    "browser_vision": "question",
    "cronjob": "action",
    "execute_code": "code",
    "image_generate": "prompt",
    "patch": "path",
    "search_files": "pattern",
    "skill_manage": "name",
    "skill_view": "name",
    "skills_list": "name",
    "vision_analyze": "question",
    "web_extract": "urls",
    "web_search": "query",
    "write_file": "path",
}
_LIKELY_ARGUMENTS = ("query", "text", "command", "path", "name", "prompt", "code", "goal")


def emoji(name: str) -> str:
    """Return the emoji of a tool."""
    return _EMOJI.get(name, DEFAULT_EMOJI)


def is_internal(name: str) -> bool:
    """Return whether a tool is internal to the agent and never shown."""
    return name.startswith("_")


def label(name: str, args: Args | None, limit: int = DEFAULT_LIMIT) -> str:
    """Return the label of a call: its preview, in which secrets are masked, or the name of the tool."""
    return preview(name, args, limit) or name


def preview(name: str, args: Args | None, limit: int = DEFAULT_LIMIT) -> str:
    """Summarise a call in one line with secrets masked, "" if there is nothing to show.

    Arguments may have any shape, because a model wrote them.
    """
    if not isinstance(args, Mapping) or not args:
        return ""
    build = _BUILDERS.get(name)
    text = build(args) if build else _main(name, args)
    # Before it is cut: half a secret does not look like one.
    return _cut(redact(encodable(" ".join(text.split()))), limit)


def _main(name: str, args: Args) -> str:
    """Return the most informative argument."""
    if name in _MAIN_ARGUMENT:
        return _text(args.get(_MAIN_ARGUMENT[name]))
    return next(filter(None, (_text(args.get(key)) for key in _LIKELY_ARGUMENTS)), "")


def _text(value: object) -> str:
    """Convert a value to text, "" if it has none worth showing."""
    for _ in range(_NESTED):
        if isinstance(value, list | tuple):
            value = value[0] if value else None
    if isinstance(value, str):
        return value[:_SCANNED]
    if isinstance(value, int) and value.bit_length() > 64:  # Python refuses to print very long ones
        return ""
    return str(value) if isinstance(value, int | float) else ""


def _whole(value: object) -> int:
    """Return a positive integer, 0 for everything else."""
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else 0
    )


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(limit - 3, 0)] + "..."[: max(limit, 0)]


def _quoted(value: object, limit: int) -> str:
    return f'"{redact(_text(value))[:limit]}"'


def _terminal(args: Args) -> str:
    # The preview of a shell command leaves out parts, and would take a password for several.
    return shell_preview(redact(_text(args.get("command"))))


def _typed(args: Args) -> str:
    return _text(args.get("text"))


def _read_file(args: Args) -> str:
    name = _text(args.get("path")).replace("\\", "/").rstrip("/").rpartition("/")[2]
    return f"{name} {_lines(_whole(args.get('offset')), _whole(args.get('limit')))}"


def _lines(first: int, count: int) -> str:
    """Format a range of lines: L5 or L5-14."""
    if not first and not count:
        return ""
    first = first or 1
    return f"L{first}-{first + count - 1}" if count > 1 else f"L{first}"


def _todo(args: Args) -> str:
    todos = args.get("todos")
    if not isinstance(todos, list | tuple):
        return "reading task list"
    return f"{'updating' if args.get('merge') is True else 'planning'} {len(todos)} task(s)"


def _process(args: Args) -> str:
    action, data, seconds = (_text(args.get(key)) for key in ("action", "data", "timeout"))
    quoted = _quoted(data, 20) if data else ""
    waited = f"{seconds}s" if seconds and action == "wait" else ""
    return " ".join((action, _text(args.get("session_id"))[:16], quoted, waited))


# action of the memory tool: its sign, and the argument that identifies the entry
_MEMORY = {"add": ("+", "content"), "replace": ("~", "old_text"), "remove": ("-", "old_text")}


def _memory(args: Args) -> str:
    action = _text(args.get("action"))
    if action not in _MEMORY:
        return action
    sign, key = _MEMORY[action]
    return f"{sign}{_text(args.get('target'))}: {_quoted(args.get(key), 25)}"


def _delegate(args: Args) -> str:
    tasks = args.get("tasks")
    if not isinstance(tasks, list | tuple) or not tasks:
        return _text(args.get("goal"))
    goals = (_text(task.get("goal") if isinstance(task, Mapping) else task) for task in tasks[:20])
    return f"{len(tasks)} task{'s' if len(tasks) > 1 else ''}: {' | '.join(filter(None, goals))}"


_BUILDERS: dict[str, Callable[[Args], str]] = {
    "browser_type": _typed,
    "delegate_task": _delegate,
    "memory": _memory,
    "process": _process,
    "read_file": _read_file,
    "terminal": _terminal,
    "todo": _todo,
}


_FILTERS = frozenset({"head", "tail", "wc", "sort", "uniq"})
# Set-up commands, and the closing words of compound commands.
_SETUP = frozenset(
    {
        "cd",
        "export",
        "set",
        "unset",
        "source",
        ".",
        "pushd",
        "popd",
        "shopt",
        "ulimit",
        "umask",
        "alias",
        "true",
        ":",
    }
    | {"done", "fi", "esac", "{", "}"}
)
_ASSIGNMENT = re.compile(r"\w+=\S*$")
_MARKER_ECHO = re.compile(
    r"""(?:echo|printf)(?:\s+-[en]+)?(?:\s+["']?\s*(?:\\n)*\s*(?:[-=#*_~+]{2,}.*|["']?))?$""",
    re.DOTALL,
)

_TOKEN = re.compile(
    r"""
      (?P<heredoc> <<-?[ \t]*["'\\]?(?P<word>\w+)["']? )
    | (?P<redirect> (?:(?<!\S)\d+|&)? (?:>>|>\||<<<|[<>]&?) (?!\() [ \t]*
                    (?: '[^']*' | "[^"]*" | [^\s;&|()<>'"]+ )? )
    | (?P<end> &&|\|\||[;&\n] )
    | (?P<pipe> \|&? )
    | (?P<comment> (?<!\S)\#[^\n]* )
    | (?P<open> \( )
    | (?P<close> \) )
    | (?P<text> '[^']*' | "(?:[^"\\]|\\.)*" | `[^`]*` | \\. | [^\s'"`\\<>&|;()]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NESTING = {"open": 1, "close": -1}
_KEPT = frozenset({"text", "open", "close"})


def shell_preview(command: str) -> str:
    """Summarise a shell command: the first part that matters, and the number of further ones.

    Reads just enough of the shell's grammar (quotes, brackets, here-documents, separators,
    redirections) not to cut in the wrong place. For display only: no decision is based on it.
    """
    shown = [line for line in map(_pipeline, _split(command)) if line and not _is_noise(line)]
    if not shown:
        return " ".join(command.split())
    more = len(shown) - 1
    return shown[0] if not more else f"{shown[0]} + {more} command{'s' if more > 1 else ''}"


def _split(command: str) -> list[list[str]]:
    """Split into command lines, each a list of pipeline parts, without redirections and comments."""
    lines = [[""]]
    position = depth = 0
    while match := _TOKEN.match(command, position):
        kind, position = match.lastgroup or "", match.end()
        depth = max(depth + _NESTING.get(kind, 0), 0)
        if depth or kind in _KEPT:
            lines[-1][-1] += match[0]
        elif kind == "heredoc":  # the shell continues after the here-document, whose text is data
            start = command.find("\n", position)
            final = re.compile(rf"^\t*{match['word']}$", re.MULTILINE)
            found = final.search(command, start) if start >= 0 else None
            position = found.end() if found else len(command)
        elif kind == "end":
            lines.append([""])
        elif kind == "pipe":
            lines[-1].append("")
    return lines


def _pipeline(parts: list[str]) -> str:
    """Join a pipeline, without trailing filters that only shape the output."""
    words = [part.split() for part in parts]
    while len(words) > 1 and words[-1][:1] and words[-1][0] in _FILTERS:
        words.pop()
    return " ".join(" | ".join(" ".join(part) for part in words).split())


def _is_noise(line: str) -> bool:
    """Return whether the line only sets things up or prints a separator."""
    return line.split(maxsplit=1)[0] in _SETUP or bool(
        _ASSIGNMENT.match(line) or _MARKER_ECHO.match(line)
    )
