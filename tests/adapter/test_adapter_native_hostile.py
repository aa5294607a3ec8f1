"""What a native port drops, and why: one wrong field at a time, each with right CRCs unless they are it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_network import NativeNetwork, changed, gid, lid, native_pair, path_to, resealed

from softhca.adapter.config import native_gid
from softhca.driver import services
from softhca.testing.ends import RC, UC, WRITE, End, post
from softhca.wire.burst import Arrival
from softhca.wire.framing import ROCE_V4
from suite_plan import random_inputs

BYTES = b"do not write this, whatever the packet that carries it looks like"[:61]


def drops(end):
    counters = end.device.query_counters()
    return {
        name.removeprefix("transport_").removeprefix("drops_"): value
        for name, value in counters.items()
        if "drops_" in name and value
    }


def captured(kind, grh, **options):
    """A pair, and the packet of a write to the right end that was taken off the wire."""
    world, left, qp, right, right_qp = native_pair(kind, grh, **options)
    left.memory[: len(BYTES)] = BYTES
    taken = []
    world.tamper = lambda sent: taken.append(sent.data)
    post(qp, WRITE, [left.sge(0, len(BYTES))], va=right.va, rkey=right.key.rkey)
    world.run(lambda: bool(taken))
    return world, right, right_qp, taken[0]


def flipped(offset, bit=1):
    """One bit of the packet, with a right VCRC (which every link makes anew) but the old ICRC."""
    return lambda data: resealed(data[:offset] + bytes([data[offset] ^ bit]) + data[offset + 1 : -2])


def fields(**wrong):
    return lambda data: changed(data, **wrong)


def changed_lnh(data, lnh):
    """Another next header in the same bytes."""
    return resealed(data[:1] + bytes([(data[1] & ~3) | lnh]) + data[2:-2])


# name → (reason, with GRH or without or both (None), what is done to the packet)
HOSTILE = {
    "vcrc": ("vcrc", None, lambda d: d[:-1] + bytes([d[-1] ^ 0x80])),
    "vcrc low": ("vcrc", None, lambda d: d[:-2] + bytes([d[-2] ^ 1]) + d[-1:]),
    "a bit without its vcrc": ("vcrc", None, lambda d: d[:40] + bytes([d[40] ^ 4]) + d[41:]),
    "nothing but a vcrc": ("truncated", None, lambda d: resealed(b"")),
    "no whole lrh": ("truncated", None, lambda d: resealed(d[:7])),
    "nothing but an lrh": ("length", None, lambda d: resealed(d[:8])),
    "an lrh alone that says so": ("truncated", None, lambda d: resealed(d[:5] + b"\2" + d[6:8])),
    "no whole bth": ("truncated", False, lambda d: resealed(d[:4] + b"\0\5" + d[6:20])),
    "no whole icrc": ("truncated", True, lambda d: resealed(d[:4] + b"\0\x0f" + d[6:60])),
    "lver": ("link_header", None, fields(lrh_lver=1)),
    "lver high": ("link_header", None, fields(lrh_lver=8)),
    "packet length": ("length", None, lambda d: resealed(d[:5] + bytes([d[5] + 1]) + d[6:-2])),
    "packet length high": ("length", None, lambda d: resealed(d[:4] + b"\4" + d[5:-2])),
    "cut": ("length", None, lambda d: resealed(d[:-10])),
    "longer": ("length", None, lambda d: resealed(d[:-2] + bytes(4))),
    "lnh raw": ("raw", None, fields(lrh_lnh=0)),
    "lnh ipv6 without ipv6": ("link_header", False, fields(lrh_lnh=1)),
    "lnh ipv6 before iba transport": ("raw_transport", True, fields(lrh_lnh=1)),
    "lnh without grh": ("icrc", True, lambda d: changed_lnh(d, 2)),
    "lnh with a grh that is none": ("link_header", False, lambda d: changed_lnh(d, 3)),
    "dlid": ("destination", None, fields(lrh_dlid=lid(3))),
    "dlid 0": ("destination", None, fields(lrh_dlid=0)),
    "dlid multicast": ("destination", None, fields(lrh_dlid=0xC000)),
    "dlid multicast last": ("destination", None, fields(lrh_dlid=0xFFFE)),
    "dlid permissive": ("destination", None, fields(lrh_dlid=0xFFFF)),
    "vl 15": ("lane", None, fields(lrh_vl=15)),
    "qp 0 on a data lane": ("lane", None, fields(bth_dest_qp=0)),
    "qp 0 by permissive lid on a data lane": ("lane", None, fields(bth_dest_qp=0, lrh_dlid=0xFFFF)),
    "qp 0 with a grh": ("link_header", True, fields(bth_dest_qp=0, lrh_vl=15)),
    "qp 0": ("service", False, fields(bth_dest_qp=0, lrh_vl=15)),
    "qp 0 by permissive lid": ("service", False, fields(bth_dest_qp=0, lrh_vl=15, lrh_dlid=0xFFFF)),
    "qp 0 from nobody": ("service", False, fields(bth_dest_qp=0, lrh_vl=15, lrh_slid=0xFFFF)),
    "slid": ("source", None, fields(lrh_slid=lid(3))),
    "slid 0": ("source", None, fields(lrh_slid=0)),
    "slid multicast": ("source", None, fields(lrh_slid=0xC000)),
    "ip version": ("link_header", True, fields(grh_version=4)),
    "next header": ("link_header", True, fields(grh_next_header=0x1A)),
    "payload length": ("link_header", True, fields(grh_payload_length_bytes=0x30)),
    "payload length longer": ("link_header", True, fields(grh_payload_length_bytes=0x0160)),
    "sgid": ("source", True, fields(grh_sgid=gid(3))),
    "sgid prefix": ("source", True, fields(grh_sgid=native_gid(int.from_bytes(gid(1)[8:], "big"), 5))),
    "dgid": ("destination", True, fields(grh_dgid=gid(3))),
    "dgid prefix": ("destination", True, fields(grh_dgid=native_gid(int.from_bytes(gid(2)[8:], "big"), 5))),
    "icrc": ("icrc", None, flipped(-3, 0x80)),
    "icrc low": ("icrc", None, flipped(-6)),
    "icrc second": ("icrc", None, flipped(-5, 0x10)),
    "icrc third": ("icrc", None, flipped(-4, 0x10)),
    "sl, which the icrc covers": ("icrc", False, flipped(1, 0x10)),
    "reserved bits of the lrh": ("icrc", False, flipped(4, 0x80)),
    "payload": ("icrc", None, flipped(-12)),
    "last pad byte": ("icrc", None, flipped(-7)),
    "opcode": ("opcode", None, fields(bth_opcode=0x1F)),
    "another service": ("service", None, fields(bth_opcode=0x64)),
    "tver": ("version", None, fields(bth_tver=1)),
    "pkey": ("pkey", None, fields(bth_pkey=0x8001)),
    "unknown queue pair": ("unknown_qp", None, fields(bth_dest_qp=0x123456)),
    "multicast queue pair": ("destination", None, fields(bth_dest_qp=0xFFFFFF)),
    "multicast queue pair of a group": (
        "service",
        True,
        fields(bth_dest_qp=0xFFFFFF, lrh_dlid=0xC001, grh_dgid=b"\xff\x12" + bytes(14)),
    ),
    "group without a grh": ("link_header", False, fields(bth_dest_qp=0xFFFFFF, lrh_dlid=0xC001)),
}


@pytest.mark.parametrize("kind", [RC, UC])
@pytest.mark.parametrize("grh", [False, True], ids=["local", "global"])
def test_the_packet_that_was_taken_is_good_as_it_is(kind, grh):
    world, right, _, packet = captured(kind, grh)
    world.inject(right.node, packet)
    assert right.memory[: len(BYTES)] == BYTES
    assert drops(right) == {}
    world.close()


CASES = [
    (name, grh) for name, (_, only, _) in HOSTILE.items() for grh in (False, True) if only in (None, grh)
]


@pytest.mark.parametrize(("name", "grh"), CASES)
def test_one_wrong_field_is_dropped_for_its_reason_and_writes_nothing(name, grh):
    world, right, _, packet = captured(RC, grh)
    reason, _, damage = HOSTILE[name]
    world.inject(right.node, damage(packet))
    assert drops(right) == {reason: 1}
    assert not any(right.memory)
    world.inject(right.node, packet)
    assert right.memory[: len(BYTES)] == BYTES
    world.close()


# fields that links and routers change are no reason to drop
@pytest.mark.parametrize(
    ("offset", "bit", "grh"),
    [
        (0, 0x10, False),
        (0, 0x70, True),
        (9, 0xFF, True),
        (10, 1, True),
        (11, 1, True),
        (15, 3, True),
        (8, 0x0F, True),
        (1, 0x70, True),
    ],
)
def test_what_the_icrc_leaves_out_may_change_on_the_way(offset, bit, grh):
    world, right, _, packet = captured(RC, grh)
    world.inject(right.node, flipped(offset, bit)(packet))
    assert right.memory[: len(BYTES)] == BYTES
    world.close()


@pytest.mark.parametrize("kind", [RC, UC])
@pytest.mark.parametrize("grh", [False, True])
def test_a_connection_takes_packets_with_a_grh_exactly_when_its_path_has_one(kind, grh):
    world, right, _, _packet = captured(kind, grh)
    other = captured(kind, not grh)
    # the same queue pair numbers and keys, for both worlds have the same seeds
    world.inject(right.node, other[3])
    assert drops(right) == {"source": 1}
    assert not any(right.memory)
    for each in (world, other[0]):
        each.close()


def test_the_default_prefix_is_as_good_as_the_subnets():
    prefix = 0xFEC0_0000_0000_0007
    world = NativeNetwork()
    left, right = (End(world.add(n, gids=(native_gid(0x1000 + n, prefix),))) for n in (1, 2))
    qp, right_qp = left.qp(), right.qp()
    for (end, mine), (peer, other) in (((left, qp), (right, right_qp)), ((right, right_qp), (left, qp))):
        services.connect(mine, path_to(end, peer, True), other.number, 7, 7, 15, services.Reliability())
    taken = []
    world.tamper = lambda sent: taken.append(sent.data)
    post(qp, WRITE, [left.sge(0, 4)], va=right.va, rkey=right.key.rkey)
    world.run(lambda: bool(taken))
    for packet in (
        changed(taken[0], grh_sgid=native_gid(0x1001)),
        changed(taken[0], grh_dgid=native_gid(0x1002), bth_psn=8),
        changed(taken[0], bth_psn=9),
    ):
        world.inject(right.node, packet)
    assert drops(right) == {}
    assert right.device.query_counters()["packets_received"] == 3
    world.close()


def test_another_own_gid_is_not_the_connections_end():
    world = NativeNetwork()
    left, right = End(world.add(1)), End(world.add(2, gids=(gid(2), gid(77))))
    qp, right_qp = left.qp(), right.qp()
    for (end, mine), (peer, other) in (((left, qp), (right, right_qp)), ((right, right_qp), (left, qp))):
        services.connect(mine, path_to(end, peer, True), other.number, 7, 7, 15, services.Reliability())
    taken = []
    world.tamper = lambda sent: taken.append(sent.data)
    post(qp, WRITE, [left.sge(0, 4)], va=right.va, rkey=right.key.rkey)
    world.run(lambda: bool(taken))
    world.inject(right.node, changed(taken[0], grh_dgid=gid(77)))
    assert drops(right) == {"source": 1}
    world.close()


@pytest.mark.parametrize("lmc", [0, 1, 7])
def test_all_lids_of_the_lmc_are_the_ports_and_no_other(lmc):
    world, right, _, packet = captured(UC, False, lmc=lmc)
    base = lid(2, lmc)
    for dlid in (base, base + (1 << lmc) - 1):
        world.inject(right.node, changed(packet, lrh_dlid=dlid))
    assert drops(right) == {}
    for dlid in (base - 1, base + (1 << lmc)):
        world.inject(right.node, changed(packet, lrh_dlid=dlid))
    assert drops(right) == {"destination": 2}
    world.close()


@pytest.mark.parametrize("mtu", [1, 2])
def test_a_packet_beyond_the_mtu_and_its_headers_is_dropped(mtu):
    world, right, _, packet = captured(RC, False, mtu=mtu)
    for length, reason in ((128 << mtu) + 124, None), ((128 << mtu) + 128, "length"):
        data = bytearray(packet[:-6] + bytes(length - len(packet) + 6))
        data[4:6] = (length // 4).to_bytes(2, "big")
        before = drops(right).get("length", 0)
        world.inject(right.node, resealed(bytes(data)))
        assert drops(right).get("length", 0) - before == (reason is not None)
    world.close()


def test_every_segment_of_a_run_is_judged_by_itself():
    world, right, _, packet = captured(RC, True)
    second, third = changed(packet, bth_psn=101), changed(packet, bth_psn=102)
    world.inject(right.node, packet + flipped(-3)(second) + second + third[:-1], stride=len(packet))
    assert drops(right) == {"icrc": 1, "vcrc": 1}
    assert right.device.query_counters()["packets_received"] == 2
    world.close()


def test_a_native_port_hears_no_roce_and_a_roce_port_nothing_native():
    world, right, _, packet = captured(RC, False)
    arrival = Arrival()
    arrival.buffer[: len(packet)] = packet
    arrival.length = arrival.stride = len(packet)
    arrival.framing = ROCE_V4
    arrival.source, arrival.destination = gid(1), gid(2)
    right.node.adapter.receive(1, arrival, world.now)
    assert drops(right) == {"source": 1}
    world.close()


@settings(max_examples=random_inputs(150), deadline=None)
@given(st.data())
def test_no_bytes_whatever_raise_or_write(data):
    world, right, packet = HOSTILE_WORLD
    before = bytes(right.memory)
    whole = bytearray(packet[:-2])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(whole) - 1))
        whole[position] = data.draw(st.integers(0, 255))
    if whole[:] == packet[:-2] or data.draw(st.booleans()):
        whole = bytearray(data.draw(st.binary(min_size=1, max_size=300)))
    sealed = resealed(bytes(whole)) if data.draw(st.booleans()) else bytes(whole)
    world.inject(right.node, sealed, stride=data.draw(st.integers(0, 400)))
    world.step()
    assert bytes(right.memory) == before


@pytest.fixture(autouse=True, scope="module")
def _hostile_world():
    global HOSTILE_WORLD
    # the write goes nowhere, so that what a packet's changed VL, TClass … may let through shows nothing
    world, right, _, packet = captured(RC, True)
    HOSTILE_WORLD = world, right, changed(packet, bth_psn=50)
    yield
    world.close()
