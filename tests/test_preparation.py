"""Checking settings, and finding the agents and keys that they name."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.preparation import check, prepare
from hermes_trio.settings import Settings
from tests.support.fakes import KEY


def test_a_check_reads_the_secret_for_tokens_and_does_not_generate_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, store="memory:", api_key=KEY, agent="demo")
    check(settings)
    assert list(tmp_path.iterdir()) == []
    secret = prepare(settings).token_secret
    assert prepare(settings).token_secret == secret
    (tmp_path / "token-secret").write_text("damaged")
    for each in (check, prepare):
        with pytest.raises(ConfigurationError, match="token-secret: is damaged"):
            each(settings)


def test_on_loopback_a_weak_key_is_a_warning(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        prepare(Settings(data_dir=tmp_path, api_key="password12345678", agent="demo"))
    [line] = [line for line in lines if line["log_level"] == "warning"]
    assert (line["event"], line["principal"]) == ("a key is easy to guess", "default")
    assert "password" not in str(line)
