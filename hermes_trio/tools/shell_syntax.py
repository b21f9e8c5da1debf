"""Parse a shell command into the programs it starts, the variables it sets and its redirections.

The parser is tree-sitter-bash. It accepts almost anything, and not always as a shell would, so its
trees are checked before they are used: only the node types that are named here are accepted, every
byte must belong to one, and syntax on which shells disagree is refused before it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import tree_sitter_bash
from attrs import Factory, define, frozen
from tree_sitter import Language, Node, Parser

from hermes_trio.tools.harmless import Word

MAX_CHARS = 1_000
"""A longer command is refused. The parser's time can grow with the square of the length, and it
holds the GIL; at this length it stays below 50 ms."""

_MAX_DEPTH = 30
_LANGUAGE = Language(tree_sitter_bash.language())

# Here-documents, process substitutions, arithmetic commands, backquotes and the like. Shells
# disagree on some, and harmless commands need none of them.
_REFUSED = re.compile(r"""<<|(?<!\$)\(\(|[@!?*+]\(|`|\[\[|=\(|[<>]\(|\|&|&>|\$['"\[]|;;|>\||<>""")
_QUOTED = re.compile(r"""\\.|(?<!\$)'[^']*'|(?<!\$)"[^"\\$`]*\"""", re.DOTALL)
_GAP = re.compile(rb"(?:[ \t\n]|(?<=[ \t])\\\n)*")
_GAP_IN_COMMAND = re.compile(rb"(?:[ \t]|(?<=[ \t])\\\n)*")
_LEAVES = {
    name: re.compile(pattern, re.DOTALL)
    for name, pattern in {
        "program": rb"\s*",
        "word": rb"(?:[^\s\\'\"`$;&|()<>]|\\[^\n])+",
        "number": rb"-?\d+",
        "raw_string": rb"'[^']*'",
        "string_content": rb"(?:[^\"\\`$]|\\.|\$(?![\w({]))+",
        "variable_name": rb"\w+",
        "special_variable_name": rb"[\w@*#?$!-]",
        "test_operator": rb"-[A-Za-z]+|[=!<>]=?",
        "file_descriptor": rb"\d+",
        "comment": rb"#[^\n]*",
    }.items()
}
_GROUPS = frozenset(
    {
        "program", "list", "pipeline", "subshell", "compound_statement", "negated_command", "redirected_statement",
        "if_statement", "elif_clause", "else_clause", "do_group", "command_substitution",
    }
)  # fmt: skip
_TOKENS = frozenset(
    {
        ";", "\n", "&", "&&", "||", "|", "!", "(", ")", "{", "}", "$(", "if", "then", "elif", "else", "fi", "for",
        "in", "do", "done",
    }
)  # fmt: skip
_EXPANSIONS = {
    "simple_expansion": re.compile(r"\$(?:\w+|[@*#?$!-])"),
    "expansion": re.compile(r"\$\{#?\w+\}"),
    # Bash evaluates variables in arithmetic, and their values can contain commands.
    "arithmetic_expansion": re.compile(r"\$\(\([\d \t+*/%()<>=&|^-]*\)\)"),
    "command_substitution": re.compile(r"\$\(.*\)", re.DOTALL),
}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r'\\([$`"\\])')
_PATTERN = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_BRACES = re.compile(r"\{[^}]*(?:,|\.\.)")


class UnreadableCommand(Exception):
    """The command is incomplete, too long, or uses syntax that is not accepted."""


@frozen
class ProgramStart:
    """A program and its arguments."""

    words: tuple[Word, ...]
    reads_pipe: bool


@frozen
class Assignment:
    """A variable that is set, by an assignment or a loop; ``value`` is None in a loop."""

    name: str
    value: Word | None


@frozen
class Redirection:
    """A redirection of input or output."""

    operator: str
    target: Word


@define
class ParsedCommand:
    """Everything that a command can do, in whatever order and however often."""

    programs: list[ProgramStart] = Factory(list)
    assignments: list[Assignment] = Factory(list)
    redirections: list[Redirection] = Factory(list)


def parse_command(text: str) -> ParsedCommand:
    """Parse a command, including the commands in substitutions.

    Raises:
        UnreadableCommand: it cannot be understood.
    """
    is_printable = re.sub(r"[\n\t]", "", text).isprintable()
    if len(text) > MAX_CHARS or not is_printable or _REFUSED.search(_QUOTED.sub("", text)):
        raise UnreadableCommand
    source = text.encode()
    root = Parser(_LANGUAGE).parse(source).root_node
    if root.has_error:
        raise UnreadableCommand
    _check_bytes(source, root)
    walk = _TreeWalk(source)
    walk.add_statement(root, 0, reads_pipe=False)
    return walk.parsed


def _leaves(root: Node) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        if node.child_count:
            pending.extend(reversed(node.children))
        else:
            yield node


def _check_bytes(source: bytes, root: Node) -> None:
    """Raise unless every byte between the leaves is blank, and every leaf is what a shell sees there."""
    leaves = list(_leaves(root))
    ends = [(0, 0), *((leaf.start_byte, leaf.end_byte) for leaf in leaves), (len(source),) * 2]
    for (_, end), (start, _) in pairwise(ends):
        if end > start or not _GAP.fullmatch(source, end, start):
            raise UnreadableCommand
    if not all(_is_leaf(source, leaf) for leaf in leaves):
        raise UnreadableCommand


def _is_leaf(source: bytes, leaf: Node) -> bool:
    """Return whether a shell would read these bytes as the parser did."""
    text, before = source[leaf.start_byte : leaf.end_byte], source[: leaf.start_byte]
    if not leaf.is_named:
        return text == leaf.type.encode()
    if leaf.type == "comment" and not re.search(rb"(^|[ \t;]|(?<!\\)\n)$", before):
        return False
    if leaf.type == "word" and text.startswith(b"#"):
        return False
    pattern = _LEAVES.get(leaf.type)
    return pattern is not None and pattern.fullmatch(text) is not None


class _TreeWalk:
    """Collects the parts of a command. Its methods raise :class:`UnreadableCommand`."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self.parsed = ParsedCommand()

    def add_statement(self, node: Node, depth: int, reads_pipe: bool) -> None:
        """Add what a statement does."""
        if depth > _MAX_DEPTH:
            raise UnreadableCommand
        match node.type:
            case "command":
                self._add_command(node, depth, reads_pipe)
            case "test_command":
                self._add_program(self._test_words(node, depth), reads_pipe)
            case "variable_assignment":
                self._add_assignment(node, depth)
            case "for_statement":
                self._add_loop(node, depth)
            case "declaration_command" | "unset_command" | "variable_assignments":
                self._add_declaration(node, depth)
            case kind if kind != "comment":
                self._add_group(node, depth, reads_pipe)

    def _add_group(self, node: Node, depth: int, reads_pipe: bool) -> None:
        if node.type not in _GROUPS:
            raise UnreadableCommand
        for child in node.children:
            if child.type == "file_redirect":
                self._add_redirection(child, depth)
            elif child.is_named:
                self.add_statement(child, depth + 1, reads_pipe)
            elif child.type not in _TOKENS:
                raise UnreadableCommand
            reads_pipe = reads_pipe or child.type == "|"

    def _add_loop(self, node: Node, depth: int) -> None:
        for child in node.children:
            if child.type == "variable_name":
                self.parsed.assignments.append(Assignment(self._text(child), None))
            elif child.type == "do_group":
                self.add_statement(child, depth + 1, reads_pipe=False)
            elif child.is_named:
                self._word(child, depth)
            elif child.type not in _TOKENS:
                raise UnreadableCommand

    def _add_declaration(self, node: Node, depth: int) -> None:
        for child in node.children:
            if child.type == "variable_assignment":
                self._add_assignment(child, depth)
            elif child.is_named and child.type != "variable_name":
                self._word(child, depth)
            elif not child.is_named:  # export, readonly, …
                self._add_program([Word(self._text(child))], reads_pipe=False)

    def _add_assignment(self, node: Node, depth: int) -> None:
        match node.children:
            case [name, operator, *values] if (name.type, operator.type) == ("variable_name", "="):
                words = [self._word(value, depth) for value in values]
                value = words[0] if words else Word("")
                self.parsed.assignments.append(Assignment(self._text(name), value))
            case _:
                raise UnreadableCommand

    def _add_redirection(self, node: Node, depth: int) -> None:
        match node.children:
            case [descriptor, operator, target] if descriptor.type == "file_descriptor":
                is_number = self._text(descriptor).isdigit()
            case [operator, target]:
                is_number = True
            case _:
                raise UnreadableCommand
        if not is_number:  # {name}> sets a variable
            raise UnreadableCommand
        self.parsed.redirections.append(Redirection(operator.type, self._word(target, depth)))

    def _add_command(self, node: Node, depth: int, reads_pipe: bool) -> None:
        words: list[Word] = []
        for before, after in pairwise(node.children):
            # The parser sometimes overlooks the end of a line.
            if not _GAP_IN_COMMAND.fullmatch(self._source, before.end_byte, after.start_byte):
                raise UnreadableCommand
        for child in node.children:
            if child.type == "variable_assignment":
                self._add_assignment(child, depth)
            elif child.type == "file_redirect":
                self._add_redirection(child, depth)
            elif child.type == "command_name":
                words.append(self._word(child.children[0], depth))
            else:
                words.append(self._word(child, depth))
        self._add_program(words, reads_pipe)

    def _add_program(self, words: list[Word], reads_pipe: bool) -> None:
        if words:
            self.parsed.programs.append(ProgramStart(tuple(words), reads_pipe))

    def _test_words(self, node: Node, depth: int) -> list[Word]:
        """Return the words of ``[ … ]``, which the grammar parses as an expression."""
        if depth > _MAX_DEPTH:
            raise UnreadableCommand
        words: list[Word] = []
        for child in node.children:
            if child.type in ("unary_expression", "binary_expression"):
                words += self._test_words(child, depth + 1)
            elif not child.is_named or child.type == "test_operator":
                words.append(Word(self._text(child)))
            else:
                words.append(self._word(child, depth))
        return words

    # -- words --

    def _word(self, node: Node, depth: int) -> Word:
        """Return a word, and add the commands whose output becomes part of it."""
        text = self._text(node)
        if "\\\n" in text or depth > _MAX_DEPTH:
            raise UnreadableCommand
        match node.type:
            case "word" | "number" if not node.child_count:
                return _plain_word(text)
            case "raw_string":
                return Word(text[1:-1])
            case "string":
                return self._quoted_word(node, text[1:-1], depth)
            case "concatenation":
                return self._joined_word(node, text, depth)
            case kind if kind in _EXPANSIONS and _EXPANSIONS[kind].fullmatch(text):
                if kind == "command_substitution":
                    self.add_statement(node, depth + 1, reads_pipe=False)
                return _expansion(text)
            case _:
                raise UnreadableCommand

    def _quoted_word(self, node: Node, content: str, depth: int) -> Word:
        """Return a word in double quotes, which is one word whatever the shell replaces in it."""
        is_computed = False
        for child in node.children:
            if child.is_named and child.type != "string_content":
                self._word(child, depth + 1)
                is_computed = True
        if not is_computed:
            return Word(_QUOTED_ESCAPE.sub(r"\1", content))
        return Word(content, is_computed=True, can_be_option=content.startswith("$"))

    def _joined_word(self, node: Node, text: str, depth: int) -> Word:
        parts = [(child, self._word(child, depth + 1)) for child in node.children]
        unquoted = [self._text(child) for child, _ in parts if child.type in ("word", "number")]
        if _BRACES.search("".join(unquoted)):
            return _expansion(text)
        if not any(part.is_computed for _, part in parts):
            return Word("".join(part.text for _, part in parts))
        # What an expansion is split into can begin with a dash; what a pattern in the middle of a
        # word matches cannot.
        return Word(
            text,
            is_computed=True,
            can_split=any(part.can_split for _, part in parts),
            can_be_option=parts[0][1].can_be_option
            or any(part.can_split and child.type != "word" for child, part in parts),
        )

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()


def _expansion(text: str) -> Word:
    return Word(text, is_computed=True, can_split=True, can_be_option=True)


def _plain_word(text: str) -> Word:
    """Return an unquoted word, which can be a pattern for file names."""
    if _BRACES.search(text):
        return _expansion(text)
    if _PATTERN.search(text):
        return Word(text, is_computed=True, can_split=True, can_be_option=text[0] in "*?[")
    return Word(_ESCAPE.sub(r"\1", text))
