"""Authentication and profiles: who calls, and which agents the caller may use.

``authenticate`` runs before every view, as one of Quart's ``before_request`` functions.
``choose_agent`` decides for every API which agent handles a request, from the path prefix and the
model.
"""

from __future__ import annotations

import structlog
from attrs import frozen
from quart import request

from hermes_trio.core.errors import ApiError
from hermes_trio.core.redact import header_safe
from hermes_trio.keys import Anonymous
from hermes_trio.web.request import app_state, current_request, header, principal_name
from hermes_trio.web.state import ServedProfile
from hermes_trio.web.static import ASSETS

log = structlog.get_logger(__name__)

OPEN_PATHS = frozenset(
    {"/health", "/v1/health", "/health/live", "/health/ready", "/version", "/openapi.json"}
)


async def authenticate() -> None:
    """Set the principal of the current request, and check that it may use the profile of the path.

    Open routes need no key, but a valid one is recognised there too.

    Raises:
        ApiError: 401 without a valid key; 404 for a profile that does not exist or is not for this
            principal.
    """
    context = current_request()
    is_page = request.path == "/" or request.path.startswith(ASSETS)  # the same for all profiles
    context.route = request.url_rule.rule if request.url_rule is not None else ""
    principal = app_state().keyring.identify(_bearer_token(header("Authorization")))
    if not isinstance(principal, Anonymous):
        context.principal = principal
    elif not (request.path in OPEN_PATHS or is_page):
        raise _unauthorized()
    # After the key: a client without one does not learn which profiles there are.
    if not is_page:
        check_profile()


def _bearer_token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme != "Bearer":
        return ""
    # Headers arrive as Latin-1; a key with other characters was sent as UTF-8.
    token = token.strip()
    return token if token.isascii() else token.encode("latin-1").decode("utf-8", "replace")


def _unauthorized() -> ApiError:
    log.warning(
        "refused a key",
        method=request.method,
        path=header_safe(request.path),
        client=header_safe(header("Remote-Addr")),
        user_agent=header_safe(header("User-Agent")),
    )
    return ApiError(
        401,
        "Invalid or missing API key. The Authorization header must carry it as a bearer token.",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


@frozen
class ChosenAgent:
    """The profile whose agent runs, "" for the server's default agent, and the model that responses name."""

    profile: str
    model: str


def check_profile() -> None:
    """Check that the caller may use the profile in the path, if there is one.

    Raises:
        ApiError: 404 if it does not exist or is not for this principal.
    """
    name = current_request().profile
    if name and not any(profile.name == name for profile in _usable_profiles()):
        raise ApiError(404, f"There is no profile '{name}'.", code="profile_not_found")


def choose_agent(model: str) -> ChosenAgent:
    """Return the agent for a model name, which may be "".

    That of the path prefix, else the model's profile.

    Any other model means the default agent, and is repeated in the response.

    Raises:
        ApiError: 404 if the model is a profile that is not for this principal.
    """
    options = app_state().options
    if prefix := current_request().profile:
        [served] = [profile for profile in options.profiles if profile.name == prefix]
        return ChosenAgent(prefix, model or served.model_name)
    for profile in options.profiles:
        if profile.model_name == model:
            if not profile.admits(principal_name()):
                raise model_not_found(model)
            return ChosenAgent(profile.name, model)
    return ChosenAgent("", model or options.model_name)


def choose_task_agent(model: str) -> ChosenAgent:
    """Return the agent for a background task: that of ``task_profile`` if the caller may use it.

    Raises:
        ApiError: 404 if the model is a profile that is not for this principal.
    """
    chosen = choose_agent(model)
    name = app_state().options.task_profile
    if any(profile.name == name for profile in _usable_profiles()):
        return ChosenAgent(name, chosen.model)
    return chosen


def model_names() -> list[str]:
    """List the models that the current request may name."""
    if current_request().profile:
        return [choose_agent("").model]
    return [app_state().options.model_name, *(profile.model_name for profile in _usable_profiles())]


def model_not_found(model: str) -> ApiError:
    """Return the error for a model that does not exist or is not for this principal."""
    return ApiError(404, f"There is no model '{model}'.", param="model", code="model_not_found")


def _usable_profiles() -> list[ServedProfile]:
    caller = principal_name()
    return [profile for profile in app_state().options.profiles if profile.admits(caller)]
