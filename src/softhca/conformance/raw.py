"""Raw datagrams (IBTA vol. 1, 9.8.4): on native links, which alone carry them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from softhca.adapter.config import NATIVE
from softhca.adapter.profile import TCA, Profile
from softhca.conformance.registry import ConformanceError, ensure, expect, holds
from softhca.conformance.rig import ON_NATIVE, PMTU_BYTES, UNTOUCHED, Rig, Setting, Station
from softhca.driver.device import QpHandle
from softhca.driver.errors import DriverError
from softhca.queues.control_fields import QPT_RAW_PACKET
from softhca.queues.layout import WC_LOC_LEN_ERR, WC_LOC_QP_OP_ERR, WC_SUCCESS
from softhca.testing.ends import SEND
from softhca.transport.states import INIT, RTR, RTS
from softhca.wire.grh import NEXT_HEADER_IBA
from softhca.wire.ip import ETHERTYPE_IPV6
from softhca.wire.lrh import LNH_IPV6, LNH_RAW
from softhca.wire.raw import ALL_RAW, RAW_IPV6
from softhca.wire.raw_packet import RawPacket, assemble_raw, decode_raw

ETHERTYPE = 0x88B5  # for local experiments
NO_NEXT_HEADER = 59
LONGEST_BYTES = PMTU_BYTES + 124  # of a packet, LRH … the VCRC's begin
LRH_BYTES, RWH_BYTES = 8, 4
SETTINGS = (ON_NATIVE, Setting("tca on native", NATIVE, {"profile": Profile.of(TCA)}))


def _ipv6(length: int, next_header: int = NO_NEXT_HEADER) -> bytes:
    """An IPv6 packet with ``length`` bytes behind its header."""
    front = bytes([0x60, 0, 0, 0]) + length.to_bytes(2, "big") + bytes([next_header, 64])
    return front + bytes(15) + b"\1" + bytes(15) + b"\2" + bytes(1 + n % 251 for n in range(length))


class _Ends:
    """Two stations: the left one sends, the right one receives what its queue pair attaches to."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.left, self.right = rig.station(), rig.station()
        self.sender, self.receiver = self.qp(self.left), self.qp(self.right)
        vector = {"dlid": self.right.lid, "is_global": 0, "port_num": 1}
        self.handle = self.left.device.create_ah(self.left.pd, vector)

    def qp(self, station: Station, *services: int) -> QpHandle:
        """A raw queue pair in RTS."""
        qp = station.qp(QPT_RAW_PACKET)
        for state in (INIT, RTR, RTS):
            qp.modify({"qp_state": state, **({"port_num": 1} if state == INIT else {})})
        for service in services:
            station.device.attach_raw(qp.number, service)
        return qp

    def attach(self, service: int, qp: QpHandle | None = None) -> None:
        """Let the receiver, or another of the right station, receive a service."""
        self.right.device.attach_raw((qp or self.receiver).number, service)

    def send(self, data: bytes, service: int) -> int:
        """Send a datagram; the status of its completion."""
        self.left.memory[: len(data)] = data
        element = self.left.sge(0, len(data))
        self.sender.post_send(SEND, 2, 0, 1, 0, 0, 0, 0, self.handle, service, 0, [element], None)
        self.sender.ring()
        (done,) = self.left.completions()
        if done.status != WC_SUCCESS:
            self.sender.modify({"qp_state": RTS})
        return done.status

    def sent(self) -> list[RawPacket]:
        """What the link carried; ConformanceError for what is no sound raw packet."""
        found = []
        for sent in self.rig.log:
            packet = decode_raw(sent.data)
            if packet is None or not packet.vcrc_ok:
                raise ConformanceError(f"no sound raw packet was sent: {sent.data.hex()}")
            found.append(packet)
        return found

    def give(self, packet: RawPacket) -> None:
        """A packet made by hand, for the right station."""
        self.rig.give(self.right, packet.encode(), None)

    def packet(self, service: int, payload: bytes) -> RawPacket:
        """One from the left station to the right one."""
        return assemble_raw(self.left.lid, self.right.lid, service, payload)


