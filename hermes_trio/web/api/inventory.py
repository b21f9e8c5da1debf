"""What the agent can use: its toolsets, its skills, and the models to choose from."""

from __future__ import annotations

import structlog
import trio
from attrs import asdict
from quart import Blueprint, Response

from hermes_trio.agent.interface import AgentFactory
from hermes_trio.agent.inventory import Inventory, read_inventory
from hermes_trio.core.errors import SERVER_ERROR, ApiError
from hermes_trio.runs.admission import RETRY_SOON
from hermes_trio.schema.inventory import (
    ModelOptions,
    ModelProvider,
    SkillList,
    SkillObject,
    ToolsetList,
    ToolsetObject,
)
from hermes_trio.web.auth import choose_agent, model_names
from hermes_trio.web.errors import json_response
from hermes_trio.web.request import app_state

PROVIDER = "hermes-trio"

log = structlog.get_logger(__name__)
blueprint = Blueprint("inventory", __name__)


@blueprint.get("/v1/toolsets")
async def list_toolsets() -> Response:
    """List the toolsets of the agent, with the tools in them."""
    shown = [
        ToolsetObject(
            toolset.name,
            toolset.label or toolset.name,
            toolset.description,
            toolset.is_enabled,
            toolset.is_configured,
            sorted(toolset.tools),
        )
        for toolset in (await agent_inventory("toolsets")).toolsets
    ]
    return json_response(asdict(ToolsetList(shown)))


@blueprint.get("/v1/skills")
async def list_skills() -> Response:
    """List the skills of the agent."""
    shown = [
        SkillObject(skill.name, skill.description, skill.category or None)
        for skill in (await agent_inventory("skills")).skills
    ]
    return json_response(asdict(SkillList(shown)))


async def agent_inventory(what: str) -> Inventory:
    """Return what the agent of the current request can use.

    Raises:
        ApiError: 500 if the agent's own function fails; 503 if no thread can be started for it.
    """
    profile = choose_agent("").profile
    factory = app_state().services.environment(profile).runtime.factory
    try:
        found = await trio.to_thread.run_sync(_read_in_thread, factory)
    except RuntimeError as error:  # what the agent raises does not get here
        message = "The server has no thread left. Try again shortly."
        raise ApiError(
            503, message, SERVER_ERROR, code="server_overloaded", headers=RETRY_SOON
        ) from error
    if isinstance(found, Inventory):
        return found
    log.error("the agent cannot list what it can use", profile=profile, exc_info=found)
    message = f"The agent cannot list its {what}."
    raise ApiError(500, message, SERVER_ERROR, code="inventory_failed") from found


def _read_in_thread(factory: AgentFactory) -> Inventory | Exception:
    try:
        return read_inventory(factory)
    except Exception as error:  # noqa: BLE001 - the agent's own code may raise anything
        return error


@blueprint.get("/api/model/options")
async def list_model_options() -> Response:
    """List the models that the caller may name, in the form of Hermes' model picker."""
    names = model_names()
    served = ModelProvider(
        slug=PROVIDER,
        name="hermes_trio",
        is_current=True,
        is_user_defined=True,
        models=names,
        total_models=len(names),
        source="user-config",
        authenticated=True,
    )
    return json_response(asdict(ModelOptions([served], choose_agent("").model, PROVIDER)))
