"""Authentication, scopes and profiles: who calls, and which routes and agents the caller may use.

``authenticate`` runs before every view, as one of Quart's ``before_request`` functions. A request
has one credential: its bearer key or token of an issuer, else a stream ticket in its query string, which only event
streams accept, else the cookie of the web page. All three allow what the key allows. ``choose_agent`` decides for every API which agent
handles a request, from the path prefix and the model.
"""

from __future__ import annotations

import math

import structlog
from attrs import frozen
from quart import Blueprint, Response, request

from hermes_trio.core.access import DEFAULT_PROFILE_NAME, READ_ONLY
from hermes_trio.core.errors import RATE_LIMIT, ApiError
from hermes_trio.core.records import record_owner
from hermes_trio.core.redact import header_safe
from hermes_trio.keys import Anonymous, Principal
from hermes_trio.tokens import ExpiredToken, InvalidToken
from hermes_trio.web.errors import NO_STORE, json_response
from hermes_trio.web.request import (
    RequestContext,
    app_state,
    bool_param,
    current_request,
    header,
    is_same_origin,
    principal_name,
)
from hermes_trio.web.state import ServedProfile
from hermes_trio.web.static import ASSETS

log = structlog.get_logger(__name__)

OPEN_PATHS = frozenset(
    {"/health", "/v1/health", "/health/live", "/health/ready", "/version", "/openapi.json"}
)
# Their callers have no key, but sign what they send; the views check that.
WEBHOOKS = "/webhooks/"
TICKET_PARAM = "ticket"
RUN_EVENTS = "/v1/runs/<run_id>/events"
RESPONSE = "/v1/responses/<response_id>"  # a stream with ?stream=true

# What ends streams, and what they wait for, must not fail because there are too many of them.
CONTROL_ROUTES = ("/stop", "/cancel", "/approval", "/metrics", "/health/detailed")
SPARE_REQUESTS = 10

# Which routes the groups of a key's scopes mean, by the beginnings of their rules.
ROUTE_PREFIXES = {
    "/v1/approvals": "approvals",
    "/v1/chat": "chat",
    "/v1/conversations": "conversations",
    "/v1/responses": "responses",
    "/v1/runs": "runs",
    "/v1/settings": "settings",
    "/api/messages": "sessions",
    "/api/metrics": "metrics",
    "/api/sessions": "sessions",
    "/api/jobs": "jobs",
    "/api/cron": "jobs",
    "/api/status": "health",
    "/health/detailed": "health",
    "/metrics": "metrics",
}
# What a client with any key needs: which models there are, what they can use, and the page. The
# list of principals and the log are for administrators.
UNSCOPED_RULES = frozenset(
    {
        "/v1/models", "/v1/models/<path:model_id>", "/v1/capabilities", "/v1/toolsets", "/v1/skills",
        "/api/model/options", "/api/principals", "/api/logs", "/api/sign-in", "/api/sign-out",
    }
)  # fmt: skip
# Below these, requests other than those that only read or delete may store something.
_STORING_PREFIXES = ("/v1/chat", "/v1/conversations", "/v1/responses", "/v1/runs", "/api/sessions")
STORAGE_RETRY_SECONDS = 60  # somebody has to delete something, or retention does
PRINCIPAL_HEADER = "X-Hermes-Principal"
TICKET_ROUTE = "/ticket"  # a POST that only lets its client read

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_KEY_REFUSED = (
    "Invalid or missing API key. The Authorization header must carry it as a bearer token."
)

blueprint = Blueprint("auth", __name__)


# -- credentials --


