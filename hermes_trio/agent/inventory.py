"""What the agents of a factory can use: the toolsets and skills that clients list."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from hermes_trio.agent.interface import FactoryT


@frozen
class Toolset:
    """A named group of tools."""

    name: str
    tools: tuple[str, ...]
    label: str = ""  # for people; "" for the name
    description: str = ""
    is_enabled: bool = True  # False if agents of this profile do not get the tools
    is_configured: bool = True  # False if a key or a program that the tools need is missing


@frozen
class Skill:
    """Instructions that an agent loads when a task calls for them."""

    name: str
    description: str = ""
    category: str = ""


@frozen
class Inventory:
    """Everything that agents of one factory can use."""

    toolsets: tuple[Toolset, ...] = ()
    skills: tuple[Skill, ...] = ()


NOTHING = Inventory()


def with_inventory(read: Callable[[], Inventory]) -> Callable[[FactoryT], FactoryT]:
    """Mark a factory with the function that lists what its agents can use.

    ``read`` is called in a thread whenever a client asks, so it may read files. Without the mark,
    clients are told that the agent has no toolsets and no skills.
    """

    def mark(factory: FactoryT) -> FactoryT:
        factory.read_inventory = read  # type: ignore[attr-defined]  # functions take attributes
        return factory

    return mark


def read_inventory(factory: object) -> Inventory:
    """Return what agents of a factory can use. Blocks as long as the factory's own function does."""
    read: Callable[[], Inventory] | None = getattr(factory, "read_inventory", None)
    return NOTHING if read is None else read()
