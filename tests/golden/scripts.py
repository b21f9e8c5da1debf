"""What agents do: one script for each thing that an API shows in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.golden.agent import Script, say
from tests.golden.driver import result

USAGE = {
    "input_tokens": 120,
    "output_tokens": 34,
    "cached_tokens": 64,
    "cache_write_tokens": 16,
    "reasoning_tokens": 12,
}
SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
LONG_LINE = "0123456789abcdef" * 64
LARGE_ARGS: Mapping[str, Any] = {
    "path": "notes.txt",
    "content": LONG_LINE * 5,
    "lines": [f"line {n}" for n in range(60)],
    "deep": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": "too deep"}}}}}}}}},
    "number": 2**70,
    "letters": "\u00e9\U0001f642" * 20,
}
SHELL = {"command": "make test"}

# A turn with something of everything, for flows that cut it or read it again.
RICH = (
    ("reasoning", "Let me "),
    ("reasoning", "see."),
    ("text", "Looking. "),
    ("tool_started", "c1", "terminal", SHELL),
    ("tool_output", "c1", "building\n"),
    ("tool_completed", "c1", "built"),
    ("text", "All "),
    ("text", "done."),
)

SCRIPTS: Mapping[str, Script] = {
    "plain": say(("text", "Hello"), ("text", " world")),
    "empty_pieces": say(
        ("text", ""), ("text", None), ("text", "Hi"), ("reasoning", ""), ("text", " ")
    ),
    "many_tokens": say(*(("text", f"token{n} ") for n in range(80))),
    "unicode": say(
        ("text", "na\u00efve \u65e5\u672c\u8a9e "),
        ("text", "\U0001f642\U0001f468\u200d\U0001f469\u200d\U0001f467 "),
        ("text", "a\u2028b\u2029c\x85d "),
        ("text", "\u202eright\u202c e\u0301 \ufeff"),
        ("text", '"quoted" \\back\\ </script> \t\r\n\x1b\x7f'),
        (
            "tool_started",
            "c1",
            "read_file",
            {"path": "\u65e5\u672c/\u2028.txt", "\u00e9": "\U0001f642"},
        ),
        ("tool_completed", "c1", "\u2028\U0001f642\x85"),
        ("reasoning", "\u00fcber\u2028legt"),
    ),
    "lone_surrogates": say(
        ("text", "high \ud83d"),
        ("text", "\ude42 low"),
        ("tool_started", "c1", "read_file", {"path": "\udce9"}),
        ("tool_output", "c1", "\ud800"),
        ("tool_completed", "c1", "\udfff"),
        ("text", "end \udcff"),
    ),
    "line_breaks": say(
        ("text", "one\n\ntwo\r\n"), ("text", "data: [DONE]\n\n"), ("text", "event: x\n")
    ),
    "reasoning_then_text": say(
        ("reasoning", "First "), ("reasoning", "think."), ("text", "Then speak.")
    ),
    "reasoning_between": say(
        ("text", "One. "),
        ("reasoning", "Hm."),
        ("text", "Two. "),
        ("reasoning", "So."),
        ("text", "Three."),
    ),
    "reasoning_only": say(("reasoning", "Nothing to say.")),
    "one_tool": say(
        ("text", "Let me look. "),
        (
            "tool_started",
            "c1",
            "terminal",
            {"command": "ls -la", "timeout": 5, "background": False},
        ),
        ("tool_completed", "c1", "total 0\n"),
        ("text", "It is empty."),
    ),
    "failing_tool": say(
        ("tool_started", "c1", "read_file", {"path": "/nowhere"}),
        ("tool_completed", "c1", "FileNotFoundError: /nowhere", True),
        ("text", "There is no such file."),
    ),
    "overlapping_tools": say(
        ("tool_started", "c1", "terminal", {"command": "make"}),
        ("tool_started", "c2", "read_file", {"path": "a"}),
        ("tool_output", "c1", "building"),
        ("tool_output", "c2", "reading"),
        ("tool_completed", "c2", "contents"),
        ("text", "One is done. "),
        ("tool_completed", "c1", "built"),
        ("text", "Both are."),
    ),
    "hidden_tool": say(
        ("text", "a"),
        ("tool_started", "h1", "_hidden", {"secret": "x"}),
        ("tool_output", "h1", "hidden output"),
        ("tool_completed", "h1", "hidden result"),
        ("tool_announced", "_thinking", {"x": 1}),
        ("text", "b"),
    ),
    "only_a_hidden_tool": say(("tool_started", "h1", "_hidden", {}), ("tool_completed", "h1", "x")),
    "end_without_start": say(
        ("tool_completed", "nobody", "lost"),
        ("tool_output", "nobody", "lost"),
        ("text", "Still here."),
    ),
    "told_twice": say(
        ("tool_started", "c1", "terminal", SHELL),
        ("tool_started", "c1", "terminal", SHELL),
        ("tool_completed", "c1", "first"),
        ("tool_completed", "c1", "second", True),
        ("tool_output", "c1", "late"),
        ("text", "Once."),
    ),
    "reused_call_id": say(
        ("tool_started", "c1", "terminal", {"command": "a"}),
        ("tool_completed", "c1", "A"),
        ("tool_started", "c1", "terminal", {"command": "b"}),
        ("tool_completed", "c1", "B"),
        ("text", "Twice."),
    ),
    "noticed_tool": say(
        ("tool_announced", "web_search", {"query": "weather"}),
        ("text", "Rain."),
        ("tool_announced", "terminal"),
    ),
    "noticed_then_started": say(
        ("tool_announced", "terminal", SHELL),
        ("tool_started", "c1", "terminal", SHELL),
        ("tool_output", "c1", "half"),
        ("tool_completed", "c1", "whole"),
        ("text", "One call."),
    ),
    "started_then_noticed": say(
        ("tool_started", "c1", "terminal", SHELL),
        ("tool_announced", "terminal", SHELL),
        ("tool_completed", "c1", "whole"),
        ("text", "One call."),
    ),
    "started_without_id": say(("tool_started", "", "terminal", SHELL), ("text", "No id.")),
    "tool_output": say(
        ("tool_started", "c1", "terminal", SHELL),
        ("tool_output", "c1", "line 1\n"),
        ("tool_output", "c1", ""),
        ("tool_output", "c1", "line 2\n"),
        ("tool_completed", "c1", "line 1\nline 2\n"),
        ("text", "Printed."),
    ),
    "tool_block": say(
        ("tool", "web_search", {"query": "trio"}, "found"),
        ("tool", "terminal", None, 42),
        ("text", "ok"),
    ),
    "tool_block_raises": say(
        ("text", "Try. "), ("tool", "terminal", SHELL, ValueError("no such shell"))
    ),
    "many_kinds_of_tools": say(
        *(
            (
                "burst",
                ("tool_started", f"c{n}", name, args),
                ("tool_completed", f"c{n}", f"result {n}"),
            )
            for n, (name, args) in enumerate(
                (
                    ("terminal", {"command": "cd /tmp && rm -rf build # clean"}),
                    ("write_file", {"path": "a.py", "content": "print(1)\n"}),
                    ("patch", {"path": "a.py", "old_string": "1", "new_string": "2"}),
                    ("search_files", {"pattern": "*.py", "path": "src"}),
                    ("web_search", {"query": "structured concurrency"}),
                    ("web_extract", {"urls": ["https://example.org/a", "https://example.org/b"]}),
                    ("execute_code", {"code": "import os\nprint(os.getcwd())"}),
                    ("todo", {"todos": [{"id": "1", "content": "x", "status": "pending"}]}),
                    ("delegate_task", {"goal": "find out", "context": None}),
                    ("mcp__files__read", {"uri": "file:///a"}),
                    ("my_tool", {}),
                    ("odd", {"nested": {"list": [1, 2.5, None, True]}}),
                )
            )
        ),
        ("text", "Used them all."),
    ),
    "large_values": say(
        ("tool_started", "c1", "write_file", LARGE_ARGS),
        ("tool_output", "c1", LONG_LINE * 5),
        ("tool_completed", "c1", "\U0001f642" + LONG_LINE * 5),
        ("client_call", "k1", "store", '{"text": "' + LONG_LINE * 5 + '"}'),
        ("text", "Large."),
    ),
    "odd_arguments": say(
        ("tool_started", "c1", "a", ["not", "a", "mapping"]),
        ("tool_completed", "c1", {"a": (1, 2)}),
        (
            "tool_started",
            "c2",
            "b",
            {"nan": float("nan"), "inf": float("inf"), "big": 2**2000, "key": {1: None}},
        ),
        ("tool_completed", "c2", None),
        ("text", "Odd."),
    ),
    "rounds": say(
        ("text", "First I look. "),
        ("tool_started", "c1", "search_files", {"pattern": "x"}),
        ("tool_completed", "c1", "a.py"),
        ("text", "Then I "),
        ("text", "read. "),
        ("tool_started", "c2", "read_file", {"path": "a.py"}),
        ("tool_completed", "c2", "x = 1"),
        ("reasoning", "I see."),
        ("text", "It is one."),
    ),
    "client_call": say(
        ("text", "Let me ask you. "),
        ("client_call", "call_a", "get_weather", '{"city": "Oslo"}'),
        ("client_call", "call_b", "get_time"),
        end=result(usage=USAGE),
    ),
    "client_call_only": say(("client_call", "call_a", "get_weather", '{"city": "Oslo"}')),
    "client_call_odd_ids": say(
        ("client_call", "", "first"),
        ("client_call", "same", "second", "not json"),
        ("client_call", "same", "third", ""),
    ),
    "client_call_after_tool": say(
        ("tool_started", "same", "terminal", SHELL),
        ("tool_completed", "same", "ok"),
        ("client_call", "same", "get_time"),
    ),
    "returned_only": say(end="The whole answer."),
    "returned_rest": say(("text", "The whole "), end="The whole answer."),
    "returned_again": say(("text", "The whole answer."), end="The whole answer.\n"),
    "returned_other": say(("text", "A draft."), end="The answer."),
    "returned_after_tool": say(
        ("text", "Look. "),
        ("tool_started", "c1", "terminal", SHELL),
        ("tool_completed", "c1", "ok"),
        end="Look. It is fine.",
    ),
    "usage": say(("text", "Counted."), end=result(usage=USAGE)),
    "truncated": say(("text", "Once upon a"), end=result(verdict="truncated", usage=USAGE)),
    "truncated_silent": say(end=result(verdict="truncated", usage=USAGE)),
    "incomplete": say(("text", "Half"), end=result(verdict="incomplete", error="I gave up.")),
    "incomplete_silent": say(end=result(verdict="incomplete")),
    "interrupted": say(("text", "Half"), end=result(verdict="interrupted")),
    "failed": say(("text", "Half"), end=result("It broke.", "failed", usage=USAGE)),
    "failed_with_error": say(
        ("text", "Half"), end=result("", "failed", error=f"HTTP 401 with {SECRET}")
    ),
    "failed_silent": say(end=result(verdict="failed")),
    "failed_in_tool": say(
        ("tool_started", "c1", "terminal", SHELL),
        ("tool_output", "c1", "half"),
        end=result("Lost.", "failed"),
    ),
    "nothing_said": say(),
    "left_running": say(
        ("tool_started", "c1", "terminal", SHELL),
        ("tool_output", "c1", "half"),
        ("text", "Enough."),
    ),
    "noticed_left_running": say(("tool_announced", "terminal", SHELL)),
    "moved_session": say(("text", "Moved."), end=result(session_id="another-session")),
    "raises": say(("text", "Half"), end=RuntimeError("the model is gone")),
    "raises_at_once": say(end=RuntimeError("the model is gone")),
    "raises_with_secret": say(end=ValueError(f"bad key {SECRET}\nsecond line")),
    "raises_without_message": say(("reasoning", "Hm."), end=KeyError()),
    "raises_in_tool": say(
        ("text", "Run. "),
        ("tool_started", "c1", "terminal", SHELL),
        ("tool_output", "c1", "half"),
        ("tool_started", "c2", "read_file", {"path": "a"}),
        end=OSError(28, "No space left on device"),
    ),
    "returns_another_type": say(("text", "Half"), end=42),
    "burst": say(
        (
            "burst",
            ("reasoning", "Quick."),
            ("text", "a"),
            ("tool_started", "c1", "terminal", SHELL),
            ("tool_output", "c1", "out"),
            ("tool_completed", "c1", "done"),
            ("text", "b"),
            ("client_call", "k1", "get_time"),
        ),
    ),
    "rich": say(*RICH, end=result("All done.", usage=USAGE)),
}
