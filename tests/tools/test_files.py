"""File access: what is in the workspace can be read and written, and nothing else."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.tools import files
from hermes_trio.tools.files import (
    FileError,
    OutsideWorkspace,
    read_lines,
    resolve_path,
    write_text,
)
from tests.support.processes import nothing_left


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return furnish(tmp_path)


def furnish(folder: Path) -> Path:
    """Create a workspace next to a secret, with links of every kind."""
    workspace, outside = folder / "work", folder / "work-outside"
    for path in (workspace / "sub", outside):
        path.mkdir(parents=True)
    (outside / "secret").write_text("secret")
    (workspace / "file").write_text("inside")
    (workspace / "sub" / "file").write_text("inside")
    links = {
        "in": "sub", "in_file": "sub/file", "out": str(outside), "out_up": "../work-outside", "out_file": "../work-outside/secret",
        "loop": "loop", "loop_a": "loop_b", "loop_b": "loop_a", "chain": "out", "dangling": "../work-outside/new",
        "sub/up": "..", "here": ".",
    }  # fmt: skip
    for name, target in links.items():
        (workspace / name).symlink_to(target)
    return workspace


class TestReading:
    @pytest.mark.parametrize(
        "path",
        ["file", "./file", "sub/../file", "in/file", "in_file", "in/up/file", "here/here/file"],
    )
    def test_inside(self, place: Path, path: str) -> None:
        assert read_lines(place, path) == "inside"

    def test_an_absolute_path_inside(self, place: Path) -> None:
        assert read_lines(place, str(place / "file")) == "inside"

    def test_a_workspace_behind_a_link(self, place: Path) -> None:
        (place.parent / "alias").symlink_to(place)
        assert read_lines(place.parent / "alias", "in/file") == "inside"

    def test_lines(self, place: Path) -> None:
        write_text(place, "lines", "".join(f"{number}\n" for number in range(1, 11)))
        assert read_lines(place, "lines", 9) == "9\n10\n"
        assert read_lines(place, "lines", 3, 2) == "3\n4\n[there is more: continue with offset=5]"
        assert read_lines(place, "lines", 11) == ""
        assert read_lines(place, "lines", -5, 0) == "1\n[there is more: continue with offset=2]"

    def test_much_is_read_in_parts(self, place: Path) -> None:
        text = "".join(f"{number:0200d}\n" for number in range(5_000))
        write_text(place, "big", text)
        parts, offset = [], 1
        while True:
            part, _, note = read_lines(place, "big", offset).partition(
                "[there is more: continue with offset="
            )
            assert len(part) <= files.MAX_CHARS
            parts.append(part)
            if not note:
                break
            offset = int(note.rstrip("]"))
        assert "".join(parts) == text
        assert len(parts) > 2

    def test_an_endless_line_is_bounded(self, place: Path) -> None:
        write_text(place, "one_line", "x" * 1_000_000)
        assert len(read_lines(place, "one_line")) <= files.MAX_CHARS + 100
        assert len(read_lines(place, "one_line", limit=1)) <= files.MAX_LINE_BYTES + 100

    def test_broken_text_becomes_marks(self, place: Path) -> None:
        (place / "latin").write_bytes(b"caf\xe9")
        assert read_lines(place, "latin") == "caf\N{REPLACEMENT CHARACTER}"

    @pytest.mark.parametrize(
        ("path", "why"),
        [
            ("none", "none: No such file or directory"),
            ("sub", "sub: Is a directory"),
            ("", ".: Is a directory"),
            ("file/x", "file/x: Not a directory"),
            ("binary", "binary: is a binary file of 5 bytes, not text"),
            ("pipe", "pipe: is not a regular file"),
            ("x" * 300, "File name too long"),
            ("a\0b", "null"),
            ("\ud800", "surrogates"),
        ],
    )
    def test_a_refusal_says_why(self, place: Path, path: str, why: str) -> None:
        (place / "binary").write_bytes(b"ab\0cd")
        os.mkfifo(place / "pipe")
        with pytest.raises(FileError) as caught:
            read_lines(place, path)
        assert why in str(caught.value)
        assert str(place) not in str(caught.value)


class TestWriting:
    @pytest.mark.parametrize("path", ["new", "a/b/new", "in/new", "file", "in_file"])
    def test_inside(self, place: Path, path: str) -> None:
        assert write_text(place, path, "näw") == 4
        assert read_lines(place, path) == "näw"
        assert not [
            name for _, _, names in os.walk(place) for name in names if name.endswith(".tmp")
        ]

    @pytest.mark.parametrize("path", [".git", ".git/config", "sub/.git/hooks/x", "in/.GIT/config"])
    def test_files_of_git_are_refused(self, place: Path, path: str) -> None:
        """A program that git starts could be named in them, and git status runs unasked."""
        with pytest.raises(FileError, match="changed with git"):
            write_text(place, path, "[core]")
        assert write_text(place, ".gitignore", "x")

    def test_through_a_link_the_link_stays(self, place: Path) -> None:
        write_text(place, "in_file", "new")
        assert (place / "in_file").is_symlink()
        assert read_lines(place, "sub/file") == "new"

    def test_rights_are_kept(self, place: Path) -> None:
        (place / "file").chmod(0o750)
        write_text(place, "file", "new")
        assert stat.S_IMODE((place / "file").stat().st_mode) == 0o750

    def test_a_concurrent_reader_sees_the_old_file(self, place: Path) -> None:
        with (place / "file").open() as reader:
            write_text(place, "file", "new")
            assert reader.read() == "inside"

    def test_a_failure_leaves_the_old_one_and_no_trace(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_fd: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        before = sorted(os.listdir(place))
        with pytest.raises(FileError, match="file: No space left on device"):
            write_text(place, "file", "new")
        assert sorted(os.listdir(place)) == before
        assert read_lines(place, "file") == "inside"

    @pytest.mark.parametrize("path", ["sub", "", "file/x", "pipe", "a\0b", "x" * 300])
    def test_a_refusal_leaves_no_trace(self, place: Path, path: str) -> None:
        os.mkfifo(place / "pipe")
        before = sorted(os.listdir(place))
        with pytest.raises(FileError):
            write_text(place, path, "text")
        assert sorted(os.listdir(place)) == before

    def test_what_is_no_text_is_refused(self, place: Path) -> None:
        with pytest.raises(FileError, match="surrogates"):
            write_text(place, "new", "\ud800")
        assert not (place / "new").exists()


ESCAPES = [
    "..", "../work-outside/secret", "/etc/passwd", "/", "out/secret", "out_up/secret", "out_file", "chain/secret",
    "sub/../../work-outside/secret", "sub/up/../work-outside/secret", "loop/../out/secret", "loop_a/../chain/secret", "out",
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES)
def test_escapes_are_refused(place: Path, path: str) -> None:
    with pytest.raises(OutsideWorkspace, match="outside the workspace"):
        read_lines(place, path)
    with pytest.raises(OutsideWorkspace):
        write_text(place, path, "x")


NAMES = st.sampled_from([
    "file", "sub", "in", "in_file", "out", "out_up", "out_file", "loop", "loop_a", "chain", "dangling", "up", "here",
    "..", ".", "", "secret", "work", "work-outside", "new",
])  # fmt: skip
PATHS = st.tuples(st.sampled_from(["", "", "/", "//"]), st.lists(NAMES, max_size=7)).map(
    lambda parts: parts[0] + "/".join(parts[1])
)


@contextmanager
def furnished() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield furnish(Path(folder))


@settings(max_examples=80, deadline=None)
@given(PATHS)
def test_no_path_leads_out(path: str) -> None:
    with furnished() as place:
        with suppress(FileError):
            assert read_lines(place, path) == "inside"
        try:
            write_text(place, path, "changed")
        except FileError:
            pass
        else:
            assert resolve_path(place, path).is_relative_to(place.resolve())
            assert read_lines(place, path) == "changed"
        outside = place.parent / "work-outside"
        assert os.listdir(outside) == ["secret"]
        assert (outside / "secret").read_text() == "secret"
        assert sorted(os.listdir(place.parent)) == ["work", "work-outside"]


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_any_name_and_any_text(path: str, text: str) -> None:
    with furnished() as place:
        try:
            write_text(place, f"in/{path}", text)
        except FileError:
            return
        assert resolve_path(place, f"in/{path}").read_bytes() == text.encode()
