"""The session headers of a request."""

from __future__ import annotations

from attrs import frozen

from hermes_trio.core.errors import bad_request
from hermes_trio.schema.fields import SESSION_ID_HEADER, SESSION_KEY_HEADER, session_id, session_key
from hermes_trio.web.visit import Visit


@frozen
class SessionNames:
    """What the client's headers say about the session."""

    given_id: str
    key: str

    @classmethod
    def of(cls, visit: Visit) -> SessionNames:
        """Read and check them."""
        if visit.headers.keys().isdisjoint(_NAMES):
            return _NONE
        return cls(session_id(_text(visit, SESSION_ID_HEADER)), session_key(_text(visit, SESSION_KEY_HEADER)))

    def answer(self, used_id: str) -> dict[str, str]:
        """The headers of the reply."""
        answer = {SESSION_ID_HEADER: used_id}
        if self.key:
            answer[SESSION_KEY_HEADER] = self.key
        return answer


_NAMES = frozenset({SESSION_ID_HEADER.lower(), SESSION_KEY_HEADER.lower()})
_NONE = SessionNames("", "")


def _text(visit: Visit, name: str) -> str:
    """Headers are read as Latin-1 and Quart writes them as UTF-8; only UTF-8 comes back as it was sent."""
    try:
        return visit.headers.get(name.lower(), "").encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request(f"Invalid {name}: it is not UTF-8.", name, "invalid_header") from None
