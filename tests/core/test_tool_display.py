from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.tool_display import (
    DEFAULT_EMOJI,
    emoji,
    is_internal,
    label,
    preview,
    shell_preview,
)

TOOLS = [
    "terminal", "process", "read_file", "write_file", "patch", "search_files", "web_search", "web_extract",
    "vision_analyze", "image_generate", "skills_list", "skill_view", "skill_manage", "browser_navigate",
    "browser_snapshot", "browser_click", "browser_type", "browser_press", "browser_scroll", "browser_back",
    "browser_get_images", "browser_vision", "browser_console", "browser_cdp", "browser_dialog", "todo", "memory",
    "session_search", "execute_code", "delegate_task", "cronjob",
]  # fmt: skip

ARGUMENTS = [
    "action", "code", "command", "content", "data", "goal", "limit", "merge", "name", "offset", "old_text", "path",
    "pattern", "prompt", "query", "question", "ref", "session_id", "target", "tasks", "text", "timeout", "todos",
    "url", "urls",
]  # fmt: skip

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([64, 128, 20_000]).map(lambda bits: 2**bits)
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=5)
    | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(st.sampled_from(ARGUMENTS) | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("name", TOOLS)
def test_every_known_tool_has_its_picture(name: str) -> None:
    assert emoji(name) != DEFAULT_EMOJI


def test_an_unknown_tool_has_the_default_picture() -> None:
    assert emoji("mcp_weather") == DEFAULT_EMOJI == "⚡"


@pytest.mark.parametrize(
    ("name", "expected"), [("_thinking", True), ("terminal", False), ("", False)]
)
def test_internal_tools_begin_with_an_underscore(name: str, expected: bool) -> None:
    assert is_internal(name) is expected


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("terminal", {"command": "cd x && echo hi | head -1"}, "echo hi"),
        ("execute_code", {"code": "import os\n\nprint(1)\t"}, "import os print(1)"),
        ("web_search", {"query": "trio"}, "trio"),
        ("web_extract", {"urls": ["https://a", "https://b"]}, "https://a"),
        ("web_extract", {"urls": []}, ""),
        ("web_extract", {"urls": [[[["deep"]]]]}, "deep"),
        ("write_file", {"path": "src/a.py", "content": "x"}, "src/a.py"),
        ("patch", {"path": "src/a.py"}, "src/a.py"),
        ("search_files", {"pattern": "def .*"}, "def .*"),
        ("browser_navigate", {"url": "https://x"}, "https://x"),
        ("browser_click", {"ref": "@e5"}, "@e5"),
        ("browser_type", {"ref": "@e5", "text": "token=abcdef"}, "token=***"),
        ("image_generate", {"prompt": "a cat"}, "a cat"),
        ("vision_analyze", {"question": "what?"}, "what?"),
        ("skill_view", {"name": "git"}, "git"),
        ("cronjob", {"action": "list"}, "list"),
        ("web_search", {"text": "not its main argument"}, ""),
        ("mcp_any", {"goal": "last", "path": "first"}, "first"),
        ("mcp_any", {"query": "", "code": 5}, "5"),
        ("mcp_any", {"other": "x"}, ""),
        ("mcp_any", {"query": 10**5000}, ""),
        ("mcp_any", {"query": {"nested": 1}}, ""),
        ("mcp_any", {"query": 1.5}, "1.5"),
        ("mcp_any", {"query": "lone \ud800"}, "lone ?"),
        ("read_file", {"path": "/a/b/c.py"}, "c.py"),
        ("read_file", {"path": "c:\\x\\c.py", "offset": 5}, "c.py L5"),
        ("read_file", {"path": "c.py", "offset": 5, "limit": 10}, "c.py L5-14"),
        ("read_file", {"path": "c.py", "offset": 5, "limit": 1}, "c.py L5"),
        ("read_file", {"path": "c.py", "limit": 20}, "c.py L1-20"),
        ("read_file", {"path": "c.py", "offset": True, "limit": "x"}, "c.py"),
        ("read_file", {"offset": -3}, ""),
        ("todo", {"merge": True}, "reading task list"),
        ("todo", {"todos": None}, "reading task list"),
        ("todo", {"todos": [1, 2]}, "planning 2 task(s)"),
        ("todo", {"todos": [1], "merge": True}, "updating 1 task(s)"),
        ("process", {"action": "list"}, "list"),
        (
            "process",
            {"action": "wait", "session_id": "p" * 30, "timeout": 30},
            "wait pppppppppppppppp 30s",
        ),
        ("process", {"action": "poll", "session_id": "p1", "timeout": 30}, "poll p1"),
        (
            "process",
            {"action": "write", "session_id": "p1", "data": "y" * 30},
            f'write p1 "{"y" * 20}"',
        ),
        (
            "memory",
            {"action": "add", "target": "user", "content": "likes tea"},
            '+user: "likes tea"',
        ),
        ("memory", {"action": "replace", "target": "memory", "old_text": "tea"}, '~memory: "tea"'),
        ("memory", {"action": "remove", "target": "memory", "old_text": "tea"}, '-memory: "tea"'),
        ("memory", {"action": "read"}, "read"),
        ("delegate_task", {"goal": "one thing"}, "one thing"),
        ("delegate_task", {"goal": "one", "tasks": []}, "one"),
        ("delegate_task", {"tasks": [{"goal": "g1"}, {"goal": "g2"}]}, "2 tasks: g1 | g2"),
        ("delegate_task", {"tasks": ["g1"]}, "1 task: g1"),
        ("delegate_task", {"tasks": [{"goal": "g1"}, None, {}]}, "3 tasks: g1"),
        ("terminal", {}, ""),
        ("terminal", None, ""),
        ("terminal", ["command"], ""),
    ],
)
def test_preview(name: str, args: Any, expected: str) -> None:
    assert preview(name, args) == expected
    assert label(name, args) == (expected or name)


