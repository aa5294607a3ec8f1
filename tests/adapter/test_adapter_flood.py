"""Floods: what packets of unknown senders cost, what is remembered of them, and what they cannot push out."""

import gc

import pytest
from forged_writes import PORT, drops, send_identified, signed, write_packet

from softhca.adapter.sources import IDENTIFICATION_WINDOW
from softhca.driver import services
from softhca.testing.addressing import gid
from softhca.testing.ends import QKEY, RC, UC, UD, WRITE, End, connect, pair, post
from softhca.testing.network import Network
from softhca.wire.route import Route

FLOWS = 300
LIMIT = 8
STRANGER = gid(77)
GROUP = gid(1)[:12] + b"\xe0\x01\x02\x03"


def work_of(end):
    """What was done for packets so far: ICRCs computed, routes made, flows and addresses remembered."""
    sources = end.node.adapter.port.sources
    routes = sum(isinstance(thing, Route) for thing in gc.get_objects())
    return sources.checked, routes, len(sources.unconnected), len(sources.connected), len(sources.senders)


def flood(world, end, data, source=STRANGER, destination=None):
    """``data`` comes from as many UDP ports."""
    for port in range(FLOWS):
        world.inject(end.node, data, source, source_port=PORT + port, destination=destination)


@pytest.fixture
def target():
    """A connected queue pair that expects PSN 100 from 192.0.2.1."""
    world = Network()
    left, right = End(world.add(1)), End(world.add(2, max_sources=LIMIT))
    left_qp, qp = left.qp(), right.qp()
    connect((left, left_qp), (right, qp))
    yield world, left, right, qp
    world.close()


def test_packets_for_no_queue_pair_cost_no_more_than_a_look(target):
    world, _, right, qp = target
    before = work_of(right)
    flood(world, right, write_packet(right, qp, qpn=0x1234))
    flood(world, right, bytes(64))
    assert work_of(right) == before
    assert drops(right) == {"unknown_qp": 2 * FLOWS}


def test_packets_of_unknown_senders_for_a_connected_queue_pair_cost_no_more_than_two_lookups(target):
    world, _, right, qp = target
    before = work_of(right)
    flood(world, right, write_packet(right, qp))
    assert work_of(right) == before
    assert drops(right) == {"source": FLOWS}


@pytest.mark.parametrize("state", ["RESET", "INIT", "ERR"])
def test_packets_for_a_queue_pair_that_does_not_receive_cost_no_more_than_a_look(state):
    world = Network()
    end = End(world.add(1))
    qp = end.qp()
    if state != "RESET":
        qp.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0})
    if state == "ERR":
        qp.modify({"qp_state": 6})
    before = work_of(end)
    flood(world, end, write_packet(end, qp))
    assert work_of(end) == before
    assert drops(end) == {"state": FLOWS}
    world.close()


def test_packets_for_another_address_or_a_group_without_members_cost_no_more_than_a_look(target):
    world, left, right, qp = target
    before = work_of(right)
    flood(world, right, write_packet(right, qp), left.node.gid, destination=gid(99))
    flood(world, right, write_packet(right, qp, qpn=0xFFFFFF, opcode=0x64), destination=GROUP)
    assert work_of(right) == before
    assert drops(right) == {"destination": FLOWS, "unknown_qp": FLOWS}


def test_packets_from_the_peers_address_cost_their_icrc_and_are_counted_by_it(target):
    world, left, right, qp = target
    checked, *kept = work_of(right)
    flood(world, right, bytes(write_packet(right, qp)), left.node.gid)
    assert work_of(right) == (checked + FLOWS, *kept)
    assert drops(right) == {"icrc": FLOWS}
    assert not any(right.memory)


def test_damage_of_the_peers_own_packets_is_counted_as_such(target):
    world, left, right, qp = target
    good = signed(write_packet(right, qp), left.node.gid, right.node.gid)
    for place in (2, 8, 11, 30, len(good) - 1):  # P_Key, AckReq, PSN, payload, ICRC
        world.inject(right.node, good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :], left.node.gid)
    assert drops(right) == {"icrc": 5}


