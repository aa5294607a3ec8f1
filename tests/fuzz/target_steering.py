"""Hostile Ethernet frames in VXLAN, and rules of flow steering: a datagram is a frame of the segment or is
told why not, and nothing behind its end is looked at; who receives it is who a walk through all rules finds.

Input: one step after another: a rule is put in force, by bits of its key that are few or many; one is ended;
a datagram comes, of plain bytes or made like IPv4, IPv6, VLAN, TCP and UDP.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fuzz_choices import Choices

from softhca.adapter.scaling import Scaling
from softhca.adapter.steering import MOST_MASKS, Rule, Steering
from softhca.queues.control_fields import FLOW_ALL_DEFAULT, FLOW_MC_DEFAULT, FLOW_NORMAL, FLOW_SNIFFER
from softhca.wire.ethernet import IPV4 as IPV4_SAID
from softhca.wire.ethernet import IPV6 as IPV6_SAID
from softhca.wire.ethernet import KEY_BYTES, frame_key
from softhca.wire.vxlan import FrameView

VNI = 0x010203
HEADER = bytes([8, 0, 0, 0, 1, 2, 3, 0])
KINDS = (FLOW_NORMAL, FLOW_NORMAL, FLOW_NORMAL, FLOW_ALL_DEFAULT, FLOW_MC_DEFAULT, FLOW_SNIFFER)
MACS = (bytes(6), bytes([2, 0, 0, 0, 0, 1]), bytes([1, 0, 0x5E, 0, 0, 1]), b"\xff" * 6)
TYPES = (b"\x08\x00", b"\x86\xdd", b"\x81\x00\x00\x05\x08\x00", b"\x81\x00\x00\x05\x86\xdd", b"\x88\xcc")
IPV4 = bytes.fromhex("45000020 00000000 40110000 0a000001 0a000002 12b512b6 000c0000")
IPV6 = bytes.fromhex("60012345 00081140") + bytes(15) + b"\x01" + bytes(15) + b"\x02" + b"\x12\xb5\x12\xb6"
HASH_KEY = bytes(7 * n % 251 for n in range(40))
STEPS = 200


def hash_of(key: bytes, fields: int) -> int:
    """The Toeplitz hash of those fields of the frame with a key, by its definition."""
    version, protocol = {IPV4_SAID: 0, IPV6_SAID: 2}.get(key[16], 8), {6: 4, 17: 6}.get(key[60], 8)
    size = 4 if version == 0 else 16
    parts = (key[24 : 24 + size], key[40 : 40 + size], key[56:58], key[58:60])
    bits = (1 << version, 2 << version, 1 << protocol, 2 << protocol)
    data = b"".join(part for part, bit in zip(parts, bits, strict=True) if fields & bit & 0xFF)
    places = (8 * i + bit for i, byte in enumerate(data) for bit in range(8) if byte & 0x80 >> bit)
    whole, result = int.from_bytes(HASH_KEY, "big"), 0
    for place in places:
        result ^= whole >> (8 * len(HASH_KEY) - 32 - place) & 0xFFFFFFFF
    return result


class World:
    """The rules of a port, once as they are used and once as a list in the order in which they came."""

    def __init__(self) -> None:
        self.steering = Steering()
        self.rules: list[Rule] = []
        self.masks: list[tuple[int, int]] = []
        self.view = FrameView()

    def add(self, choices: Choices) -> None:
        """A rule for one of eight queue pairs."""
        kind, queue_pair = choices.pick(KINDS), choices.below(8)
        value = mask = b""
        if kind == FLOW_NORMAL:
            at, length = choices.below(KEY_BYTES), choices.below(7)
            mask = (bytes(at) + b"\xff" * length).ljust(KEY_BYTES, b"\0")[:KEY_BYTES]
            frame = bytearray(b"".join((*self.macs(choices), b"\x08\x00", IPV4)))
            value = frame_key(memoryview(frame), 0, len(frame))
            if choices.once_in(4):
                value = choices.block(KEY_BYTES)
        target: Any = queue_pair
        rule = Rule(target, 1, kind, choices.below(3), value, mask)
        place = rule.priority, rule.mask
        try:
            self.steering.add(rule)
        except OSError:
            assert kind == FLOW_NORMAL
            assert place not in self.masks
            assert len(self.masks) == MOST_MASKS
            return
        self.rules.append(rule)
        if kind == FLOW_NORMAL and place not in self.masks:
            self.masks.append(place)

    def remove(self, choices: Choices) -> None:
        """One of the rules ends."""
        if not self.rules:
            return
        rule = self.rules.pop(choices.below(len(self.rules)))
        self.steering.remove(rule)
        left = [(each.priority, each.mask) for each in self.rules if each.kind == FLOW_NORMAL]
        self.masks = [place for place in self.masks if place in left]

    def macs(self, choices: Choices) -> tuple[bytes, bytes]:
        return choices.pick(MACS), choices.pick(MACS)

    def datagram(self, choices: Choices) -> None:
        """One comes; the bytes around it are another one's, and change nothing."""
        data = choices.run()
        if not choices.once_in(3):
            body = choices.pick((IPV4, IPV6, data))
            data = b"".join((HEADER, *self.macs(choices), choices.pick(TYPES), body))
            data = data[: len(data) - choices.below(32)]
        places = [bytes([fill]) * 3 + data + bytes([fill]) * 80 for fill in (0, 255)]
        found = [self.view.open(memoryview(bytearray(each)), 3, len(data), VNI) for each in places]
        assert found[0] == found[1]
        is_frame = len(data) >= 22 and data[0] & 8 and data[4:7] == HEADER[4:7]
        assert (found[0] == 0) == bool(is_frame)
        if not is_frame:
            return
        assert (self.view.payload, self.view.payload_bytes) == (11, len(data) - 8)
        keys = {frame_key(memoryview(bytearray(each)), 11, len(data) - 8) for each in places}
        (key,) = keys
        assert len(key) == KEY_BYTES
        assert key[:12] == data[8:20]
        received = self.steering.receivers(key)
        assert self.steering.receivers(key) == received
        assert len(set(received)) == len(received)
        assert set(received) == self.expected(key)
        fields = key[3] ^ key[-1] or 0xFF
        assert Scaling((), fields, HASH_KEY).hash(key) == hash_of(key, fields)

    def expected(self, key: bytes) -> set[Any]:
        """Who receives a frame with this key, by a look at every rule."""
        number = int.from_bytes(key, "big")
        normal = [each for each in self.rules
                  if each.kind == FLOW_NORMAL and (number ^ each.value) & each.mask == 0]  # fmt: skip
        kinds = {FLOW_SNIFFER}
        taken: list[Rule] = []
        if normal:
            places = [(each.priority, each.mask) for each in normal]
            first = min(places, key=lambda place: (place[0], self.masks.index(place)))
            taken = [each for each, place in zip(normal, places, strict=True) if place == first]
        else:
            kinds |= {FLOW_ALL_DEFAULT, FLOW_MC_DEFAULT} if key[0] & 1 else {FLOW_ALL_DEFAULT}
        return {each.queue_pair for each in [*taken, *(rule for rule in self.rules if rule.kind in kinds)]}


def one_input(data: bytes) -> None:
    """As the module says."""
    choices, world = Choices(data), World()
    for _ in range(STEPS):
        if not choices.more:
            break
        choices.pick((world.add, world.add, world.remove, world.datagram, world.datagram))(choices)
    stations: dict[bytes, int] = {}
    for rule in world.rules:
        if rule.station:
            stations[rule.station] = stations.get(rule.station, 0) + 1
    assert world.steering.stations == stations
    assert len(world.steering) == len(world.rules)
    with contextlib.suppress(IndexError):
        while world.rules:
            world.steering.remove(world.rules.pop())
    assert not world.steering.stations


def seeds() -> Iterator[bytes]:
    """Rules of each kind, and frames of each type for them."""
    for kind in range(len(KINDS)):
        for type_number in range(len(TYPES)):
            rule = bytes([0, kind, 1, 0, 6, 1, 1, 0, 0])
            yield rule * 2 + bytes([3, 0, 0, type_number % 2, 1, 1, type_number, 0])
    yield bytes([3, 22]) + HEADER + bytes(14) + bytes([2])
