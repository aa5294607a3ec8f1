"""Recovery of an IPv4 identification: always the right one for a sound packet, never an exception.

Input: identification borne, supposed and hinted, flips, addresses, then the packet.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz_choices import Choices
from fuzz_seeds import captured_transports

from softhca.machine.primitives import address_of
from softhca.wire import icrc
from softhca.wire.identification import recover
from softhca.wire.packet import captured, decode
from softhca.wire.route import ROCE_V4, ROCE_V6, V4_MAPPED_PREFIX, Route

LINKTYPE_RAW = 101


def one_input(data: bytes) -> None:
    choices = Choices(data)
    borne, supposed, hint, window = (choices.number(2) for _ in range(4))
    flips = [(choices.number(2), choices.byte()) for _ in range(choices.below(4))]
    source, destination = (V4_MAPPED_PREFIX + choices.block(4) for _ in range(2))
    packet = bytearray(choices.rest()[:4096])
    packet = packet[: len(packet) & ~3]
    packet += bytes(max(0, 12 - len(packet)))
    route = Route(ROCE_V4, source, destination, choices.at & 0xFFFF, identification=borne)
    right = icrc.compute(route, address_of(packet), len(packet))
    packet += right.to_bytes(4, "little")
    address = address_of(packet)
    assert icrc.syndrome(route, address, len(packet)) == 0
    whole = decode_or_none(captured(route, bytes(packet)))
    assert whole is None or whole.icrc_ok
    route.identification = supposed
    difference = icrc.syndrome(route, address, len(packet))
    assert recover(route, difference, len(packet)) == borne
    distance = min((borne - hint) & 0xFFFF, (hint - borne) & 0xFFFF)
    assert recover(route, difference, len(packet), hint, window) == (borne if distance <= window else -1)
    for at, bits in flips:
        packet[at % len(packet)] ^= bits
    found = recover(route, icrc.syndrome(route, address, len(packet)), len(packet))
    assert -1 <= found <= 0xFFFF
    if found >= 0:
        route.identification = found
        assert icrc.syndrome(route, address, len(packet)) == 0
    other = Route(ROCE_V6, source, destination)
    assert recover(other, difference, len(packet)) == -1


def decode_or_none(frame: bytes):
    """The frame as the tools see it, None where it is no packet for them."""
    try:
        return decode(frame, LINKTYPE_RAW)
    except ValueError:
        return None


def seeds() -> Iterator[bytes]:
    """Captured packets."""
    for number, transport in enumerate(captured_transports()[:40]):
        yield bytes([number, 7, 0, number, 0, 9, 16, 0, number % 4]) + bytes(8) + transport[:-4]
