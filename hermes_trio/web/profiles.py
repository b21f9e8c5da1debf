"""Which agent handles a request: decided here for every API, from the path prefix and the model."""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.errors import ApiError
from hermes_trio.web.request import app_state, current_request, principal_name
from hermes_trio.web.state import ServedProfile


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
    """Return the agent for a model name, which may be "": that of the path prefix, else the model's profile.

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
