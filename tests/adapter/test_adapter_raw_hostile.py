"""What a native port drops of raw packets, and why: one wrong field at a time, each with a right VCRC."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_network import lid
from raw_network import ETHERTYPE, IPV6_TYPE, MTU, UNTOUCHED, RawNetwork, ipv6, raw_end, sealed

from softhca.adapter.config import NATIVE
from softhca.wire.burst import Arrival
from softhca.wire.framing import ROCE_V4
from softhca.wire.raw import ALL_RAW, RAW_IPV6
from softhca.wire.raw_packet import assemble_raw
from suite_plan import random_inputs

SERVICES = {"ipv6": RAW_IPV6, "ipv6 by type": IPV6_TYPE, "ethertype": ETHERTYPE}
OFFSETS = {RAW_IPV6: 8, IPV6_TYPE: 12, ETHERTYPE: 12}


def packet(service, payload=None, **fields):
    """A raw packet for node 2, with other LRH fields: ``dlid=5`` and the like."""
    good = assemble_raw(lid(1), lid(2), service, ipv6(12) if payload is None else payload)
    return replace(good, lrh=replace(good.lrh, **fields)).with_vcrc().encode()


def fields(**wrong):
    return lambda service: packet(service, **wrong)


def put(offset, byte):
    """One byte of the payload, with a right VCRC."""

    def make(service):
        data = packet(service)[:-2]
        at = OFFSETS[service] + offset
        return sealed(data[:at] + bytes([byte]) + data[at + 1 :])

    return make


def words(count):
    """The packet's first ``count`` words, in an LRH that says so."""
    return lambda service: sealed(packet(service, packet_length_words=count)[: 4 * count])


IPV6_ONLY = ("ipv6", "ipv6 by type")
# name → (reason, of which services, the packet)
HOSTILE = {
    "vcrc": ("vcrc", SERVICES, lambda s: packet(s)[:-1] + bytes([packet(s)[-1] ^ 0x80])),
    "vcrc low": ("vcrc", SERVICES, lambda s: packet(s)[:-2] + bytes([packet(s)[-2] ^ 1]) + packet(s)[-1:]),
    "a bit of the payload": ("vcrc", SERVICES, lambda s: packet(s)[:-5] + b"!" + packet(s)[-4:]),
    "nothing but an lrh": ("truncated", SERVICES, words(2)),
    "an rwh and nothing": ("truncated", SERVICES, words(3)),
    "four words": ("truncated", SERVICES, words(4)),
    "no whole ipv6 header": ("truncated", ("ipv6",), words(11)),
    "no whole ipv6 header by type": ("truncated", ("ipv6 by type",), words(12)),
    "ipv6 version 4": ("link_header", IPV6_ONLY, put(0, 0x40)),
    "ipv6 version 7": ("link_header", IPV6_ONLY, put(0, 0x70)),
    "iba transport behind ipv6 (C9-208)": ("raw_transport", IPV6_ONLY, put(6, 0x1B)),
    "lver": ("link_header", SERVICES, fields(lver=1)),
    "packet length": ("length", SERVICES, fields(packet_length_words=99)),
    "cut": ("length", SERVICES, lambda s: sealed(packet(s)[:-6])),
    "longer": ("length", SERVICES, lambda s: sealed(packet(s)[:-2] + bytes(4))),
    "not whole words": ("length", SERVICES, lambda s: sealed(packet(s)[:-3])),
    "beyond the mtu and 124": ("length", SERVICES, lambda s: packet(s, ipv6(MTU + 77 + 4 * (s == RAW_IPV6)))),
    "dlid": ("destination", SERVICES, fields(dlid=lid(3))),
    "dlid 0": ("destination", SERVICES, fields(dlid=0)),
    "dlid multicast": ("destination", SERVICES, fields(dlid=0xC000)),
    "dlid permissive": ("destination", SERVICES, fields(dlid=0xFFFF)),
    "vl 15": ("lane", SERVICES, fields(vl=15)),
    "slid 0": ("source", SERVICES, fields(slid=0)),
    "slid multicast": ("source", SERVICES, fields(slid=0xC000)),
    "slid permissive": ("source", SERVICES, fields(slid=0xFFFF)),
    "bth said, ipv6 there": ("icrc", ("ipv6",), fields(lnh=2)),
    "grh said, ipv6 there": ("truncated", ("ipv6",), fields(lnh=3)),
}
CASES = [(name, kind) for name, (_, kinds, _) in HOSTILE.items() for kind in kinds]


def drops(end):
    figures = end.device.query_counters()
    return {name[6:]: value for name, value in figures.items() if name.startswith("drops_") and value}


