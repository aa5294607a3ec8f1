"""ICRC: the standard's sample packet, scapy's values, and what the CRC must and must not cover."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_samples import FRAMINGS, fields_of, packets, routes, sample_route

from softhca.machine.primitives import address_of
from softhca.wire import icrc
from softhca.wire.bth import Bth
from softhca.wire.packet import Packet, assemble
from softhca.wire.route import Route

# IBTA vol. 1, 7.8.3: a local packet, its ICRC in the last four bytes
SAMPLE_LRH = bytes.fromhex("7012375c000e17d2")
SAMPLE = bytes.fromhex(
    "0a20248700 87b1b3000dec2a01710a1c015d400238f27a050000000ebb884d85fd5cfba4728bc0690ed40000 9625b75a"
)


def test_the_standards_sample_packet() -> None:
    assert icrc.of_packet(0, SAMPLE_LRH, SAMPLE[:-4]).to_bytes(4, "little") == SAMPLE[-4:]
    data = bytearray(SAMPLE)
    route = sample_route("native")
    assert icrc.compute(route, address_of(data), len(data) - 4) == 0x5AB72596
    assert icrc.syndrome(route, address_of(data), len(data)) == 0
    assert data == SAMPLE


@given(packets())
def test_both_ways_of_computing_agree(packet: Packet) -> None:
    transport = bytearray(packet.transport.encode())
    route = route_of(packet)
    before = bytes(transport)
    assert icrc.compute(route, address_of(transport), len(transport) - 4) == packet.transport.icrc
    assert icrc.syndrome(route, address_of(transport), len(transport)) == 0
    assert transport == before


def route_of(packet: Packet) -> Route:
    """The route that a packet travelled, from its own headers."""
    head, *rest = packet.network
    if packet.framing == 0:
        ends = (rest[0].sgid, rest[0].dgid) if rest else (bytes(16), bytes(16))
        return Route(0, *ends, slid=head.slid, dlid=head.dlid, sl=head.sl, has_grh=bool(rest))
    prefix = bytes(10) + b"\xff\xff" if packet.framing == 1 else b""
    identification = head.identification if packet.framing == 1 else 0
    ends = (prefix + head.source, prefix + head.destination)
    return Route(packet.framing, *ends, source_port=rest[0].source_port, identification=identification)


@given(packets(), st.data())
def test_any_damage_to_a_covered_bit_shows_as_its_syndrome(packet: Packet, data: st.DataObject) -> None:
    transport = bytearray(packet.transport.encode())
    bit = data.draw(st.integers(0, 8 * len(transport) - 1).filter(lambda bit: bit // 8 != 4))
    transport[bit // 8] ^= 1 << bit % 8
    assert icrc.syndrome(route_of(packet), address_of(transport), len(transport)) != 0


@given(packets(), st.integers(0, 255))
def test_the_congestion_byte_is_not_covered(packet: Packet, value: int) -> None:
    transport = bytearray(packet.transport.encode())
    transport[4] = value
    assert icrc.syndrome(route_of(packet), address_of(transport), len(transport)) == 0


def test_the_syndrome_is_the_difference_of_the_two_icrcs() -> None:
    data = bytearray(SAMPLE)
    data[-4:] = (0x5AB72596 ^ 0x12345678).to_bytes(4, "little")
    assert icrc.syndrome(sample_route("native"), address_of(data), len(data)) == 0x12345678


@pytest.mark.parametrize("length", range(16))
def test_a_packet_too_short_for_its_crc_is_never_good(length: int) -> None:
    assert icrc.syndrome(sample_route(), address_of(bytearray(16)), length) == 0xFFFFFFFF


def test_less_than_a_bth_is_refused() -> None:
    data = bytearray(12)
    with pytest.raises(ValueError, match="BTH"):
        icrc.compute(sample_route(), address_of(data), 11)
    assert icrc.compute(sample_route(), address_of(data), 12) == zlib.crc32(
        bytes(4) + b"\xff" + bytes(7), sample_route().seed(16)
    )


@pytest.mark.parametrize("kind", FRAMINGS)
def test_packets_at_odd_addresses_have_the_same_icrc(kind: str) -> None:
    route = sample_route(kind)
    padded = bytearray(8 + len(SAMPLE))
    values = set()
    for shift in range(8):
        padded[shift : shift + len(SAMPLE)] = SAMPLE
        values.add(icrc.syndrome(route, address_of(padded) + shift, len(SAMPLE)))
    assert len(values) == 1


@settings(deadline=None)
@pytest.mark.parametrize("kind", ["ipv4", "ipv6"])
@given(data=st.data())
def test_scapy_builds_the_same_bytes(kind: str, data: st.DataObject) -> None:
    inet, inet6, roce, raw = _scapy()
    route = data.draw(routes(kind))
    bth = data.draw(fields_of(Bth))
    payload = data.draw(st.binary(max_size=60))
    packet = assemble(route, bth, (), payload)
    ip, udp = packet.network
    if kind == "ipv4":
        layers = inet.IP(
            tos=ip.traffic_class,
            id=ip.identification,
            flags="DF",
            ttl=ip.hop_limit,
            src=packet.source,
            dst=packet.destination,
        )
    else:
        layers = inet6.IPv6(
            tc=ip.traffic_class,
            fl=ip.flow_label,
            hlim=ip.hop_limit,
            src=packet.source,
            dst=packet.destination,
        )
    layers /= inet.UDP(sport=udp.source_port, dport=4791, chksum=0)
    layers /= roce.BTH(
        opcode=bth.opcode,
        solicited=bth.solicited,
        migreq=bth.migreq,
        padcount=-len(payload) % 4,
        version=bth.tver,
        pkey=bth.pkey,
        fecn=bth.fecn,
        becn=bth.becn,
        resv6=bth.reserved6,
        dqpn=bth.dest_qp,
        ackreq=bth.ack_request,
        resv7=bth.reserved7,
        psn=bth.psn,
    )
    layers /= raw(payload + bytes(-len(payload) % 4))
    assert bytes(layers) == packet.encode()


def _scapy():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports
        from scapy.contrib import roce
        from scapy.layers import inet, inet6
        from scapy.packet import Raw
    return inet, inet6, roce, Raw
