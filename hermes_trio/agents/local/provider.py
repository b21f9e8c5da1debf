"""The provider for ``agent = "local"``: the tool loop on a model that we serve ourselves."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, cast

import msgspec
import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import (
    AgentConfig,
    AgentContext,
    AgentFactory,
    AsyncAgent,
    TurnRequest,
    can_continue,
)
from hermes_trio.agent.inventory import read_inventory, with_inventory
from hermes_trio.agents.local.supervisor import LaunchSpec, ModelDown, ModelSupervisor, supervised
from hermes_trio.agents.upstream.provider import provider as upstream
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.core.events import Result, Verdict

log = structlog.get_logger(__name__)

PACKAGE = "xllamacpp"
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class _LocalOptions(msgspec.Struct, forbid_unknown_fields=True):
    """``[options.local]``."""

    context: PositiveInt = 8_192
    slots: PositiveInt = 4
    threads: NonNegativeInt = 0
    gpu_layers: int = -1


@frozen
class LocalAgent:
    """Waits while the model is loading, then runs the turn."""

    supervisor: ModelSupervisor
    agent: AsyncAgent

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> Result | str | None:
        """Run the turn."""
        try:
            await self.supervisor.address()
        except ModelDown as down:
            return Result(verdict=Verdict.FAILED, error=str(down))
        return await self.agent.run(turn, emitter)


class LocalProvider:
    """Serves a model from a file, and provides agents that use it."""

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
        """Load the model.

        Raises:
            ConfigurationError: the package or the file is missing, or the file cannot be loaded.
                The message is one
                line.
        """
        spec = await _launch_spec(config)
        log.info("loading model", model=str(spec.model))
        supervisor = ModelSupervisor(spec)
        async with supervised(supervisor) as address:
            connected = evolve(
                config,
                base_url=f"{address}/v1",
                api_key=spec.key,
                model=config.model or spec.model.stem,
            )
            async with upstream.open(connected, workspace) as factory:

                @can_continue
                @with_inventory(partial(read_inventory, factory))
                def local(context: AgentContext) -> LocalAgent:
                    return LocalAgent(supervisor, cast("AsyncAgent", factory(context)))

                yield local


async def _launch_spec(config: AgentConfig) -> LaunchSpec:
    if config.model_path is None:
        raise ConfigurationError("model_path is missing: set it to a model file in GGUF format")
    if not await trio.Path(config.model_path).is_file():
        raise ConfigurationError(f"model_path: {config.model_path}: No such file or directory")
    if importlib.util.find_spec(PACKAGE) is None:
        raise ConfigurationError(
            f"agent local: the package {PACKAGE} is missing: pip install '.[local]' in a clone of the repository"
        )
    try:
        options = msgspec.convert(config.options.get("local", {}), _LocalOptions)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"options of local: {error}") from error
    return LaunchSpec(
        config.model_path, options.context, options.slots, options.threads, options.gpu_layers
    )


provider = LocalProvider()
