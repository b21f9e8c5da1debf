"""Two profiles from a file, behind a real server, with the OpenAI SDK."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from tests.e2e.test_startup import refusal
from tests.support.providers import read_activity
from tests.support.server_process import TIMEOUT, LaunchOptions, ServerProcess, run, serving

pytestmark = pytest.mark.xdist_group("e2e-profiles")

KEY, ANN = "key-of-the-owner-0123456789", "key-of-ann-kq7w-vzx2"
CONFIG = """
api_key_file = "keys.toml"
agent = "tests.support.providers:provider"
upstream_model = "small"

[profiles.coder]
model = "large"

[profiles.private]
model_name = "Private"
keys = ["ann"]
"""


def plan_of(folder: Path, text: str = CONFIG) -> LaunchOptions:
    """A server with these settings and two principals."""
    keys, config = folder / "keys.toml", folder / "config.toml"
    keys.touch(0o600)
    keys.write_text(f'[keys]\nann = "{ANN}"\n')
    config.write_text(text)
    return LaunchOptions(folder, ("--config", str(config)), {"api_key": KEY})


def client(server: ServerProcess, prefix: str = "", key: str = KEY) -> openai.OpenAI:
    """Return a client for an address."""
    return openai.OpenAI(
        base_url=f"{server.url}{prefix}/v1", api_key=key, max_retries=0, timeout=TIMEOUT
    )


def told(talk: openai.OpenAI, model: str) -> str:
    """Return how the agent introduces itself."""
    answer = talk.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "hello"}]
    )
    return str(answer.choices[0].message.content)


def test_two_profiles_from_a_file(tmp_path: Path) -> None:
    with serving(plan_of(tmp_path)) as server:
        assert [line.split()[1] for line in server.greeting.splitlines() if line.startswith("  model")] == [
            "hermes-agent", "coder", "Private",
        ]  # fmt: skip
        with (
            client(server) as own,
            client(server, "/p/coder") as coder,
            client(server, "/p/private", ANN) as ann,
        ):
            assert told(own, "hermes-agent") == "nobody: small: "
            assert told(own, "coder") == "coder: large: coder"
            assert told(coder, "whatever") == "coder: large: coder"
            assert told(ann, "Private") == "private: small: private"
            assert [model.id for model in own.models.list()] == ["hermes-agent", "coder"]
            assert [model.id for model in ann.models.list()] == ["Private"]
            with pytest.raises(openai.NotFoundError, match="no model"):
                told(own, "Private")
            kept = coder.responses.create(model="coder", input="hello")
            assert coder.responses.retrieve(kept.id).id == kept.id
            with pytest.raises(openai.NotFoundError, match="no response"):
                own.responses.retrieve(kept.id)
        with (
            client(server, "/p/private") as stranger,
            pytest.raises(openai.NotFoundError, match="no profile"),
        ):
            stranger.models.list()
    data = tmp_path / "data"
    assert read_activity(data / "workspace") == ["opened", "began for default", "ended", "closed"]
    turns = ["began for default", "ended"] * 3
    assert read_activity(data / "profiles" / "coder" / "workspace") == ["opened", *turns, "closed"]
    assert read_activity(data / "profiles" / "private" / "workspace") == [
        "opened",
        "began for ann",
        "ended",
        "closed",
    ]


OPENED_AND_CLOSED = [
    "opened",
    "closed",
]  # the others come before it, and a start that fails closes them


@pytest.mark.parametrize(
    ("table", "line", "notes"),
    [
        (
            'model = "none"',
            "Error: profiles.bad: model: there is no model 'none'",
            OPENED_AND_CLOSED,
        ),
        ('agent = "nobody"', "Error: profiles.bad.agent: no agent 'nobody': expected ", []),
        ('keys = ["eve"]', "Error: profiles.bad.keys: there is no key of 'eve'", []),
        (
            "max_iterations = 0",
            "Error: profiles.bad.max_iterations: 0 is less than 1 (from ",
            [],
        ),
    ],
)
def test_an_invalid_profile_prevents_the_start(
    tmp_path: Path, table: str, line: str, notes: list[str]
) -> None:
    assert refusal(run(plan_of(tmp_path, f"{CONFIG}\n[profiles.bad]\n{table}\n"))).startswith(line)
    assert read_activity(tmp_path / "data" / "workspace") == notes
    assert read_activity(tmp_path / "data" / "profiles" / "coder" / "workspace") == notes
