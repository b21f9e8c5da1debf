"""Detect shell commands that need a person's approval before they run.

A command is parsed as a shell would parse it, and each program that it would start is matched
against the rules, including programs started by other programs. A command that cannot be parsed
counts as dangerous. This guards against a model that goes astray, not against one that hides what
it does: no analysis can tell what a script generated at run time will do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from posixpath import basename

from attrs import frozen

from hermes_trio.tools.danger_rules import (
    DESTRUCTIVE_SQL,
    DISPLAY_PROGRAMS,
    INTERPRETERS,
    RULES,
    SHELLS,
    SIDE_EFFECT_CODE,
    WRAPPERS,
    is_protected_path,
)
from hermes_trio.tools.shell_parser import (
    COMPUTED,
    Pipeline,
    SimpleCommand,
    UnparsableScript,
    parse_script,
)


@frozen
class Danger:
    """One reason to ask for approval: a stable key, and a description for the user."""

    key: str
    description: str


UNREADABLE = Danger("unreadable", "cannot be analysed before it runs")
COMPUTED_PROGRAM = Danger("computed-program", "starts a program that is only known at run time")
FORK_BOMB = Danger("fork-bomb", "starts processes without limit")
PIPE_TO_SHELL = Danger("pipe-to-shell", "runs the output of another program as code")
SQL_DESTROY = Danger("sql-destroy", "drops or empties a database table")
CODE_ACTS = Danger("code-acts", "runs code that deletes files or starts programs")
SYSTEM_FILES = Danger("system-files", "writes to system files, keys or shell startup files")

_MAX_DEPTH = 8
_MAX_INNER_WORDS = 200
_WORK_BUDGET = 1_000_000  # characters of scripts
_COMMAND_COST = 200  # in the same unit
_FORK_BOMB_PATTERN = re.compile(r"(?<![\w:.])([\w:.]{1,40})\(\)\{\1\|\1&\};?\1")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_RESERVED = frozenset(
    {
        "!", "{", "}", "if", "then", "elif", "else", "fi", "do", "done", "while", "until", "time", "case", "esac",
    }
)  # fmt: skip
_SCRIPT_PROGRAMS = frozenset({"eval", "ssh", "watch", "trap", "parallel"})
_OPTION_C_PROGRAMS = SHELLS | {"su", "runuser", "script"}
_STARTERS = WRAPPERS | _SCRIPT_PROGRAMS | _OPTION_C_PROGRAMS | {"find"}
_DOWNLOADS = frozenset({"curl", "wget", "fetch", "aria2c", "http", "nc"})


def find_dangers(command: str) -> tuple[Danger, ...]:
    """Return the dangers of a command without duplicates; empty if it needs no approval."""
    found = [FORK_BOMB] if _FORK_BOMB_PATTERN.search(re.sub(r"\s", "", command)) else []
    try:
        found.extend(_DangerFinder().in_script(command, 0))
    except UnparsableScript:
        found.append(UNREADABLE)
    return tuple(dict.fromkeys(found))


class _DangerFinder:
    """Walks a command and everything it would start, within a work budget, and visits the same words only once.

    Its methods raise :class:`UnparsableScript`.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()
        self._budget = _WORK_BUDGET

    def in_script(self, script: str, depth: int) -> Iterator[Danger]:
        """Yield the dangers of a script."""
        self._spend(len(script))
        if depth > _MAX_DEPTH:
            raise UnparsableScript("nested too deeply")
        for pipeline in parse_script(script):
            yield from self._in_pipeline(pipeline, depth)

    def _spend(self, cost: int) -> None:
        self._budget -= cost
        if self._budget < 0:
            raise UnparsableScript("too complex")

    def _in_pipeline(self, pipeline: Pipeline, depth: int) -> Iterator[Danger]:
        names = [_program_name(_strip_prefix(command.words)) for command in pipeline]
        for number, command in enumerate(pipeline):
            yield from self._in_command(command, depth)
            if number and _runs_input(_strip_prefix(command.words), names[:number]):
                yield PIPE_TO_SHELL
        texts = [text for command in pipeline for text in (*command.words, *command.documents)]
        if not set(names) <= DISPLAY_PROGRAMS and any(
            DESTRUCTIVE_SQL.search(text) for text in texts
        ):
            yield SQL_DESTROY

    def _in_command(self, command: SimpleCommand, depth: int) -> Iterator[Danger]:
        if any(
            "<" not in each.operator and is_protected_path(each.target)
            for each in command.redirects
        ):
            yield SYSTEM_FILES
        words = _strip_prefix(command.words)
        yield from self._in_words(words, depth)
        if _program_name(words) in SHELLS:
            for document in command.documents:
                yield from self.in_script(document, depth + 1)

    def _in_words(self, words: Sequence[str], depth: int) -> Iterator[Danger]:
        """Yield the dangers of the program that these words start, and of the programs that it starts."""
        if not words or tuple(words) in self._seen:
            return
        self._seen.add(tuple(words))
        self._spend(_COMMAND_COST + len(words))
        name, arguments = _program_name(words), list(words[1:])
        if _is_computed(words[0]):
            yield COMPUTED_PROGRAM
        yield from (
            Danger(rule.key, rule.description) for rule in RULES if rule.applies(name, arguments)
        )
        if name in INTERPRETERS and any(
            SIDE_EFFECT_CODE.search(argument) for argument in arguments
        ):
            yield CODE_ACTS
        yield from self._in_arguments(name, arguments, depth)

    def _in_arguments(self, name: str, arguments: list[str], depth: int) -> Iterator[Danger]:
        if name in _STARTERS and len(arguments) > _MAX_INNER_WORDS:
            raise UnparsableScript("too many words")
        for script in _scripts(name, arguments):
            yield from self.in_script(script, depth + 1)
        for words in _inner_commands(name, arguments):
            yield from self._in_words(words, depth)