ODD = "a;b|c"  # of which the shell would make three commands
KEY = "sk-proj-" + "abc123" * 6


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        (
            "terminal",
            {"command": f"curl -H 'Authorization: Bearer {KEY}' https://api"},
            "curl -H 'Authorization: Bearer ***' https://api",
        ),
        ("terminal", {"command": "cd x && PGPASSWORD=hunter2 psql"}, "PGPASSWORD=*** psql"),
        ("terminal", {"command": f"psql postgres://me:{ODD}@db/x"}, "psql postgres://me:***@db/x"),
        (
            "browser_navigate",
            {"url": f"https://me:{ODD}@x/?token=abc"},
            "https://me:***@x/?token=***",
        ),
        ("web_extract", {"urls": [f"https://x/{KEY}"]}, "https://x/sk-***"),
        ("execute_code", {"code": f"key = '{KEY}'\nrun(key)"}, "key = 'sk-***' run(key)"),
        (
            "execute_code",
            {"code": "a\nAuthorization: Basic\nQWxhZGRpbjpvcGVu"},
            "a Authorization: Basic ***",
        ),
        ("process", {"action": "write", "data": KEY}, 'write "sk-***"'),
        ("memory", {"action": "add", "target": "user", "content": KEY}, '+user: "sk-***"'),
        ("delegate_task", {"tasks": [{"goal": f"use {KEY}"}]}, "1 task: use sk-***"),
        ("mcp_any", {"query": "password: hunter2"}, "password: ***"),
    ],
)
def test_secrets_are_masked(name: str, args: Any, expected: str) -> None:
    assert preview(name, args) == label(name, args) == expected


def test_a_secret_is_masked_before_it_is_cut() -> None:
    shown = label("web_search", {"query": f"{'x ' * 10}{KEY}"}, 26)
    assert shown == f"{'x ' * 10}sk-***"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(10, "0123456789"), (9, "012345..."), (3, "..."), (2, ".."), (0, ""), (-1, "")],
)
def test_preview_is_cut_with_dots(limit: int, expected: str) -> None:
    assert preview("web_search", {"query": "0123456789"}, limit) == expected
    assert label("web_search", {"query": "0123456789"}, limit) == (expected or "web_search")


@settings(deadline=None)
@given(
    st.sampled_from([*TOOLS, "mcp_any"]),
    st.dictionaries(st.sampled_from(ARGUMENTS), anything, max_size=6) | anything,
)
def test_preview_takes_anything(name: str, args: Any) -> None:
    shown = preview(name, args)
    assert shown == " ".join(shown.split())
    assert len(shown.encode()) >= len(shown)
    assert label(name, args) == (shown or name)


@pytest.mark.parametrize("name", TOOLS)
def test_preview_stays_short_for_huge_values(name: str) -> None:
    args = dict.fromkeys(ARGUMENTS, "a;'\"$(<<x |\n" * 100_000)
    assert len(preview(name, args)) <= 1_000
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    assert len(preview(name, dict.fromkeys(ARGUMENTS, cyclic))) <= 1_000


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo hi", "echo hi"),
        ("sleep 8; echo finished", "sleep 8 + 1 command"),
        ("a && b || c", "a + 2 commands"),
        ("ls -la 2>/dev/null | sort | uniq -c | head -5", "ls -la"),
        ("cat x | grep y | wc -l", "cat x | grep y"),
        ("head -5 x", "head -5 x"),
        ("a | | head", "a |"),
        ("a | ", "a |"),
        ("make > log 2>&1 < in", "make"),
        ("make >> 'my log'", "make"),
        ("cmd &> /dev/null &", "cmd"),
        ("foo2>x", "foo2"),
        ("cat <<< 'text'", "cat"),
        ("diff <(sort a) <(sort b)", "diff <(sort a) <(sort b)"),
        ('echo "a; b && c" > x', 'echo "a; b && c"'),
        ("echo a\\;b", "echo a\\;b"),
        ("echo `a; b`", "echo `a; b`"),
        ("(cd a && make) > log", "(cd a && make)"),
        ("echo $((1<<2)); x", "echo $((1<<2)) + 1 command"),
        ("a ); b", "a ) + 1 command"),
        ("cat > f.py <<'EOF'\nx = 1; y\nEOF\npython f.py", "cat + 1 command"),
        ("cat <<EOF\nnever ends; x", "cat"),
        ("cat <<EOF", "cat"),
        ("# why\nls # here\n", "ls"),
        ("cd /x; export A=1; set -e; B=2; make", "make"),
        ("A=1 make", "A=1 make"),
        ("for i in 1 2; do echo $i; done", "for i in 1 2 + 1 command"),
        ("a || true", "a"),
        ("echo '=== a ==='; echo; echo -e \"\\n---\"; echo ''; make", "make"),
        ("echo 'a - b'; make", "echo 'a - b' + 1 command"),
        ("cd /x", "cd /x"),
        ("grep 'x; y", "grep 'x + 1 command"),
        ("  a  \\\n  b", "a \\ b"),
        ("&&", "&&"),
        ("", ""),
    ],
)
def test_shell_preview(command: str, expected: str) -> None:
    assert shell_preview(command) == expected


@settings(deadline=None)
@given(st.text("ab '\"`\\<>&|;()#$\n2-=E", max_size=60))
def test_shell_preview_takes_anything(command: str) -> None:
    shown = shell_preview(command)
    assert bool(shown) is bool(command.strip())
    assert "\n" not in shown
