"""Tokens of an issuer that is reached over HTTP, at a real server."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import pytest

from hermes_trio.keys import add_key
from tests.e2e.conftest import AGENTS
from tests.support.issuer import AUDIENCE, Issuer, ec_key, rsa_key, serving_issuer
from tests.support.server_process import LaunchOptions, ServerProcess, serving

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("e2e-oidc")]

ROLES = '[oidc.roles.readers]\nroutes = ["sessions:read"]\n[oidc.roles.users]\nmax_runs = 2\n'


def write_key_file(folder: Path, issuer: Issuer) -> Path:
    path = folder / "keys.toml"
    text = f'[oidc]\nissuer = "{issuer.url}"\naudience = "{AUDIENCE}"\n{ROLES}'
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def ask(
    server: ServerProcess, method: str, path: str, token: str, body: object = None
) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.request(method, server.url + path, headers=headers, json=body, trust_env=False)


def test_tokens_stand_for_people(tmp_path: Path) -> None:
    with serving_issuer() as issuer:
        issuer.add(rsa_key("one"), ec_key("two"))
        path = write_key_file(tmp_path, issuer)
        key = add_key(path, "ops", {"admin": True})
        options = LaunchOptions(tmp_path, ("--agent", AGENTS, "--api-key-file", str(path)))
        with serving(options, expected="refused a key|has no role") as server:
            now = time.time()
            ada = issuer.token(now, roles=["users"])
            eve = issuer.token(now, issuer.keys["two"], sub="eve", roles=["readers"])
            made = ask(server, "POST", "/api/sessions", ada, {"title": "mine"})
            assert made.status_code == 201
            assert len(ask(server, "GET", "/api/sessions", ada).json()["data"]) == 1
            assert ask(server, "GET", "/api/sessions", eve).json()["data"] == []
            assert ask(server, "POST", "/api/sessions", eve, {}).status_code == 403
            assert ask(server, "GET", "/api/sessions", issuer.token(now)).status_code == 403
            assert ask(server, "GET", "/api/sessions", ada[:-4] + "AAAA").status_code == 401
            old = issuer.token(now - 3_600, roles=["users"])
            assert (
                ask(server, "GET", "/api/sessions", old).json()["error"]["code"] == "token_expired"
            )
            assert ask(server, "GET", "/api/sessions", key).json()["data"] == []
            with httpx2.Client(trust_env=False) as client:
                headers = {"Authorization": f"Bearer {key}", "X-Hermes-Principal": "oidc:ada"}
                seen = client.get(f"{server.url}/api/sessions", headers=headers).json()["data"]
                assert [session["title"] for session in seen] == ["mine"]
            check_page_session(server, ada, eve)
            assert issuer.requests["/keys"] == 1
            assert "principal=oidc:ada" in server.log
            assert ada not in server.log
            assert ada.rpartition(".")[2] not in server.log


def check_page_session(server: ServerProcess, ada: str, eve: str) -> None:
    """The page can be used with a token, for as long as the token is valid."""
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    for token, status in ((ada, 201), (eve, 403)):
        with httpx2.Client(trust_env=False, headers=own) as browser:
            bearer = {"Authorization": f"Bearer {token}"}
            session = browser.post(f"{server.url}/api/sign-in", headers=bearer).json()
            assert session["principal"].startswith("oidc:")
            assert session["expires_at"] <= time.time() + 631
            assert browser.post(f"{server.url}/api/sessions", json={}).status_code == status
