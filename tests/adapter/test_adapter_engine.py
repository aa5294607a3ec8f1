"""The engine with packets: what it drops and counts, loopback, multicast, deadlines, notifications."""

import pytest
from forged_writes import PORT, drops, send_identified, signed, write_packet
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.adapter.engine import NEVER
from softhca.adapter.timers import TICK_NS
from softhca.driver import services
from softhca.queues.control_fields import EVENT_COMM_EST
from softhca.testing import SENT
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, QKEY, RC, SEND, UC, UD, WRITE, End, connect, pair, post
from softhca.testing.network import Network
from softhca.transport.unreliable import CHARGE_NS
from softhca.wire.burst import CAPACITY, Arrival, Burst
from softhca.wire.drops import DROP_UNKNOWN_QP
from softhca.wire.framing import ROCE_V4
from suite_plan import random_inputs


@pytest.fixture
def target():
    """A connected queue pair that expects PSN 100 from 192.0.2.1."""
    world, left, _, right, qp = pair()
    yield world, left, right, qp
    world.close()


def test_the_forged_packet_would_be_executed_if_it_were_right(target):
    world, left, right, qp = target
    world.inject(right.node, signed(write_packet(right, qp), left.node.gid, right.node.gid), left.node.gid)
    assert right.memory[:12] == b"overwritten!"
    assert drops(right) == {}


