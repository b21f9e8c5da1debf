"""Which agent a request is for. The one place that decides it, for every route."""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.errors import ApiError
from hermes_trio.web.asked import asker, visit
from hermes_trio.web.options import ServedProfile, Site


@frozen
class Chosen:
    """The profile that does a turn, "" for the server's own agent, and the model that the answer names."""

    profile: str
    model: str


def check_profile(site: Site) -> None:
    """See that the prefix of the current request is that of a profile which the asking principal may use.

    Raises:
        ApiError: 404 if there is none, or it is not for this principal.
    """
    name = visit().profile
    if name and not any(profile.name == name for profile in _usable(site)):
        raise ApiError(404, f"There is no profile '{name}'.", code="profile_not_found")


def choose(site: Site, model: str) -> Chosen:
    """The agent for a request that names a model, or none: that of its prefix, else that of the model.

    Any other model means the server's own agent, and is repeated in the answer.

    Raises:
        ApiError: 404 if the model is a profile that is not for this principal.
    """
    if prefix := visit().profile:
        [served] = [profile for profile in site.options.profiles if profile.name == prefix]
        return Chosen(prefix, model or served.model_name)
    for profile in site.options.profiles:
        if profile.model_name == model:
            if not profile.admits(asker()):
                raise no_model(model)
            return Chosen(profile.name, model)
    return Chosen("", model or site.options.model_name)


def model_names(site: Site) -> list[str]:
    """The models that the current request may ask for."""
    if visit().profile:
        return [choose(site, "").model]
    return [site.options.model_name, *(profile.model_name for profile in _usable(site))]


def no_model(model: str) -> ApiError:
    """There is no such model, or it is not for this principal."""
    return ApiError(404, f"There is no model '{model}'.", param="model", code="model_not_found")


def _usable(site: Site) -> list[ServedProfile]:
    return [profile for profile in site.options.profiles if profile.admits(asker())]
