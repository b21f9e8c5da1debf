"""What the documentation shows of logs and traces is what a real server writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.monitoring.examples import examples, json_lines, send, shown
from tests.support.server_process import LaunchOptions, eventually, serving

RAISING = """
class Raises:
    def run(self, turn, emitter):
        emitter.text("Let me see. ")
        raise LookupError("no such city: Atlantis")


def factory(context):
    return Raises()
"""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("monitoring-examples")]


def test_the_documented_examples_are_current(tmp_path: Path) -> None:
    for page, name, text in examples(tmp_path):
        assert shown(page, name) == text, (
            f"{page} is stale: run `python -m tests.monitoring.examples`"
        )


@pytest.mark.parametrize("stream", [True, False])
def test_an_exception_of_an_agent_is_logged_once_and_never_sent(
    tmp_path: Path, stream: bool
) -> None:
    (tmp_path / "raises.py").write_text(RAISING)
    plan = LaunchOptions(
        tmp_path, ("--agent", "raises:factory"), {"log_format": "json"}, cwd=tmp_path
    )
    with serving(plan, expected="the agent raised an exception") as server:
        body = {"stream": stream, "messages": [{"role": "user", "content": "the weather?"}]}
        answer = send(server, body, **{"X-Request-Id": "atlantis"})
        eventually(lambda: server.log.count('"message": "request"') == 1)
        lines = [line for line in json_lines(server) if line.get("request_id") == "atlantis"]
    assert "no such city" in answer.text
    assert "Traceback" not in answer.text
    assert "raises.py" not in answer.text
    [failed] = [line for line in lines if "exception" in line]
    assert failed["exception"].count("Traceback") == server.log.count("Traceback") == 1
    assert 'raise LookupError("no such city: Atlantis")' in failed["exception"]
    [run_id] = {line["run_id"] for line in lines if line["message"].startswith("run ")}
    assert failed["run_id"] == run_id
    assert {line["principal"] for line in lines} == {"default"}