@pytest.fixture
def end():
    """An end with room for one raw datagram of any kind."""
    world = RawNetwork()
    end, qp = raw_end(world, 2, ALL_RAW)
    qp.post_recv(1, [end.sge(0, 2000)])
    yield end
    world.close()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_one_wrong_field_is_dropped_for_its_reason_and_the_receive_stays(end, name, kind):
    reason, _, make = HOSTILE[name]
    end.network.inject(end.node, make(SERVICES[kind]))
    assert drops(end) == {reason: 1}
    assert end.cq.poll(1) == []
    assert end.memory == UNTOUCHED * len(end.memory)
    end.network.inject(end.node, packet(SERVICES[kind]))
    assert [(c.status, c.byte_len, c.src_qp) for c in end.cq.poll(2)] == [(0, 52, SERVICES[kind])]
    assert end.memory[:52] == ipv6(12)
    assert drops(end) == {reason: 1}


@pytest.mark.parametrize(
    "make",
    [
        fields(vl=7),
        fields(sl=9),
        fields(reserved2=3),
        fields(reserved5=31),
        fields(slid=0xBFFF),
        put(4, 0xFF),  # the IPv6 packet's own length is its reader's business
        put(0, 0x6F),
    ],
)
@pytest.mark.parametrize("kind", SERVICES)
def test_other_fields_are_no_reason_to_drop(end, kind, make):
    end.network.inject(end.node, make(SERVICES[kind]))
    assert [c.status for c in end.cq.poll(1)] == [0]
    assert drops(end) == {}


def test_the_reserved_bits_of_an_rwh_are_not_looked_at(end):
    data = packet(ETHERTYPE)
    end.network.inject(end.node, sealed(data[:8] + b"\xff\xff" + data[10:-2]))
    assert [c.src_qp for c in end.cq.poll(1)] == [ETHERTYPE]


def test_a_run_of_packets_is_taken_apart(end):
    one, other = packet(ETHERTYPE, b"a" * 20), packet(ETHERTYPE, b"b" * 12)
    end.network.inject(end.node, one + other, stride=len(one))
    assert [(c.status, c.byte_len) for c in end.cq.poll(2)] == [(0, 20)]
    assert drops(end) == {}
    assert end.device.query_counters()["packets_received"] == 2


def test_a_roce_port_takes_no_native_packet():
    world = RawNetwork()
    end, _ = raw_end(world, 2, ALL_RAW)
    arrival = Arrival()
    data = packet(RAW_IPV6)
    arrival.buffer[: len(data)] = data
    arrival.length = arrival.stride = len(data)
    arrival.framing = ROCE_V4
    arrival.source = arrival.destination = bytes(10) + b"\xff\xff\x0a\0\0\1"
    end.node.adapter.receive(1, arrival, world.now)
    assert end.node.adapter.config.framing == NATIVE
    assert drops(end) == {"source": 1}
    world.close()


def test_the_observer_hears_of_a_drop_without_a_queue_pair(end):
    heard = []
    end.node.adapter.observer = lambda *told: heard.append(told)
    end.network.inject(end.node, packet(RAW_IPV6, dlid=lid(3)))
    end.network.inject(end.node, packet(ETHERTYPE, bytes(1000)))
    end.network.inject(end.node, packet(ETHERTYPE, b"no receive is left"))
    assert [(event, psn, reason) for event, _, psn, _, reason in heard] == [
        ("packet_dropped", -1, "destination"),
        ("message_dropped", -1, "no_receive"),
    ]
    assert heard[0][1] == -1


@settings(max_examples=random_inputs(300), deadline=None)
@given(st.data())
def test_no_bytes_make_the_engine_raise_or_write_outside_a_receive(data):
    world = RawNetwork()
    end, qp = raw_end(world, 2, ALL_RAW)
    qp.post_recv(1, [end.sge(100, 60)])
    raw = bytearray(packet(data.draw(st.sampled_from(list(SERVICES.values())))))[:-2]
    for _ in range(data.draw(st.integers(0, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    if data.draw(st.booleans()) and len(raw) >= 8:
        raw[4:6] = (len(raw) // 4).to_bytes(2, "big")
    world.inject(end.node, sealed(bytes(raw)))
    done = end.cq.poll(1)
    figures = end.device.query_counters()
    assert figures["packets_received"] + sum(drops(end).values()) - drops(end).get("no_receive", 0) == 1
    assert end.memory[:100] + end.memory[160:] == UNTOUCHED * (len(end.memory) - 60)
    if not done:
        assert end.memory[100:160] == UNTOUCHED * 60
    world.close()