async def authenticate() -> None:
    """Set the principal of the current request, and check that it may use the profile of the path.

    Open routes need no credential, but a valid one is recognised there too. A request to any other
    route counts as open, for its principal, until it ends.

    Raises:
        ApiError: 401 without a valid credential; 403 for a cookie that another origin's page sends,
            and for what the key does not allow; 404 for a profile that does not exist or is not for
            this principal; 429 if the principal has too many requests open.
    """
    context = current_request()
    is_page = request.path == "/" or request.path.startswith(ASSETS)  # the same for all profiles
    context.route = request.url_rule.rule if request.url_rule is not None else ""
    is_webhook = context.route.startswith(WEBHOOKS)
    is_open = request.path in OPEN_PATHS or is_page or is_webhook
    try:
        principal = await _identify(context)
        _require_unexpired(principal)
        context.principal = principal
        # Quart-Trio runs each request in a task of its own, whose context ends with it.
        structlog.contextvars.bind_contextvars(principal=principal.name)
    except ApiError as refusal:
        if not is_open:
            _log_refusal(refusal)
            raise
    if not is_open:
        _require_route(context)
        context.other_principal = _find_other_principal(context)
        await _require_storage(context)
        spare = SPARE_REQUESTS if context.route.endswith(CONTROL_ROUTES) else 0
        slot = app_state().admission.admit_request(principal.name, spare, principal.access.quota)
        context.release_on_close(slot)
    # After the key: a client without one does not learn which profiles there are.
    if not is_page:
        check_profile()


async def _identify(context: RequestContext) -> Principal:
    """Return the owner of the request's only credential; a second one is not considered."""
    if key := _bearer_token(header("Authorization")):
        state = app_state()
        principal: Principal | Anonymous | None = state.keys.keyring.identify(key)
        if isinstance(principal, Anonymous):
            principal = await state.identify_token(key)
        if principal is None:
            raise _unauthorized(_KEY_REFUSED, code="invalid_api_key")
        context.has_key = True
        return principal
    ticket = request.args.get(TICKET_PARAM)
    if ticket is not None and _is_run_stream(context.route):
        return _verify_ticket(ticket, context.profile)
    cookie = _find_cookie()
    if cookie is None:
        raise _unauthorized(_KEY_REFUSED, code="invalid_api_key")
    return _verify_cookie(cookie)


def _require_unexpired(principal: Principal) -> None:
    if principal.access.expires_at <= _now():
        raise _unauthorized("This API key has expired.", code="api_key_expired")


def _require_route(context: RequestContext) -> None:
    """Refuse a route that the key does not allow. An unknown route is a 404 for every key.

    Raises:
        ApiError: 403.
    """
    if not context.route or context.route in UNSCOPED_RULES:
        return
    group = find_route_group(context.route)
    is_read = request.method in _SAFE_METHODS or context.route.endswith(TICKET_ROUTE)
    if not context.principal.access.allows_route(group, is_read):
        scope = group + READ_ONLY if is_read else group
        raise _insufficient_scope(f"This API key does not allow this route. It needs '{scope}'.")


def find_route_group(rule: str) -> str:
    """Return the group of routes that a rule belongs to."""
    for prefix, group in ROUTE_PREFIXES.items():
        if rule == prefix or rule.startswith(f"{prefix}/"):
            return group
    return "other"


def require_admin(param: str | None = None) -> None:
    """Refuse a caller who is no administrator.

    Raises:
        ApiError: 403.
    """
    if not current_request().principal.access.is_admin:
        message = "Only the API key of an administrator may see this, or the records of others."
        raise _insufficient_scope(message, param)


async def _require_storage(context: RequestContext) -> None:
    """Refuse a request that may store something while its principal stores as much as its key allows.

    Raises:
        ApiError: 429.
        StoreError: the store does not work.
    """
    limit = context.principal.access.quota.stored_bytes
    is_reader = request.method in {*_SAFE_METHODS, "DELETE"}
    if not limit or is_reader or not context.route.startswith(_STORING_PREFIXES):
        return
    if context.route.endswith((*CONTROL_ROUTES, TICKET_ROUTE)):
        return
    state = app_state()
    profiles = ["", *(profile.name for profile in state.options.profiles)]
    owners = [record_owner(context.principal.name, profile) for profile in profiles]
    stored = sum([await state.services.store.stored_bytes(owner) for owner in owners])
    if stored >= limit:
        message = (
            f"The principal of this API key stores {stored:,} bytes (max {limit:,}). "
            "Delete sessions, responses or conversations."
        )
        headers = {"Retry-After": str(STORAGE_RETRY_SECONDS)}
        raise ApiError(429, message, RATE_LIMIT, code="storage_limit_exceeded", headers=headers)


