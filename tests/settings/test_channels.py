"""``[channels.whatsapp]``: its options, its variables, and what is wrong with it."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_trio.cli import commands
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.preparation import check
from hermes_trio.server.process_secrets import secret_variables
from hermes_trio.settings import LoadedSettings, SettingsError, SourceKind, load
from hermes_trio.settings.channels import WhatsAppSettings

NO_HOME = {"HOME": "/nonexistent"}
SECRET = secrets.token_hex(12)
REQUIRED = f"""
[channels.whatsapp]
phone_number_id = "106540352242922"
access_token = "{SECRET}-1"
app_secret = "{SECRET}-2"
verify_token = "{SECRET}-3"
"""
KEYS = {"API_SERVER_KEY": "key-kq7w-vzx2-mhp9"}


def loaded_from(folder: Path, text: str, **environ: str) -> LoadedSettings:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return load({}, NO_HOME | environ, path)


def whatsapp_of(loaded: LoadedSettings) -> WhatsAppSettings:
    assert loaded.settings.channels.whatsapp is not None
    return loaded.settings.channels.whatsapp


def test_without_a_table_there_is_no_channel(tmp_path: Path) -> None:
    variables = {"WHATSAPP_CLOUD_ACCESS_TOKEN": "x"}
    assert loaded_from(tmp_path, "", **variables).settings.channels.whatsapp is None
    assert loaded_from(tmp_path, "[channels]").settings.channels.whatsapp is None


def test_every_option(tmp_path: Path) -> None:
    text = (
        REQUIRED
        + r"""
