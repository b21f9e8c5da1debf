"""The order for the client, and its report. Both are passed between processes as JSON."""

from __future__ import annotations

from attrs import evolve, field, frozen


@frozen
class Request:
    """One HTTP request, sent again and again."""

    method: str
    path: str
    body: str = ""
    headers: dict[str, str] = field(factory=dict)


@frozen
class Order:
    """One measurement."""

    host: str
    port: int
    request: Request
    streams: int  # turns at the same time
    ramp: float = 0.0  # seconds over which the first ones start
    turns: int = 0  # in all; those beyond the first ones start when others end
    seconds: float = 0.0  # leave after so long, whatever is under way; 0: stay to the end
    limit: float = 120.0  # give up after so long
    rate: float = 0.0  # tokens per second that each stream should bring
    wait: float = 0.0  # seconds of silence before the first, which no server can help
    http2: bool = False
    reuse: bool = False  # the next turn on the same connection
    slow_bytes: int = 0  # read so many bytes from each connection ...
    slow_every: float = 0.1  # ... every so many seconds
    core: int = -1  # the processor to stay on
    setup: Request | None = None  # asked first; "{id}" in the request becomes the id in its answer
    ids: list[str] = field(factory=list)  # or: "{id}" becomes another one for each turn

    def request_for(self, number: int) -> Request:
        """Return the request of a turn, counted from 0."""
        if not self.ids:
            return self.request
        return evolve(self.request, path=self.request.path.replace("{id}", self.ids[number]))


@frozen
class Spread:
    """The percentiles of a duration, in milliseconds."""

    p50: float = 0.0
    p99: float = 0.0
    highest: float = 0.0


@frozen
class Report:
    """The client's measurements."""

    seconds: float  # from the first request to the last end
    started: int
    finished: int  # with a status of 200 and a proper end
    failed: int
    unanswered: int  # never brought a token
    tokens: int
    frames: int
    keepalives: int
    received: int  # bytes
    # request to first token, less the agent's own silence; what never came counts until now
    first: Spread
    lag: Spread  # a token said to the same token read
    gap: Spread  # between two tokens of a stream
    late: Spread  # a token read to the moment when it was due, counted from the first
    busy: float  # share of its processor that the client used
    complaint: str = ""  # the first failure
