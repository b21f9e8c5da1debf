"""``MEDIA:<path>`` tags in a final answer: small images become part of the text.

Only files below the agent's workspace are inlined, whatever path a model was talked into naming.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path

import trio

from hermes_trio.core.dialects.chat import BatchReply, ChatCollector
from hermes_trio.web.auth import choose_agent
from hermes_trio.web.request import app_state, principal_name

MAX_BYTES = 5 * 1024 * 1024
MAX_TOTAL_BYTES = 4 * MAX_BYTES  # a text can name one file thousands of times
_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}
# A path may be followed by the full stop of a sentence. The second branch takes a tag that names no
# image whole: without it the search would begin anew in the middle of it, and many tags in a row
# would take quadratic time.
_TAG = re.compile(
    r"""
    MEDIA: (?: (?P<path> / [^\s"'<>)\]]+? \. (?i:png|jpe?g|gif|webp|bmp) ) (?! [/\w] | \.\w )
             | / [^\s"'<>)\]]*+ )""",
    re.VERBOSE,
)


async def reply_with_media(collector: ChatCollector, model: str) -> BatchReply:
    """Make the reply of a collected run, with the images in the workspace of the model's agent.

    Raises:
        ApiError: the run failed.
    """
    workspace = app_state().services.workspace_of(choose_agent(model).profile, principal_name())
    return collector.reply(await inline_media(collector.answer, workspace))


async def inline_media(text: str, workspace: Path) -> str:
    """Replace each tag by the image it names.

    Other tags stay, and so do all if no thread can be started.
    """
    if "MEDIA:" not in text:
        return text
    try:
        return await trio.to_thread.run_sync(_inline, text, workspace)
    except RuntimeError:
        return text


def _inline(text: str, workspace: Path) -> str:
    return _TAG.sub(_MediaInliner(workspace.resolve()).inline, text)


class _MediaInliner:
    """Inlines the images of one answer, up to a total size."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._remaining = MAX_TOTAL_BYTES

    def inline(self, tag: re.Match[str]) -> str:
        """Return Markdown that holds the image, or the tag itself if the file may not or cannot be read."""
        path = Path(tag["path"] or "/")  # no path: the tag names no image
        image = self._read(path)
        if not image:
            return tag[0]
        self._remaining -= len(image)
        data = base64.b64encode(image).decode("ascii")
        return f"![{path.name}](data:{_TYPES[path.suffix.lower()]};base64,{data})"

    def _read(self, path: Path) -> bytes:
        try:
            real = path.resolve(strict=True)
            allowed = real.is_relative_to(self._root) and real.is_file()
            return (
                real.read_bytes()
                if allowed and real.stat().st_size <= min(MAX_BYTES, self._remaining)
                else b""
            )
        except (
            OSError,
            ValueError,
            RuntimeError,
        ):  # also invalid names (ValueError) and link loops (RuntimeError)
            return b""