allow = ["+49 (151) 1234-5678", "*", "DE.ENT.1349"]
principal = "ann"
profile = "pirate"
reply_prefix = '*Bot*\n'
progress_seconds = 0
max_waiting = 3
graph_url = "http://127.0.0.1:9/v25.0"
send_seconds = 5
retries = 0
"""
    )
    loaded = loaded_from(tmp_path, text)
    assert whatsapp_of(loaded) == WhatsAppSettings(
        phone_number_id="106540352242922",
        access_token=f"{SECRET}-1",
        app_secret=f"{SECRET}-2",
        verify_token=f"{SECRET}-3",
        allow=("4915112345678", "*", "DE.ENT.1349"),
        principal="ann",
        profile="pirate",
        reply_prefix="*Bot*\n",
        progress_seconds=0.0,
        max_waiting=3,
        graph_url="http://127.0.0.1:9/v25.0",
        send_seconds=5.0,
        retries=0,
    )
    file = tmp_path / "config.toml"
    assert loaded.sources["channels.whatsapp.allow"].name == f"{file}: channels.whatsapp.allow"
    assert SECRET not in repr(loaded)


def test_secrets_come_from_the_environment_too(tmp_path: Path) -> None:
    given = {
        "HERMES_TRIO_WHATSAPP_ACCESS_TOKEN": "own",
        "WHATSAPP_CLOUD_ACCESS_TOKEN": "other",
        "WHATSAPP_CLOUD_APP_SECRET": f"{SECRET}-4",
        "WHATSAPP_CLOUD_VERIFY_TOKEN": "",
    }
    loaded = loaded_from(tmp_path, REQUIRED, **given)
    found = whatsapp_of(loaded)
    assert (found.access_token, found.app_secret) == ("own", f"{SECRET}-4")
    assert found.verify_token == f"{SECRET}-3"
    source = loaded.sources["channels.whatsapp.app_secret"]
    assert (source.kind, source.name) == (SourceKind.ENVIRONMENT, "WHATSAPP_CLOUD_APP_SECRET")
    assert secret_variables(loaded) >= {
        "HERMES_TRIO_WHATSAPP_ACCESS_TOKEN",
        "WHATSAPP_CLOUD_APP_SECRET",
    }


@pytest.mark.parametrize(
    "option", ["phone_number_id", "access_token", "app_secret", "verify_token"]
)
def test_what_is_required(tmp_path: Path, option: str) -> None:
    text = "\n".join(line for line in REQUIRED.splitlines() if not line.startswith(option))
    with pytest.raises(SettingsError) as caught:
        loaded_from(tmp_path, text)
    variable = f"HERMES_TRIO_WHATSAPP_{option.upper()}"
    assert str(caught.value).startswith(
        f"channels.whatsapp.{option}: is missing; set it here or in {variable}"
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense = 1", "channels.whatsapp.nonsense: no such option"),
        ("alow = []", "channels.whatsapp.alow: no such option, did you mean allow?"),
        ('allow = "491"', "channels.whatsapp.allow: '491' is not a phone number"),
        ('allow = ["me"]', "channels.whatsapp.allow: 'me' is not a phone number"),
        ("allow = [1]", "channels.whatsapp.allow: [1] is not a list of strings"),
        ("max_waiting = 0", "channels.whatsapp.max_waiting: 0 is less than 1"),
        ("progress_seconds = -1", "channels.whatsapp.progress_seconds: -1.0 is less than 0"),
        ("send_seconds = 0", "channels.whatsapp.send_seconds: 0.0 is not greater than 0"),
        ("retries = true", "channels.whatsapp.retries: True is not a whole number"),
        ('principal = ""', "channels.whatsapp.principal: '' is empty"),
        ('graph_url = "ftp://x"', "channels.whatsapp.graph_url: the value is not a URL"),
        ('graph_url = ""', "channels.whatsapp.graph_url: is empty"),
        (f'reply_prefix = "{"x" * 501}"', "channels.whatsapp.reply_prefix: has more than 500"),
        ("reply_prefix = 1", "channels.whatsapp.reply_prefix: 1 is not a string"),
    ],
)
def test_complaints_name_the_option_and_the_file(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded_from(tmp_path, f"{REQUIRED}{line}\n")
    assert str(caught.value).startswith(complaint)
    assert str(tmp_path / "config.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", ["access_token", "app_secret", "verify_token"])
@pytest.mark.parametrize("wrong", ['"{}\\n"', '["{}"]', '"{} é"'])
def test_complaints_repeat_no_secret(tmp_path: Path, option: str, wrong: str) -> None:
    text = REQUIRED.replace(f"{option} = ", f"{option} = {wrong.format(SECRET)} # ")
    with pytest.raises(SettingsError) as caught:
        loaded_from(tmp_path, text)
    assert str(caught.value).startswith(f"channels.whatsapp.{option}: ")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[channels.whatsap]", "channels: there is no channel 'whatsap', did you mean whatsapp?"),
        ("channels = 1", "channels: is a single value"),
        ("[channels]\nwhatsapp = 1", "channels.whatsapp: is a single value"),
        (REQUIRED.replace('"1065', '"+1065'), "channels.whatsapp.phone_number_id: '+1065"),
    ],
)
def test_tables_of_another_form(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded_from(tmp_path, text)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('principal = "ann"\n', "channels.whatsapp.principal: there is no key of 'ann'"),
        ('profile = "x"\n', "channels.whatsapp.profile: there is no profile 'x'"),
        (
            'profile = "x"\n[profiles.x]\nagent = "demo"\nkeys = ["default"]\n',
            "",
        ),
    ],
)
def test_principal_and_profile_must_exist(tmp_path: Path, text: str, complaint: str) -> None:
    settings = loaded_from(tmp_path, REQUIRED + text, **KEYS).settings
    if not complaint:
        check(settings)
        return
    with pytest.raises(ConfigurationError) as caught:
        check(settings)
    assert str(caught.value) == complaint


def test_the_principal_must_be_allowed_to_use_the_profile(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.touch(0o600)
    keys.write_text('[keys]\nann = "key-kq7w-vzx2-mhp9"\nbob = "key-8fj2-qmx7-pzt4"\n')
    text = f'api_key_file = "{keys}"\n{REQUIRED}principal = "bob"\nprofile = "x"\n'
    text += '[profiles.x]\nagent = "demo"\nkeys = ["ann"]\n'
    with pytest.raises(ConfigurationError) as caught:
        check(loaded_from(tmp_path, text).settings)
    assert str(caught.value) == "channels.whatsapp.profile: 'bob' may not use 'x'"


def test_config_show_masks_the_secrets(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"{REQUIRED}allow = ['*']\n")
    arguments = ["config", "show", "--config", str(tmp_path / "config.toml")]
    shown = CliRunner().invoke(commands.program, arguments, catch_exceptions=False).output
    assert SECRET not in shown
    rows = [line.split()[:2] for line in shown.splitlines() if line.startswith("channels.")]
    assert ["channels.whatsapp.app_secret", "********"] in rows
    assert ["channels.whatsapp.allow", "*"] in rows
