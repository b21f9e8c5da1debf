"""What each principal may have of slots, rates and open requests."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.access import NO_QUOTA, Quota
from hermes_trio.core.errors import ApiError
from hermes_trio.runs.admission import Admission, RateLimiter, SharedPlaces


def take_all(places: SharedPlaces, principal: str) -> int:
    """Take as many places as a principal can get."""
    while places.has_room_for(principal):
        places.take(principal)
    return places.held_by(principal)


@define
class ManualClock:
    """A clock that the test sets."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


class TestSharedPlaces:
    def test_a_principal_that_is_alone_may_take_everything(self) -> None:
        assert take_all(SharedPlaces(100), "ann") == 100

    @pytest.mark.parametrize(
        ("limit", "principals", "most"),
        [(1, 2, 1), (2, 2, 1), (3, 2, 2), (4, 2, 3), (10, 2, 7), (100, 2, 75), (100, 20, 61), (100, 500, 38)],
    )  # fmt: skip
    def test_one_of_several_leaves_room(self, limit: int, principals: int, most: int) -> None:
        assert take_all(SharedPlaces(limit, principals), "ann") == most

    def test_no_limit(self) -> None:
        places = SharedPlaces(0, 2)
        for _ in range(1_000):
            assert places.has_room_for("ann")
            places.take("ann")
        assert not places.is_full

    def test_a_quota_replaces_the_share(self) -> None:
        places = SharedPlaces(10, 2)
        for _ in range(9):
            assert places.has_room_for("ann", quota=9)
            places.take("ann")
        assert not places.has_room_for("ann", quota=9)
        assert places.has_room_for("ann", quota=9, spare=1)
        places.take("bob")
        assert not places.has_room_for("ann", quota=20)  # there are only ten

    def test_spare_places_are_none_of_those_kept_for_others(self) -> None:
        places = SharedPlaces(10, 2)
        take_all(places, "ann")
        taken = 0
        while places.has_room_for("ann", spare=10):
            places.take("ann")
            taken += 1
        assert taken == 2
        assert places.has_room_for("bob")

    @given(
        st.integers(2, 40),
        st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=200),
        st.data(),
    )
    def test_a_principal_without_a_place_gets_one(
        self, limit: int, moves: list[tuple[int, bool]], data: st.DataObject
    ) -> None:
        """In any state that any order of takes and releases leads to."""
        principals = data.draw(st.integers(2, limit // 2 + 1))
        places, held = SharedPlaces(limit, principals), Counter[str]()
        for number, is_taken in moves:
            name = str(number % principals)
            if is_taken and places.has_room_for(name):
                places.take(name)
                held[name] += 1
            elif not is_taken and held[name]:
                places.release(name)
                held[name] -= 1
            assert places.in_use == held.total() <= limit
            for other in map(str, range(principals)):
                assert held[other] or places.has_room_for(other)

    @pytest.mark.parametrize("count", [2, 3, 5])
    def test_who_takes_all_they_can_get_converge_on_equal_parts(self, count: int) -> None:
        dice = random.Random(count)
        names = [str(n) for n in range(count)]
        places = SharedPlaces(100, count + 1)
        take_all(places, names[0])  # long before the others come
        for _ in range(3_000):
            ended = dice.choices(names, [places.held_by(name) for name in names])[0]
            places.release(ended)
            for name in dice.sample(names, count):
                take_all(places, name)
        shares = [places.held_by(name) for name in names]
        assert max(shares) - min(shares) <= 4
        assert sum(shares) > 80
        assert places.has_room_for("late")


class TestRateLimiter:
    def test_a_burst_then_evenly(self) -> None:
        limiter, now = RateLimiter(), 50.0
        for left in reversed(range(6)):
            status = limiter.status("ann", 6, now)
            assert (status.limit, status.remaining, status.retry_seconds) == (6, left + 1, 0)
            limiter.take("ann", 6, now)
        status = limiter.status("ann", 6, now)
        assert (status.remaining, status.retry_seconds, status.reset_seconds) == (0, 10, 60)
        assert limiter.status("bob", 6, now).remaining == 6
        assert limiter.status("ann", 6, now + 9.9).remaining == 0
        assert limiter.status("ann", 6, now + 10).remaining == 1
        status = limiter.status("ann", 6, now + 61)
        assert (status.remaining, status.reset_seconds) == (6, 0)

    @given(st.integers(1, 1_000), st.lists(st.floats(0, 5), max_size=300))
    def test_never_more_than_the_rate_and_one_burst(self, rate: int, gaps: list[float]) -> None:
        limiter, now, taken = RateLimiter(), 0.0, 0
        for gap in gaps:
            now += gap
            status = limiter.status("ann", rate, now)
            assert 0 <= status.remaining <= rate
            if status.remaining:
                limiter.take("ann", rate, now)
                taken += 1
            else:
                later = now + status.retry_seconds + 1e-3
                assert limiter.status("ann", rate, later).remaining
        assert taken <= rate * (1 + now / 60) + 1e-3


class TestAdmission:
    def test_the_refusal_of_a_greedy_principal(self) -> None:
        admission = Admission(4, principals=2)
        slots = [admission.admit("ann") for _ in range(3)]
        with pytest.raises(ApiError, match=r"with this API key \(3\)") as caught:
            admission.admit("ann")
        assert (caught.value.status, caught.value.code) == (429, "rate_limit_exceeded")
        assert caught.value.headers == {"Retry-After": "1"}
        admission.admit("bob").release()
        slots[0].release()
        admission.admit("ann")

    def test_a_principal_can_have_limits_of_its_own(self) -> None:
        quota = Quota(runs=1, runs_per_minute=2, requests=1)
        admission = Admission(10, 10, 2, Quota(runs=2), ManualClock())
        admission.admit("ann")
        admission.admit("ann")
        assert admission.rate_status("ann") is None
        admission.admit("bob", quota).release()
        slot = admission.admit("bob", quota)
        for name, own in (("ann", NO_QUOTA), ("bob", quota)):
            with pytest.raises(ApiError, match="concurrent runs"):
                admission.admit(name, own)
        slot.release()
        with pytest.raises(ApiError, match="max 2 per minute"):
            admission.admit("bob", quota)
        admission.admit_request("bob", quota=quota)
        with pytest.raises(ApiError, match="open requests"):
            admission.admit_request("bob", quota=quota)

    def test_a_refused_run_does_not_count_towards_the_rate(self) -> None:
        clock = ManualClock()
        admission = Admission(1, quota=Quota(runs_per_minute=2), clock=clock)
        slot = admission.admit("ann")
        for _ in range(5):
            with pytest.raises(ApiError, match="max 1"):
                admission.admit("ann")
        slot.release()
        admission.admit("ann").release()
        with pytest.raises(ApiError, match="max 2 per minute") as caught:
            admission.admit("ann")
        assert caught.value.headers == {"Retry-After": "30"}
        clock.now += 30
        admission.admit("ann")
