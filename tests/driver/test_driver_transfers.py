"""Whole transfers through drivers and engines in virtual time: every service, every kind of completion and
event.
"""

import errno

import pytest

from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.machine.primitives import address_of
from softhca.queues import control_fields as control
from softhca.testing.ends import (
    ALL_RIGHTS,
    COMPARE_SWAP,
    FETCH_ADD,
    LOCAL_WRITE,
    QKEY,
    READ,
    REMOTE_READ,
    SEND,
    SEND_IMM,
    UC,
    UD,
    WRITE,
    WRITE_IMM,
    End,
    connect,
    pair,
    post,
)
from softhca.testing.network import Network

PATTERN = bytes(i * 7 % 251 for i in range(20_000))


@pytest.fixture
def connected():
    """Two connected RC queue pairs."""
    world, left, left_qp, right, right_qp = pair()
    left.memory[: len(PATTERN)] = PATTERN
    yield world, left, left_qp, right, right_qp
    world.close()


def word(memory, offset):
    return int.from_bytes(memory[offset : offset + 8], "little")


# RC


@pytest.mark.parametrize("length", [0, 1, 4, 1023, 1024, 1025, 4096, 20_000])
def test_rc_send_arrives_whole_and_in_order(connected, length):
    _, left, left_qp, right, right_qp = connected
    right_qp.post_recv(7, [right.sge(100, 10_000), right.sge(30_000, 10_000)])
    post(left_qp, SEND, [left.sge(0, length)], wr_id=3)
    sent, received = left.poll(1)[0], right.poll(1)[0]
    assert (sent.wr_id, sent.status, sent.opcode, sent.qp_num) == (3, 0, 0, left_qp.number)
    assert (received.wr_id, received.status, received.opcode, received.byte_len) == (7, 0, 128, length)
    assert received.qp_num == right_qp.number
    first = min(length, 10_000)
    assert right.memory[100 : 100 + first] == PATTERN[:first]
    assert right.memory[30_000 : 30_000 + length - first] == PATTERN[first:length]
    assert not any(right.memory[:100])


def test_rc_write_and_read_move_bytes_without_a_receive(connected):
    _, left, left_qp, right, _ = connected
    post(
        left_qp,
        WRITE,
        [left.sge(0, 5000), left.sge(5000, 3000)],
        wr_id=1,
        va=right.va + 64,
        rkey=right.key.rkey,
    )
    assert [(c.wr_id, c.status, c.opcode) for c in left.poll(1)] == [(1, 0, 1)]
    assert right.memory[64:8064] == PATTERN[:8000]
    post(left_qp, READ, [left.sge(40_000, 8000)], wr_id=2, va=right.va + 64, rkey=right.key.rkey)
    assert [(c.wr_id, c.status, c.opcode, c.byte_len) for c in left.poll(1)] == [(2, 0, 2, 8000)]
    assert left.memory[40_000:48_000] == PATTERN[:8000]
    assert right.cq.poll(10) == []


def test_rc_immediate_data_and_solicited_flag_reach_the_receiver(connected):
    _, left, left_qp, right, right_qp = connected
    right_qp.post_recv(1, [right.sge(0, 100)])
    right_qp.post_recv(2, [])
    post(left_qp, SEND_IMM, [left.sge(0, 10)], imm=0x01020304)
    post(left_qp, WRITE_IMM, [left.sge(0, 10)], imm=0xFFFFFFFF, va=right.va + 500, rkey=right.key.rkey)
    first, second = right.poll(2)
    assert (first.opcode, first.imm_data, first.wc_flags & 2) == (128, 0x01020304, 2)
    assert (second.opcode, second.imm_data, second.byte_len) == (129, 0xFFFFFFFF, 10)
    assert right.memory[500:510] == PATTERN[:10]


