"""Which tools ask before they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.base import NOT_APPROVED, Tool, ToolError, ToolUse, tool
from hermes_trio.tools.registry import apply_approval_rules, read_approval_rules
from tests.tools.use_recorder import AskedApproval, UseRecorder


@tool
async def careful(what: str, use: ToolUse) -> str:
    """Ask for itself."""
    return f"did {what}" if await use.ask(what, "own question") else "asked in vain"


def ruled(**approvals: str) -> Tool:
    [tool] = apply_approval_rules(
        [careful], read_approval_rules({"approvals": approvals, "else": 1})
    )
    return tool


ARGUMENTS = {"what": "it"}


@pytest.mark.parametrize(
    ("approvals", "asked"),
    [
        ({}, AskedApproval("it", "own question", ())),
        ({"careful": "dangerous"}, AskedApproval("it", "own question", ())),
        ({"other": "always"}, AskedApproval("it", "own question", ())),
        (
            {"careful": "always"},
            AskedApproval(
                'careful {"what":"it"}',
                "the tool careful asks before every call",
                ('tool careful: {"what":"it"}',),
            ),
        ),
        (
            {"care*": "always", "*": "never"},
            AskedApproval(
                'careful {"what":"it"}',
                "the tool careful asks before every call",
                ('tool careful: {"what":"it"}',),
            ),
        ),
        ({"*": "always", "careful": "dangerous"}, AskedApproval("it", "own question", ())),
    ],
)
async def test_who_asks(approvals: dict[str, str], asked: AskedApproval, tmp_path: Path) -> None:
    recorder = UseRecorder(tmp_path)
    assert await ruled(**approvals).run(ARGUMENTS, recorder.use()) == "did it"
    assert recorder.asked == [asked]


async def test_never_asks_nothing(tmp_path: Path) -> None:
    recorder = UseRecorder(tmp_path, agrees=False)
    assert await ruled(careful="never").run(ARGUMENTS, recorder.use()) == "did it"
    assert recorder.asked == []


async def test_a_refusal_ends_the_call(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=NOT_APPROVED):
        await ruled(careful="always").run(ARGUMENTS, UseRecorder(tmp_path, agrees=False).use())


async def test_commands_are_shown_as_they_are(tmp_path: Path) -> None:
    recorder = UseRecorder(tmp_path)

    @tool
    async def shell(command: str) -> str:
        """Do it."""
        return command

    await apply_approval_rules([shell], read_approval_rules({"approvals": {"shell": "always"}}))[
        0
    ].run({"command": "ls"}, recorder.use())
    assert recorder.asked[0].command == "ls"


@pytest.mark.parametrize("table", [5, {"terminal": "sometimes"}, {"terminal": True}, ["terminal"]])
def test_wrong_tables(table: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^approvals: expected tool names, each with one of always"
    ):
        read_approval_rules({"approvals": table})
