"""Schedules: parsed from what a client writes, and when they are due.

Pure: the time and the time zone are arguments. Times are seconds since the epoch.
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

from cronsim import CronSim, CronSimError

from hermes_trio.core.jobs import Schedule, ScheduleKind

MAX_SCHEDULE_CHARS = 200
MAX_MINUTES = 10 * 366 * 24 * 60  # ten years
GRACE_SECONDS = 120.0
"""How late a job may always be without having missed its time."""
MAX_GRACE_SECONDS = 7200.0

_DURATION = re.compile(
    r"(?P<number>[0-9]{1,9})\s*(?P<unit>m|mins?|minutes?|h|hrs?|hours?|d|days?)", re.IGNORECASE
)
_MINUTES = {"m": 1, "h": 60, "d": 1440}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_CRON_FIELDS = 5
FORMS = (
    "Use '30m', '2h' or '1d' (once, after that time), 'every 30m' (again and again), "
    "'0 9 * * *' (cron), or '2026-02-03T14:00' (once, at that time)."
)


class InvalidSchedule(ValueError):
    """The text is not a schedule. The message says what is wrong, for the client."""


def parse_schedule(text: str, now: float, zone: tzinfo) -> Schedule:
    """Parse a schedule. Times without an offset, and cron expressions, are in ``zone``.

    Raises:
        InvalidSchedule: it is not a schedule, or never due.
    """
    text = text.strip()
    if len(text) > MAX_SCHEDULE_CHARS:
        raise InvalidSchedule(f"A schedule has at most {MAX_SCHEDULE_CHARS} characters.")
    words = text.split()
    if words[:1] and words[0].lower() == "every":
        minutes = _parse_minutes(" ".join(words[1:]))
        return Schedule(ScheduleKind.INTERVAL, f"every {minutes}m", minutes=minutes)
    if _DATE.match(text):
        return _parse_time(text, now, zone)
    if len(words) >= _CRON_FIELDS:
        return _parse_cron(words, now, zone)
    in_words = words[1:] if words[:1] and words[0].lower() == "in" else words
    minutes = _parse_minutes(" ".join(in_words))
    display = f"once in {' '.join(in_words)}"
    return Schedule(ScheduleKind.ONCE, display, run_at=now + minutes * 60)


def _parse_minutes(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise InvalidSchedule(f"'{text}' is not a schedule. {FORMS}")
    minutes = int(found["number"]) * _MINUTES[found["unit"][0].lower()]
    if not 1 <= minutes <= MAX_MINUTES:
        raise InvalidSchedule(f"'{text}' is not between one minute and ten years.")
    return minutes


def _parse_time(text: str, now: float, zone: tzinfo) -> Schedule:
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is not None else time.replace(tzinfo=zone)
        run_at = time.timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidSchedule(f"'{text}' is not a time: {error}.") from None
    if run_at < now - GRACE_SECONDS:
        raise InvalidSchedule(f"'{text}' is in the past.")
    return Schedule(ScheduleKind.ONCE, f"once at {time:%Y-%m-%d %H:%M}", run_at=run_at)


def _parse_cron(words: list[str], now: float, zone: tzinfo) -> Schedule:
    text = " ".join(words)
    if len(words) > _CRON_FIELDS:
        raise InvalidSchedule(f"'{text}' has {len(words)} fields; a cron expression has 5.")
    schedule = Schedule(ScheduleKind.CRON, text, expr=text)
    try:
        next_run(schedule, now, zone)
    except CronSimError as error:
        raise InvalidSchedule(f"'{text}' is not a cron expression: {error}.") from None
    except StopIteration:
        raise InvalidSchedule(f"'{text}' is never due.") from None
    return schedule


def next_run(schedule: Schedule, now: float, zone: tzinfo, last: float = 0.0) -> float:
    """Return when a schedule is due after ``now``; 0 for never.

    Args:
        schedule: as ``parse_schedule`` returned it.
        now: the time.
        zone: that of cron expressions. Times that a change of the clock skips or repeats are due
            once, as in Debian's cron.
        last: when an interval was due before; without it, the interval begins now.
    """
    match schedule.kind:
        case ScheduleKind.ONCE:
            return schedule.run_at if schedule.run_at > now else 0.0
        case ScheduleKind.INTERVAL:
            seconds = schedule.minutes * 60
            begun = last or now
            return begun + (int((now - begun) // seconds) + 1) * seconds
        case ScheduleKind.CRON:
            return next(CronSim(schedule.expr, datetime.fromtimestamp(now, zone))).timestamp()


def first_run(schedule: Schedule, now: float, zone: tzinfo) -> float:
    """Return when a schedule that begins now is due; 0 for never. A time just past is due at once."""
    if schedule.kind is ScheduleKind.ONCE and schedule.run_at >= now - GRACE_SECONDS:
        return schedule.run_at
    return next_run(schedule, now, zone)


def grace_seconds(schedule: Schedule, due_at: float, zone: tzinfo) -> float:
    """Return how late a job may be without having missed its time: half of its period, in bounds."""
    if schedule.kind is ScheduleKind.ONCE:
        return GRACE_SECONDS
    period = next_run(schedule, due_at, zone, due_at) - due_at
    return max(GRACE_SECONDS, min(period / 2, MAX_GRACE_SECONDS))


def show_time(at: float, zone: tzinfo) -> str | None:
    """Return a time in ISO format, None for 0."""
    return datetime.fromtimestamp(at, zone).isoformat() if at else None
