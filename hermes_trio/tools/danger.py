"""Which shell commands a person should see before they run.

A command is read as a shell would read it, and each program that it would start is held against a list of rules.
Programs that start programs are looked through. What cannot be understood counts as dangerous. This guards against a
model that goes astray, not against one that hides what it does: nobody can tell what a script that is only read at run
time will do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from posixpath import basename

from attrs import frozen

from hermes_trio.tools.danger_rules import (
    CODE_THAT_ACTS,
    DATABASE,
    HARMLESS,
    INTERPRETERS,
    RULES,
    SHELLS,
    WRAPPERS,
    is_private_place,
)
from hermes_trio.tools.shell_reader import COMPUTED, Pipeline, SimpleCommand, Unreadable, read_script


@frozen
class Danger:
    """One reason to ask: a short name that stays the same, and what to tell the user."""

    key: str
    description: str


UNREADABLE = Danger("unreadable", "cannot be understood before it runs")
UNKNOWN = Danger("computed-program", "only the run shows which program starts")
FORK_BOMB = Danger("fork-bomb", "starts processes without end")
PIPED = Danger("pipe-to-shell", "runs what another program prints")
SQL = Danger("sql-destroy", "drops or empties a database table")
CODE = Danger("code-acts", "runs code that deletes files or starts programs")
PRIVATE = Danger("system-files", "writes to system files, keys or the files of a shell's start")

_DEEPEST = 8
_MOST_INNER = 200
_PATIENCE, _EFFORT = 1_000_000, 200  # characters of scripts, and what a command costs in these
_BOMB = re.compile(r"(?<![\w:.])([\w:.]{1,40})\(\)\{\1\|\1&\};?\1")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_RESERVED = frozenset(
    {
        "!",
        "{",
        "}",
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "do",
        "done",
        "while",
        "until",
        "time",
        "case",
        "esac",
    }
)
_TAKING_SCRIPTS = frozenset({"eval", "ssh", "watch", "trap", "parallel"})
_TAKING_OPTION_C = SHELLS | {"su", "runuser", "script"}
_STARTERS = WRAPPERS | _TAKING_SCRIPTS | _TAKING_OPTION_C | {"find"}
_DOWNLOADS = frozenset({"curl", "wget", "fetch", "aria2c", "http", "nc"})


def dangers(command: str) -> tuple[Danger, ...]:
    """What is dangerous about a command, each thing once. Nothing means: go ahead."""
    found = [FORK_BOMB] if _BOMB.search(re.sub(r"\s", "", command)) else []
    try:
        found.extend(_Search().in_script(command, 0))
    except Unreadable:
        found.append(UNREADABLE)
    return tuple(dict.fromkeys(found))


class _Search:
    """Goes through a command and all that it would start. It looks at the same words once, and not for ever.

    Its methods raise :class:`Unreadable`.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()
        self._patience = _PATIENCE

    def in_script(self, script: str, depth: int) -> Iterator[Danger]:
        """What a script would do."""
        self._spend(len(script))
        if depth > _DEEPEST:
            raise Unreadable("nested too deeply")
        for pipeline in read_script(script):
            yield from self._in_pipeline(pipeline, depth)

    def _spend(self, effort: int) -> None:
        self._patience -= effort
        if self._patience < 0:
            raise Unreadable("too much to look at")

    def _in_pipeline(self, pipeline: Pipeline, depth: int) -> Iterator[Danger]:
        names = [_program(_bare(command.words)) for command in pipeline]
        for number, command in enumerate(pipeline):
            yield from self._in_command(command, depth)
            if number and _runs_input(_bare(command.words), names[:number]):
                yield PIPED
        texts = [text for command in pipeline for text in (*command.words, *command.documents)]
        if not set(names) <= HARMLESS and any(DATABASE.search(text) for text in texts):
            yield SQL

    def _in_command(self, command: SimpleCommand, depth: int) -> Iterator[Danger]:
        if any("<" not in each.operator and is_private_place(each.target) for each in command.redirects):
            yield PRIVATE
        words = _bare(command.words)
        yield from self._in_words(words, depth)
        if _program(words) in SHELLS:
            for document in command.documents:
                yield from self.in_script(document, depth + 1)

    def _in_words(self, words: Sequence[str], depth: int) -> Iterator[Danger]:
        """The program that these words start, and those that it starts."""
        if not words or tuple(words) in self._seen:
            return
        self._seen.add(tuple(words))
        self._spend(_EFFORT + len(words))
        name, arguments = _program(words), list(words[1:])
        if _is_computed(words[0]):
            yield UNKNOWN
        yield from (Danger(rule.key, rule.description) for rule in RULES if rule.applies(name, arguments))
        if name in INTERPRETERS and any(CODE_THAT_ACTS.search(argument) for argument in arguments):
            yield CODE
        yield from self._in_inner(name, arguments, depth)

    def _in_inner(self, name: str, arguments: list[str], depth: int) -> Iterator[Danger]:
        if name in _STARTERS and len(arguments) > _MOST_INNER:
            raise Unreadable("too many words")
        for script in _scripts(name, arguments):
            yield from self.in_script(script, depth + 1)
        for words in _inner_commands(name, arguments):
            yield from self._in_words(words, depth)


def _scripts(name: str, arguments: list[str]) -> Sequence[str]:
    """Words that are scripts themselves."""
    if name in _TAKING_OPTION_C and any(re.match(r"-\w*c|--command", each) for each in arguments):
        return [
            each.removeprefix("--command=") for each in arguments if not re.match(r"-(?!-command=)", each)
        ]
    if name in _TAKING_SCRIPTS:
        return [" ".join(arguments), *arguments]
    return ()


def _inner_commands(name: str, arguments: list[str]) -> Sequence[Sequence[str]]:
    """Commands that are words of a command. Where options end is not known: each word may be the first."""
    if name == "find":
        marks = [place for place, word in enumerate(arguments) if re.fullmatch(r"-(exec|ok)(dir)?", word)]
        return [arguments[place + 1 :] for place in marks]
    if name in WRAPPERS | _TAKING_SCRIPTS:
        return [rest for place in range(len(arguments)) if (rest := _bare(arguments[place:]))]
    return ()


def _runs_input(words: Sequence[str], sources: Sequence[str]) -> bool:
    """Whether a program runs what it reads from a pipe."""
    programs = (
        {_program(words[place:]) for place in range(len(words))} if _is_wrapper(words) else {_program(words)}
    )
    files = [word for word in words[1:] if not word.startswith("-") and word != "/dev/stdin"]
    if programs & SHELLS:
        return not files or "-s" in words or _is_wrapper(words)
    return bool(programs & INTERPRETERS and set(sources) & _DOWNLOADS)


def _is_wrapper(words: Sequence[str]) -> bool:
    return _program(words) in WRAPPERS


def _bare(words: Sequence[str]) -> list[str]:
    """The words without the assignments and reserved words in front."""
    first = 0
    while first < len(words) and (words[first] in _RESERVED or _ASSIGNMENT.match(words[first])):
        first += 3 if words[first] == "case" else 1  # case WORD in
    return list(words[first:])


def _program(words: Sequence[str]) -> str:
    return basename(words[0]) if words else ""


def _is_computed(word: str) -> bool:
    """Whether the name of a program depends on what happens at run time."""
    return word != "()" and (COMPUTED in word or any(mark in word for mark in "$*?") or "{" in word[:1])