def _find_other_principal(context: RequestContext) -> str:
    """Return the principal whose records are asked for, "" for the caller's own.

    Records of others can be read, stopped and deleted. Nothing can be started in their name.

    Raises:
        ApiError: 403.
    """
    name = header(PRINCIPAL_HEADER).strip()
    if name in ("", context.principal.name):
        return ""
    require_admin(PRINCIPAL_HEADER)
    is_allowed = request.method in {*_SAFE_METHODS, "DELETE"}
    if not (is_allowed or context.route.endswith(CONTROL_ROUTES)):
        message = "Records of others can be read, stopped and deleted, but not made or changed."
        raise _insufficient_scope(message, PRINCIPAL_HEADER)
    return name


def _insufficient_scope(message: str, param: str | None = None) -> ApiError:
    """Return the error for what the key does not allow (RFC 6750, section 3.1)."""
    headers = {"WWW-Authenticate": 'Bearer error="insufficient_scope"'}
    return ApiError(403, message, param=param, code="insufficient_scope", headers=headers)


def _bearer_token(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme != "Bearer":
        return ""
    # Headers arrive as Latin-1; a key with other characters was sent as UTF-8.
    token = token.strip()
    return token if token.isascii() else token.encode("latin-1").decode("utf-8", "replace")


def _is_run_stream(route: str) -> bool:
    """Return whether the request reads the event stream of one run, the only use of a ticket."""
    is_stream = route == RUN_EVENTS or (route == RESPONSE and bool_param("stream"))
    return is_stream and request.method == "GET"


def _verify_ticket(ticket: str, profile: str) -> Principal:
    [run_id] = (request.view_args or {}).values()
    try:
        return app_state().tickets.verify(ticket, _now(), profile, run_id)
    except ExpiredToken:
        raise _unauthorized(
            "The ticket has expired. Request another one.", TICKET_PARAM, code="ticket_expired"
        ) from None
    except InvalidToken:
        raise _unauthorized(
            "This is not a ticket for this stream.", TICKET_PARAM, code="invalid_ticket"
        ) from None


def _verify_cookie(cookie: str) -> Principal:
    try:
        principal = app_state().page_sessions.verify(cookie, _now())
    except InvalidToken:
        raise _unauthorized(
            "You are no longer signed in. Sign in again.", code="page_session_expired"
        ) from None
    _require_same_origin()
    return principal


def _require_same_origin() -> None:
    """Refuse requests that another page than our own makes, or may have made.

    ``SameSite=Strict`` does not keep them away: a page on another port or subdomain belongs to the
    same site. Browsers set both headers themselves. They omit ``Sec-Fetch-Site`` on plain HTTP
    (except for loopback addresses), and ``Origin`` on requests for the page's own origin that
    change nothing.

    Raises:
        ApiError: 403.
    """
    if site := header("Sec-Fetch-Site"):
        is_own = site == "same-origin"
    elif origin := header("Origin"):
        is_own = is_same_origin(origin, header("Host"))
    else:
        is_own = request.method in _SAFE_METHODS
    if not is_own:
        message = "Only this server's own page may use its cookie. Send an API key."
        raise ApiError(403, message, code="cross_origin_request")


def _unauthorized(message: str, param: str | None = None, *, code: str) -> ApiError:
    return ApiError(401, message, param=param, code=code, headers={"WWW-Authenticate": "Bearer"})


def _log_refusal(refusal: ApiError) -> None:
    """Log who was refused; of the request only what cannot hold a credential."""
    # Tickets and page sessions end all the time, and clients replace them.
    is_routine = refusal.code in {"ticket_expired", "page_session_expired", "token_expired"}
    (log.info if is_routine else log.warning)(
        "refused a key",
        code=refusal.code,
        method=request.method,
        path=header_safe(request.path),
        client=header_safe(header("Remote-Addr")),
        user_agent=header_safe(header("User-Agent")),
    )


def _now() -> float:
    return app_state().services.wall_clock()


# -- signing in to the web page --


@blueprint.post("/api/sign-in")
async def sign_in() -> Response:
    """Exchange a key for the cookie of the web page.

    It ends with the browser, unless the query asks to remember it on the device.
    """
    context, state = current_request(), app_state()
    if not context.has_key:  # a cookie must not prolong itself
        raise _unauthorized(_KEY_REFUSED, code="invalid_api_key")
    _require_same_origin()
    seconds = state.options.page_session_seconds
    expires_at = math.ceil(min(_now() + seconds, context.principal.access.expires_at))
    response = json_response(
        {
            "object": "hermes.page_session",
            "principal": context.principal.name,
            "expires_at": expires_at,
        },
        headers=NO_STORE,
    )
    is_secure = _is_secure()
    response.set_cookie(
        _cookie_name(is_secure),
        state.page_sessions.issue(context.principal, expires_at),
        max_age=seconds if bool_param("remember") else None,
        path="/",
        secure=is_secure,
        httponly=True,
        samesite="Strict",
    )
    return response


@blueprint.post("/api/sign-out")
async def sign_out() -> Response:
    """Delete the cookie of the web page."""
    response = json_response({"object": "hermes.page_session", "deleted": True}, headers=NO_STORE)
    for is_secure in (True, False):
        name = _cookie_name(is_secure)
        if name in request.cookies:
            response.delete_cookie(
                name, path="/", secure=is_secure, httponly=True, samesite="Strict"
            )
    return response


def _is_secure() -> bool:
    """Return whether the browser uses TLS, to this server or to a proxy in front of it."""
    return request.scheme == "https" or header("Origin").startswith("https://")


def _cookie_name(is_secure: bool) -> str:
    """Return the name of the cookie.

    It tells servers on one host apart, because cookies ignore the port. The prefix makes browsers
    refuse a cookie of this name that another subdomain or a page without TLS sets.
    """
    name = f"hermes_trio_{app_state().page_sessions.server_id}"
    return f"__Host-{name}" if is_secure else name


def _find_cookie() -> str | None:
    secure = request.cookies.get(_cookie_name(is_secure=True))
    if secure is not None or _is_secure():
        return secure
    return request.cookies.get(_cookie_name(is_secure=False))


# -- profiles --


@frozen
class ChosenAgent:
    """The profile whose agent runs, "" for the server's default agent, and the model that responses name."""

    profile: str
    model: str


def check_profile() -> None:
    """Check that the caller may use the profile in the path, if there is one.

    Raises:
        ApiError: 403 if the key does not allow it, whether or not it exists; 404 if it does not
            exist or is not for this principal.
    """
    name = current_request().profile
    if name:
        _require_profile(name, None)
    if name and not any(profile.name == name for profile in _usable_profiles()):
        raise ApiError(404, f"There is no profile '{name}'.", code="profile_not_found")


def _require_profile(name: str, param: str | None) -> None:
    if not current_request().principal.access.allows_profile(name):
        message = f"This API key does not allow the agent '{name or DEFAULT_PROFILE_NAME}'."
        raise _insufficient_scope(message, param)


def choose_agent(model: str) -> ChosenAgent:
    """Return the agent for a model name, which may be "".

    That of the path prefix, else the model's profile.

    Any other model means the default agent, and is repeated in the response.

    Raises:
        ApiError: 403 if the key does not allow the agent; 404 if the model is a profile that is not
            for this principal.
    """
    options = app_state().options
    if prefix := current_request().profile:
        [served] = [profile for profile in options.profiles if profile.name == prefix]
        return ChosenAgent(prefix, model or served.model_name)
    for profile in options.profiles:
        if profile.model_name == model:
            if not profile.admits(principal_name()):
                raise model_not_found(model)
            _require_profile(profile.name, "model")
            return ChosenAgent(profile.name, model)
    _require_profile("", "model")
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
    own = [app_state().options.model_name]
    if not current_request().principal.access.allows_profile(""):
        own = []
    return [*own, *(profile.model_name for profile in _usable_profiles())]


def model_not_found(model: str) -> ApiError:
    """Return the error for a model that does not exist or is not for this principal."""
    return ApiError(404, f"There is no model '{model}'.", param="model", code="model_not_found")


def _usable_profiles() -> list[ServedProfile]:
    caller = current_request().principal
    return [
        profile
        for profile in app_state().options.profiles
        if profile.admits(caller.name) and caller.access.allows_profile(profile.name)
    ]
