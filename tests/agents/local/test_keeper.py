"""What turns are told about the model's server, and when it is started again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.agents.local.child import Wish
from hermes_trio.agents.local.keeper import Keeper, ModelDown, kept_up
from hermes_trio.core.errors import ConfigurationError

WISH = Wish(Path("model.gguf"))
ADDRESS = "http://127.0.0.1:4711"


class Lives:
    """In the place of child processes."""

    def __init__(self) -> None:
        self.wishes: list[Wish] = []
        self.times: list[float] = []
        self.ready: Callable[[str], None] = print
        self._dying = trio.Event()
        self.is_over = False

    async def live(self, wish: Wish, on_ready: Callable[[str], None]) -> str:
        self.wishes.append(wish)
        self.times.append(trio.current_time())
        self.ready, self._dying = on_ready, trio.Event()
        try:
            await self._dying.wait()
        finally:
            self.is_over = True
        return "killed by signal 9"

    async def die(self) -> None:
        """The present one dies."""
        self._dying.set()
        await wait_all_tasks_blocked()

    async def up(self) -> None:
        """The present one has loaded its model."""
        await wait_all_tasks_blocked()
        self.ready(ADDRESS)


@pytest.fixture
def lives() -> Lives:
    return Lives()


async def test_turns_wait_until_the_model_is_loaded(lives: Lives, nursery: trio.Nursery) -> None:
    keeper = Keeper(WISH, lives.live)
    found: list[str] = []

    async def turn() -> None:
        found.append(await keeper.address())

    nursery.start_soon(keeper.keep_up)
    nursery.start_soon(turn)
    await wait_all_tasks_blocked()
    assert found == []
    await lives.up()
    assert await keeper.address() == ADDRESS
    await wait_all_tasks_blocked()
    assert found == [ADDRESS]


async def test_one_that_dies_is_started_again_at_the_same_address(
    lives: Lives, nursery: trio.Nursery
) -> None:
    keeper = Keeper(WISH, lives.live)
    nursery.start_soon(keeper.keep_up)
    await lives.up()
    await lives.die()
    assert [wish.port for wish in lives.wishes] == [0, 4711]
    assert len({wish.key for wish in lives.wishes}) == 1
    with trio.move_on_after(0) as waiting:
        await keeper.address()
    assert waiting.cancelled_caught


async def test_one_that_dies_twice_has_to_wait(
    lives: Lives, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    keeper = Keeper(WISH, lives.live)
    nursery.start_soon(keeper.keep_up)
    for _ in range(2):
        await lives.up()
        await lives.die()
    with pytest.raises(ModelDown, match=r"^The model's server is down: killed by signal 9$"):
        await keeper.address()
    await trio.sleep(5)
    await lives.up()
    assert await keeper.address() == ADDRESS
    assert lives.times == pytest.approx([0, 0, 4])


async def test_one_that_never_comes_up_is_tried_more_and_more_seldom(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    times: list[float] = []

    async def live(wish: Wish, on_ready: Callable[[str], None]) -> str:
        times.append(trio.current_time())
        await trio.sleep(100)  # a big file
        return "exit code 1"

    nursery.start_soon(Keeper(WISH, live).keep_up)
    await trio.sleep(1_000)
    pauses = [after - before - 100 for before, after in pairwise(times)]
    assert pauses == pytest.approx([2, 4, 8, 16, 32, 60, 60])


async def test_a_long_life_is_forgiven(
    lives: Lives, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    keeper = Keeper(WISH, lives.live)
    nursery.start_soon(keeper.keep_up)
    for _ in range(5):
        await lives.up()
        await trio.sleep(100)
        await lives.die()
    assert lives.times == pytest.approx([0, 100, 200, 300, 400, 500])


async def test_the_block_lasts_as_long_as_the_server(lives: Lives) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lives.up)
        async with kept_up(Keeper(WISH, lives.live)) as address:
            assert address == ADDRESS
            assert not lives.is_over
    assert lives.is_over


async def test_a_model_that_cannot_be_loaded_is_a_line(lives: Lives) -> None:
    async def live(wish: Wish, on_ready: Callable[[str], None]) -> str:
        return "exit code 1: invalid magic"

    text = r"^model_path: The model's server is down: exit code 1: invalid magic$"
    with pytest.raises(ConfigurationError, match=text):
        async with kept_up(Keeper(WISH, live)):
            raise AssertionError


async def test_an_error_in_the_block_stays_what_it_is(lives: Lives) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lives.up)
        with pytest.raises(ConfigurationError, match=r"^tools: no$"):
            async with kept_up(Keeper(WISH, lives.live)):
                raise ConfigurationError("tools: no")
    assert lives.is_over
