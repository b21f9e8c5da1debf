"""``python -m hermes_trio`` is the same as ``hermes-trio``."""

from __future__ import annotations

from hermes_trio.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