def test_rc_atomics_return_what_was_there(connected):
    _, left, left_qp, right, _ = connected
    right.memory[64:72] = (40).to_bytes(8, "little")
    target = {"va": right.va + 64, "rkey": right.key.rkey}
    post(left_qp, FETCH_ADD, [left.sge(30_000, 8)], compare=2, **target)
    post(left_qp, COMPARE_SWAP, [left.sge(30_008, 8)], compare=42, swap=7, **target)
    post(left_qp, COMPARE_SWAP, [left.sge(30_016, 8)], compare=42, swap=9, **target)
    assert [(c.status, c.opcode) for c in left.poll(3)] == [(0, 4), (0, 3), (0, 3)]
    assert [word(left.memory, 30_000 + 8 * i) for i in range(3)] == [40, 42, 7]
    assert word(right.memory, 64) == 7


def test_inline_data_is_taken_when_it_is_posted(connected):
    _, _left, left_qp, right, right_qp = connected
    right_qp.post_recv(1, [right.sge(0, 100)])
    data = bytearray(b"taken at once")
    post(left_qp, SEND, [], inline=bytes(data))
    data[:] = bytes(len(data))
    right.poll(1)
    assert right.memory[:13] == b"taken at once"


def test_unsignaled_work_completes_without_a_word(connected):
    _, left, _, right, _ = connected
    left_qp, right_qp = left.qp(signal_all=False), right.qp()
    connect((left, left_qp), (right, right_qp))
    for wr_id in range(4):
        post(
            left_qp,
            WRITE,
            [left.sge(0, 4)],
            wr_id=wr_id,
            flags=2 if wr_id == 3 else 0,
            va=right.va,
            rkey=right.key.rkey,
        )
    assert [c.wr_id for c in left.poll(4)] == [3]


def test_a_queue_takes_as_many_requests_as_were_asked_for_and_goes_on_after_completions(connected):
    _world, left, _, right, _ = connected
    left_qp, right_qp = left.qp(send=3), right.qp()
    connect((left, left_qp), (right, right_qp))
    for _ in range(5):
        for wr_id in range(3):
            post(left_qp, WRITE, [left.sge(0, 4)], wr_id=wr_id, va=right.va, rkey=right.key.rkey, ring=False)
        with pytest.raises(DriverError) as full:
            post(left_qp, WRITE, [left.sge(0, 4)], ring=False)
        assert full.value.errno == errno.ENOMEM
        left_qp.ring()
        assert [c.wr_id for c in left.poll(3)] == [0, 1, 2]


@pytest.mark.parametrize(("what", "status"), [("key", 10), ("range", 10), ("right", 10), ("local key", 4)])
def test_a_refused_access_fails_the_request_and_writes_nothing(connected, what, status):
    _, left, left_qp, right, right_qp = connected
    key = right.device.reg_mr(right.pd, 0, 1000, LOCAL_WRITE, iova=0, buffer=bytearray(1000))
    options = {
        "key": {"va": right.va, "rkey": right.key.rkey ^ 0x100},
        "right": {"va": 0, "rkey": key.rkey},
        "range": {"va": right.va + len(right.memory) - 4, "rkey": right.key.rkey},
        "local key": {"va": right.va, "rkey": right.key.rkey},
    }[what]
    element = (left.va, 8, left.key.lkey ^ (0x100 if what == "local key" else 0))
    post(left_qp, WRITE, [element], wr_id=1, **options)
    post(left_qp, WRITE, [left.sge(0, 8)], wr_id=2, va=right.va, rkey=right.key.rkey)
    assert [(c.wr_id, c.status) for c in left.poll(2)] == [(1, status), (2, 5)]
    assert not any(right.memory)
    assert left_qp.state == 6
    post(left_qp, WRITE, [left.sge(0, 8)], wr_id=3)
    assert [(c.wr_id, c.status) for c in left.poll(1)] == [(3, 5)]
    if what != "local key":
        assert right.device.next_event(0) == (control.EVENT_QP_ACCESS_ERR, right_qp.number)
        right_qp.post_recv(5, [])
        assert [(c.wr_id, c.status) for c in right.poll(1)] == [(5, 5)]


