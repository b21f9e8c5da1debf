"""Images in an answer: shown from the workspace, and from nowhere else."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from hermes_trio.core.events import Text
from hermes_trio.web import media
from tests.support.chat_api import said
from tests.support.fakes import CHAT, ask, ask_stream, make_harness

PIXEL = b"\x89PNG pixel"
DATA = base64.b64encode(PIXEL).decode()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with images, and some outside of it."""
    folder = tmp_path / "workspace"
    (folder / "deep").mkdir(parents=True)
    for path in (folder / "a.png", folder / "deep" / "b.JPG", tmp_path / "secret.png"):
        path.write_bytes(PIXEL)
    (folder / "big.png").write_bytes(b"x" * (media.MAX_BYTES + 1))
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "inner.png").symlink_to(folder / "a.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    return folder


async def shown(text: str, workspace: Path) -> str:
    """The content of an answer that says this."""
    harness = make_harness([Text(text)], workspace=workspace)
    answer = await harness.client.send(CHAT, ask())
    assert answer.status == 200
    return str(answer.json["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.png", "image/png"), ("deep/b.JPG", "image/jpeg"), ("inner.png", "image/png")],
)
async def test_an_image_of_the_workspace_is_shown(workspace: Path, name: str, kind: str) -> None:
    text = await shown(f"See MEDIA:{workspace}/{name}. Nice?", workspace)
    assert text == f"See ![{Path(name).name}](data:{kind};base64,{DATA}). Nice?"


@pytest.mark.parametrize(
    "name",
    [
        "../secret.png", "link.png", "loop.png", "missing.png", "big.png", "folder.png", "pipe.png", "a.pn\0g.png",
        "\ud800.png", "n" * 300 + ".png", "a.png/../../secret.png", "a.png.txt", "a.svg", "deep",
    ],
)  # fmt: skip
async def test_everything_else_stays_a_tag(workspace: Path, name: str) -> None:
    text = f"See MEDIA:{workspace}/{name} there"
    assert await shown(text, workspace) == text


@pytest.mark.parametrize(
    "path", ["/etc/passwd.png", "/proc/self/environ", "relative.png", "~/a.png", ""]
)
async def test_other_places_stay_a_tag(workspace: Path, path: str) -> None:
    assert await shown(f"MEDIA:{path}", workspace) == f"MEDIA:{path}"


async def test_all_images_together_are_bounded(workspace: Path) -> None:
    (workspace / "large.png").write_bytes(b"x" * media.MAX_BYTES)
    text = await shown(f"MEDIA:{workspace}/large.png " * 100, workspace)
    assert text.count("](data:") == media.MAX_TOTAL_BYTES // media.MAX_BYTES
    assert text.count("MEDIA:") == 100 - text.count("](data:")


async def test_many_tags_in_a_row_take_no_longer_than_others(workspace: Path) -> None:
    """With a search that begins anew in every tag this takes minutes."""
    text = "MEDIA:/x" * 50_000
    assert await shown(text, workspace) == text


async def test_several_images(workspace: Path) -> None:
    text = await shown(
        f"MEDIA:{workspace}/a.png,MEDIA:{workspace}/a.png (MEDIA:{workspace}/a.png)", workspace
    )
    assert text.count("](data:image/png") == 3
    assert "MEDIA:" not in text


async def test_streams_are_never_rewritten(workspace: Path) -> None:
    tag = f"MEDIA:{workspace}/a.png"
    harness = make_harness([Text(tag)], workspace=workspace)
    assert said(await harness.client.send(CHAT, ask_stream())) == tag


async def test_the_transcript_keeps_the_tag(workspace: Path) -> None:
    tag = f"MEDIA:{workspace}/a.png"
    harness = make_harness([Text(tag)], workspace=workspace)
    await harness.client.send(CHAT, ask(), {"X-Hermes-Session-Id": "s"})
    assert (await harness.transcript("s"))[-1] == ("assistant", tag)
