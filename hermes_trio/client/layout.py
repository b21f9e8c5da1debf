"""What of a view can be printed for good, and what has to be drawn again while it changes."""

from __future__ import annotations

from attrs import frozen

from hermes_trio.client.state import Block, Card, CardState, Mused, Said, View
from hermes_trio.client.text import settled


@frozen
class Mark:
    """How far a view has been printed: all blocks before one, and some characters of that."""

    block: int = 0
    character: int = 0


START = Mark()


@frozen
class Split:
    """A view in two parts, and the mark between them."""

    printed: tuple[Block, ...]  # from the last mark to the new one
    rest: tuple[Block, ...]
    mark: Mark


def split(view: View, mark: Mark = START) -> Split:
    """Divide what has not been printed yet. A call that runs holds back all that comes after it."""
    printed: list[Block] = []
    while mark.block < len(view.blocks):
        block = view.blocks[mark.block]
        if isinstance(block, Card) and block.state is CardState.RUNNING:
            break
        can_grow = mark.block == len(view.blocks) - 1 and not view.is_over
        if can_grow and isinstance(block, Said | Mused):
            end = mark.character + settled(block.text[mark.character :])
            printed += _part(block, mark.character, end)
            mark = Mark(mark.block, end)
            break
        printed += _part(block, mark.character)
        mark = Mark(mark.block + 1)
    return Split(tuple(printed), _rest(view, mark), mark)


def _rest(view: View, mark: Mark) -> tuple[Block, ...]:
    first, *others = view.blocks[mark.block :] or (Said(""),)
    return (*_part(first, mark.character), *others)


def _part(block: Block, begin: int, end: int | None = None) -> list[Block]:
    """A part of a text, if there is anything in it; anything else is whole."""
    match block:
        case Said(text):
            return [Said(text[begin:end])] if text[begin:end].strip() else []
        case Mused(text):
            return [Mused(text[begin:end])] if text[begin:end].strip() else []
        case _:
            return [block]
