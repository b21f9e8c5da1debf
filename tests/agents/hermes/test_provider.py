from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_trio.agent.interface import AgentConfig
from hermes_trio.agents.hermes.provider import read_config
from hermes_trio.agents.hermes.runtime import HermesConfig, HermesOptions
from hermes_trio.core.errors import ConfigurationError


def test_nothing_said_leaves_everything_to_hermes() -> None:
    assert read_config(AgentConfig()) == HermesConfig()


def test_what_is_said_is_taken() -> None:
    config = AgentConfig(
        model="m",
        base_url="http://x",
        api_key="k",
        system_prompt="s",
        tools=("web",),
        max_iterations=7,
        options={"home": "~/h", "skip_memory": True},
    )
    options = HermesOptions(home=str(Path.home() / "h"), skip_memory=True)
    assert read_config(config) == HermesConfig("m", "http://x", "k", "s", ("web",), 7, options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"hmoe": "x"}, "no option 'hmoe'"),
        ({"home": 3}, "'home' of the hermes agent must be a str"),
        ({"skip_memory": "yes"}, "must be a bool"),
        ({"home": "/a", "hermes_profile": "b"}, "not both"),
    ],
)
def test_invalid_options_are_reported_in_one_line(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as told:
        read_config(AgentConfig(options=options))
    assert "\n" not in str(told.value)


def test_the_key_is_not_shown() -> None:
    assert "canary" not in repr(read_config(AgentConfig(api_key="canary")))
