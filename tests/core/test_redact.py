from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.redact import header_safe, redact, redact_message

B = "0123456789abcdefABCDEF"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"bad key sk-{B}.", "bad key sk-***."),
        (f"sk-proj-{B}_x-y", "sk-***"),
        (f"(ht-{B})", "(ht-***)"),
        (f"ghp_{B} gho_{B} github_pat_{B}", "ghp_*** gho_*** github_pat_***"),
        (f"xoxb-{B}, xoxa-{B}, xoxp-{B}", "xoxb-***, xoxa-***, xoxp-***"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA***"),
        (f"AIza{B}", "AIza***"),
        (f"hf_{B} glpat-{B}", "hf_*** glpat-***"),
        (f"eyJhbGciOiJIUzI1.eyJzdWIiOiIx.{B}", "eyJ***"),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("authorization: Basic dXNlcjpw was refused", "authorization: Basic *** was refused"),
        ("{'Authorization': b'Bearer zzz'}", "{'Authorization': b'Bearer ***'}"),
        ("sent Bearer abc123", "sent Bearer ***"),
        ("sent basic dXNlcjpwYXNzd29yZA==", "sent basic ***"),
        (
            "curl -H 'Authorization: Basic dXM=' http://h",
            "curl -H 'Authorization: Basic ***' http://h",
        ),
        ('{"api_key": "abc", "x": 1}', '{"api_key": "***", "x": 1}'),
        ('{"password": "a\\"b c"}', '{"password": "***"}'),
        (
            '{\\"password\\": \\"ab\\\\\\"c\\", \\"y\\": 2}',
            '{\\"password\\": \\"***\\", \\"y\\": 2}',
        ),
        ("apikey=abc&x=1", "apikey=***&x=1"),
        ("OPENAI_API_KEY=abc", "OPENAI_API_KEY=***"),
        ("Server=db;Password=abc;User=me", "Server=db;Password=***;User=me"),
        ("x-api-key: abc", "x-api-key: ***"),
        ("access_token : 'abc'", "access_token : '***'"),
        ('client_secret => "abc"', 'client_secret => "***"'),
        ('if password == "abc"', 'if password == "***"'),
        ("passwd=a\\b", "passwd=***"),
        ('secret: "never closed\nnext line', 'secret: "***\nnext line'),
        ("token: bearer", "token: ***"),
        ("postgres://hermes:s3cr@et@db/x", "postgres://hermes:***@db/x"),
        ("https://token:abc@github.com/x", "https://token:***@github.com/x"),
        (f"https://sk-{B}:x@host", "https://sk-***:***@host"),
        ("x://a:token=b/c;d@h", "x://a:***@h"),
        (f"a {PEM} b", "a [private key ***] b"),
        (PEM.replace("\n", "\\n"), "[private key ***]"),
        (f"{PEM}sk-{B}", "[private key ***]sk-***"),
        ("-----BEGIN PRIVATE KEY-----\nMIIcut", "[private key ***]"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nx", "[private key ***]"),
    ],
)
def test_secrets_are_masked(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello world",
        "max_tokens: 5, total_tokens=7",
        '{"token": null, "password": ""}',
        '\\"token\\": \\"\\"',
        "basic authentication with bearer tokens",
        "https://git@github.com/x and http://h:80/a@b",
        f"task-{B}",
        "hf_hub_download_the_whole_thing",
        "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


NASTY = st.sampled_from(
    [
        "sk-", "ht-", "AKIA", "eyJ", "hf_", "ghp_", B, "aaaaaaaa", "token", "password", "api_key", "authorization", "Bearer",
        "basic", "null", "=", ":", " ", "\n", '"', "'", "\\", "\\\"", "://", "/", "@", "&", ";", ".", "-", "_", "*", "***", "a",
        "b", "1", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "[", "?", "==", "=>",
    ]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(NASTY, max_size=30).map("".join) | st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@settings(deadline=None)
@given(
    st.text("abc 1:=\n\"'&", max_size=20),
    st.sampled_from([f"sk-{B}", f"ghp_{B}", "AKIAIOSFODNN7EXAMPLE"]),
    st.text(" .,:\n\"'&", max_size=20),
)
def test_a_key_never_gets_through(before: str, key: str, after: str) -> None:
    assert key not in redact(f"{before} {key}{after}")


@pytest.mark.parametrize(
    "unit",
    [
        "hello world ", "-", "-eyJ", "sk-", "token ", "token=", 'token="', "token=\\", 'token:\\"\\\\', "token: bearer ",
        "bearer ", "://", "://a:", "a:@", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "x://a:token=b/c;d@h", "\\", '"',
    ],
)  # fmt: skip
def test_a_megabyte_of_almost_matches_is_no_problem(unit: str) -> None:
    # Quadratic work on a million characters would hang here for minutes and meet the suite's time
    # limit.
    text = unit * (1_000_000 // len(unit))
    assert len(redact(text)) <= len(text)


def test_a_message_of_megabytes_is_cut() -> None:
    text = "password=hunter2 " + "x" * 10_000_000
    shown = redact_message(text, 100)
    assert shown.startswith("password=*** xxx")
    assert shown.endswith("xx… [9999957 more characters]")
    assert len(shown) <= 100
    assert redact_message(shown, 100) == shown


def test_a_short_message_is_only_masked() -> None:
    assert redact_message("password=hunter2", 100) == "password=***"


def test_a_cut_does_not_expose_a_secret() -> None:
    text = "x" * 90 + " https://user:correct-horse-battery@example.org/ " + "y" * 100
    assert "correct" not in redact_message(text, 140)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("  a\r\nb\x00\x7fc\u2028d\x85 ", "a b c d"),
        ("héllo 😀 \ud800", "h?llo ? ?"),
        ("x" * 300, "x" * 200),
        ("x" * 199 + " y", "x" * 199),
    ],
)
def test_header_safe(text: str, expected: str) -> None:
    assert header_safe(text) == expected


@settings(deadline=None)
@given(st.text(st.characters()), st.integers(-5, 50))
def test_header_safe_is_one_printable_line(text: str, limit: int) -> None:
    shown = header_safe(text, limit)
    assert len(shown) <= max(limit, 0)
    assert shown.isascii()
    assert shown.isprintable()
    assert shown == shown.strip()
