"""We ask whenever hermes-agent does.

The figures in ``docs/reference/tools.md`` come from the last test.
"""

from __future__ import annotations

import tomllib

import pytest
from tools import approval  # type: ignore[import-not-found]

from hermes_trio.tools.danger import find_dangers
from tests.support.doc_examples import ROOT

PATTERNS: dict[str, str] = tomllib.loads(
    (ROOT / "tests/tools/hermes_patterns.toml").read_text(encoding="utf-8")
)["patterns"]
CORPUS = tomllib.loads((ROOT / "tests/tools/commands.toml").read_text(encoding="utf-8"))


# It searches the text of a command; here, the programs it finds are an argument or a comment.
TEXT_ONLY = [
    "grep -rn 'rm -rf' .",
    "grep -n 'DROP TABLE' schema.sql",
    "echo 'sudo rm -rf /'",
    'echo "rm -rf x"',
    "echo hi # rm -rf /",
    "# rm -rf /",
]


def hermes_asks(command: str) -> bool:
    return bool(
        approval.detect_hardline_command(command)[0]
        or approval.detect_dangerous_command(command)[0]
    )


def test_every_pattern_has_an_example() -> None:
    known = {text for _, text in (*approval.HARDLINE_PATTERNS, *approval.DANGEROUS_PATTERNS)}
    assert known == set(PATTERNS)


@pytest.mark.parametrize("command", PATTERNS.values())
def test_the_examples_are_real(command: str) -> None:
    assert hermes_asks(command)
    assert find_dangers(command)


def test_we_ask_whenever_hermes_does() -> None:
    """Except where it takes text for a command."""
    figures = {}
    for kind, groups in CORPUS.items():
        commands = [command for group in groups.values() for command in group]
        asked = [command for command in commands if hermes_asks(command)]
        figures[kind] = (len(commands), len(asked), sum(map(bool, map(find_dangers, commands))))
        if kind == "harmless":
            less = [command for command in asked if not find_dangers(command)]
    reference = (ROOT / "docs/reference/tools.md").read_text(encoding="utf-8")
    for kind, (count, hermes, ours) in figures.items():
        assert f"| `{kind}` | {count} | {hermes} | {ours} |" in reference
    assert less == TEXT_ONLY
