"""A shell command in a few words: what it does, without the plumbing around it.

This reads just enough of the shell's grammar (quotes, brackets, here-documents, separators, redirections) not to cut in the
wrong place. It is for display only and never decides anything.
"""

from __future__ import annotations

import re

_FILTERS = frozenset({"head", "tail", "wc", "sort", "uniq"})
# Preparation, and the closing words of compound commands.
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
    r"""(?:echo|printf)(?:\s+-[en]+)?(?:\s+["']?\s*(?:\\n)*\s*(?:[-=#*_~+]{2,}.*|["']?))?$""", re.DOTALL
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
    """The first command that matters, and how many more there are."""
    shown = [line for line in map(_pipeline, _split(command)) if line and not _is_noise(line)]
    if not shown:
        return " ".join(command.split())
    more = len(shown) - 1
    return shown[0] if not more else f"{shown[0]} + {more} command{'s' if more > 1 else ''}"


def _split(command: str) -> list[list[str]]:
    """The command lines, each as the parts of its pipeline, redirections and comments cut."""
    lines = [[""]]
    position = depth = 0
    while match := _TOKEN.match(command, position):
        kind, position = match.lastgroup or "", match.end()
        depth = max(depth + _NESTING.get(kind, 0), 0)
        if depth or kind in _KEPT:
            lines[-1][-1] += match[0]
        elif kind == "heredoc":
            position = _after_heredoc(command, position, match["word"])
        elif kind == "end":
            lines.append([""])
        elif kind == "pipe":
            lines[-1].append("")
    return lines


def _after_heredoc(command: str, position: int, word: str) -> int:
    """Where the shell reads on after the document; its text is data and not commands."""
    start = command.find("\n", position)
    end = re.compile(rf"^\t*{word}$", re.MULTILINE).search(command, start) if start >= 0 else None
    return end.end() if end else len(command)


def _pipeline(parts: list[str]) -> str:
    """One line, without the filters at its end that only shape the output."""
    words = [part.split() for part in parts]
    while len(words) > 1 and words[-1][:1] and words[-1][0] in _FILTERS:
        words.pop()
    return " ".join(" | ".join(" ".join(part) for part in words).split())


def _is_noise(line: str) -> bool:
    """Whether the line only prepares the ground or prints a separator."""
    return line.split(maxsplit=1)[0] in _SETUP or bool(_ASSIGNMENT.match(line) or _MARKER_ECHO.match(line))
