"""The tool loop in front of a model that we serve ourselves."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, cast

import msgspec
import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import AgentConfig, AgentContext, AgentFactory, AsyncAgent, TurnRequest
from hermes_trio.agents.local.child import Wish
from hermes_trio.agents.local.keeper import Keeper, ModelDown, kept_up
from hermes_trio.agents.upstream import provider as upstream
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.events import Result, Verdict

log = structlog.get_logger(__name__)

PACKAGE = "xllamacpp"
Whole = Annotated[int, msgspec.Meta(ge=0)]
Some = Annotated[int, msgspec.Meta(ge=1)]


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    """``[options.local]``."""

    context: Some = 8_192
    slots: Some = 4
    threads: Whole = 0
    gpu_layers: int = -1


@frozen
class LocalAgent:
    """Waits for the model if it is being loaded, then does the turn."""

    keeper: Keeper
    agent: AsyncAgent

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result | str | None:
        """Do the turn."""
        try:
            await self.keeper.address()
        except ModelDown as down:
            return Result(verdict=Verdict.FAILED, error=str(down))
        return await self.agent.run(turn, emitter)


class LocalProvider:
    """Serves a model from a file, and makes agents that use it."""

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
        """Load the model.

        Raises:
            ConfigurationError: the package or the file is missing, or the file cannot be loaded. The text is one line.
        """
        wish = await _wish(config)
        log.info("loading the model", model=str(wish.model))
        keeper = Keeper(wish)
        async with kept_up(keeper) as address:
            there = evolve(
                config, base_url=f"{address}/v1", api_key=wish.key, model=config.model or wish.model.stem
            )
            async with upstream.open(there, workspace) as factory:

                def local(context: AgentContext) -> LocalAgent:
                    return LocalAgent(keeper, cast("AsyncAgent", factory(context)))

                yield local


async def _wish(config: AgentConfig) -> Wish:
    if config.model_path is None:
        raise ConfigurationError("model_path is missing: the file of the model, in GGUF format")
    if not await trio.Path(config.model_path).is_file():
        raise ConfigurationError(f"model_path: {config.model_path}: there is no such file")
    if importlib.util.find_spec(PACKAGE) is None:
        raise ConfigurationError(
            f"agent local: the package {PACKAGE} is missing: pip install 'hermes-trio[local]'"
        )
    table = _table(config.options.get("local", {}))
    return Wish(config.model_path, table.context, table.slots, table.threads, table.gpu_layers)


def _table(found: object) -> _Table:
    try:
        return msgspec.convert(found, _Table)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"options of local: {error}") from error


provider = LocalProvider()
