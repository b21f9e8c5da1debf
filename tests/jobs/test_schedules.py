"""Schedules: what clients may write, and when it is due."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from hermes_trio.core.jobs import Schedule, ScheduleKind
from hermes_trio.jobs.schedules import (
    FORMS,
    GRACE_SECONDS,
    MAX_GRACE_SECONDS,
    InvalidSchedule,
    first_run,
    grace_seconds,
    next_run,
    parse_schedule,
    show_time,
)

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600.0


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


NOW = at("2026-11-19T10:30")


def every(minutes: int) -> Schedule:
    return Schedule(ScheduleKind.INTERVAL, f"every {minutes}m", minutes=minutes)


def cron(expr: str) -> Schedule:
    return Schedule(ScheduleKind.CRON, expr, expr=expr)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("every 30m", every(30)),
        (" Every  2 Hours ", every(120)),
        ("every 1d", every(1440)),
        ("30m", Schedule(ScheduleKind.ONCE, "once in 30m", run_at=NOW + HOUR / 2)),
        ("in 2h", Schedule(ScheduleKind.ONCE, "once in 2h", run_at=NOW + 2 * HOUR)),
        ("1 day", Schedule(ScheduleKind.ONCE, "once in 1 day", run_at=NOW + 24 * HOUR)),
        ("0 9 * * *", cron("0 9 * * *")),
        ("*/5  9-17 * * mon-fri", cron("*/5 9-17 * * mon-fri")),
        (
            "2027-02-03T14:00",
            Schedule(ScheduleKind.ONCE, "once at 2027-02-03 14:00", run_at=at("2027-02-03T14:00")),
        ),
        (
            "2027-02-03 14:00:30+00:00",
            Schedule(
                ScheduleKind.ONCE,
                "once at 2027-02-03 14:00",
                run_at=datetime(2027, 2, 3, 14, 0, 30, tzinfo=UTC).timestamp(),
            ),
        ),
        (
            "2027-02-03T14:00Z",
            Schedule(
                ScheduleKind.ONCE,
                "once at 2027-02-03 14:00",
                run_at=datetime(2027, 2, 3, 14, tzinfo=UTC).timestamp(),
            ),
        ),
    ],
)
def test_what_may_be_written(text: str, schedule: Schedule) -> None:
    assert parse_schedule(text, NOW, BERLIN) == schedule


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a schedule"),
        ("soon", FORMS),
        ("every", "is not a schedule"),
        ("every 0m", "not between one minute and ten years"),
        ("every 4000d", "not between one minute and ten years"),
        ("in", "is not a schedule"),
        ("0m", "not between one minute"),
        ("61 * * * *", "is not a cron expression: Bad minute"),
        ("* * * * * *", "has 6 fields"),
        ("0 0 30 2 *", "is not a cron expression: Bad day-of-month"),
        ("0 0 29 2 *,*#1", "is not a cron expression"),
        ("2026-13-01", "is not a time"),
        ("2026-11-19T10:27", "is in the past"),
        ("9" * 201, "at most 200 characters"),
    ],
)
def test_what_may_not(text: str, complaint: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        parse_schedule(text, NOW, BERLIN)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_time_just_past_is_due_at_once() -> None:
    schedule = parse_schedule("2026-11-19T10:29", NOW, BERLIN)
    assert first_run(schedule, NOW, BERLIN) == NOW - 60
    assert next_run(schedule, NOW, BERLIN) == 0.0
    assert first_run(schedule, NOW + HOUR, BERLIN) == 0.0


def test_an_interval_keeps_its_step() -> None:
    assert first_run(every(30), NOW, BERLIN) == NOW + 1800
    assert next_run(every(30), NOW + 5, BERLIN, last=NOW) == NOW + 1800
    # The times that were missed are passed over.
    assert next_run(every(30), NOW + 4000, BERLIN, last=NOW) == NOW + 5400
    assert next_run(every(30), NOW + 1800, BERLIN, last=NOW) == NOW + 3600


def test_cron_is_in_the_time_zone() -> None:
    assert next_run(cron("0 9 * * *"), NOW, BERLIN) == at("2026-11-20T09:00")
    tokyo = ZoneInfo("Asia/Tokyo")
    assert next_run(cron("0 9 * * *"), NOW, tokyo) == at("2026-11-20T09:00", tokyo)


def test_a_time_that_the_clock_skips_is_due_once() -> None:
    # On 28 March 2027, 02:00 to 03:00 do not exist in Berlin.
    first = next_run(cron("30 2 * * *"), at("2027-03-27T12:00"), BERLIN)
    assert show_time(first, BERLIN) == "2027-03-28T03:00:00+02:00"
    second = next_run(cron("30 2 * * *"), first, BERLIN)
    assert show_time(second, BERLIN) == "2027-03-29T02:30:00+02:00"


def test_a_time_that_the_clock_repeats_is_due_once() -> None:
    # On 25 October 2026, 02:00 to 03:00 come twice in Berlin.
    first = next_run(cron("30 2 * * *"), at("2026-10-24T12:00"), BERLIN)
    assert show_time(first, BERLIN) == "2026-10-25T02:30:00+02:00"
    second = next_run(cron("30 2 * * *"), first, BERLIN)
    assert show_time(second, BERLIN) == "2026-10-26T02:30:00+01:00"


def test_a_schedule_that_is_hourly_follows_the_clock_on_the_wall() -> None:
    before = at("2026-10-25T00:30")
    times = []
    for _ in range(4):
        before = next_run(cron("0 * * * *"), before, BERLIN)
        times.append(show_time(before, BERLIN))
    assert times == [
        "2026-10-25T01:00:00+02:00",
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        (every(1), GRACE_SECONDS),
        (every(60), HOUR / 2),
        (every(1440), MAX_GRACE_SECONDS),
        (cron("0 * * * *"), HOUR / 2),
        (Schedule(ScheduleKind.ONCE, "", run_at=NOW), GRACE_SECONDS),
    ],
)
def test_how_late_a_job_may_be(schedule: Schedule, seconds: float) -> None:
    due_at = next_run(schedule, NOW, BERLIN) or NOW
    assert grace_seconds(schedule, due_at, BERLIN) == seconds


def test_no_time_is_shown_as_none() -> None:
    assert show_time(0.0, BERLIN) is None
    assert show_time(NOW, BERLIN) == "2026-11-19T10:30:00+01:00"