def test_datagrams_of_unknown_senders_are_remembered_only_when_they_are_sound():
    world = Network()
    end = End(world.add(1, max_sources=LIMIT))
    qp = end.qp(UD)
    services.start_datagrams(qp, QKEY)
    datagram = write_packet(end, qp, opcode=0x64)
    checked, *kept = work_of(end)
    flood(world, end, datagram + b"junk")
    assert work_of(end) == (checked + FLOWS, *kept)
    for port in range(FLOWS):
        source = gid(2 + port % 200)
        data = signed(datagram, source, end.node.gid, PORT + port)
        world.inject(end.node, data, source, source_port=PORT + port)
    _, routes, unknown, connected, senders = work_of(end)
    assert (routes, unknown, connected) == (kept[0], LIMIT, 0)
    assert senders <= LIMIT + 1
    world.close()


def test_unknown_senders_do_not_push_out_what_is_known_of_a_peer(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 5000)
    datagrams = right.qp(UD)
    services.start_datagrams(datagrams, QKEY)
    source = right.node.adapter.queue_pairs[qp.number].source
    for port in range(FLOWS):
        for sender in (STRANGER, gid(100 + port % 50), left.node.gid):
            data = signed(write_packet(right, datagrams, opcode=0x64), sender, right.node.gid, 0x8000 + port)
            world.inject(right.node, data, sender, source_port=0x8000 + port)
    sources = right.node.adapter.port.sources
    assert len(sources.unconnected) == LIMIT
    assert right.node.adapter.queue_pairs[qp.number].source is source
    assert list(sources.connected.values()) == [source]
    assert sources.senders[left.node.gid] is source.sender
    # what it bore last is known still
    assert not send_identified(world, left, right, qp, 101, 5000 + 2 * IDENTIFICATION_WINDOW)
    assert send_identified(world, left, right, qp, 101, 5001)


def test_an_identification_lies_up_to_a_window_from_the_last_one_either_way_and_no_further(target):
    world, left, right, qp = target
    window = IDENTIFICATION_WINDOW
    steps = (
        (window, True), (2 * window, True), (3 * window + 1, False), (window, True), (1, True),
        (0x10001 - window, True), (0x10000 - 2 * window, False), (0x10001 - 2 * window, True),
    )  # fmt: skip
    psn = 100
    for identification, taken in steps:
        assert send_identified(world, left, right, qp, psn, identification) is taken, identification
        psn += taken


def test_a_flow_of_several_connections_is_known_once_and_as_long_as_one_of_them():
    world = Network()
    left, right = End(world.add(1)), End(world.add(2))
    pairs = [(left.qp(), right.qp()) for _ in range(3)]
    for number, (left_qp, right_qp) in enumerate(pairs):
        connect((left, left_qp), (right, right_qp))
        assert send_identified(world, left, right, right_qp, 100, 5000 + number)
    sources = right.node.adapter.port.sources
    assert len(sources.connected) == len(sources.senders) == 1
    pairs[0][1].destroy()
    pairs[1][1].modify({"qp_state": 0})
    assert len(sources.connected) == len(sources.senders) == 1
    pairs[2][1].destroy()
    assert len(sources.connected) == len(sources.senders) == 0
    world.close()


def test_a_peer_that_goes_on_from_another_port_is_understood(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 5000)
    assert send_identified(world, left, right, qp, 101, 5001, port=PORT + 9)
    assert send_identified(world, left, right, qp, 102, 5002, port=PORT + 9)
    assert send_identified(world, left, right, qp, 103, 5003)
    assert right.node.adapter.queue_pairs[qp.number].source.port == PORT


# source_port=strict


def strict_pair(kind=RC):
    world = Network()
    left, right = End(world.add(1)), End(world.add(2, strict_source_port=True))
    left_qp, qp = left.qp(kind), right.qp(kind)
    connect((left, left_qp), (right, qp), kind)
    return world, left, left_qp, right, qp


