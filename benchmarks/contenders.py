"""The measured servers, and the request that each gets: frozen values, no I/O."""

from __future__ import annotations

import json
import os
from enum import Enum

from attrs import frozen

from benchmarks.client.orders import Order, Request
from benchmarks.loads import Kind, Load
from benchmarks.servers.peer import KEY

MODEL = "hermes-agent"
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
SLOW_BYTES = 4_096
_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = _CORES[0], _CORES[-1]


class Program(Enum):
    """The program that is started."""

    OURS = "ours"
    PEER = "peer"
    PLAIN = "plain"
    LIMIT = "limit"
    RECORDS = "records"


@frozen
class Contender:
    """One column of the results."""

    name: str
    title: str
    program: Program
    mode: str = "sync"
    api: str = "chat"
    http2: bool = False
    threads: int = 0  # of the executor; 0: as it is by default
    write_through: bool = True  # False: every token takes the channel path
    durability: str = "normal"  # strict: every token is stored before it is sent


ALL = (
    Contender("ours", "hermes-trio", Program.OURS),
    Contender("ours-h2", "hermes-trio, HTTP/2", Program.OURS, http2=True),
    Contender("ours-async", "hermes-trio, async agent", Program.OURS, "async"),
    Contender("ours-h2-async", "hermes-trio, HTTP/2, async agent", Program.OURS, "async", http2=True),
    Contender("ours-responses", "hermes-trio, stored responses", Program.OURS, api="responses"),
    Contender(
        "ours-responses-async", "hermes-trio, stored responses, async agent", Program.OURS, "async", "responses"
    ),
    Contender(
        "ours-strict", "hermes-trio, stored before it is sent", Program.OURS, api="responses", durability="strict"
    ),
    Contender(
        "ours-strict-async", "hermes-trio, stored before it is sent, async agent", Program.OURS, "async", "responses",
        durability="strict",
    ),
    Contender("ours-channel", "hermes-trio, no write-through", Program.OURS, write_through=False),
    Contender(
        "ours-channel-async", "hermes-trio, no write-through, async agent", Program.OURS, "async", write_through=False
    ),
    Contender("peer", "hermes-agent", Program.PEER),
    Contender("peer-threads", "hermes-agent, 5,000 executor threads", Program.PEER, threads=5_000),
    Contender("peer-responses", "hermes-agent, stored responses", Program.PEER, api="responses"),
    Contender("starlette", "Starlette + uvicorn", Program.PLAIN),
    Contender("starlette-async", "Starlette + uvicorn, async agent", Program.PLAIN, "async"),
    Contender("limit", "limit: bare Trio sockets", Program.LIMIT),
    Contender("limit-async", "limit: bare Trio sockets, async agent", Program.LIMIT, "async"),
    Contender("records", "limit with records", Program.RECORDS),
    Contender("records-async", "limit with records, async agent", Program.RECORDS, "async"),
)  # fmt: skip
BY_NAME = {contender.name: contender for contender in ALL}


@frozen
class Address:
    """The address and the process of a contender."""

    port: int
    pid: int
    host: str = "127.0.0.1"


def order_for(load: Load, contender: Contender, address: Address) -> Order:
    """Return the order for the client."""
    is_resume = load.kind is Kind.RESUME
    return Order(
        host=address.host,
        port=address.port,
        request=_resume() if is_resume else _turn(load, contender),
        setup=_background(load, contender) if is_resume else None,
        streams=load.streams,
        ramp=load.ramp,
        turns=load.turns,
        seconds=load.seconds,
        limit=load.limit,
        rate=load.rate,
        wait=0.0
        if is_resume
        else load.wait,  # most readers of a running response need not wait for it
        http2=contender.http2,
        reuse=load.kind in (Kind.BATCH, Kind.STORED),
        slow_bytes=SLOW_BYTES if load.kind is Kind.SLOW else 0,
        core=CLIENT_CORE,
    )


def _turn(load: Load, contender: Contender) -> Request:
    is_streamed = load.kind not in (Kind.BATCH, Kind.STORED)
    return _post(contender.api, load.words(contender.mode), stream=is_streamed)


def _background(load: Load, contender: Contender) -> Request:
    return _post("responses", load.words(contender.mode), background=True)


def _resume() -> Request:
    return Request("GET", f"{RESPONSES}/{{id}}?stream=true&starting_after=-1", headers=_headers())


def _post(api: str, words: str, **fields: bool) -> Request:
    if api == "responses":
        return Request("POST", RESPONSES, _json(input=words, store=True, **fields), _headers())
    messages = [{"role": "user", "content": words}]
    return Request("POST", CHAT, _json(messages=messages, **fields), _headers())


def _json(**fields: object) -> str:
    return json.dumps({"model": MODEL, **fields})


def _headers() -> dict[str, str]:
    return {"authorization": f"Bearer {KEY}"}