def _scripts(name: str, arguments: list[str]) -> Sequence[str]:
    """Return the arguments that are scripts themselves."""
    if name in _OPTION_C_PROGRAMS and any(re.match(r"-\w*c|--command", each) for each in arguments):
        return [
            each.removeprefix("--command=")
            for each in arguments
            if not re.match(r"-(?!-command=)", each)
        ]
    if name in _SCRIPT_PROGRAMS:
        return [" ".join(arguments), *arguments]
    return ()


def _inner_commands(name: str, arguments: list[str]) -> Sequence[Sequence[str]]:
    """Return commands among the arguments.

    Where options end is unknown, so every argument may start one.
    """
    if name == "find":
        marks = [
            index for index, word in enumerate(arguments) if re.fullmatch(r"-(exec|ok)(dir)?", word)
        ]
        return [arguments[index + 1 :] for index in marks]
    if name in WRAPPERS | _SCRIPT_PROGRAMS:
        return [
            rest for index in range(len(arguments)) if (rest := _strip_prefix(arguments[index:]))
        ]
    return ()


def _runs_input(words: Sequence[str], sources: Sequence[str]) -> bool:
    """Return True if a program executes what it reads from a pipe."""
    programs = (
        {_program_name(words[index:]) for index in range(len(words))}
        if _is_wrapper(words)
        else {_program_name(words)}
    )
    files = [word for word in words[1:] if not word.startswith("-") and word != "/dev/stdin"]
    if programs & SHELLS:
        return not files or "-s" in words or _is_wrapper(words)
    return bool(programs & INTERPRETERS and set(sources) & _DOWNLOADS)


def _is_wrapper(words: Sequence[str]) -> bool:
    return _program_name(words) in WRAPPERS


def _strip_prefix(words: Sequence[str]) -> list[str]:
    """Return the words without leading assignments and reserved words."""
    first = 0
    while first < len(words) and (words[first] in _RESERVED or _ASSIGNMENT.match(words[first])):
        first += 3 if words[first] == "case" else 1  # case WORD in
    return list(words[first:])


def _program_name(words: Sequence[str]) -> str:
    return basename(words[0]) if words else ""


def _is_computed(word: str) -> bool:
    """Return True if the name of a program is only known at run time."""
    return word != "()" and (
        COMPUTED in word or any(mark in word for mark in "$*?") or "{" in word[:1]
    )
