"""An OpenID Connect issuer on loopback, with keys that can be exchanged and tokens of any content."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

AUDIENCE = "hermes-trio"


def rsa_key(key_id: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": key_id, "use": "sig"})


def ec_key(key_id: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": key_id, "use": "sig"})


@define(eq=False)
class Issuer:
    """What the issuer publishes, and how often it was asked."""

    url: str = "https://id.example.org"
    keys: dict[str, RSAKey | ECKey] = field(factory=dict)
    documents: dict[str, object] = field(factory=dict)  # in place of the real ones, by path
    requests: Counter[str] = field(factory=Counter)

    def add(self, *keys: RSAKey | ECKey) -> None:
        """Publish more keys."""
        self.keys |= {str(key.kid): key for key in keys}

    def document(self, path: str) -> object:
        """Return what is published at a path, None if there is nothing."""
        self.requests[path] += 1
        if path in self.documents:
            return self.documents[path]
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        if path == "/keys":
            return {"keys": [key.as_dict(private=False) for key in self.keys.values()]}
        return None

    async def fetch(self, url: str) -> object:
        """Stand in for ``fetch_json``."""
        return self.document(url.removeprefix(self.url))

    def token(
        self,
        now: float,
        key: RSAKey | ECKey | None = None,
        header: Mapping[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Return a signed token for ``ada`` that is valid for ten minutes, unless claims say otherwise.

        A claim that is None is left out.
        """
        key = key or next(iter(self.keys.values()))
        algorithm = "RS256" if isinstance(key, RSAKey) else "ES256"
        usual = {
            "iss": self.url, "aud": AUDIENCE, "sub": "ada", "iat": int(now), "exp": int(now) + 600,
        }  # fmt: skip
        content = {name: value for name, value in (usual | claims).items() if value is not None}
        protected = {"alg": algorithm, "kid": key.kid} | dict(header or {})
        shown = {name: value for name, value in protected.items() if value is not None}
        return str(jwt.encode(shown, content, key, algorithms=[algorithm]))


@contextmanager
def serving_issuer() -> Iterator[Issuer]:
    """Serve an issuer over HTTP on loopback."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            document = issuer.document(self.path)
            body = json.dumps(document).encode()
            self.send_response(200 if document is not None else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Write nothing to standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
