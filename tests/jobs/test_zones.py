"""The time zone of schedules."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from hermes_trio.jobs.zones import find_zone

NOW = datetime(2026, 7, 1)


def test_a_name() -> None:
    assert find_zone("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    with pytest.raises(ZoneInfoNotFoundError):
        find_zone("Europe/Atlantis")


@pytest.mark.parametrize("variable", ["Asia/Tokyo", ":Asia/Tokyo"])
def test_the_variable(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("TZ", variable)
    assert find_zone("") == ZoneInfo("Asia/Tokyo")


def test_the_file_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TZ", raising=False)
    named = ZoneInfo("UTC")
    # The version 1 of a zone file with one type of time: two hours before UTC.
    header = b"TZif" + bytes(16) + b"".join(n.to_bytes(4, "big") for n in (0, 0, 0, 0, 1, 4))
    path = tmp_path / "localtime"
    path.write_bytes(header + (-7200).to_bytes(4, "big", signed=True) + b"\0\0" + b"TWO\0")
    found = find_zone("", path)
    offset = found.utcoffset(NOW)
    assert offset is not None
    assert (offset.total_seconds(), found == named) == (-7200.0, False)


@pytest.mark.parametrize("content", [None, b"nonsense"])
def test_without_any_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    path = tmp_path / "localtime"
    if content is not None:
        path.write_bytes(content)
    assert find_zone("", path) is UTC
    monkeypatch.setenv("TZ", "<+03>-3")
    assert find_zone("", path) is UTC
