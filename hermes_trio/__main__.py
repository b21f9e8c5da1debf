"""``python -m hermes_trio`` does what ``hermes-trio`` does."""

from __future__ import annotations

from typing import NoReturn

from hermes_trio.interrupts import plain_interrupts


def main() -> NoReturn:
    """The entry point of ``hermes-trio``."""
    with plain_interrupts():
        from hermes_trio.cli import main as run  # noqa: PLC0415  # not before interrupts are plain
    run()


if __name__ == "__main__":
    main()
