"""``python -m scripts.update_openapi`` regenerates the OpenAPI document of the reference."""

from __future__ import annotations

import json
from pathlib import Path

from hermes_trio import __version__
from hermes_trio.schema.openapi import document

PLACE = Path(__file__).parent.parent / "docs" / "reference" / "openapi.json"


def current() -> str:
    """Return the current document."""
    return json.dumps(document(__version__), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PLACE.write_text(current(), encoding="utf-8")