def test_a_receive_that_is_late_is_waited_for(connected):
    world, left, left_qp, right, right_qp = connected
    post(left_qp, SEND, [left.sge(0, 100)], wr_id=1)
    world.run(limit_ns=2_000_000)
    assert left.cq.poll(1) == []
    right_qp.post_recv(2, [right.sge(0, 100)])
    assert [c.status for c in left.poll(1)] == [0]
    assert right.memory[:100] == PATTERN[:100]
    assert left.device.query_counters(qp=left_qp.number)["rnr_naks_received"] >= 1


def test_every_loss_is_made_good(connected):
    world, left, left_qp, right, right_qp = connected
    count = 0

    def lose(sent):
        nonlocal count
        count += 1
        return None if count % 5 == 3 else sent.data

    world.tamper = lose
    for wr_id in range(4):
        right_qp.post_recv(wr_id, [right.sge(wr_id * 8000, 5000)])
        post(left_qp, SEND, [left.sge(wr_id * 100, 5000)], wr_id=wr_id)
    assert [(c.wr_id, c.status) for c in left.poll(4)] == [(i, 0) for i in range(4)]
    assert [(c.wr_id, c.byte_len) for c in right.poll(4)] == [(i, 5000) for i in range(4)]
    for wr_id in range(4):
        assert right.memory[wr_id * 8000 : wr_id * 8000 + 5000] == PATTERN[wr_id * 100 : wr_id * 100 + 5000]


def test_damage_on_the_way_is_made_good(connected):
    world, left, left_qp, right, _ = connected
    damaged = []

    def damage(sent):
        data = sent.data
        if len(damaged) < 2 and len(data) > 100:
            damaged.append(data)
            return data[:40] + bytes([data[40] ^ 4]) + data[41:]
        return data

    world.tamper = damage
    post(left_qp, WRITE, [left.sge(0, 5000)], va=right.va, rkey=right.key.rkey)
    assert [c.status for c in left.poll(1)] == [0]
    assert right.memory[:5000] == PATTERN[:5000]
    assert right.device.query_counters()["drops_icrc"] == 2


# UC and UD


def test_uc_delivers_and_forgets():
    world, left, left_qp, right, right_qp = pair(UC)
    left.memory[:5000] = PATTERN[:5000]
    right_qp.post_recv(1, [right.sge(0, 8000)])
    post(left_qp, SEND, [left.sge(0, 5000)], wr_id=2)
    assert [c.status for c in left.poll(1)] == [0]
    assert [(c.wr_id, c.byte_len) for c in right.poll(1)] == [(1, 5000)]
    assert right.memory[:5000] == PATTERN[:5000]
    world.tamper = lambda sent: None
    post(left_qp, WRITE, [left.sge(0, 4)], va=right.va + 9000, rkey=right.key.rkey)
    assert [c.status for c in left.poll(1)] == [0]
    with pytest.raises(DriverError) as refused:
        right_qp.modify({"qp_state": 3, "timeout": 14})
    assert refused.value.errno == errno.EINVAL
    world.close()


@pytest.fixture
def datagrams():
    """Two UD queue pairs in RTS and an address handle from left to right."""
    world = Network()
    left, right = End(world.add(1)), End(world.add(2))
    pairs = []
    for end in (left, right):
        qp = end.qp(UD)
        services.start_datagrams(qp, QKEY)
        pairs.append(qp)
    ah = left.device.create_ah(
        left.pd, services.path_to(left.device, right.node.gid, traffic_class=0x20).vector()
    )
    yield world, left, pairs[0], right, pairs[1], ah
    world.close()


def test_ud_delivers_behind_a_grh_with_the_senders_number(datagrams):
    _, left, left_qp, right, right_qp, ah = datagrams
    left.memory[:8] = b"datagram"
    right_qp.post_recv(4, [right.sge(0, 200)])
    post(left_qp, SEND_IMM, [left.sge(0, 8)], ah=ah, qpn=right_qp.number, qkey=QKEY, imm=77)
    received = right.poll(1)[0]
    assert (received.byte_len, received.src_qp, received.imm_data) == (48, left_qp.number, 77)
    assert received.wc_flags == 1 | 2
    assert right.memory[40:48] == b"datagram"
    # the IPv4 header lies in the last 20 bytes in front of the payload (IBTA A17.4.5.2)
    assert right.memory[32:40] == left.node.gid[12:] + right.node.gid[12:]