@contextmanager
def _ends(setting: Setting) -> Iterator[_Ends]:
    with setting.rig() as rig:
        yield _Ends(rig)


@holds("C9-208", settings=SETTINGS)
def ipv6_before_iba_transport_is_not_sent(setting: Setting) -> None:
    """In both encodings such a request ends in error and nothing is sent; each next header around it goes."""
    with _ends(setting) as ends:
        for service in (RAW_IPV6, ETHERTYPE_IPV6):
            status = ends.send(_ipv6(8, NEXT_HEADER_IBA), service)
            expect(f"status of service {service:#x}", status, WC_LOC_QP_OP_ERR)
            expect("packets", len(ends.sent()), 0)
        for next_header in (0, 6, 17, NEXT_HEADER_IBA - 1, NEXT_HEADER_IBA + 1, NO_NEXT_HEADER, 255):
            for service in (RAW_IPV6, ETHERTYPE_IPV6):
                expect(f"status of {next_header}", ends.send(_ipv6(8, next_header), service), WC_SUCCESS)
        expect("packets", len(ends.sent()), 14)


@holds("C9-208", settings=SETTINGS)
def ipv6_before_iba_transport_is_dropped(setting: Setting) -> None:
    """In both encodings such a packet is dropped and counted, takes no receive and touches nothing; the next
    one is received."""
    with _ends(setting) as ends:
        ends.attach(ALL_RAW)
        for number, service in enumerate((RAW_IPV6, ETHERTYPE_IPV6), 1):
            ends.receiver.post_recv(number, [ends.right.sge(0, 400)])
            ends.right.memory[:] = bytes([UNTOUCHED]) * len(ends.right.memory)
            ends.give(ends.packet(service, _ipv6(8, NEXT_HEADER_IBA)))
            expect("completions", len(ends.right.completions()), 0)
            expect("drops", ends.right.drops(), {"raw_transport": number})
            expect("bytes written", ends.right.memory.count(UNTOUCHED), len(ends.right.memory))
            ends.give(ends.packet(service, _ipv6(8)))
            seen = [(done.wr_id, done.status, done.byte_len) for done in ends.right.completions()]
            expect("the next one", seen, [(number, WC_SUCCESS, 48)])
            ends.right.memory[:] = bytes([UNTOUCHED]) * len(ends.right.memory)
        expect("answers", len(ends.sent()), 0)


