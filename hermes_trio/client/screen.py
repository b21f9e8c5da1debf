"""Where a run is shown: the contract, and the two simple ways. The live one is in ``terminal``."""

from __future__ import annotations

from typing import Protocol, TextIO

from attrs import define

from hermes_trio.client.events import Completed, Failed
from hermes_trio.client.layout import START, Mark
from hermes_trio.client.state import Said, View
from hermes_trio.client.stream import Heard
from hermes_trio.client.text import one_line, printable

_NOTICE = 500


class Screen(Protocol):
    """Shows one turn."""

    @property
    def frames_per_second(self) -> float:
        """How often ``tick`` is wanted; 0 means never."""
        ...

    def show(self, view: View, heard: Heard, /) -> None:
        """There is one more event."""
        ...

    def tick(self, view: View) -> None:
        """Time has passed."""
        ...

    def notice(self, text: str) -> None:
        """Something that the person should know and that is no part of the run."""
        ...

    def stopping(self) -> None:
        """The run was asked to stop."""
        ...

    def finish(self, view: View) -> None:
        """Nothing follows."""
        ...


@define
class _Plain:
    """What both have in common: troubles go to the error output, and nothing moves."""

    out: TextIO
    err: TextIO

    @property
    def frames_per_second(self) -> float:
        return 0.0

    def tick(self, view: View) -> None:
        """Nothing moves here."""

    def notice(self, text: str) -> None:
        self.err.write(f"{one_line(text, _NOTICE)}\n")
        self.err.flush()

    def stopping(self) -> None:
        self.notice("stopping; Ctrl-C again quits")


@define
class JsonLines(_Plain):
    """Every event as it came, one to a line."""

    def show(self, _view: View, heard: Heard, /) -> None:
        # Between two tokens of JSON a space is as good as a line break, and within a string there is none.
        line = heard.data.replace("\n", " ")
        self.out.write(f"{line}\n")
        self.out.flush()

    def finish(self, view: View) -> None:
        """All has been said."""


@define
class PlainText(_Plain):
    """The answer alone, as it comes."""

    mark: Mark = START

    def show(self, view: View, _heard: Heard, /) -> None:
        written = False
        for place in range(self.mark.block, len(view.blocks)):
            block = view.blocks[place]
            begin = self.mark.character if place == self.mark.block else 0
            if isinstance(block, Said) and block.text[begin:]:
                self._write(block.text[begin:], gap=begin == 0 and _said_before(view, place))
                self.mark, written = Mark(place, len(block.text)), True
        if written:
            self.out.flush()

    def _write(self, text: str, gap: bool) -> None:
        shown = printable(text) if self.out.isatty() else text
        self.out.write(f"\n\n{shown.lstrip()}" if gap else shown)

    def finish(self, view: View) -> None:
        if _said_before(view, len(view.blocks)):
            self.out.write("\n")
            self.out.flush()
        match view.end:
            case Failed(error, _):
                self.notice(f"failed: {error}")
            case Completed(_, reason, _) if reason:
                self.notice(f"incomplete: {reason}")
            case _:
                pass


def _said_before(view: View, place: int) -> bool:
    return any(isinstance(block, Said) for block in view.blocks[:place])
