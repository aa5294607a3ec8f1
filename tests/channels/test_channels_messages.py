"""Greetings and control messages: what is said is understood, what cannot be is refused."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from softhca.channels import ChannelOptions
from softhca.channels import messages as m
from softhca.channels.errors import ProtocolError
from softhca.channels.messages import Control, End, Greeting

END = End(m.ACKNOWLEDGED, 0x123456, 0xFFFFFF, 64, 8192, 1 << 30)
VALUES = {
    "channel": 7, "number": 1 << 40, "address": 1 << 50, "length": 1 << 33, "key": 0xFFFFFFFF,
    "qp_num": 0x123456, "psn": 0xFFFFFF, "slot_bytes": 8192, "slots": 64, "flags": 1, "name": "a buffer",
}  # fmt: skip


def test_a_greeting_comes_back_as_it_was() -> None:
    greeting = Greeting(END, 64)
    data = greeting.encode()
    assert len(data) == m.GREETING_BYTES <= 48  # what RDMA CM leaves beside an instance number
    assert Greeting.decode(data + bytes(26)) == Greeting.decode(data) == greeting


@pytest.mark.parametrize("slots", [m.LEAST_CONTROL_SLOTS, m.MOST_CONTROL_SLOTS])
def test_a_greeting_may_have_the_least_and_the_most_room(slots: int) -> None:
    assert Greeting.decode(Greeting(END, slots).encode()).control_slots == slots


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("service", 0), ("service", 3), ("qp_num", 0), ("qp_num", 1 << 24), ("psn", 1 << 24), ("slots", 0),
        ("slots", 4097), ("slot_bytes", 63), ("slot_bytes", (1 << 20) + 1), ("largest_bytes", 8191),
        ("largest_bytes", (1 << 33) + 1),
    ],
)  # fmt: skip
def test_an_end_that_cannot_be_is_refused(field: str, value: int) -> None:
    assert END.check() is END
    assert dataclasses.replace(END, largest_bytes=1 << 33).check().largest_bytes == 1 << 33
    with pytest.raises(ProtocolError):
        dataclasses.replace(END, **{field: value}).check()
    with pytest.raises(ProtocolError):
        Greeting.decode(Greeting(dataclasses.replace(END, **{field: value}), 64).encode())


@pytest.mark.parametrize("data", [b"", Greeting(END, 64).encode()[:-1], b"shcx" + bytes(40)])
def test_what_is_no_greeting_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Greeting.decode(data)


@pytest.mark.parametrize("slots", [0, 7, 1025])
def test_too_little_and_too_much_room_for_control_is_refused(slots: int) -> None:
    with pytest.raises(ProtocolError):
        Greeting.decode(Greeting(END, slots).encode())


def test_another_version_is_refused() -> None:
    data = bytearray(Greeting(END, 64).encode())
    data[4] += 1
    with pytest.raises(ProtocolError):
        Greeting.decode(bytes(data))


@pytest.mark.parametrize("kind", m.FIELDS)
def test_a_control_message_comes_back_as_it_was(kind: int) -> None:
    message = Control(kind, **{name: VALUES[name] for name in m.FIELDS[kind]})
    for taken, said in ((0x1_0000_0005, 5), (0xFFFF_FFFE, 0xFFFF_FFFE)):
        data = message.encode(taken)
        assert len(data) <= m.CONTROL_BYTES
        assert Control.decode(data) == (message, said)


@pytest.mark.parametrize("kind", m.FIELDS)
def test_fields_of_other_kinds_are_refused(kind: int) -> None:
    fields = m.FIELDS[kind]
    whole = {name: VALUES[name] for name in fields}
    for name in VALUES.keys() - fields:
        with pytest.raises(ProtocolError, match=name):
            Control.decode(Control(kind, **{**whole, name: VALUES[name]}).encode(0))


def test_the_longest_name_fits_and_a_longer_one_is_refused() -> None:
    message = Control(m.SHARE, number=1, length=1, flags=1, name="ü" * 32)
    data = message.encode(0)
    assert len(data) <= m.CONTROL_BYTES
    assert Control.decode(data)[0] == message
    for name in ("", "ü" * 32 + "x"):
        with pytest.raises(ProtocolError):
            Control.decode(dataclasses.replace(message, name=name).encode(0))


def test_malformed_control_messages_are_refused() -> None:
    data = Control(m.SHARE, number=1, length=1, flags=1, name="abc").encode(0)
    for broken in (
        data[:-1], data + b"x", data[:20], b"", b"\xff" + data[1:], b"\x00" + data[1:],
        data[:1] + b"\x01" + data[2:], data[:-3] + b"\xff\xfe\xfd",
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            Control.decode(broken)


def test_where_a_large_message_is_must_make_sense() -> None:
    data = m.encode_large(1 << 40, 77, 1000)
    for least in (1, 1000):
        assert m.decode_large(data, least, 1000) == (1 << 40, 77, 1000)
    last = m.encode_large((1 << 64) - 1000, 77, 1000)
    assert m.decode_large(last, 1, 1000) == ((1 << 64) - 1000, 77, 1000)
    for broken, least, most in (
        (data, 1001, 2000), (data, 1, 999), (data[:-1], 1, 1000), (data + b"x", 1, 1000),
        (struct.pack("!QIQ", (1 << 64) - 999, 77, 1000), 1, 1000),
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            m.decode_large(broken, least, most)


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 3}, {"slots": 4097}, {"slot_bytes": 63}, {"slot_bytes": 1 << 21}, {"largest_bytes": 100},
        {"largest_bytes": 1 << 34}, {"ack_timeout": 0}, {"ack_timeout": 32}, {"keepalive_s": 0.0},
        {"linger_s": -1.0}, {"slots": 4.5}, {"ack_timeout": True}, {"keepalive_s": float("nan")},
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    assert ChannelOptions(linger_s=0.0).linger_s == 0.0
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ChannelOptions(**wrong)
