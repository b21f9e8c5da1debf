"""Finding the tokens of ``hermes_trio.agents.synthetic`` in the body of a stream."""

from __future__ import annotations

import re
from array import array

from attrs import Factory, define

from benchmarks.client.orders import Report
from benchmarks.stats import spread

# A time in nanoseconds and a number. Where there are no stamps, nothing is found and nothing is
# counted.
TOKEN = re.compile(rb"(\d{9,}) t(\d{6})")
FRAME_END = b"\n\n"
NEVER = 0


@define
class Turn:
    """One request and its response."""

    number: int = 0  # in the order in which they began
    sent: int = NEVER  # all times in nanoseconds
    first: int = NEVER
    last: int = NEVER
    ended: int = NEVER
    first_stamp: int = NEVER
    tokens: int = 0
    status: int = 0
    is_whole: bool = False
    rest: bytes = b""

    @property
    def is_good(self) -> bool:
        """Whether the response is complete."""
        return self.is_whole and self.status == 200


def _times() -> array[int]:
    return array("q")


@define
class Meter:
    """Counts and times of all turns."""

    rate: float = 0.0
    wait: float = 0.0
    turns: list[Turn] = Factory(list)
    tokens: int = 0
    frames: int = 0
    keepalives: int = 0
    received: int = 0
    lags: array[int] = Factory(_times)
    gaps: array[int] = Factory(_times)
    lates: array[int] = Factory(_times)

    def begin(self, now: int) -> Turn:
        """Note that a request is about to be sent."""
        turn = Turn(len(self.turns), now)
        self.turns.append(turn)
        return turn

    def take(self, turn: Turn, body: bytes, now: int) -> None:
        """Take a part of the body of a turn."""
        data = turn.rest + body if turn.rest else body
        cut = data.rfind(FRAME_END) + 2
        if cut < 2:
            turn.rest = data
            return
        turn.rest = data[cut:]
        self._count(turn, data[:cut], now)

    def finish(self, turn: Turn, now: int, is_whole: bool) -> None:
        """End a turn. A body that does not end with an empty line is a reply that was not streamed."""
        if turn.rest:
            self._count(turn, turn.rest, now)
            turn.rest = b""
        turn.ended, turn.is_whole = now, is_whole

    def _count(self, turn: Turn, data: bytes, now: int) -> None:
        self.frames += data.count(b"data: ")
        self.keepalives += data.count(b": keepalive")
        # A Responses stream says its text again at the end, so a number counts once.
        for stamp, number in TOKEN.findall(data):
            if int(number) == turn.tokens + 1:
                self._count_token(turn, int(stamp), now)

    def _count_token(self, turn: Turn, stamp: int, now: int) -> None:
        if not turn.tokens:
            turn.first, turn.first_stamp = now, stamp
        if stamp >= turn.sent:  # tokens from before the request are a replay and cannot be late
            self._time(turn, stamp, now)
        turn.last = now
        turn.tokens += 1
        self.tokens += 1

    def _time(self, turn: Turn, stamp: int, now: int) -> None:
        self.lags.append(now - stamp)
        if turn.tokens:
            self.gaps.append(now - turn.last)
        if self.rate:
            due = turn.first_stamp + int(turn.tokens / self.rate * 1e9)
            self.lates.append(max(0, now - due))

    def report(self, begun: int, now: int, busy: float, complaint: str) -> Report:
        """Return the report. Turns that have not ended have lasted until now."""
        answered = [turn.first - turn.sent for turn in self.turns if turn.first]
        silent = [(turn.ended or now) - turn.sent for turn in self.turns if not turn.first]
        ended = [turn for turn in self.turns if turn.ended]
        return Report(
            seconds=(max((turn.ended or now for turn in self.turns), default=now) - begun) / 1e9,
            started=len(self.turns),
            finished=sum(turn.is_good for turn in ended),
            failed=sum(not turn.is_good for turn in ended),
            unanswered=len(silent),
            tokens=self.tokens,
            frames=self.frames,
            keepalives=self.keepalives,
            received=self.received,
            first=spread([max(0, time - int(self.wait * 1e9)) for time in answered + silent]),
            lag=spread(self.lags),
            gap=spread(self.gaps),
            late=spread(self.lates),
            busy=busy,
            complaint=complaint,
        )
