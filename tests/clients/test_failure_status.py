"""A status of failed agents for the one client that repeats a 424."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.clients.catalogue import CLIENTS
from tests.clients.conftest import EXPECTED
from tests.clients.driver_process import NODE, ClientFailed, make_driver
from tests.clients.test_clients import FAILURE, RunCounter
from tests.support.server_process import LaunchOptions, serving

LANGCHAIN = next(spec for spec in CLIENTS if spec.id == "node-langchain-chat")


@pytest.mark.slow
def test_langchain_js_does_not_repeat_a_400(tmp_path: Path, pythons: Mapping[str, str]) -> None:
    if not (NODE / "node_modules").exists():
        pytest.skip("the clients are installed by `nox -s clients` only")
    options = LaunchOptions(tmp_path / "server", settings={"agent_failure_status": 400})
    with serving(options, expected=EXPECTED) as server:
        client = make_driver(LANGCHAIN, pythons, server, tmp_path)
        try:
            runs = RunCounter(server)
            with pytest.raises(ClientFailed, match=FAILURE):
                client.perform("answer", f"/fail {FAILURE}")
            assert runs.count == 1
        finally:
            client.close()
