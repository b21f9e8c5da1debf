"""Reading a shell script far enough to know which programs it would start, with which words.

This is no shell: nothing is expanded. Quotes are removed, operators, redirections and here-documents are understood,
and what a substitution would run is read as a script of its own. What cannot be understood is an error, never a guess.
"""

from __future__ import annotations

import re

from attrs import Factory, define, frozen

COMPUTED = "$()"
"""Stands in a word for what a substitution would print."""

LONGEST = 131_072
"""No command is longer: the kernel does not take it."""

_DEEPEST = 20
_BLANK = re.compile(r"(?:[ \t\r]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_SEPARATOR = re.compile(r";;?&?|&&|\|\||&(?!>)")
_PIPE = re.compile(r"\|&?")
_REDIRECT = re.compile(r"\d*(<<<|<<-|<<|<>|<&|>>|>\||>&|<(?!\()|>(?!\()|&>>|&>)")
_CALLED = re.compile(r"\([ \t]*\)")
_PLAIN = re.compile(r"[^ \t\r\n'\"\\$`;&|()<>]+")
_QUOTED_PLAIN = re.compile(r"[^\"\\$`]+")
_ANSI = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)

_ANSI_CODE = re.compile(r"\\(?:[xuU]([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL)


class Unreadable(Exception):
    """The script ends in the middle of something, or uses what this reader does not know."""


@frozen
class Redirect:
    """Where input or output goes."""

    operator: str
    target: str


@define
class SimpleCommand:
    """A program and its words. What is read from a here-document stands in ``documents``."""

    words: list[str] = Factory(list)
    redirects: list[Redirect] = Factory(list)
    documents: list[str] = Factory(list)

    def __bool__(self) -> bool:
        return bool(self.words or self.redirects)


Pipeline = list[SimpleCommand]


def read_script(text: str) -> list[Pipeline]:
    """All commands of a script, those of its substitutions included, grouped by pipeline.

    Raises:
        Unreadable: it cannot be understood.
    """
    if len(text) > LONGEST:
        raise Unreadable("too long")
    pipelines: list[Pipeline] = []
    _Reader(text, pipelines, 0).script("")
    return pipelines


def _ansi_character(found: re.Match[str]) -> str:
    hexadecimal, octal, letter = found.groups("")
    if hexadecimal or octal:
        return chr(int(hexadecimal or octal, 16 if hexadecimal else 8) % 0x110000)
    return {"n": "\n", "t": "\t", "r": "\r"}.get(letter, letter)


def _is_pattern(pipeline: Pipeline) -> bool:
    return all(len(command.words) == 1 and set(command.words[0]) & set("*?[") for command in pipeline)


@frozen
class _Awaited:
    """A here-document that begins on the next line."""

    command: SimpleCommand
    delimiter: str
    is_literal: bool
    has_tabs: bool


class _Reader:
    """Reads one text. Substitutions are read by further calls, or further readers, into the same list."""

    def __init__(self, text: str, pipelines: list[Pipeline], depth: int) -> None:
        if depth > _DEEPEST:
            raise Unreadable("nested too deeply")
        self._text, self._at, self._pipelines, self._depth = text, 0, pipelines, depth
        self._awaited: list[_Awaited] = []

    # -- scripts --

    def script(self, until: str) -> None:
        """Read commands up to a closing character, or to the end of the text."""
        pipeline: Pipeline = [SimpleCommand()]
        while not self._is_at_end(until):
            if self._takes("\n"):
                pipeline = self._finished(pipeline)
                self._read_documents()
            elif self._matches(_SEPARATOR):
                pipeline = self._finished(pipeline)
            elif self._matches(_PIPE):
                pipeline.append(SimpleCommand())
            elif self._takes(")") or self._matches(_CALLED):
                # What stood before it is a pattern of case, or the name of a function.
                pipeline = [SimpleCommand()] if _is_pattern(pipeline) else self._finished(pipeline)
            elif self._takes("(("):
                raise Unreadable("arithmetic, or a subshell in a subshell")
            elif self._takes("("):
                self._nested(")")
                pipeline[-1].words.append("()")
            else:
                self._redirect_or_word(pipeline[-1])
        self._finished(pipeline)

    def _is_at_end(self, until: str) -> bool:
        while self._matches(_BLANK) or self._matches(_COMMENT):
            pass
        if self._at < len(self._text):
            return bool(until) and self._takes(until)
        if until:
            raise Unreadable(f"no closing {until}")
        return True

    def _finished(self, pipeline: Pipeline) -> Pipeline:
        if any(pipeline):
            self._pipelines.append(pipeline)
        return [SimpleCommand()]

    def _nested(self, until: str) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Unreadable("nested too deeply")
        self.script(until)
        self._depth -= 1

    def _redirect_or_word(self, command: SimpleCommand) -> None:
        found = _REDIRECT.match(self._text, self._at)
        if found is None:
            command.words.append(self._word())
            return
        self._at = found.end()
        self._matches(_BLANK)
        begin = self._at
        target = self._word()
        if found[1] in ("<<", "<<-"):
            is_literal = self._text[begin : self._at] != target
            self._awaited.append(_Awaited(command, target, is_literal, found[1] == "<<-"))
        elif found[1] == "<<<":
            command.documents.append(target)
        else:
            command.redirects.append(Redirect(found[1], target))

    def _read_documents(self) -> None:
        awaited, self._awaited = self._awaited, []
        for document in awaited:
            body = self._document(document)
            document.command.documents.append(body)
            if not document.is_literal:
                _Reader(body, self._pipelines, self._depth + 1).text("")

    def _document(self, document: _Awaited) -> str:
        lines: list[str] = []
        while self._at < len(self._text):
            end = self._text.find("\n", self._at) % (len(self._text) + 1)
            line, self._at = self._text[self._at : end], end + 1
            line = line.lstrip("\t") if document.has_tabs else line
            if line == document.delimiter:
                return "\n".join(lines)
            lines.append(line)
        raise Unreadable(f"no end of the here-document {document.delimiter}")

    # -- words --

    def _word(self) -> str:
        parts: list[str] = []
        while (part := self._part()) is not None:
            parts.append(part)
        if not parts:
            raise Unreadable("a word is missing")
        return "".join(parts)

    def _part(self) -> str | None:
        """The next piece of a word, without its quotes; none where the word ends."""
        if found := self._matches(_PLAIN):
            return found
        if self._takes("<(") or self._takes(">("):
            return self._substitution()
        quoted = self._quoted()
        return self._expansion() if quoted is None else quoted

    def _quoted(self) -> str | None:
        if self._takes("'"):
            return self._up_to("'")
        if self._takes('"'):
            return self.text('"')
        if self._takes("\\"):
            return self._escaped()
        return self._ansi() if self._takes("$'") else None

    def _substitution(self) -> str:
        self._nested(")")
        return COMPUTED

    def _expansion(self) -> str | None:
        if self._takes("$(("):
            return self._arithmetic()
        if self._takes("$("):
            return self._substitution()
        if self._takes("`"):
            return self._backticks()
        if self._takes("${"):
            return f"${self.text('}')}"
        return "$" if self._takes("$") else None

    def text(self, until: str) -> str:
        """What stands in double quotes, in braces or in a here-document: only expansions mean something."""
        parts: list[str] = []
        while self._at < len(self._text):
            if until and self._takes(until):
                return "".join(parts)
            parts.append(self._text_part(until))
        if until:
            raise Unreadable(f"no closing {until}")
        return "".join(parts)

    def _text_part(self, until: str) -> str:
        if self._takes("\\"):
            return self._escaped()
        if (found := self._expansion()) is not None:
            return found
        if until != "}":
            return self._matches(_QUOTED_PLAIN) or self._any()
        if self._takes("'"):
            raise Unreadable("a quote in braces, which shells read in two ways")
        return self.text('"') if self._takes('"') else self._any()

    def _any(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _escaped(self) -> str:
        if self._at >= len(self._text):
            return "\\"
        character = self._any()
        return "" if character == "\n" else character

    def _ansi(self) -> str:
        found = self._matches(_ANSI)
        if not self._takes("'") or "\\'" in found:
            raise Unreadable("a quoted quote, which shells read in two ways")
        return _ANSI_CODE.sub(_ansi_character, found)

    def _arithmetic(self) -> str:
        opened = 0
        while opened or not self._takes("))"):
            if self._at >= len(self._text) or self._text[self._at] in "'\"\\":
                raise Unreadable("no plain arithmetic")
            if self._expansion() is None:
                opened += {"(": 1, ")": -1}.get(self._any(), 0)
            if opened < 0:
                raise Unreadable("a subshell that looks like arithmetic")
        return COMPUTED

    def _backticks(self) -> str:
        parts: list[str] = []
        while not self._takes("`"):
            if self._at >= len(self._text):
                raise Unreadable("no closing `")
            parts.append(self._escaped_in_backticks() if self._takes("\\") else self._any())
        _Reader("".join(parts), self._pipelines, self._depth + 1).script("")
        return COMPUTED

    def _escaped_in_backticks(self) -> str:
        found = self._any() if self._at < len(self._text) else ""
        return found if found in ("`", "$", "\\") else f"\\{found}"

    def _up_to(self, mark: str) -> str:
        end = self._text.find(mark, self._at)
        if end < 0:
            raise Unreadable(f"no closing {mark}")
        found, self._at = self._text[self._at : end], end + 1
        return found

    # -- characters --

    def _takes(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _matches(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]
