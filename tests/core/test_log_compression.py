"""What the store keeps, in its compressed form, and the fields of our values."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.log_codec import as_dict, compress, field_names, is_value
from hermes_trio.core.messages import Message, Usage
from hermes_trio.core.records import Stamp


@given(st.text(st.characters(codec="ascii")))
def test_what_is_packed_comes_back(text: str) -> None:
    assert zlib.decompress(compress(text)).decode("ascii") == text


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 4095, 4096, 4097, 1_000_000])
def test_whatever_its_length(length: int) -> None:
    text = "".join(chr(32 + number * number % 95) for number in range(length))
    assert zlib.decompress(compress(text)).decode("ascii") == text


@pytest.mark.parametrize("text", ["some text", "text" * 500])
def test_damage_is_noticed(text: str) -> None:
    packed = bytearray(compress(text))
    packed[-1] ^= 1
    with pytest.raises(zlib.error):
        zlib.decompress(packed)


@pytest.mark.parametrize("value", [Usage(1, 2), Stamp("run_1", 1.5, "m"), Message("user", "Hi")])
def test_fields_as_attrs_tells_them(value: Any) -> None:
    assert is_value(value.__class__)
    assert as_dict(value) == asdict(value, recurse=False)
    assert field_names(value.__class__) == tuple(as_dict(value))


def test_what_is_no_value() -> None:
    assert not is_value(dict)
