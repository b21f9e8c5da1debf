"""What the doctor says about those who answer: the server on our port, and the model servers."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from hermes_trio.doctor.findings import Finding, fail, ok, warn

_LISTED = 5


# -- the port --


@frozen
class PortFree:
    """Nobody listens there, and we could."""


@frozen
class PortOurs:
    """A server of ours listens there."""

    version: str


@frozen
class PortTaken:
    """Somebody else does."""

    by: str = ""  # a process, if it can be seen


@frozen
class PortUnusable:
    """Nobody can, as it is."""

    why: str


def port(place: str, fact: PortFree | PortOurs | PortTaken | PortUnusable) -> Finding:
    """Whether a server can listen."""
    match fact:
        case PortFree():
            return ok("port", f"{place} is free")
        case PortOurs(version):
            return ok("port", f"a hermes-trio server (version {version}) listens on {place}")
        case PortTaken(by):
            whom = by or "another program"
            return fail("port", f"{place} is taken by {whom}", "end it, or use another --port")
        case PortUnusable(why):
            return fail("port", why, "use another --host or --port")


def models(names: Sequence[str]) -> Finding:
    """What the server that runs serves."""
    if not names:
        return warn("models", "the server offers no model to this key", "see the keys of the profiles")
    return ok("models", f"the server offers {_listed(names)}")


def models_refused(why: str) -> Finding:
    """The server that runs does not take the key that these settings lead to."""
    return warn(
        "models",
        f"the server that runs does not tell its models: {why}",
        "run the doctor with the settings of that server, or restart it",
    )


# -- the model's server --


@frozen
class Upstream:
    """A server that an agent needs."""

    label: str  # "" or the name of a profile
    url: str
    model: str
    has_key: bool

    @property
    def check(self) -> str:
        """The name of the check."""
        return f"upstream of {self.label}" if self.label else "upstream"


@frozen
class Offers:
    """It answered with a list."""

    names: tuple[str, ...]


@frozen
class Answers:
    """It answered with something else."""

    status: int


@frozen
class Silent:
    """It did not answer."""

    why: str


def upstream(asked: Upstream, fact: Offers | Answers | Silent) -> Finding:
    """Whether an agent can reach its model."""
    match fact:
        case Silent(why):
            return fail(
                asked.check, f"{asked.url} cannot be reached: {why}", "start that server, or correct base_url"
            )
        case Answers(401 | 403):
            has = "does not take the key" if asked.has_key else "wants a key"
            return fail(
                asked.check,
                f"{asked.url} {has}",
                "set upstream_api_key (OPENAI_API_KEY), or api_key of the profile",
            )
        case Answers(status):
            says = f"{asked.url} answers /models with status {status}"
            return warn(
                asked.check, says, "it may work all the same; most servers want /v1 at the end of base_url"
            )
        case Offers(names) if asked.model and names and asked.model not in names:
            says = f"{asked.url} does not list the model {asked.model}; it has {_listed(names)}"
            return warn(asked.check, says, "correct upstream_model, or model of the profile")
        case Offers(names):
            return ok(asked.check, f"{asked.url} answers, with {_listed(names)}")


def no_upstream(wanting: Sequence[str]) -> Finding:
    """There is none; some agents may want one."""
    if wanting:
        says = f"no base_url, but there is an agent that needs one: {_listed(wanting)}"
        return fail("upstream", says, "set base_url (OPENAI_BASE_URL), or use another --agent")
    return ok("upstream", "none is configured, and the agents need none")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LISTED])
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{shown}{more}" if names else "no model listed"
