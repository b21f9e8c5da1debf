"""The page: what is served, how long browsers may keep it, and what it may do there."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from hermes_trio.web.state import ServedProfile, WebOptions
from hermes_trio.web.static import FOLDER, load_page
from tests.support.asgi import Client, HttpResponse
from tests.support.fakes import make_harness

PAGE = load_page()
BUDGET = 150_000
LAZY = ("vendor/highlight.js", "vendor/katex.js")
CODER = WebOptions(profiles=(ServedProfile("coder", "coder-1", ("nobody",)),))


def stranger(options: WebOptions = CODER) -> Client:
    """A browser that has no key yet."""
    return Client(make_harness(options=options).client.app)


def asset(name: str) -> str:
    """The path of a file."""
    return f"/page/{PAGE.digest}/{name}"


async def test_the_document_needs_no_key() -> None:
    answer = await stranger().get("/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert b"{{" not in answer.body


async def test_everything_the_document_names_is_there_and_ours() -> None:
    client = stranger()
    names = re.findall(r'(?:src|href)="([^"]+)"', (await client.get("/")).body.decode())
    assert len(names) == 6
    for name in names:
        assert name.startswith("page/")
        assert (await client.get(f"/{name}")).status == 200


async def test_every_module_that_is_imported_is_there() -> None:
    for name, found in PAGE.assets.items():
        for target in (
            re.findall(r'from "([^"]+)"', found.plain.decode()) if name.startswith("js/") else ()
        ):
            path = (FOLDER / name).parent / target
            assert path.resolve().relative_to(FOLDER).as_posix() in PAGE.assets


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("js/main.js", "text/javascript; charset=utf-8"),
        ("page.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("vendor/htm.LICENSE.txt", "text/plain; charset=utf-8"),
        ("vendor/vendor.json", "application/json"),
    ],
)
async def test_assets_are_kept_for_good(name: str, kind: str) -> None:
    answer = await stranger().get(asset(name))
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    assert answer.body == (FOLDER / name).read_bytes()
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize("path", ["/", asset("js/main.js")])
async def test_the_policy_lets_nothing_in_from_elsewhere(path: str) -> None:
    policy = (await stranger().get(path)).headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'self'"
    assert rules["img-src"] == "'self' data:"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["object-src"] == "'none'"
    assert "unsafe" not in policy
    assert "http" not in policy


async def test_other_answers_keep_the_stricter_policy() -> None:
    answer = await stranger().get("/health")
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


@pytest.mark.parametrize("path", ["/", asset("js/main.js")])
@pytest.mark.parametrize("encoding", ["", "gzip, br", "gzip;q=0"])
async def test_what_a_browser_has_is_not_sent_again(path: str, encoding: str) -> None:
    client, accepts = stranger(), {"Accept-Encoding": encoding}
    first = await client.get(path, accepts)
    again = await client.get(
        path, {**accepts, "If-None-Match": f'"other", {first.headers["etag"]}'}
    )
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["cache-control"] == first.headers["cache-control"]
    other = await client.get(path, {**accepts, "If-None-Match": '"other"'})
    assert (other.status, other.body) == (200, first.body)


async def test_packed_for_who_can_unpack() -> None:
    client, path = stranger(), asset("page.css")
    plain, packed = (
        await client.get(path),
        await client.get(path, {"Accept-Encoding": "gzip, deflate"}),
    )
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert plain.headers["etag"] != packed.headers["etag"]
    assert "Accept-Encoding" in plain.headers["vary"]


async def test_head() -> None:
    answer = await stranger().get("/", method="HEAD")
    assert (answer.status, answer.headers["etag"]) == (200, f'"{PAGE.document.digest}"')


@pytest.mark.parametrize(
    "path",
    [
        "/page",
        "/page/",
        "/page/index.html",
        f"/page/{PAGE.digest}",
        asset("nothing.js"),
        asset("../web/page.py"),
        asset("..%2fweb%2fpage.py"),
        asset("%2e%2e/%2e%2e/pyproject.toml"),
        asset("/etc/passwd"),
        asset("js/../page.css"),
        asset("js\\main.js"),
        asset("js/main.js%00.css"),
        "/page/0000/js/main.js",
    ],
)
async def test_nothing_else_is_served(path: str) -> None:
    client = make_harness().client
    answer = await client.get(path)
    assert answer.status == 404
    assert answer.error["code"] == "not_found"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_the_page_is_only_read(method: str) -> None:
    assert (await make_harness().client.get("/", method=method)).status == 405


# -- below the prefix of a profile --


async def beside(path: str) -> HttpResponse:
    return await stranger().get(path)


@pytest.mark.parametrize("name", ["coder", "none-such"])
async def test_every_prefix_has_the_page_whether_or_not_there_is_a_profile(name: str) -> None:
    assert (await beside(f"/p/{name}/")).body == PAGE.document.plain
    assert (await beside(f"/p/{name}{asset('page.css')}")).status == 200


async def test_a_prefix_without_its_slash_leads_to_the_one_with_it() -> None:
    answer = await beside("/p/coder")
    assert (answer.status, answer.headers["location"]) == (308, "./coder/")
    assert (await beside("/p/a%3Ab%2F")).status in {308, 401, 404}


async def test_the_api_below_a_prefix_still_needs_a_key() -> None:
    assert (await beside("/p/coder/v1/models")).status == 401


# -- the files themselves --


def test_what_the_first_paint_needs_is_small() -> None:
    eager = [
        asset
        for name, asset in PAGE.assets.items()
        if name not in LAZY and not name.endswith((".txt", ".json"))
    ]
    assert sum(len(each.compressed) for each in (PAGE.document, *eager)) < BUDGET


@pytest.mark.parametrize("name", LAZY)
def test_large_libraries_are_imported_only_when_they_are_needed(name: str) -> None:
    sources = {path.name: path.read_text("utf-8") for path in FOLDER.glob("js/*.js")}
    assert any(f'import("../{name}")' in source for source in sources.values())
    assert not any(f'from "../{name}"' in source for source in sources.values())


def test_a_changed_file_is_a_new_path(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>{{assets}}")
    (tmp_path / "a.js").write_text("1")
    (tmp_path / "notes.bin").write_text("not served")
    before = load_page(tmp_path)
    (tmp_path / "a.js").write_text("2")
    after = load_page(tmp_path)
    assert before.digest != after.digest
    assert after.document.plain == f"<p>page/{after.digest}".encode()
    assert set(after.assets) == {"a.js"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("js/*.js")), ids=lambda path: path.name)
def test_no_module_writes_html_or_runs_text(path: Path) -> None:
    source = path.read_text("utf-8")
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "dangerouslySetInnerHTML",
        "eval(",
        "document.write",
    ):
        assert word not in source


@pytest.mark.parametrize(
    "path", [*sorted(FOLDER.glob("js/*.js")), FOLDER / "page.css"], ids=lambda p: p.name
)
def test_nothing_is_fetched_from_elsewhere(path: Path) -> None:
    text = re.sub(r"/\^?.*https\?.*/|//.*", "", path.read_text("utf-8"))
    assert re.findall(r"[\"'(]https?://", text) == []