@holds("o9-145", settings=SETTINGS)
def a_payload_is_padded_to_whole_words(setting: Setting) -> None:
    """Every length modulo 4 in each encoding: the packet is the payload and zeros up to the next word, as its
    LRH says; all of it is received."""
    with _ends(setting) as ends:
        ends.attach(ALL_RAW)
        for service, front in ((RAW_IPV6, 8), (ETHERTYPE_IPV6, 12), (ETHERTYPE, 12)):
            for length in range(10, 18):
                ends.receiver.post_recv(length, [ends.right.sge(0, 400)])
                data = _ipv6(length)
                expect("status", ends.send(data, service), WC_SUCCESS)
                padded = data + bytes(-len(data) % 4)
                packet = ends.sent()[-1]
                expect("next header", packet.lrh.lnh, LNH_IPV6 if service == RAW_IPV6 else LNH_RAW)
                expect("payload", packet.payload, padded)
                expect("PktLen", packet.lrh.packet_length_words, (front + len(padded)) // 4)
                (done,) = ends.right.completions()
                expect("received", (done.status, done.byte_len, done.src_qp), (0, len(padded), service))
                expect("bytes received", ends.right.memory[: len(padded)], padded)


@holds("o9-146", settings=SETTINGS)
def who_receives_a_service_is_said_by_programs(setting: Setting) -> None:
    """A service that nobody has is dropped; it goes to whom it is attached to, both encodings of IPv6 as one,
    and to the queue pair for all others otherwise."""
    with _ends(setting) as ends:
        services = (RAW_IPV6, ETHERTYPE_IPV6, ETHERTYPE)
        for number, service in enumerate(services, 1):
            ends.give(ends.packet(service, _ipv6(8)))
            expect("drops", ends.right.drops(), {"raw": number})
        rest = ends.qp(ends.right, ALL_RAW)
        for attached, owners in (
            (None, (rest, rest, rest)),
            (ETHERTYPE_IPV6, (ends.receiver, ends.receiver, rest)),
            (ETHERTYPE, (ends.receiver, ends.receiver, ends.receiver)),
        ):
            if attached is not None:
                ends.attach(attached)
            for service, owner in zip(services, owners, strict=True):
                owner.post_recv(9, [ends.right.sge(0, 400)])
                ends.give(ends.packet(service, _ipv6(8)))
                seen = [(done.qp_num, done.src_qp) for done in ends.right.completions()]
                expect(f"who received {service:#x}", seen, [(owner.number, service)])


@holds("o9-147", settings=SETTINGS)
def several_queue_pairs_are_raw(setting: Setting) -> None:
    """Eight queue pairs of one adapter receive a service each, and nobody else may; all of them send."""
    with _ends(setting) as ends:
        owners = {0x9000 + number: ends.qp(ends.right, 0x9000 + number) for number in range(8)}
        for service, owner in owners.items():
            try:
                ends.attach(service)
            except DriverError:
                pass
            else:
                raise ConformanceError(f"service {service:#x} was given to two queue pairs")
            owner.post_recv(service, [ends.right.sge(0, 400)])
            expect("status", ends.send(b"to one of eight", service), WC_SUCCESS)
            seen = [(done.qp_num, done.wr_id) for done in ends.right.completions()]
            expect("who received", seen, [(owner.number, service)])
        back = {"dlid": ends.left.lid, "is_global": 0, "port_num": 1}
        handle = ends.right.device.create_ah(ends.right.pd, back)
        for owner in owners.values():
            owner.post_send(SEND, 2, 0, 7, 0, 0, 0, 0, handle, ETHERTYPE, 0, [ends.right.sge(0, 16)], None)
            owner.ring()
        expect("sent by all", len([done for done in ends.right.completions() if done.status == 0]), 8)


@holds("o9-148", settings=SETTINGS)
def a_payload_may_exceed_the_mtu(setting: Setting) -> None:
    """Up to the longest packet, the MTU and 124 bytes, a payload is sent and received; four bytes more end in
    error, and arrive nowhere."""
    with _ends(setting) as ends:
        ends.attach(ALL_RAW)
        for service, front in (
            (RAW_IPV6, LRH_BYTES),
            (ETHERTYPE_IPV6, LRH_BYTES + RWH_BYTES),
            (ETHERTYPE, LRH_BYTES + RWH_BYTES),
        ):
            longest = LONGEST_BYTES - front
            ensure(longest > PMTU_BYTES, "no payload would exceed the MTU")
            ends.receiver.post_recv(1, [ends.right.sge(0, 1000)])
            expect("status of the longest", ends.send(_ipv6(longest - 40), service), WC_SUCCESS)
            expect("packet", 4 * ends.sent()[-1].lrh.packet_length_words, LONGEST_BYTES)
            seen = [(done.status, done.byte_len) for done in ends.right.completions()]
            expect("received", seen, [(WC_SUCCESS, longest)])
            expect("bytes received", ends.right.memory[:longest], _ipv6(longest - 40))
            packets = len(ends.sent())
            expect("status of a longer one", ends.send(_ipv6(longest - 39), service), WC_LOC_LEN_ERR)
            expect("packets", len(ends.sent()), packets)
            dropped = ends.right.drops().get("length", 0)
            ends.give(ends.packet(service, _ipv6(longest - 36)))
            expect("drops", ends.right.drops(), {"length": dropped + 1})
