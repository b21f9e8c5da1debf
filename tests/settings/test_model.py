"""The settings as displayed to clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_trio.settings import MASK, Settings, options
from hermes_trio.settings.display import display_settings


def shown(**values: object) -> dict[str, str]:
    return {option.name: option.value for option in display_settings(Settings(**values))}  # type: ignore[arg-type]


def test_every_option_is_displayed_with_its_help() -> None:
    listed = display_settings(Settings())
    assert [option.name for option in listed] == list(options())
    assert all(option.help for option in listed)


def test_values_as_people_write_them() -> None:
    values = shown(port=9000, cors_origins=("https://a.test", "https://b.test"))
    assert values["port"] == "9000"
    assert values["cors_origins"] == "https://a.test, https://b.test"
    assert values["api_key"] == values["system_prompt"] == ""


def test_no_secret_is_displayed(tmp_path: Path) -> None:
    secret = "a-very-long-secret-0123456789"
    values = shown(
        api_key=secret,
        upstream_api_key=secret,
        system_prompt=f"You know {secret}.",
        api_key_file=tmp_path / secret,
    )
    assert secret not in str(values)
    assert values["api_key"] == values["system_prompt"] == MASK


@pytest.mark.parametrize(
    "url", ["postgresql://ann:hush@db/x", "postgresql:///x?user=ann&password=hush"]
)
def test_the_password_in_a_store_url_is_not_displayed(url: str) -> None:
    settings = Settings(store=url)
    masked = url.replace("hush", "***")
    assert shown(store=url)["store"] == masked
    assert f"store={masked!r}" in repr(settings)
    assert "hush" not in f"{settings!r} {settings} {settings.store_location}"
    assert settings.store == url
