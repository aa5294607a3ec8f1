"""What a peer says to a connection of channels: greetings, control messages, immediate data, credit.

Input: a byte that says whether the rest is a greeting, a control message, or what happens to accounts, step
by step.  What is understood can be said again; accounts never give more room than there is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.channels import messages as m
from softhca.channels.accounts import LARGE, MESSAGE, ControlAccount, ReceiveAccount, SendAccount
from softhca.channels.errors import ProtocolError
from softhca.channels.messages import Control, End, Greeting
from softhca.channels.named import MOST_NAMES, NamedBuffers

MOST_STEPS = 400


class Heard:
    """A link that keeps what is said."""

    def __init__(self) -> None:
        self.said: list[Control] = []

    def send_control(self, message: Control) -> None:
        self.said.append(message)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    what = choices.byte() & 3
    if what == 0:
        greeting(choices.rest())
    elif what == 1:
        message(choices.rest())
    elif what == 2:
        accounts(choices)
    else:
        buffers(choices)


def greeting(data: bytes) -> None:
    """It is understood or refused."""
    with contextlib.suppress(ProtocolError):
        found = Greeting.decode(data)
        assert Greeting.decode(found.encode()) == found
        assert found.end.check().slots > 0


def message(data: bytes) -> None:
    """It is understood or refused; what is understood has only the fields of its kind."""
    with contextlib.suppress(ProtocolError):
        found, taken = Control.decode(data)
        assert Control.decode(found.encode(taken)) == (found, taken)
        known = m.FIELDS[found.kind] | {"kind"}
        assert not any(value for name, value in vars(found).items() if name not in known)
        assert len(found.name.encode()) <= m.NAME_BYTES
        if found.kind in (m.OPEN, m.OPENED):
            assert found.end.slots > 0


def accounts(choices: Choices) -> None:
    """A receiver, a sender and the control messages of a peer that says what it likes."""
    slots = 4 + choices.below(60)
    incoming = ReceiveAccount(slots, bool(choices.byte() & 1))
    outgoing = SendAccount(slots, slots)
    control = ControlAccount(8, 8)
    for _ in range(MOST_STEPS):
        if not choices.more:
            return
        what = choices.byte() % 7
        before = (incoming.expected, outgoing.taken, control.received)
        try:
            if what == 0:
                incoming.arrived(choices.number(4))
            elif what == 1:
                incoming.arrived(incoming.expected & 0xFFFFFF | choices.byte() % 3 << 24)
            elif what == 2:
                incoming.synchronized(incoming.expected + choices.byte())
            elif what == 3:
                outgoing.credited(choices.number(2))
            elif what == 4 and outgoing.room > 0:
                outgoing.immediate(MESSAGE if choices.byte() & 1 else LARGE)
                outgoing.retired += choices.byte() & 1
            elif what == 5:
                control.arrived(choices.number(4))
            elif incoming.owed(incoming.expected, True):
                incoming.advertised = incoming.expected
        except ProtocolError:
            assert before == (incoming.expected, outgoing.taken, control.received)
        assert incoming.advertised <= incoming.expected <= incoming.advertised + slots
        assert 0 <= outgoing.taken <= outgoing.sent <= outgoing.taken + slots
        assert incoming.lost == 0 or not incoming.acknowledged
        assert control.taken <= control.sent


def buffers(choices: Choices) -> None:
    """The table of the peer's named buffers."""
    link = Heard()
    named = NamedBuffers(link)  # type: ignore[arg-type]
    for _ in range(MOST_STEPS):
        if not choices.more:
            return
        kind = choices.pick((m.SHARE, m.UNSHARE, m.UNSHARED))
        number = choices.byte() & 15
        said = Control(kind, number=number)
        if kind == m.SHARE:
            name = chr(97 + choices.below(16))
            said = Control(
                kind, 0, number, choices.number(8), choices.number(8), choices.number(4), name=name,
                flags=choices.byte() & 15,
            )  # fmt: skip
        before = dict(named.peers)
        try:
            named.on_control(said)
        except ProtocolError:
            assert named.peers == before
        assert len(named.peers) == len(named._by_identity) <= MOST_NAMES
        for name, grant in named.peers.items():
            assert grant.name == name
            assert grant.length > 0
            assert grant.address + grant.length <= 1 << 64
            assert 0 < grant.rights <= 7


def seeds() -> Iterator[bytes]:
    """A greeting, a message of each kind, and lives of accounts and buffers."""
    end = End(m.ACKNOWLEDGED, 17, 5, 64, 8192, 1 << 20)
    yield b"\x00" + Greeting(end, 64).encode()
    values = {name: 1 for name in ("channel", "number", "address", "key", "psn", "flags")}
    values |= {"length": 8192, "slot_bytes": 64, "slots": 4, "qp_num": 17}
    for kind, fields in m.FIELDS.items():
        said = {name: value for name, value in values.items() if name in fields}
        name = "box" if "name" in fields else ""
        yield b"\x01" + Control(kind, **said, name=name).encode(0)
    yield b"\x02" + bytes(range(256))
    yield b"\x02\x04\x01" + b"\x01\x00\x06\x04\x01\x03\x00\x01" * 20
    box = b"\x00\x01\x00" + (4096).to_bytes(8, "big") + (64).to_bytes(8, "big") + bytes(4) + b"\x03"
    yield b"\x03" + box + b"\x01\x01" + box + b"\x02\x01"
