"""The time zone of schedules, by name."""

from __future__ import annotations

import os
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

LOCAL_TIME = Path("/etc/localtime")


def find_zone(name: str, local_time: Path = LOCAL_TIME) -> tzinfo:
    """Return the time zone of a name; for "", that of ``TZ``, else that of this machine, else UTC.

    Raises:
        KeyError, OSError, ValueError: there is no zone of that name.
    """
    if name:
        return ZoneInfo(name)
    try:
        if named := os.environ.get("TZ", "").removeprefix(":"):
            return ZoneInfo(named)
        with local_time.open("rb") as file:
            return ZoneInfo.from_file(file, "local")
    except (KeyError, OSError, ValueError):
        return UTC