@pytest.mark.parametrize(
    ("change", "counter"), [({"qkey": QKEY + 1}, "drops_qkey"), ({"qpn": 4}, "drops_unknown_qp")]
)
def test_ud_to_somebody_else_is_dropped(datagrams, change, counter):
    _, left, left_qp, right, right_qp, ah = datagrams
    right_qp.post_recv(4, [right.sge(0, 200)])
    post(left_qp, SEND, [left.sge(0, 8)], **{"ah": ah, "qpn": right_qp.number, "qkey": QKEY, **change})
    assert [c.status for c in left.poll(1)] == [0]
    assert right.poll(1) == []
    counters = right.device.query_counters()
    assert counters[counter] + counters.get(f"transport_{counter}", 0) == 1


def test_ud_beyond_the_mtu_or_without_a_handle_fails_alone(datagrams):
    _, left, left_qp, _right, right_qp, ah = datagrams
    post(left_qp, SEND, [left.sge(0, 1025)], wr_id=1, ah=ah, qpn=right_qp.number, qkey=QKEY)
    assert [c.status for c in left.poll(1)] != [0]
    assert left_qp.query()["qp_state"] == 5


# shared receive queues


def test_a_shared_receive_queue_serves_several_and_tells_of_its_limit_once():
    world = Network()
    left, right = End(world.add(1)), End(world.add(2))
    srq = right.device.create_srq(right.pd, 8, 1)
    pairs = []
    for _ in range(2):
        left_qp, right_qp = left.qp(), right.qp(srq=srq)
        connect((left, left_qp), (right, right_qp))
        pairs.append((left_qp, right_qp))
    for wr_id in range(4):
        srq.post(wr_id, [right.sge(wr_id * 100, 100)])
    srq.modify(limit=3)
    assert srq.query() == {"max_wr": 8, "max_sge": 1, "srq_limit": 3}
    for left_qp, _ in pairs:
        post(left_qp, SEND, [left.sge(0, 8)])
    completions = right.poll(2)
    assert {c.qp_num for c in completions} == {right_qp.number for _, right_qp in pairs}
    assert [c.wr_id for c in completions] == [0, 1]
    assert right.device.next_event(0) == (control.EVENT_SRQ_LIMIT_REACHED, srq.number)
    assert right.device.next_event(0) is None
    assert srq.query()["srq_limit"] == 0
    with pytest.raises(DriverError) as refused:
        pairs[0][1].post_recv(1, [])
    assert refused.value.errno == errno.EINVAL
    world.close()


def test_a_shared_receive_queue_can_be_full():
    world = Network()
    end = End(world.add(1))
    srq = end.device.create_srq(end.pd, 2, 1)
    srq.post(1, [])
    srq.post(2, [end.sge(0, 1)])
    for sges, code in (([], errno.ENOMEM), ([end.sge(0, 1)] * 2, errno.EINVAL)):
        with pytest.raises(DriverError) as refused:
            srq.post(3, sges)
        assert refused.value.errno == code
    with pytest.raises(DriverError):
        srq.modify(max_wr=9)
    world.close()


# events


def test_an_armed_queue_fires_once_on_its_channel(connected):
    _, left, left_qp, right, right_qp = connected
    right.cq.arm()
    for wr_id in range(2):
        right_qp.post_recv(wr_id, [])
        post(left_qp, SEND, [])
    left.poll(2)
    assert right.device.wait_completion("another", 0) is None
    assert right.device.wait_completion("channel", 0) is right.cq
    assert right.device.wait_completion("channel", 0) is None
    assert len(right.cq.poll(10)) == 2


