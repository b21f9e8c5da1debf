"""The state that turns see of the model server, and when it is restarted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.agents.local.supervisor import LaunchSpec, ModelDown, ModelSupervisor, supervised
from hermes_trio.core.errors import ConfigurationError

SPEC = LaunchSpec(Path("model.gguf"))
ADDRESS = "http://127.0.0.1:4711"


class FakeChildren:
    """Stands in for child processes."""

    def __init__(self) -> None:
        self.specs: list[LaunchSpec] = []
        self.times: list[float] = []
        self.ready: Callable[[str], None] = print
        self._dying = trio.Event()
        self.is_over = False

    async def run_child(self, spec: LaunchSpec, on_ready: Callable[[str], None]) -> str:
        self.specs.append(spec)
        self.times.append(trio.current_time())
        self.ready, self._dying = on_ready, trio.Event()
        try:
            await self._dying.wait()
        finally:
            self.is_over = True
        return "killed by signal 9"

    async def die(self) -> None:
        """Let the current child exit."""
        self._dying.set()
        await wait_all_tasks_blocked()

    async def up(self) -> None:
        """Let the current child report that its model is loaded."""
        await wait_all_tasks_blocked()
        self.ready(ADDRESS)


@pytest.fixture
def children() -> FakeChildren:
    return FakeChildren()


async def test_turns_wait_until_the_model_is_loaded(
    children: FakeChildren, nursery: trio.Nursery
) -> None:
    supervisor = ModelSupervisor(SPEC, children.run_child)
    found: list[str] = []

    async def turn() -> None:
        found.append(await supervisor.address())

    nursery.start_soon(supervisor.run)
    nursery.start_soon(turn)
    await wait_all_tasks_blocked()
    assert found == []
    await children.up()
    assert await supervisor.address() == ADDRESS
    await wait_all_tasks_blocked()
    assert found == [ADDRESS]


async def test_one_that_dies_is_started_again_at_the_same_address(
    children: FakeChildren, nursery: trio.Nursery
) -> None:
    supervisor = ModelSupervisor(SPEC, children.run_child)
    nursery.start_soon(supervisor.run)
    await children.up()
    await children.die()
    assert [spec.port for spec in children.specs] == [0, 4711]
    assert len({spec.key for spec in children.specs}) == 1
    with trio.move_on_after(0) as waiting:
        await supervisor.address()
    assert waiting.cancelled_caught


async def test_one_that_dies_twice_has_to_wait(
    children: FakeChildren, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    supervisor = ModelSupervisor(SPEC, children.run_child)
    nursery.start_soon(supervisor.run)
    for _ in range(2):
        await children.up()
        await children.die()
    with pytest.raises(ModelDown, match=r"^The model server is down: killed by signal 9$"):
        await supervisor.address()
    await trio.sleep(5)
    await children.up()
    assert await supervisor.address() == ADDRESS
    assert children.times == pytest.approx([0, 0, 4])


async def test_one_that_never_comes_up_is_tried_more_and_more_seldom(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    times: list[float] = []

    async def run_child(spec: LaunchSpec, on_ready: Callable[[str], None]) -> str:
        times.append(trio.current_time())
        await trio.sleep(100)  # a big file
        return "exit code 1"

    nursery.start_soon(ModelSupervisor(SPEC, run_child).run)
    await trio.sleep(1_000)
    pauses = [after - before - 100 for before, after in pairwise(times)]
    assert pauses == pytest.approx([2, 4, 8, 16, 32, 60, 60])


async def test_a_long_life_is_forgiven(
    children: FakeChildren, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    supervisor = ModelSupervisor(SPEC, children.run_child)
    nursery.start_soon(supervisor.run)
    for _ in range(5):
        await children.up()
        await trio.sleep(100)
        await children.die()
    assert children.times == pytest.approx([0, 100, 200, 300, 400, 500])


async def test_the_block_lasts_as_long_as_the_server(children: FakeChildren) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(children.up)
        async with supervised(ModelSupervisor(SPEC, children.run_child)) as address:
            assert address == ADDRESS
            assert not children.is_over
    assert children.is_over


async def test_a_model_that_cannot_be_loaded_is_a_line(children: FakeChildren) -> None:
    async def run_child(spec: LaunchSpec, on_ready: Callable[[str], None]) -> str:
        return "exit code 1: invalid magic"

    text = r"^model_path: The model server is down: exit code 1: invalid magic$"
    with pytest.raises(ConfigurationError, match=text):
        async with supervised(ModelSupervisor(SPEC, run_child)):
            raise AssertionError


async def test_an_error_in_the_block_stays_what_it_is(children: FakeChildren) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(children.up)
        with pytest.raises(ConfigurationError, match=r"^tools: no$"):
            async with supervised(ModelSupervisor(SPEC, children.run_child)):
                raise ConfigurationError("tools: no")
    assert children.is_over
