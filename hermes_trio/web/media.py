"""``MEDIA:<path>`` tags in a final answer: small images become part of the text.

Only files below the agents' workspace are shown. Whatever a model was talked into naming, the server does not read
anybody's keys to a client.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

import trio

MAX_BYTES = 5 * 1024 * 1024
MAX_BYTES_IN_ALL = 4 * MAX_BYTES  # a text can name one file thousands of times
_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}
# A path may be followed by the full stop of a sentence. The second branch takes a tag that names no image whole: without it
# the search would begin anew in the middle of it, and many tags in a row would take quadratic time.
_TAG = re.compile(
    r"""
    MEDIA: (?: (?P<path> / [^\s"'<>)\]]+? \. (?i:png|jpe?g|gif|webp|bmp) ) (?! [/\w] | \.\w )
             | / [^\s"'<>)\]]*+ )""",
    re.VERBOSE,
)


async def inline_media(text: str, workspace: Path) -> str:
    """The text with each tag replaced by the image it names; other tags stay as they are, and all where no thread is left."""
    if "MEDIA:" not in text:
        return text
    try:
        return await trio.to_thread.run_sync(_inline, text, workspace)
    except RuntimeError:
        return text


def _inline(text: str, workspace: Path) -> str:
    return _TAG.sub(_Album(workspace.resolve()).show, text)


class _Album:
    """The images of one answer."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._room = MAX_BYTES_IN_ALL

    def show(self, tag: re.Match[str]) -> str:
        """Markdown with the image inside, or the tag itself if the file may not or cannot be shown."""
        path = Path(tag["path"] or "/")  # no path: the tag names no image
        image = self._read(path)
        if not image:
            return tag[0]
        self._room -= len(image)
        data = base64.b64encode(image).decode("ascii")
        return f"![{path.name}](data:{_TYPES[path.suffix.lower()]};base64,{data})"

    def _read(self, path: Path) -> bytes:
        try:
            real = path.resolve(strict=True)
            allowed = real.is_relative_to(self._root) and real.is_file()
            return real.read_bytes() if allowed and real.stat().st_size <= min(MAX_BYTES, self._room) else b""
        except (
            OSError,
            ValueError,
            RuntimeError,
        ):  # also for names that no file can have, and for link loops
            return b""
