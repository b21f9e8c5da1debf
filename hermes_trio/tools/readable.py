"""From HTML to a text that a model can read. Pure; knows nothing of where the page came from."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_SKIPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "select"}
)
_BLOCKS = frozenset(
    {
        "p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "ul", "ol", "table", "form",
        "blockquote", "figure", "figcaption", "dl", "dt", "dd", "address", "title", "fieldset", "details", "summary",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": f"{'#' * level} " for level in range(1, 7)}


def readable(html: str) -> str:
    """The text of a page: headings, paragraphs, lists, links and preformatted text; no scripts and no styles."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.text()


class _Parser(HTMLParser):
    """Collects lines. White space is one blank, unless it is preformatted."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._links: list[str] = []
        self._skipping = self._preformatted = 0

    def text(self) -> str:
        """All of it, with at most one empty line in a row."""
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin what the tag means."""
        if tag in _SKIPPED:
            self._skipping += 1
        elif tag == "pre":
            self._preformatted += 1
            self._break("```\n", empty=True)
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")
        else:
            self._begin(tag)

    def _begin(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._break(_HEADINGS[tag], empty=True)
        elif tag == "li":
            self._break("- ")
        elif tag in ("br", "tr", "hr"):
            self._break()
        elif tag in ("td", "th"):
            self._add(" | ")
        elif tag in _BLOCKS:
            self._break(empty=True)

    def handle_endtag(self, tag: str) -> None:
        """End what the tag began."""
        if tag in _SKIPPED:
            self._skipping = max(self._skipping - 1, 0)
        elif tag == "pre":
            self._preformatted = max(self._preformatted - 1, 0)
            self._break("```")
            self._break(empty=True)
        elif tag == "a" and self._links:
            self._end_link(self._links.pop())
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._break(empty=True)

    def _end_link(self, target: str) -> None:
        if target.startswith(("http://", "https://", "/")):
            self._add(f" ({target})")

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._preformatted:
            self._add(data)
            return
        text = re.sub(r"\s+", " ", data)
        before = self._parts[-1][-1:] if self._parts else "\n"
        self._add(text.lstrip() if before in ("\n", " ") else text)

    def _break(self, begin: str = "", *, empty: bool = False) -> None:
        self._add(("\n\n" if empty else "\n") + begin)

    def _add(self, text: str) -> None:
        if text and not self._skipping:
            self._parts.append(text)
