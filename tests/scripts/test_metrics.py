"""The figures of the code base."""

from __future__ import annotations

from pathlib import Path

from scripts.metrics import measure, report

BASE = "class Shared:\n    pass\n\n\ndef long() -> int:\n    one = 1\n    two = 2\n    return one + two\n"
USER = "from sample.base import long\nimport sample.base\n\n\nclass Shared:\n    def short(self) -> None: ...\n"


def test_a_package_is_measured(tmp_path: Path) -> None:
    package = tmp_path / "sample"
    package.mkdir()
    for name, text in {"__init__": "", "base": BASE, "user": USER}.items():
        (package / f"{name}.py").write_text(text)
    metrics = measure(package)
    assert metrics.lines == {"sample": 0, "sample.base": 8, "sample.user": 6}
    assert sorted(function.lines for function in metrics.functions) == [1, 4]
    assert metrics.duplicate_classes == {"Shared": ["sample.base", "sample.user"]}
    assert metrics.lonely_modules == [("sample.base", 8, "sample.user")]
    assert "modules           3, 2 without packages" in list(report(metrics))
    assert "function length   median 2.5, p90 4, max 4 (sample.base.long)" in list(report(metrics))


def test_no_two_classes_share_a_name() -> None:
    assert measure().duplicate_classes == {}
