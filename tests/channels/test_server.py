"""A whole server with the channel, built from settings and reached over a socket."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2

from hermes_trio.bootstrap import create_app
from hermes_trio.settings import Settings
from hermes_trio.settings.channels import ChannelSettings
from tests.support.asgi import real_timeout
from tests.support.fakes import KEY, bearer
from tests.support.graph_api import (
    ANN,
    VERIFY,
    WEBHOOK,
    notification,
    serve_graph_api,
    settings_of,
    sign,
    text_message,
)
from tests.support.in_process_server import serving


async def test_a_message_over_a_socket_is_answered_over_another(tmp_path: Path) -> None:
    async with serve_graph_api() as graph:
        channel = settings_of(graph, principal="default")
        settings = Settings(
            data_dir=tmp_path,
            store=f"sqlite:///{tmp_path / 'records.db'}",
            api_key=KEY,
            agent="demo",
            channels=ChannelSettings(whatsapp=channel),
        )
        app = create_app(settings)
        async with serving(app) as live, httpx2.AsyncClient() as client:
            url = f"http://127.0.0.1:{live.port}"
            params = {"hub.mode": "subscribe", "hub.verify_token": VERIFY, "hub.challenge": "42"}
            assert (await client.get(url + WEBHOOK, params=params)).text == "42"
            message = text_message("Hello", timestamp=str(int(time.time())))
            raw = notification(message)
            for _ in range(2):
                answer = await client.post(url + WEBHOOK, content=raw, headers=sign(raw))
                assert answer.status_code == 200
            with real_timeout():
                await graph.until(texts=1)
            listed = await client.get(f"{url}/v1/runs", headers=bearer(KEY))
            assert [run["kind"] for run in listed.json()["data"]] == ["whatsapp"]
            assert [to for to, _ in graph.texts] == [ANN]
