"""Checking settings, and finding the agents and keys that they name."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
from attrs import evolve

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.preparation import check, prepare
from hermes_trio.settings import Profile, Settings
from tests.support.fakes import KEY

STRONG_KEY = "key-kq7w-vzx2-mhp9"


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


def test_an_unknown_profile_in_the_key_file_is_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("joserfc", reason="[oidc] needs joserfc")
    path = tmp_path / "keys.toml"
    path.write_text(
        f"""
        [keys.ada]
        key = "{STRONG_KEY}-a"
        profiles = ["default", "coder", "codr"]
        [keys.eve]
        key = "{STRONG_KEY}-e"
        [oidc]
        issuer = "https://id.example.org"
        audience = "hermes-trio"
        [oidc.roles.staff]
        profiles = ["coder", "reviewer"]
        """
    )
    path.chmod(0o600)
    profiles = {"coder": Profile(name="coder", agent="demo")}
    settings = Settings(data_dir=tmp_path, api_key_file=path, agent="demo", profiles=profiles)
    with structlog.testing.capture_logs() as lines:
        prepare(settings)
    assert [
        (line["event"], line["entry"], line["profile"])
        for line in lines
        if line["log_level"] == "warning"
    ] == [
        ("the key file names an unknown profile", "keys.ada", "codr"),
        ("the key file names an unknown profile", "oidc.roles.staff", "reviewer"),
    ]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8642/v1"),
        ("127.0.0.1", "http://localhost:8642/v1"),
        ("0.0.0.0", "http://127.0.0.1:8642/v1"),
        ("10.0.0.7", "http://10.0.0.7:8642"),
    ],
)
def test_a_model_server_that_is_this_server_is_refused(tmp_path: Path, host: str, url: str) -> None:
    """Clients set ``OPENAI_BASE_URL`` to this server, perhaps in the shell that starts it."""
    settings = Settings(host=host, data_dir=tmp_path, api_key=STRONG_KEY, base_url=url)
    with pytest.raises(ConfigurationError) as caught:
        check(settings)
    assert str(caught.value) == (
        f"base_url (OPENAI_BASE_URL): {url} is the address of this server itself"
    )
    check(evolve(settings, agent="demo"))  # which calls no model


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/v1", "http://models.example:8642/v1", "https://127.0.0.1/v1"]
)
def test_other_model_servers_are_accepted(tmp_path: Path, url: str) -> None:
    check(Settings(data_dir=tmp_path, api_key=STRONG_KEY, base_url=url))


def test_the_model_server_of_a_profile_is_checked_too(tmp_path: Path) -> None:
    profile = Profile(name="coder", agent="upstream", base_url="http://localhost:8642/v1")
    settings = Settings(data_dir=tmp_path, api_key=KEY, agent="demo", profiles={"coder": profile})
    with pytest.raises(
        ConfigurationError, match=r"profiles\.coder\.base_url: .* this server itself"
    ):
        check(settings)
