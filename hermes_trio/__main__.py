"""``python -m hermes_trio`` does what ``hermes-trio`` does."""

from __future__ import annotations

from hermes_trio.cli import main

if __name__ == "__main__":
    main()
