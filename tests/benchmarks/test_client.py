"""The client without its sockets: readers, links and the meter."""

from __future__ import annotations

from itertools import pairwise

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.client import http1, http2
from benchmarks.client.links import Http1Link, Http2Link
from benchmarks.client.orders import Order, Request
from benchmarks.client.tokens import Meter, Turn

REQUEST = Request("POST", "/v1/chat/completions", '{"a": 1}', {"authorization": "Bearer k"})
ORDER = Order("127.0.0.1", 1, REQUEST, 1)
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SECOND = 1_000_000_000


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def said(number: int, at: int) -> bytes:
    return b'data: {"content": "%d t%06d.. "}\n\n' % (at, number)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[first:last] for first, last in pairwise(edges)]


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=5),
    st.lists(st.integers(0, 10_000), max_size=6),
)
def test_a_chunked_body_is_read_however_it_is_cut(pieces: list[bytes], places: list[int]) -> None:
    reader = http1.Http1Reader()
    body = b"".join(reader.feed(part) for part in cut(HEAD + chunked(*pieces), places))
    assert (reader.status, reader.is_over, body) == (200, True, b"".join(pieces))


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_bodies_of_known_length_are_read_one_after_the_other(places: list[int]) -> None:
    reader = http1.Http1Reader()
    wire = b"HTTP/1.1 503 No\r\ncontent-length: 5\r\n\r\nhello"
    for _ in range(2):
        assert b"".join(reader.feed(part) for part in cut(wire, places)) == b"hello"
        assert (reader.status, reader.is_over) == (503, True)
        reader.restart()


def test_a_request_is_what_a_server_expects() -> None:
    head, _, body = http1.request_bytes(REQUEST, "h").partition(b"\r\n\r\n")
    assert head.splitlines() == [
        b"POST /v1/chat/completions HTTP/1.1",
        b"host: h",
        b"authorization: Bearer k",
        b"content-type: application/json",
        b"content-length: 8",
    ]
    assert body == b'{"a": 1}'


def test_each_turn_can_ask_for_another_id() -> None:
    order = Order("h", 1, Request("GET", "/v1/runs/{id}/events"), 2, ids=["one", "two"])
    meter = Meter()
    turns = [meter.begin(at) for at in (0, 1)]
    links = [Http1Link(order, meter), Http1Link(order, meter)]
    for link, turn in zip(links, turns, strict=True):
        link.start(turn)
    assert [link.unsent.split()[1] for link in links] == [
        b"/v1/runs/one/events",
        b"/v1/runs/two/events",
    ]


def test_http2_is_understood_by_a_real_peer() -> None:
    meter = Meter()
    link = Http2Link(ORDER, meter)
    turn = meter.begin(SECOND)
    link.start(turn)
    peer = H2Connection(H2Configuration(client_side=False))
    peer.initiate_connection()
    asked = peer.receive_data(link.unsent)
    link.unsent = b""
    heard = next(event for event in asked if isinstance(event, RequestReceived))
    fields = dict(heard.headers)
    assert (fields[b":method"], fields[b":path"]) == (b"POST", b"/v1/chat/completions")
    assert any(isinstance(event, DataReceived) and event.data == b'{"a": 1}' for event in asked)
    assert any(isinstance(event, StreamEnded) for event in asked)
    peer.send_headers(heard.stream_id, [(":status", "200"), ("x-a", "b")])
    peer.send_data(heard.stream_id, said(1, SECOND), end_stream=True)
    assert link.feed(peer.data_to_send(), SECOND + 10) == [turn]
    assert (turn.is_good, turn.tokens, list(meter.lags)) == (True, 1, [10])
    peer.receive_data(link.unsent)  # the acknowledged settings


def test_a_reset_stream_is_a_failure() -> None:
    meter = Meter()
    link = Http2Link(ORDER, meter)
    turn = meter.begin(0)
    link.start(turn)
    assert link.feed(http2.frame_bytes(http2.RST_STREAM, 0, 1, bytes(4)), 9) == [turn]
    assert not turn.is_good


@pytest.mark.parametrize("make", [Http1Link, Http2Link])
def test_a_lost_connection_ends_its_turns(make: type[Http1Link | Http2Link]) -> None:
    meter = Meter()
    link = make(ORDER, meter)
    turn = meter.begin(0)
    link.start(turn)
    assert link.cut(7) == [turn]
    assert (turn.ended, turn.is_good, link.has_room) == (7, False, True)


@given(st.lists(st.integers(0, 10_000), max_size=8))
def test_every_token_is_counted_once_however_the_stream_is_cut(places: list[int]) -> None:
    meter = Meter()
    turn = meter.begin(0)
    again = b'event: done\ndata: {"text": "1000000000 t000001.. 1000000001 t000002.. "}\n\n'
    for part in cut(said(1, SECOND) + b": keepalive\n\n" + said(2, SECOND + 1) + again, places):
        meter.take(turn, part, 2 * SECOND)
    meter.finish(turn, 3 * SECOND, is_whole=True)
    assert (meter.tokens, meter.frames, meter.keepalives) == (2, 3, 1)
    assert list(meter.lags) == [SECOND, SECOND - 1]


def test_times_are_counted_from_stamp_schedule_and_request() -> None:
    meter = Meter(rate=10, wait=0.5)
    turn = meter.begin(SECOND)
    meter.take(turn, said(1, 2 * SECOND), 3 * SECOND)
    meter.take(turn, said(2, 2 * SECOND + SECOND // 10), 4 * SECOND)
    turn.status = 200
    meter.finish(turn, 5 * SECOND, is_whole=True)
    report = meter.report(SECOND, 9 * SECOND, 0.5, "")
    assert (report.seconds, report.finished, report.failed, report.unanswered) == (4.0, 1, 0, 0)
    assert (
        report.first.p50 == 1_500
    )  # asked at 1 s, read at 3 s, and the agent was silent for half a second
    assert (report.lag.highest, report.lag.p50) == (1_900, 1_000)
    assert report.gap.p50 == 1_000
    assert report.late.highest == 1_900  # due a tenth of a second after the first was said


def test_what_was_said_before_one_asked_is_a_replay_and_has_no_latency() -> None:
    meter = Meter(rate=10)
    turn = meter.begin(5 * SECOND)
    meter.take(turn, said(1, SECOND) + said(2, 6 * SECOND), 7 * SECOND)
    assert (meter.tokens, list(meter.lags)) == (2, [SECOND])


def test_a_turn_that_never_spoke_counts_for_as_long_as_it_was_waited_for() -> None:
    meter = Meter()
    meter.turns += [Turn(sent=1 * SECOND), Turn(sent=2 * SECOND, first=3 * SECOND)]
    report = meter.report(0, 9 * SECOND, 0.0, "")
    assert (report.unanswered, report.first.highest) == (1, 8_000)
