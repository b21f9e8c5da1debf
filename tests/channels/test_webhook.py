"""The webhook: who may call it, and what it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from hermes_trio.channels.base import MAX_AGE_SECONDS
from hermes_trio.channels.whatsapp import parse_notification, verify_signature
from hermes_trio.core.errors import ApiError
from tests.support.fakes import EPOCH, BrokenStore, make_harness
from tests.support.graph_api import (
    ANN,
    BOB,
    NUMBER_ID,
    OWN_NUMBER,
    SECRET,
    TOKEN,
    VERIFY,
    WEBHOOK,
    ChannelHarness,
    media_message,
    notification,
    open_channel,
    sign,
    text_message,
)

NO_KEY = {"Authorization": ""}


async def handled(channel: ChannelHarness) -> int:
    """How many turns there were."""
    await channel.until_idle()
    return len(channel.server.agents.turns)


class TestVerification:
    def url(self, token: str, mode: str = "subscribe") -> str:
        return f"{WEBHOOK}?hub.mode={mode}&hub.verify_token={token}&hub.challenge=1158201444"

    async def test_the_challenge_is_repeated_to_who_knows_the_token(self) -> None:
        async with open_channel() as channel:
            answer = await channel.server.client.get(self.url(VERIFY), NO_KEY)
            assert (answer.status, answer.body) == (200, b"1158201444")
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"

    @pytest.mark.parametrize(
        "token",
        ["", "wrong", f"{VERIFY}x", "%C3%A9", "%ED%A0%80"],
        ids=["empty", "another", "longer", "letter", "surrogate"],
    )
    async def test_nobody_else_gets_it(self, token: str) -> None:
        async with open_channel() as channel:
            answer = await channel.server.client.get(self.url(token), NO_KEY)
            assert (answer.status, answer.error["code"]) == (403, "invalid_verify_token")
            answer = await channel.server.client.get(self.url(VERIFY, "other"), NO_KEY)
            assert answer.status == 403


class TestSignature:
    async def test_a_signed_message_is_taken(self) -> None:
        async with open_channel() as channel:
            assert (await channel.deliver(text_message("Hi"))).status == 200
            assert await handled(channel) == 1

    @pytest.mark.parametrize(
        "signature",
        ["", "sha256=", "sha1=0000", "sha256=" + "0" * 64, "sha256=é", "sha256=" + "0" * 100_00],
    )
    async def test_another_signature_is_refused(self, signature: str) -> None:
        async with open_channel() as channel:
            headers = {"X-Hub-Signature-256": signature}
            answer = await channel.deliver(text_message("Hi"), headers=headers)
            assert (answer.status, answer.error["code"]) == (401, "invalid_signature")
            assert await handled(channel) == 0

    async def test_a_body_without_a_signature_is_not_received(self) -> None:
        async with open_channel() as channel:
            client = channel.server.client
            async with client.open("POST", WEBHOOK, [b"{"], NO_KEY, is_whole=False) as exchange:
                assert (await exchange.started()).status == 401

    async def test_it_covers_every_byte_of_the_body(self) -> None:
        async with open_channel() as channel:
            raw = notification(text_message("Hi"))
            answer = await channel.deliver_raw(raw + b" ", sign(raw))
            assert answer.status == 401
            # A key of this server is no signature.
            answer = await channel.server.client.send_raw(WEBHOOK, raw)
            assert answer.status == 401

    def test_only_the_app_secret_signs(self) -> None:
        raw = b'{"text": "\xc3\xa9"}'
        signature = sign(raw)["X-Hub-Signature-256"]
        assert verify_signature(raw, signature, SECRET)
        assert not verify_signature(raw, signature, f"{SECRET}x")
        assert not verify_signature(raw, signature.removeprefix("sha256="), SECRET)
        assert not verify_signature(raw, sign(raw, TOKEN)["X-Hub-Signature-256"], SECRET)

    async def test_without_the_channel_there_is_no_webhook(self) -> None:
        raw = notification(text_message("Hi"))
        answer = await make_harness().client.send_raw(WEBHOOK, raw, headers=NO_KEY | sign(raw))
        assert answer.status == 401
        assert (await make_harness().client.send_raw(WEBHOOK, raw)).status == 404


class TestRepetition:
    async def test_a_message_is_answered_once_however_often_it_is_delivered(self) -> None:
        async with open_channel() as channel:
            message = text_message("Hi")
            for _ in range(3):
                assert (await channel.deliver(message)).status == 200
            assert (await channel.deliver(message, text_message("Ho"))).status == 200
            assert await handled(channel) == 2
            assert len(channel.graph.texts) == 2

    async def test_also_after_a_restart(self) -> None:
        message = text_message("Hi")
        async with open_channel() as first:
            await first.deliver(message)
            assert await handled(first) == 1
            async with open_channel(store=first.server.store) as second:
                assert (await second.deliver(message)).status == 200
                assert await handled(second) == 0

    async def test_long_ids_count_as_well(self) -> None:
        async with open_channel() as channel:
            for end in ("a", "b", "a"):
                await channel.deliver(text_message("Hi", id="wamid." + "x" * 1000 + end))
            assert await handled(channel) == 2

    async def test_an_old_message_is_not_answered(self) -> None:
        """Whatever was signed long ago: keys of messages are not kept forever."""
        async with open_channel() as channel:
            for age in (MAX_AGE_SECONDS - 60, MAX_AGE_SECONDS + 60):
                sent_at = str(int(EPOCH - age))
                assert (await channel.deliver(text_message("Hi", timestamp=sent_at))).status == 200
            assert await handled(channel) == 1

    async def test_without_the_store_meta_is_told_to_try_again(self) -> None:
        class NoClaims(BrokenStore):
            async def claim_key(self, record: Any) -> Any:
                self._fail("claim")
                return await super().claim_key(record)

        store = NoClaims("claim")
        async with open_channel(store=store) as channel:
            message = text_message("Hi")
            assert (await channel.deliver(message)).status == 503
            store._broken = ()
            assert (await channel.deliver(message)).status == 200
            assert await handled(channel) == 1


class TestSenders:
    async def test_nobody_is_allowed_by_default(self) -> None:
        with capture_logs() as logs:
            async with open_channel(settings={"allow": ()}) as channel:
                for _ in range(2):
                    assert (await channel.deliver(text_message("Hi"))).status == 200
                assert await handled(channel) == 0
                assert channel.graph.requests == []
        warnings = [entry for entry in logs if entry["log_level"] == "warning"]
        assert [entry["event"] for entry in warnings] == [
            "nobody may write to the channel",
            "ignored messages of a sender who is not allowed",
        ]
        assert warnings[1]["sender"] == ANN
        assert {entry["setting"] for entry in warnings} == {"channels.whatsapp.allow"}

    @pytest.mark.parametrize(
        ("allow", "expected"),
        [(("+49 (151) 1234-5678",), [ANN]), (("*",), [ANN, BOB]), ((BOB,), [BOB])],
    )
    async def test_those_on_the_list(self, allow: tuple[str, ...], expected: list[str]) -> None:
        async with open_channel(settings={"allow": allow}) as channel:
            await channel.deliver(text_message("Hi"), text_message("Hi", BOB))
            await channel.until_idle()
            assert sorted(to for to, _ in channel.graph.texts) == sorted(expected)

    async def test_a_user_who_hides_the_number_is_answered_by_id(self) -> None:
        user = "DE.13491208655302741918"
        async with open_channel(settings={"allow": (user,)}) as channel:
            message = text_message("Hi", from_user_id=user)
            await channel.deliver(
                {**message, "from": None}, text_message("No", from_user_id="DE.1")
            )
            await channel.until_idle()
            [asked] = channel.graph.accepted
            assert asked.json["recipient"] == user
            assert "to" not in asked.json


class TestIgnored:
    @pytest.mark.parametrize("kind", ["reaction", "unsupported", "system", "edit", "revoke", "new"])
    async def test_other_kinds_of_messages(self, kind: str) -> None:
        async with open_channel() as channel:
            assert (await channel.deliver(media_message(kind))).status == 200
            assert await handled(channel) == 0
            assert channel.graph.requests == []

    async def test_statuses(self) -> None:
        with capture_logs() as logs:
            async with open_channel() as channel:
                read = {"id": "wamid.0", "status": "read", "recipient_id": ANN}
                failed = {**read, "status": "failed", "errors": [{"code": 131047}]}
                assert (await channel.deliver(statuses=[read, failed])).status == 200
                assert channel.graph.requests == []
        errors = [entry for entry in logs if entry["log_level"] == "error"]
        assert [entry["error_code"] for entry in errors] == [131047]

    async def test_our_own_messages(self) -> None:
        async with open_channel(settings={"allow": ("*",)}) as channel:
            await channel.deliver(text_message("Hi"))
            await channel.until_idle()
            echo = text_message("Hello world", id="wamid.0")
            own = text_message("Hi", OWN_NUMBER.replace(" ", "").replace("-", "")[1:])
            for message in (echo, own):
                assert (await channel.deliver(message)).status == 200
            raw = notification(field="smb_message_echoes", message_echoes=[text_message("Hi")])
            assert (await channel.deliver_raw(raw)).status == 200
            assert await handled(channel) == 1

    async def test_another_number_of_the_same_app(self) -> None:
        async with open_channel() as channel:
            metadata = {"display_phone_number": "1555", "phone_number_id": "2"}
            assert (await channel.deliver(text_message("Hi"), metadata=metadata)).status == 200
            assert await handled(channel) == 0

    async def test_groups(self) -> None:
        async with open_channel() as channel:
            await channel.deliver(text_message("Hi", group_id="Y2FwaV9ncm91cDox"))
            assert await handled(channel) == 0

    @pytest.mark.parametrize(
        "body",
        [
            b"[]", b"{}", b"null", b'{"entry": 1}', b'{"entry": [null, {"changes": {}}]}',
            b'{"entry": [{"changes": [{"field": "messages", "value": []}]}]}',
        ],
    )  # fmt: skip
    async def test_bodies_of_another_form(self, body: bytes) -> None:
        async with open_channel() as channel:
            assert (await channel.deliver_raw(body)).status == 200

    @pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
    async def test_a_body_that_is_not_json(self, body: bytes) -> None:
        async with open_channel() as channel:
            answer = await channel.deliver_raw(body)
            assert (answer.status, answer.error["code"]) == (400, "invalid_json")

    @pytest.mark.parametrize("wrong", [None, 1, [], {}, "", "x" * 100])
    def test_fields_of_another_type(self, wrong: Any) -> None:
        names = ["from", "id", "timestamp", "type", "text", "group_id", "from_user_id"]
        for name in names:
            found = parse_notification(notification({**text_message("Hi"), name: wrong}), NUMBER_ID)
            assert len(found.messages) <= 1
        raw = json.dumps({"entry": wrong}).encode()
        assert parse_notification(raw, NUMBER_ID).messages == ()

    def test_the_error_names_no_content(self) -> None:
        with pytest.raises(ApiError) as caught:
            parse_notification(b"secret words", NUMBER_ID)
        assert "secret" not in caught.value.message