HOSTILE = {
    "wrong icrc": ("icrc", lambda d, e, q: d[:-1] + bytes([d[-1] ^ 1])),
    "payload changed": ("icrc", lambda d, e, q: d[:30] + bytes([d[30] ^ 0x80]) + d[31:]),
    "no header": ("truncated", lambda d, e, q: d[:8]),
    "a header without an icrc": ("truncated", lambda d, e, q: d[:12]),
    "not whole words": ("length", lambda d, e, q: d + b"x"),
    "nothing but a header": ("icrc", lambda d, e, q: d[:16]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_packet_is_dropped_and_counted_and_writes_nothing(target, name):
    world, left, right, qp = target
    reason, damage = HOSTILE[name]
    whole = signed(write_packet(right, qp), left.node.gid, right.node.gid)
    # the sender's identification has been seen, so that damage cannot pass for another one
    world.inject(right.node, damage(whole, right, qp), left.node.gid)
    assert drops(right) == {reason: 1}
    assert not any(right.memory)


FORGED = {
    "unknown queue pair": ("unknown_qp", {"qpn": 0x1234}),
    "queue pair 0": ("unknown_qp", {"qpn": 0}),
    "queue pair 1": ("service", {"qpn": 1}),
    "wrong partition": ("pkey", {"pkey": 0x8001}),
    "partition 0": ("pkey", {"pkey": 0x8000}),
    "another service": ("service", {"opcode": 0x2A}),
    "reserved opcode": ("opcode", {"opcode": 0x1F}),
    "manufacturer's opcode": ("opcode", {"opcode": 0xC0}),
    "another version": ("version", {"version": 1}),
    "multicast to a connected service": ("service", {"qpn": 0xFFFFFF}),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_well_formed_packet_for_nobody_is_dropped_and_counted_and_writes_nothing(target, name):
    world, left, right, qp = target
    reason, change = FORGED[name]
    data = signed(write_packet(right, qp, **change), left.node.gid, right.node.gid)
    world.inject(right.node, data, left.node.gid)
    assert drops(right) == {reason: 1}
    assert not any(right.memory)


def test_a_limited_member_is_heard_by_a_full_one(target):
    world, left, right, qp = target
    data = signed(write_packet(right, qp, pkey=0x7FFF), left.node.gid, right.node.gid)
    world.inject(right.node, data, left.node.gid)
    assert right.memory[:12] == b"overwritten!"


def test_only_the_connected_peer_is_heard(target):
    world, _, right, qp = target
    data = signed(write_packet(right, qp), gid(77), right.node.gid)
    world.inject(right.node, data, gid(77))
    assert drops(right) == {"source": 1}
    assert not any(right.memory)


def test_a_packet_to_another_address_is_dropped(target):
    world, left, right, qp = target
    data = signed(write_packet(right, qp), left.node.gid, gid(99))
    world.inject(right.node, data, left.node.gid, destination=gid(99))
    assert drops(right) == {"destination": 1}


@pytest.mark.parametrize("state", ["RESET", "INIT", "ERR"])
def test_a_queue_pair_that_does_not_receive_drops(state):
    world = Network()
    end = End(world.add(1))
    qp = end.qp()
    if state == "INIT":
        qp.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": ALL_RIGHTS})
    if state == "ERR":
        qp.modify({"qp_state": 6})
    world.inject(end.node, signed(write_packet(end, qp), gid(2), end.node.gid), gid(2))
    assert drops(end) == {"state": 1}
    world.close()


@pytest.mark.parametrize("source", [b"", b"short", gid(2)[:12] + b"\0" * 5, bytes(15) + b"\1"])
def test_a_source_that_is_no_address_is_dropped(target, source):
    world, _, right, _ = target
    world.inject(right.node, bytes(64), source)
    assert drops(right) == {"source": 1}


@settings(max_examples=random_inputs(150), deadline=None)
@given(st.data())
def test_no_bytes_whatever_raise_or_write(data):
    world, left, right, qp = HOSTILE_WORLD
    before = bytes(right.memory)
    payload = data.draw(st.binary(max_size=300))
    if data.draw(st.booleans()) and len(payload) % 4 == 0 and len(payload) >= 12:
        changed = bytearray(payload)
        changed[5:8] = qp.number.to_bytes(3, "big")
        changed[0] &= 0x1F
        changed[1] &= 0xF0
        changed[2:4] = b"\xff\xff"
        payload = signed(changed, left.node.gid, right.node.gid)
    stride = data.draw(st.integers(0, 400))
    if payload:
        world.inject(right.node, payload, left.node.gid, stride=stride)
    world.step()
    assert bytes(right.memory) == before


@pytest.fixture(autouse=True, scope="module")
def _hostile_world():
    global HOSTILE_WORLD
    world, left, _, right, qp = pair()
    HOSTILE_WORLD = world, left, right, qp
    yield
    world.close()


def test_a_length_beyond_the_buffer_is_cut_to_it(target):
    world, left, right, _ = target
    arrival = Arrival()
    arrival.framing, arrival.source, arrival.destination = ROCE_V4, left.node.gid, right.node.gid
    arrival.length = CAPACITY + 4096
    arrival.stride = 4096
    right.node.adapter.receive(1, arrival, world.now)
    assert sum(drops(right).values()) == CAPACITY // 4096


def test_every_segment_of_a_run_is_judged_by_itself(target):
    world, left, right, qp = target
    good = [
        signed(
            write_packet(right, qp, psn=100 + i, payload=bytes([65 + i]) * 12), left.node.gid, right.node.gid
        )
        for i in range(3)
    ]
    bad = good[1][:-1] + bytes([good[1][-1] ^ 0x10])
    world.inject(right.node, good[0] + bad + good[1] + good[2][:-4], left.node.gid, stride=len(good[0]))
    assert drops(right) == {"icrc": 2}
    assert right.memory[:12] == b"B" * 12


# IPv4 identification


def test_a_peer_that_counts_identifications_is_understood(target):
    world, left, right, qp = target
    assert all(send_identified(world, left, right, qp, 100 + i, (0xFFFE + i) & 0xFFFF) for i in range(6))
    assert right.device.query_counters()["identifications_recovered"] >= 5


def test_identification_zero_is_always_taken(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 40_000)
    assert send_identified(world, left, right, qp, 101, 0)
    assert send_identified(world, left, right, qp, 102, 40_001)


def test_a_sender_that_leaves_it_zero_is_not_believed_another(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 0)
    assert not send_identified(world, left, right, qp, 101, 30_000)
    assert send_identified(world, left, right, qp, 101, 14)


def test_damage_does_not_pass_for_an_identification(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 5000)
    assert not send_identified(world, left, right, qp, 101, 5001, damage=True)
    assert drops(right) == {"icrc": 1}


def test_a_jump_of_the_identification_costs_one_packet(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 5000)
    assert not send_identified(world, left, right, qp, 101, 30_000)
    assert send_identified(world, left, right, qp, 101, 30_001)
    assert send_identified(world, left, right, qp, 102, 30_002)


def test_a_jump_that_was_believed_is_no_reason_to_believe_another_one_later(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 5000)
    assert not send_identified(world, left, right, qp, 101, 30_000)
    for psn, identification in enumerate((30_001, 34_000, 38_000, 42_000), 101):
        assert send_identified(world, left, right, qp, psn, identification)
    assert not send_identified(world, left, right, qp, 105, 30_002)
    assert send_identified(world, left, right, qp, 105, 42_001)


def test_flows_of_one_sender_count_together(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 5000)
    assert send_identified(world, left, right, qp, 101, 20_000, port=PORT + 1)
    assert send_identified(world, left, right, qp, 102, 20_001)


def test_a_flow_that_leaves_it_zero_does_not_count_with_its_sender(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 0)
    assert send_identified(world, left, right, qp, 101, 20_000, port=PORT + 1)
    assert not send_identified(world, left, right, qp, 102, 20_001)


@pytest.mark.parametrize(("idle_ms", "taken"), [(1000, False), (10_600, True)])
def test_the_identification_of_an_idle_sender_may_have_grown(target, idle_ms, taken):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 5000)
    world.now += idle_ms * 1_000_000
    assert send_identified(world, left, right, qp, 101, 5000 + 4096 + 20_000) is taken


def test_an_idle_sender_that_leaves_it_zero_is_not_believed_another(target):
    world, left, right, qp = target
    assert send_identified(world, left, right, qp, 100, 0)
    world.now += 60_000_000_000
    assert not send_identified(world, left, right, qp, 101, 5000)


# loopback


@pytest.mark.parametrize("kind", [RC, UC])
def test_traffic_to_the_own_address_needs_no_link(kind):
    world = Network()
    end = End(world.add(1))
    left, right = end.qp(kind), end.qp(kind)
    connect((end, left), (end, right), kind)
    end.memory[:5000] = bytes(i % 251 for i in range(5000))
    sent = world.record()
    right.post_recv(9, [end.sge(8192, 8192)])
    post(left, SEND, [end.sge(0, 5000)], wr_id=1)
    assert sorted(c.wr_id for c in end.poll(2)) == [1, 9]
    assert end.memory[8192:13192] == end.memory[:5000]
    assert sent == []
    assert end.device.query_counters()["loopback_packets"] >= 5
    world.close()


def test_loopback_is_bounded_in_one_call_and_goes_on_in_the_next():
    world = Network()
    end = End(world.add(1), memory_bytes=1 << 20, entries=256)
    joined = []
    for _ in range(3):
        left, right = end.qp(send=128), end.qp()
        connect((end, left), (end, right))
        joined.append(left)
    for left in joined:
        for _ in range(100):
            left.post_send(
                WRITE, 0, 0, 0, end.va + (1 << 19), end.key.rkey, 0, 0, 0, 0, 0, [end.sge(0, 1 << 18)], None
            )
    adapter = end.node.adapter
    for left in joined:
        end.device.session.channel.doorbells.ring(left._doorbell)
    adapter.kick(world.now)
    before = adapter.port.counters.bursts_sent
    assert not adapter.transmit(1, Burst(), world.now)
    assert 0 < adapter.port.counters.bursts_sent - before <= 64
    assert adapter.next_deadline() == 0
    world.close()


# multicast

GROUP = gid(1)[:12] + b"\xe0\x01\x02\x03"


def datagram_end(world, number):
    end = End(world.add(number))
    qp = end.qp(UD)
    services.start_datagrams(qp, QKEY)
    return end, qp


def test_multicast_reaches_every_attached_queue_pair_but_the_sender():
    world = Network()
    end, sender = datagram_end(world, 1)
    listeners = []
    for index in range(2):
        qp = end.qp(UD)
        services.start_datagrams(qp, QKEY)
        qp.post_recv(10 + index, [end.sge(1000 * (index + 1), 500)])
        end.device.attach_mcast(qp.number, GROUP)
        listeners.append(qp)
    end.device.attach_mcast(sender.number, GROUP)
    sender.post_recv(99, [end.sge(5000, 500)])
    ah = end.device.create_ah(end.pd, {"dgid": GROUP, "is_global": 1, "port_num": 1})
    end.memory[:8] = b"to all!!"
    sent = world.record(SENT)
    post(sender, SEND, [end.sge(0, 8)], wr_id=1, ah=ah, qpn=0xFFFFFF, qkey=QKEY)
    completions = end.poll(3)
    assert sorted(c.wr_id for c in completions) == [1, 10, 11]
    assert end.memory[1040:1048] == end.memory[2040:2048] == b"to all!!"
    assert len(sent) == 1  # it goes to the link as well
    end.device.detach_mcast(listeners[0].number, GROUP)
    listeners[0].post_recv(10, [end.sge(1000, 500)])
    listeners[1].post_recv(11, [end.sge(2000, 500)])
    post(sender, SEND, [end.sge(0, 8)], wr_id=2, ah=ah, qpn=0xFFFFFF, qkey=QKEY)
    assert sorted(c.wr_id for c in end.poll(3)) == [2, 11]
    world.close()


# scheduling of real traffic


def busy_world(levels, messages=40):
    """Queue pairs of one adapter with much to send, by service level; nothing is acknowledged.

    The window towards the other one is wider than all of it, for it is the scheduler that matters.
    """
    world = Network()
    left, right = End(world.add(1), 1 << 20, 1024), End(world.add(2), 1 << 20, 1024)
    pairs = []
    for level in levels:
        qp, peer = left.qp(UC, send=64), right.qp(UC)
        connect((left, qp), (right, peer), UC, sl=level)
        pairs.append(qp)
    for window in left.node.adapter.port.windows.values():
        window.limit_bytes = window.maximum_bytes = 1 << 30
    for qp in pairs:
        for _ in range(messages):
            qp.post_send(
                WRITE, 0, 0, 0, right.va, right.key.rkey, 0, 0, 0, 0, 0, [left.sge(0, 200_000)], None
            )
        left.device.session.channel.doorbells.ring(qp._doorbell)
    left.node.adapter.kick(world.now)
    return world, left, pairs


def sent_bytes(world, end, pairs, bursts):
    for _ in range(bursts):
        assert end.node.adapter.transmit(1, Burst(), world.now)
    adapter = end.node.adapter
    return [adapter.queue_pairs[qp.number].counters.bytes_sent for qp in pairs]


def test_queue_pairs_with_the_same_to_send_get_the_same_bytes():
    world, end, pairs = busy_world([0] * 5)
    served = sent_bytes(world, end, pairs, 100)
    assert min(served) > 0
    assert max(served) - min(served) <= 1 << 16
    world.close()


def test_the_higher_service_level_takes_precedence_and_the_lower_does_not_starve():
    world, end, pairs = busy_world([0, 6])
    low, high = sent_bytes(world, end, pairs, 60)
    assert 0 < low < high / 10
    world.close()


def test_a_destroyed_queue_pair_sends_nothing_more():
    world, end, pairs = busy_world([0, 0])
    sent_bytes(world, end, pairs, 4)
    pairs[0].destroy()
    number = pairs[1].number
    while end.node.adapter.transmit(1, Burst(), world.now):
        assert end.node.adapter.queue_pairs.keys() == {number}
    world.now += CHARGE_NS + TICK_NS  # until then what was sent stands in the window
    end.node.adapter.expire(world.now)
    assert end.node.adapter.next_deadline() == NEVER
    world.close()


def test_a_destroyed_queue_pair_is_not_found_by_the_packets_behind_those_that_it_took():
    world, left, qp, right, other = pair(RC)
    post(qp, WRITE, [left.sge(0, 100)], va=right.va, rkey=right.key.rkey)
    world.run()
    adapter = right.node.adapter
    assert adapter.port.counters.packets_received
    other.destroy()
    post(qp, WRITE, [left.sge(0, 100)], va=right.va, rkey=right.key.rkey)
    world.run()
    assert adapter.port.counters.drops[DROP_UNKNOWN_QP] > 0
    world.close()


def test_the_timer_of_a_destroyed_queue_pair_is_let_go():
    world, left, qp, right, _ = pair(RC)
    post(qp, WRITE, [left.sge(0, 100)], va=right.va, rkey=right.key.rkey)
    adapter = left.node.adapter
    assert adapter.transmit(1, Burst(), world.now)
    assert adapter.timers.count() > 0
    qp.destroy()
    assert adapter.timers.count() == 0
    world.close()


# deadlines, events, determinism


def test_an_idle_adapter_waits_for_nothing(target):
    world, left, _, _ = target
    world.run()
    assert left.node.adapter.next_deadline() == NEVER
    assert not left.node.adapter.kick(2_000_000)


def test_a_lost_packet_is_sent_again_at_the_deadline(target):
    world, left, right, _qp = target
    peer = left.device._queue_pairs[min(left.device._queue_pairs)]
    lost = []
    world.tamper = lambda sent: sent.data if lost else lost.append(sent)
    left.memory[:4] = b"late"
    post(peer, WRITE, [left.sge(0, 4)], wr_id=5, va=right.va, rkey=right.key.rkey)
    started = world.now
    assert [c.status for c in left.poll(1)] == [0]
    assert right.memory[:4] == b"late"
    assert world.now - started >= 4096 << 14
    assert left.device.query_counters(qp=peer.number)["timeouts"] == 1


def test_hosts_that_were_told_something_are_named_once():
    world = Network()
    left, right = End(world.add(1)), End(world.add(2))
    other = right.node.open()
    qp = right.qp()
    path = services.Path(left.node.gid)
    qp.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": ALL_RIGHTS})
    qp.modify(
        {
            "qp_state": 2,
            "ah_attr": path.vector(),
            "path_mtu": 3,
            "dest_qp_num": 9,
            "rq_psn": 100,
            "max_dest_rd_atomic": 1,
            "min_rnr_timer": 12,
        }
    )
    adapter = right.node.adapter
    adapter.take_notifications()
    notifications = right.node.notifications
    world.inject(right.node, signed(write_packet(right, qp), left.node.gid, right.node.gid), left.node.gid)
    assert adapter.take_notifications() == right.node.hosts[:1]  # the connection is established: an event
    assert adapter.take_notifications() == []
    assert right.node.notifications == notifications + 1
    assert other.next_event(0) is None
    assert right.device.next_event(0) == (EVENT_COMM_EST, qp.number)
    world.close()


def test_two_runs_with_the_same_seed_send_the_same_packets():
    runs = []
    for _ in range(2):
        world, left, left_qp, right, right_qp = pair()
        sent = world.record(SENT)
        right_qp.post_recv(1, [right.sge(0, 4096)])
        post(left_qp, SEND, [left.sge(0, 3000)], wr_id=1)
        left.poll(1)
        runs.append((left_qp.number, right.key.rkey, [each.data for each in sent], world.now))
        world.close()
    assert runs[0] == runs[1]