@pytest.mark.parametrize("kind", [RC, UC])
def test_a_strict_queue_pair_hears_its_peer_from_one_port(kind):
    world, left, left_qp, right, qp = strict_pair(kind)
    opcode = 0x0A if kind == RC else 0x2A
    left.memory[:5] = b"hello"
    post(left_qp, WRITE, [left.sge(0, 5)], va=right.va, rkey=right.key.rkey)
    assert [c.status for c in left.poll(1)] == [0]
    world.run()
    assert right.memory[:5] == b"hello"
    began = right.node.adapter.queue_pairs[qp.number].source_port
    assert began == left.node.adapter.queue_pairs[left_qp.number].flow.route.source_port
    checked = right.node.adapter.port.sources.checked
    for port in (began + 1, 4791, 0, 1):
        forged = signed(write_packet(right, qp, psn=101, opcode=opcode), left.node.gid, right.node.gid, port)
        world.inject(right.node, forged, left.node.gid, source_port=port)
    assert drops(right) == {"source": 4}
    assert right.node.adapter.port.sources.checked == checked
    assert right.memory[:5] == b"hello"
    world.close()


def test_a_strict_queue_pair_is_not_taken_by_who_comes_first_but_by_what_fits():
    world, left, left_qp, right, qp = strict_pair()
    engine = right.node.adapter.queue_pairs[qp.number]
    forged = signed(write_packet(right, qp, psn=777), left.node.gid, right.node.gid, 9)
    world.inject(right.node, forged, left.node.gid, source_port=9)
    assert engine.source_port == 0
    post(left_qp, WRITE, [left.sge(0, 5)], va=right.va, rkey=right.key.rkey)
    assert [c.status for c in left.poll(1)] == [0]
    assert engine.source_port == left.node.adapter.queue_pairs[left_qp.number].flow.route.source_port
    world.close()


def test_a_strict_queue_pair_that_only_asks_knows_its_peer_by_the_answers():
    world, left, left_qp, right, qp = strict_pair()
    post(qp, WRITE, [right.sge(0, 5)], va=left.va, rkey=left.key.rkey)
    assert [c.status for c in right.poll(1)] == [0]
    began = right.node.adapter.queue_pairs[qp.number].source_port
    assert began == left.node.adapter.queue_pairs[left_qp.number].flow.route.source_port
    world.close()


def test_a_strict_queue_pair_that_is_reset_begins_anew():
    world, left, left_qp, right, qp = strict_pair()
    engine = right.node.adapter.queue_pairs[qp.number]
    for port in (PORT + 5, PORT + 6):
        data = signed(write_packet(right, qp), left.node.gid, right.node.gid, port)
        world.inject(right.node, data, left.node.gid, source_port=port)
        assert (engine.source_port, right.memory[:12]) == (port, b"overwritten!")
        right.memory[:12] = bytes(12)
        for end in (left_qp, qp):
            end.modify({"qp_state": 0})
        assert engine.source_port == 0
        connect((left, left_qp), (right, qp))
    world.close()


def test_a_strict_adapter_hears_datagrams_from_any_port():
    world = Network()
    end = End(world.add(1, strict_source_port=True))
    qp = end.qp(UD)
    services.start_datagrams(qp, QKEY)
    deth = QKEY.to_bytes(4, "big") + bytes(4)
    for number, port in enumerate((PORT, PORT + 1)):
        qp.post_recv(number, [end.sge(0, 100)])
        bth = bytes([0x64, 0x40, 0xFF, 0xFF, 0]) + qp.number.to_bytes(3, "big") + bytes(4)
        data = signed(bth + deth + b"four", STRANGER, end.node.gid, port)
        world.inject(end.node, data, STRANGER, source_port=port)
    assert sorted(c.wr_id for c in end.poll(2)) == [0, 1]
    world.close()


def test_a_queue_pair_that_is_not_strict_hears_its_peer_from_every_port():
    world, left, _, right, qp = pair()
    for number in range(3):
        data = signed(
            write_packet(right, qp, psn=100 + number), left.node.gid, right.node.gid, PORT + number
        )
        world.inject(right.node, data, left.node.gid, source_port=PORT + number)
    assert drops(right) == {}
    world.close()
