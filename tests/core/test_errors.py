"""The error envelope."""

from __future__ import annotations

from hermes_trio.core.errors import ApiError, bad_request


def test_the_envelope_has_all_four_fields() -> None:
    error = bad_request("wrong", "n", "bad_n")
    assert error.envelope() == {
        "error": {
            "message": "wrong",
            "type": "invalid_request_error",
            "param": "n",
            "code": "bad_n",
        }
    }
    more = ApiError(502, "gone", extra={"hermes": {"failed": True}})
    assert more.envelope()["error"]["hermes"] == {"failed": True}