def test_a_solicited_request_waits_for_a_solicited_message(connected):
    _, left, left_qp, right, right_qp = connected
    right.cq.arm(True)
    for flags, fired in ((2, None), (2 | 4, right.cq)):
        right_qp.post_recv(1, [])
        post(left_qp, SEND, [], flags=flags)
        left.poll(1)
        assert right.device.wait_completion("channel", 0) is fired


def test_waiting_drives_the_engine_until_the_event_comes(connected):
    _, left, left_qp, right, _ = connected
    left.cq.arm()
    post(left_qp, WRITE, [left.sge(0, 20_000)], va=right.va, rkey=right.key.rkey)
    calls = []
    left.cq.on_event = lambda: calls.append(1)
    assert left.device.wait_completion("channel", 5) is left.cq
    assert calls == [1]
    assert [c.status for c in left.cq.poll(2)] == [0]


def test_events_of_several_channels_reach_their_own(connected):
    _world, left, left_qp, right, _right_qp = connected
    other = left.device.create_cq(8, "other")
    qp = left.qp(cq=other)
    peer = right.qp()
    connect((left, qp), (right, peer))
    other.arm()
    left.cq.arm()
    for each in (left_qp, qp):
        post(each, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    assert left.device.wait_completion("other", 1) is other
    assert left.device.wait_completion("channel", 1) is left.cq


def test_an_overrun_completion_queue_is_an_event_and_never_silent(connected):
    world, left, _, right, _ = connected
    small = left.device.create_cq(2)
    left_qp, right_qp = left.qp(cq=small), right.qp()
    connect((left, left_qp), (right, right_qp))
    for wr_id in range(4):
        post(left_qp, WRITE, [left.sge(0, 8)], wr_id=wr_id, va=right.va, rkey=right.key.rkey)
    world.run(limit_ns=10**9)
    events = {left.device.next_event(0), left.device.next_event(0)}
    assert events == {(control.EVENT_CQ_ERR, small.number), (control.EVENT_QP_FATAL, left_qp.number)}
    assert left.device.next_event(0) is None
    assert [c.wr_id for c in small.poll(10)] == [0, 1]
    assert left_qp.state == 6
    assert left_qp.query()["qp_state"] == 6


def test_a_resized_queue_keeps_what_waits_in_it(connected):
    _, left, left_qp, right, _ = connected
    small = left.device.create_cq(4)
    left_qp, right_qp = left.qp(cq=small), right.qp()
    connect((left, left_qp), (right, right_qp))
    for wr_id in range(3):
        post(left_qp, WRITE, [left.sge(0, 8)], wr_id=wr_id, va=right.va, rkey=right.key.rkey)
    left.network.run(limit_ns=10**8)
    with pytest.raises(DriverError) as refused:
        small.resize(2)
    assert refused.value.errno == errno.EINVAL
    small.resize(100)
    assert small.entries == 100
    for wr_id in range(3, 8):
        post(left_qp, WRITE, [left.sge(0, 8)], wr_id=wr_id, va=right.va, rkey=right.key.rkey)
    assert [(c.wr_id, c.status) for c in left.poll(8, small)] == [(i, 0) for i in range(8)]


def test_draining_is_told(connected):
    _world, left, left_qp, right, _ = connected
    post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    left_qp.modify({"qp_state": 4, "en_sqd_async_notify": 1})
    assert left.device.next_event(1) == (control.EVENT_SQ_DRAINED, left_qp.number)
    assert left_qp.query()["en_sqd_async_notify"] == 0  # it has been told


# regions over a life


def test_a_registration_can_move_and_the_old_key_is_dead(connected):
    _, left, left_qp, right, _ = connected
    first, second = bytearray(100), bytearray(5000)
    key = right.device.reg_mr(right.pd, 0, 100, ALL_RIGHTS, iova=0x5000, buffer=first)
    new = right.device.rereg_mr(key.handle, 1, right.pd, 0, 5000, ALL_RIGHTS, buffer=second)
    va = address_of(second)
    assert new.handle == key.handle
    assert new.rkey != key.rkey
    first.extend(b"free again")  # the old buffer is let go
    with pytest.raises(BufferError):
        second.extend(b"held")
    post(left_qp, WRITE, [left.sge(0, 5000)], va=va, rkey=new.rkey)
    assert [c.status for c in left.poll(1)] == [0]
    assert second == PATTERN[:5000]
    right.device.dereg_mr(new.handle)
    second.extend(b"free")
    post(left_qp, WRITE, [left.sge(0, 8)], va=va, rkey=new.rkey)
    assert [c.status for c in left.poll(1)] == [10]


def test_rights_can_change_but_a_read_only_buffer_is_never_written(connected):
    _, left, left_qp, right, _ = connected
    constant = bytes(PATTERN[:100])
    key = right.device.reg_mr(right.pd, 0, 100, REMOTE_READ, iova=0, buffer=constant)
    with pytest.raises(DriverError) as refused:
        right.device.rereg_mr(key.handle, 4, right.pd, 0, 0, ALL_RIGHTS)
    assert refused.value.errno == errno.EACCES
    post(left_qp, READ, [left.sge(40_000, 100)], va=0, rkey=key.rkey)
    assert [c.status for c in left.poll(1)] == [0]
    assert left.memory[40_000:40_100] == constant
    assert right.device.rereg_mr(key.handle, 4, right.pd, 0, 0, 0).rkey == key.rkey
    post(left_qp, READ, [left.sge(40_000, 100)], va=0, rkey=key.rkey)
    assert [c.status for c in left.poll(1)] == [10]


def test_a_domain_can_change_and_holds_the_region_then(connected):
    _, left, left_qp, right, _ = connected
    other = right.device.alloc_pd()
    right.device.rereg_mr(right.key.handle, 2, other, 0, 0, 0)
    with pytest.raises(DriverError) as busy:
        right.device.dealloc_pd(other)
    assert busy.value.errno == errno.EBUSY
    post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    assert [c.status for c in left.poll(1)] == [10]
    assert not any(right.memory)


def test_part_of_a_buffer_is_registered_at_its_own_address(connected):
    _, left, left_qp, right, _ = connected
    whole = bytearray(20_000)
    place = address_of(whole) + 5001
    key = right.device.reg_mr(right.pd, place, 9000, ALL_RIGHTS, buffer=whole)
    post(left_qp, WRITE, [left.sge(0, 9000)], va=place, rkey=key.rkey)
    assert [c.status for c in left.poll(1)] == [0]
    assert whole == bytes(5001) + PATTERN[:9000] + bytes(20_000 - 14_001)
    post(left_qp, WRITE, [left.sge(0, 1)], va=place + 9000, rkey=key.rkey)
    assert [c.status for c in left.poll(1)] == [10]
    assert not any(whole[14_001:])


def test_host_memory_needs_no_arena(connected):
    _, left, left_qp, right, _ = connected
    memory = right.device.alloc_host_memory(10_000)
    key = right.device.reg_mr(right.pd, memory.address + 100, 9000, ALL_RIGHTS)
    arenas = len(right.node.adapter.hosts[1].arenas)
    post(left_qp, WRITE, [left.sge(0, 9000)], va=memory.address + 100, rkey=key.rkey)
    assert [c.status for c in left.poll(1)] == [0]
    assert arenas == 1
    post(left_qp, READ, [left.sge(40_000, 9000)], va=memory.address + 100, rkey=key.rkey)
    assert [c.status for c in left.poll(1)] == [0]
    assert left.memory[40_000:49_000] == PATTERN[:9000]
    right.device.dereg_mr(key.handle)
    memory.free()
    memory.free()


def test_work_of_a_destroyed_queue_pair_leaves_no_completion(connected):
    world, left, left_qp, right, _ = connected
    post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    left_qp.destroy()
    world.run(limit_ns=10**10)
    assert left.cq.poll(10) == []
