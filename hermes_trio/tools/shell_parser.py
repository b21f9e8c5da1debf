"""Parse a shell script far enough to know which programs it would start, with which words.

Nothing is expanded. Quotes are removed; operators, redirections and here-documents are understood;
the content of a substitution is parsed as a script of its own. Anything that is not understood is
an error, never a guess.
"""

from __future__ import annotations

import re

from attrs import Factory, define, frozen

COMPUTED = "$()"
"""Placeholder in a word for the output of a substitution."""

MAX_SCRIPT_CHARS = 131_072
"""The kernel does not accept a longer command."""

_MAX_DEPTH = 20
_BLANK = re.compile(r"(?:[ \t\r]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_SEPARATOR = re.compile(r";;?&?|&&|\|\||&(?!>)")
_PIPE = re.compile(r"\|&?")
_REDIRECT = re.compile(r"\d*(<<<|<<-|<<|<>|<&|>>|>\||>&|<(?!\()|>(?!\()|&>>|&>)")
_EMPTY_PARENTHESES = re.compile(r"\([ \t]*\)")
_PLAIN = re.compile(r"[^ \t\r\n'\"\\$`;&|()<>]+")
_QUOTED_PLAIN = re.compile(r"[^\"\\$`]+")
_ANSI = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)

_SUBSHELL_HINT = re.compile(r"[\n;`]|[A-Za-z_]\w*[ \t]+-?\w")
_ANSI_CODE = re.compile(r"\\(?:[xuU]([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL)


class UnparsableScript(Exception):
    """The script is incomplete, or uses syntax that this parser does not understand."""


@frozen
class Redirect:
    """A redirection of input or output."""

    operator: str
    target: str


@define
class SimpleCommand:
    """A program and its words. ``documents`` holds the text of its here-documents."""

    words: list[str] = Factory(list)
    redirects: list[Redirect] = Factory(list)
    documents: list[str] = Factory(list)

    def __bool__(self) -> bool:
        return bool(self.words or self.redirects)


Pipeline = list[SimpleCommand]


def parse_script(text: str) -> list[Pipeline]:
    """Return all commands of a script, including those in substitutions, grouped by pipeline.

    Raises:
        UnparsableScript: the script cannot be understood.
    """
    if len(text) > MAX_SCRIPT_CHARS:
        raise UnparsableScript("too long")
    pipelines: list[Pipeline] = []
    _ShellParser(text, pipelines, 0).parse_script("")
    return pipelines


def _ansi_character(found: re.Match[str]) -> str:
    hexadecimal, octal, letter = found.groups("")
    if hexadecimal or octal:
        return chr(int(hexadecimal or octal, 16 if hexadecimal else 8) % 0x110000)
    return {"n": "\n", "t": "\t", "r": "\r"}.get(letter, letter)


def _is_case_pattern(pipeline: Pipeline) -> bool:
    return all(
        len(command.words) == 1 and set(command.words[0]) & set("*?[") for command in pipeline
    )


@frozen
class _PendingDocument:
    """A here-document whose text begins on the next line."""

    command: SimpleCommand
    delimiter: str
    is_literal: bool
    strips_tabs: bool


class _ShellParser:
    """Parses one text. Substitutions are parsed recursively into the same list of pipelines."""

    def __init__(self, text: str, pipelines: list[Pipeline], depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise UnparsableScript("nested too deeply")
        self._text, self._at, self._pipelines, self._depth = text, 0, pipelines, depth
        self._pending_documents: list[_PendingDocument] = []

    # -- scripts --

    def parse_script(self, until: str) -> None:
        """Parse commands up to a closing character, or to the end of the text."""
        pipeline: Pipeline = [SimpleCommand()]
        while not self._is_at_end(until):
            if self._accept("\n"):
                pipeline = self._end_pipeline(pipeline)
                self._parse_documents()
            elif self._match(_SEPARATOR):
                pipeline = self._end_pipeline(pipeline)
            elif self._match(_PIPE):
                pipeline.append(SimpleCommand())
            elif self._accept(")") or self._match(_EMPTY_PARENTHESES):
                # It follows a pattern of `case`, or the name of a function.
                pipeline = (
                    [SimpleCommand()]
                    if _is_case_pattern(pipeline)
                    else self._end_pipeline(pipeline)
                )
            elif self._accept("(("):
                raise UnparsableScript("arithmetic, or a subshell in a subshell")
            elif self._accept("("):
                self._parse_nested(")")
                pipeline[-1].words.append("()")
            else:
                self._parse_redirect_or_word(pipeline[-1])
        self._end_pipeline(pipeline)

    def _is_at_end(self, until: str) -> bool:
        while self._match(_BLANK) or self._match(_COMMENT):
            pass
        if self._at < len(self._text):
            return bool(until) and self._accept(until)
        if until:
            raise UnparsableScript(f"no closing {until}")
        return True

    def _end_pipeline(self, pipeline: Pipeline) -> Pipeline:
        if any(pipeline):
            self._pipelines.append(pipeline)
        return [SimpleCommand()]

    def _parse_nested(self, until: str) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnparsableScript("nested too deeply")
        self.parse_script(until)
        self._depth -= 1

    def _parse_redirect_or_word(self, command: SimpleCommand) -> None:
        found = _REDIRECT.match(self._text, self._at)
        if found is None:
            command.words.append(self._parse_word())
            return
        self._at = found.end()
        self._match(_BLANK)
        start = self._at
        target = self._parse_word()
        if found[1] in ("<<", "<<-"):
            is_literal = self._text[start : self._at] != target
            self._pending_documents.append(
                _PendingDocument(command, target, is_literal, found[1] == "<<-")
            )
        elif found[1] == "<<<":
            command.documents.append(target)
        else:
            command.redirects.append(Redirect(found[1], target))

    def _parse_documents(self) -> None:
        pending, self._pending_documents = self._pending_documents, []
        for document in pending:
            body = self._parse_document(document)
            document.command.documents.append(body)
            if not document.is_literal:
                _ShellParser(body, self._pipelines, self._depth + 1).parse_text("")

    def _parse_document(self, document: _PendingDocument) -> str:
        lines: list[str] = []
        while self._at < len(self._text):
            end = self._text.find("\n", self._at) % (len(self._text) + 1)
            line, self._at = self._text[self._at : end], end + 1
            line = line.lstrip("\t") if document.strips_tabs else line
            if line == document.delimiter:
                return "\n".join(lines)
            lines.append(line)
        raise UnparsableScript(f"no end of here-document {document.delimiter}")

    # -- words --

    def _parse_word(self) -> str:
        parts: list[str] = []
        while (part := self._parse_part()) is not None:
            parts.append(part)
        if not parts:
            raise UnparsableScript("a word is missing")
        return "".join(parts)

    def _parse_part(self) -> str | None:
        """Return the next piece of a word without its quotes, or None at the end of the word."""
        if found := self._match(_PLAIN):
            return found
        if self._accept("<(") or self._accept(">("):
            return self._parse_substitution()
        quoted = self._parse_quoted()
        return self._parse_expansion() if quoted is None else quoted

    def _parse_quoted(self) -> str | None:
        if self._accept("'"):
            return self._until("'")
        if self._accept('"'):
            return self.parse_text('"')
        if self._accept("\\"):
            return self._parse_escape()
        return self._parse_ansi_quote() if self._accept("$'") else None

    def _parse_substitution(self) -> str:
        self._parse_nested(")")
        return COMPUTED

    def _parse_expansion(self) -> str | None:
        if self._accept("$(("):
            return self._parse_arithmetic()
        if self._accept("$("):
            return self._parse_substitution()
        if self._accept("`"):
            return self._parse_backticks()
        if self._accept("${"):
            return f"${self.parse_text('}')}"
        return "$" if self._accept("$") else None

    def parse_text(self, until: str) -> str:
        """Parse the content of double quotes, braces or a here-document, where only expansions are special."""
        parts: list[str] = []
        while self._at < len(self._text):
            if until and self._accept(until):
                return "".join(parts)
            parts.append(self._parse_text_part(until))
        if until:
            raise UnparsableScript(f"no closing {until}")
        return "".join(parts)

    def _parse_text_part(self, until: str) -> str:
        if self._accept("\\"):
            return self._parse_escape()
        if (found := self._parse_expansion()) is not None:
            return found
        if until != "}":
            return self._match(_QUOTED_PLAIN) or self._next_character()
        if self._accept("'"):
            raise UnparsableScript("a quote in braces, on which shells disagree")
        return self.parse_text('"') if self._accept('"') else self._next_character()

    def _next_character(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _parse_escape(self) -> str:
        if self._at >= len(self._text):
            return "\\"
        character = self._next_character()
        return "" if character == "\n" else character

    def _parse_ansi_quote(self) -> str:
        found = self._match(_ANSI)
        if not self._accept("'") or "\\'" in found:
            raise UnparsableScript("an escaped quote, on which shells disagree")
        return _ANSI_CODE.sub(_ansi_character, found)

    def _parse_arithmetic(self) -> str:
        depth, start = 0, self._at
        while depth or not self._accept("))"):
            if self._at >= len(self._text) or self._text[self._at] in "'\"\\":
                raise UnparsableScript("arithmetic that is not plain")
            if self._parse_expansion() is None:
                depth += {"(": 1, ")": -1}.get(self._next_character(), 0)
            if depth < 0:
                raise UnparsableScript("a subshell that looks like arithmetic")
        if _SUBSHELL_HINT.search(self._text[start : self._at]):
            raise UnparsableScript("arithmetic that a shell might take for a subshell")
        return COMPUTED

    def _parse_backticks(self) -> str:
        parts: list[str] = []
        while not self._accept("`"):
            if self._at >= len(self._text):
                raise UnparsableScript("no closing `")
            parts.append(
                self._parse_backtick_escape() if self._accept("\\") else self._next_character()
            )
        _ShellParser("".join(parts), self._pipelines, self._depth + 1).parse_script("")
        return COMPUTED

    def _parse_backtick_escape(self) -> str:
        found = self._next_character() if self._at < len(self._text) else ""
        return found if found in ("`", "$", "\\") else f"\\{found}"

    def _until(self, mark: str) -> str:
        end = self._text.find(mark, self._at)
        if end < 0:
            raise UnparsableScript(f"no closing {mark}")
        found, self._at = self._text[self._at : end], end + 1
        return found

    # -- characters --

    def _accept(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]
