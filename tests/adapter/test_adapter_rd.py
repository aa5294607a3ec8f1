"""Reliable datagrams: EE contexts, what goes through them, what fails, and what that does to others."""

import errno
from dataclasses import replace

import pytest

from softhca.driver.errors import DriverError
from softhca.queues.control_fields import QPT_RC, QPT_RD
from softhca.queues.layout import (
    WC_INV_EEC_STATE_ERR,
    WC_INV_EECN_ERR,
    WC_LOC_PROT_ERR,
    WC_LOC_RDD_VIOL_ERR,
    WC_REM_ABORT_ERR,
    WC_REM_ACCESS_ERR,
    WC_REM_INV_RD_REQ_ERR,
    WC_REM_INV_REQ_ERR,
    WC_RETRY_EXC_ERR,
    WC_RNR_RETRY_EXC_ERR,
    WC_SUCCESS,
    WC_WR_FLUSH_ERR,
)
from softhca.queues.states import ERR, INIT, RESET, RTS, SQE
from softhca.testing import Network
from softhca.testing.ends import COMPARE_SWAP, FETCH_ADD, QKEY, READ, SEND, SEND_IMM, UC, WRITE
from softhca.testing.reliable_datagrams import DatagramEnd, establish, join, send
from softhca.transport.migration import ARMED, MIGRATED, REARMED
from softhca.wire import opcodes
from softhca.wire.deth import Deth
from softhca.wire.packet import assemble
from softhca.wire.rdeth import Rdeth


@pytest.mark.parametrize(
    "faults", ["", "loss=15%", "duplicate=20%,reorder=20%", "loss=5%,duplicate=5%,reorder=5%"]
)
@pytest.mark.parametrize("opcode", [SEND, SEND_IMM, WRITE, READ])
def test_one_queue_pair_talks_to_queue_pairs_on_several_adapters(trio, opcode, faults):
    t = trio(faults, retry_cnt=7)
    here, size = t.left.memory, 3000
    here[: 8 * size] = bytes(k * 37 + k // 251 & 255 for k in range(8 * size))
    for which, (right, peer) in enumerate(zip(t.rights, t.peers, strict=True)):
        right.memory[32768:] = bytes([0xA0 + which]) * (len(right.memory) - 32768)
        for k in range(4):
            peer.post_recv(100 + k, [right.sge(size * k, size)])
    for k in range(8):
        which, place = k % 2, size * (k // 2)
        remote = t.rights[which].va + (40000 if opcode == READ else place)
        send(t.qp, opcode, [t.left.sge(size * k, size)], t.ees[which], t.peers[which], wr_id=k, imm=k,
             va=remote, rkey=t.rights[which].key.rkey)  # fmt: skip
    assert t.done(8) == [(k, WC_SUCCESS) for k in range(8)]
    for which, right in enumerate(t.rights):
        sent = [bytes(here[size * k : size * (k + 1)]) for k in range(which, 8, 2)]
        if opcode == READ:
            assert sent == [bytes([0xA0 + which]) * size] * 4
        else:
            assert bytes(right.memory[: 4 * size]) == b"".join(sent)
        if opcode in (SEND, SEND_IMM):
            found = right.poll(4)
            assert [(row.wr_id, row.status, row.byte_len, row.src_qp) for row in found] == [
                (100 + k, WC_SUCCESS, size, t.qp.number) for k in range(4)
            ]
            assert {row.vendor_err for row in found} == {t.theirs[which].number}


def test_atomics_are_done_once_though_answers_are_lost(trio):
    t = trio("loss=20%", retry_cnt=7)
    right = t.rights[0]
    for k in range(10):
        send(t.qp, FETCH_ADD, [t.left.sge(8 * k, 8)], t.ees[0], t.peers[0], wr_id=k,
             va=right.va + 64, rkey=right.key.rkey, compare=3)  # fmt: skip
    send(t.qp, COMPARE_SWAP, [t.left.sge(80, 8)], t.ees[0], t.peers[0], wr_id=10,
         va=right.va + 64, rkey=right.key.rkey, compare=30, swap=99)  # fmt: skip
    assert t.done(11) == [(k, WC_SUCCESS) for k in range(11)]
    words = [int.from_bytes(t.left.memory[8 * k : 8 * k + 8], "little") for k in range(11)]
    assert words == [3 * k for k in range(11)]
    assert int.from_bytes(right.memory[64:72], "little") == 99


def test_packets_bear_the_peers_context_the_key_and_both_queue_pairs(trio):
    t = trio()
    t.write(0, 1)
    assert t.done(1) == [(1, WC_SUCCESS)]
    requests = [p.packet.transport for p in t.packets if p.source is t.left.node]
    answers = [p.packet.transport for p in t.packets if p.source is not t.left.node]
    assert [row.bth.opcode for row in requests] == [opcodes.RD_RDMA_WRITE_FIRST, opcodes.RD_RDMA_WRITE_MIDDLE,
                                                    opcodes.RD_RDMA_WRITE_LAST]  # fmt: skip
    for row in requests:
        rdeth, deth = row.extensions[:2]
        assert rdeth.ee_context == t.theirs[0].number
        assert (deth.qkey, deth.source_qp, row.bth.dest_qp) == (QKEY, t.qp.number, t.peers[0].number)
    for row in answers:
        assert row.extensions[0].ee_context == t.ees[0].number
        assert row.bth.dest_qp == t.qp.number


def test_a_key_with_the_high_bit_is_the_queue_pairs_own(trio):
    t = trio()
    t.write(0, 1, qkey=1 << 31)
    assert t.done(1) == [(1, WC_SUCCESS)]


def test_an_ee_context_has_one_message_under_way_and_takes_queue_pairs_in_turn(trio):
    t = trio()
    others = [t.left.queue_pair() for _ in range(3)]
    right = t.rights[0]
    for k in range(4):
        for qp in others:
            send(qp, WRITE, [t.left.sge(0, 100)], t.ees[0], t.peers[0], wr_id=k, va=right.va,
                 rkey=right.key.rkey, ring=False)  # fmt: skip
    for qp in others:
        qp.ring()
    assert len(t.done(12)) == 12
    ways = [(p.source is t.left.node, p.packet.transport.extensions[1]) for p in t.packets]
    assert [way for way, _ in ways] == [True, False] * 12
    assert [deth.source_qp for way, deth in ways if way] == [qp.number for qp in others] * 4


REFUSALS = {
    "queue pair that is not there": (lambda t: {"qpn": 0x77777}, WC_REM_INV_RD_REQ_ERR),
    "queue pair of another service": (
        lambda t: {"qpn": t.rights[0].qp(QPT_RC).number}, WC_REM_INV_RD_REQ_ERR
    ),
    "queue pair that is not ready": (
        lambda t: {"qpn": t.rights[0].queue_pair(ready=False).number}, WC_REM_INV_RD_REQ_ERR
    ),
    "q_key": (lambda t: {"qkey": QKEY + 1}, WC_REM_INV_RD_REQ_ERR),
    "other domain there": (
        lambda t: {"qpn": t.rights[0].queue_pair(rdd=t.rights[0].device.alloc_rdd()).number},
        WC_REM_INV_RD_REQ_ERR,
    ),
    "r_key": (lambda t: {"rkey": t.rights[0].key.rkey + 0x100}, WC_REM_ACCESS_ERR),
    "protection domain": (
        lambda t: {"qpn": t.rights[0].queue_pair(pd=t.rights[0].device.alloc_pd()).number}, WC_REM_ACCESS_ERR
    ),
    "range": (lambda t: {"va": t.rights[0].va + 65535}, WC_REM_ACCESS_ERR),
    "no right of the queue pair": (
        lambda t: {"qpn": t.rights[0].queue_pair(access=0).number}, WC_REM_INV_REQ_ERR
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSALS)
def test_a_refused_message_stops_its_queue_and_neither_end_of_the_channel(trio, why):
    t = trio()
    fields, status = REFUSALS[why]
    fields = fields(t)
    t.write(0, 1, **fields)
    t.write(0, 2)
    assert t.done(2) == [(1, status), (2, WC_WR_FLUSH_ERR)]
    assert t.qp.query()["qp_state"] == SQE
    assert {ee.query()["qp_state"] for ee in (*t.ees, *t.theirs)} == {RTS}
    assert t.peers[0].query()["qp_state"] == RTS
    t.qp.modify({"qp_state": RTS})
    t.write(0, 3)
    assert t.done(1) == [(3, WC_SUCCESS)]
    assert t.opcodes().count(opcodes.RD_RESYNC) == 1


LOCAL = {
    "no such context": (lambda t: {"ah": 0x333333}, WC_INV_EECN_ERR),
    "another domain": (
        lambda t: {"ah": t.left.device.create_ee(t.left.device.alloc_rdd()).number}, WC_LOC_RDD_VIOL_ERR
    ),
    "a context that is not ready": (
        lambda t: {"ah": t.left.device.create_ee(t.left.rdd).number}, WC_INV_EEC_STATE_ERR
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", LOCAL)
def test_a_request_that_cannot_go_sends_nothing(trio, why):
    t = trio()
    fields, status = LOCAL[why]
    number = fields(t)["ah"]
    t.qp.post_send(WRITE, 2, 0, 5, 0, 0, 0, 0, number, 1, QKEY, [t.left.sge(0, 8)], None)
    t.qp.ring()
    assert t.done(1) == [(5, status)]
    assert t.packets == []
    assert t.qp.query()["qp_state"] == (RTS if status == WC_INV_EEC_STATE_ERR else SQE)


def test_a_local_error_in_the_middle_of_a_message_aborts_it_at_the_peer(trio):
    t = trio(mtu=1)  # of 256 bytes: a message of 60,000 takes several bursts
    part = t.left.region(0, 60_000, va=0x900000)
    t.peers[0].post_recv(1, [t.rights[0].sge(0, 65536)])
    gone = []

    def deregister(sent):
        if not gone:
            gone.append(t.left.device.dereg_mr(part.handle))
        return sent.data

    t.network.tamper = deregister
    send(t.qp, SEND, [(part.va, 60_000, part.lkey)], t.ees[0], t.peers[0], wr_id=1)
    assert t.done(1) == [(1, WC_LOC_PROT_ERR)]
    assert [(row.wr_id, row.status) for row in t.rights[0].poll(1)] == [(1, WC_REM_ABORT_ERR)]
    assert t.ees[0].query()["qp_state"] == RTS
    t.qp.modify({"qp_state": RTS})
    t.write(0, 2)
    assert t.done(1) == [(2, WC_SUCCESS)]


@pytest.mark.parametrize("how", ["error", "reset", "destroy"])
def test_a_queue_pair_that_ends_in_a_message_leaves_the_channel_to_others(trio, how):
    t = trio()
    other = t.left.queue_pair()
    t.peers[0].post_recv(1, [t.rights[0].sge(0, 8192)])
    held = []
    t.network.tamper = lambda sent: held.append(sent) if last_of_send(sent) else sent.data

    def last_of_send(sent):
        return sent.packet.transport.bth.opcode == opcodes.RD_SEND_LAST

    send(t.qp, SEND, [t.left.sge(0, 3000)], t.ees[0], t.peers[0], wr_id=1)
    t.network.run(lambda: held)
    if how == "destroy":
        t.qp.destroy()
    else:
        t.qp.modify({"qp_state": ERR if how == "error" else RESET})
    right = t.rights[0]
    send(other, WRITE, [t.left.sge(0, 500)], t.ees[0], t.peers[0], wr_id=2, va=right.va, rkey=right.key.rkey)
    assert t.done(1 + (how == "error")) == [(1, WC_WR_FLUSH_ERR)] * (how == "error") + [(2, WC_SUCCESS)]
    assert [(row.wr_id, row.status) for row in right.poll(1)] == [(1, WC_REM_ABORT_ERR)]
    assert opcodes.RD_RESYNC in t.opcodes()
    before = bytes(right.memory)
    t.inject(held[0])  # late, from before the RESYNC
    t.network.elapse(10_000_000)
    assert bytes(right.memory) == before
    assert right.poll(1) == []


def test_a_repeated_resync_is_acknowledged_again_and_changes_nothing(trio):
    t = trio()
    t.write(0, 1, rkey=1)
    t.done(1)
    t.qp.modify({"qp_state": RTS})
    t.write(0, 2)
    assert t.done(1) == [(2, WC_SUCCESS)]
    (resync,) = [p for p in t.packets if p.packet.transport.bth.opcode == opcodes.RD_RESYNC]
    count = len(t.packets)
    t.inject(resync)
    t.network.elapse(1_000_000)
    assert t.opcodes()[count:] == [opcodes.RD_ACKNOWLEDGE]
    t.write(0, 3)
    assert t.done(1) == [(3, WC_SUCCESS)]


def forge(t, opcode, psn, qkey=QKEY, **fields):
    """Let a packet without payload come to the first right end from the left address, otherwise as the last
    request that came from there."""
    last = [sent for sent in t.packets if sent.route.destination == t.rights[0].node.gid][-1]
    bth = replace(last.packet.transport.bth, opcode=opcode, psn=psn & 0xFFFFFF, ack_request=1, **fields)
    extensions = Rdeth(ee_context=t.theirs[0].number), Deth(qkey=qkey, source_qp=t.qp.number)
    data = assemble(last.route, bth, extensions).transport.encode()
    t.network.inject(t.rights[0].node, data, t.left.node.gid, source_port=last.route.source_port)
    t.network.elapse(1_000_000)


def responder_of(t):
    """The half of the first right end's EE context that takes requests."""
    return t.rights[0].node.adapter.ee_contexts[t.theirs[0].number].receive_engine()


@pytest.mark.parametrize("opcode", [SEND, WRITE, READ, FETCH_ADD])
@pytest.mark.parametrize("jumps", [(1 << 22,), (1 << 22, 0), (5, 1, 1 << 22)])
def test_who_has_sent_no_resync_does_not_believe_done_what_one_has_passed_over(trio, opcode, jumps):
    """One that was forged ends the channel: nothing that is sent after it, and was not executed, is
    acknowledged."""
    t = trio()
    right = t.rights[0]
    t.write(0, 1)
    assert t.done(1) == [(1, WC_SUCCESS)]
    for ahead in jumps:  # with a Q_Key and a queue pair that there are not
        psn = responder_of(t).epsn + ahead
        forge(t, opcodes.RD_RESYNC, psn, qkey=QKEY ^ 1, dest_qp=0xABCDEF)
    before = bytes(right.memory)
    t.peers[0].post_recv(7, [right.sge(0, 100)])
    t.left.memory[:100] = bytes(range(1, 101))
    length = 8 if opcode == FETCH_ADD else 100
    send(t.qp, opcode, [t.left.sge(0, length)], t.ees[0], t.peers[0], wr_id=2, va=right.va,
         rkey=right.key.rkey)  # fmt: skip
    assert t.done(1) == [(2, WC_RETRY_EXC_ERR)]
    assert bytes(right.memory) == before
    assert right.poll(1) == []


def test_what_a_resync_has_passed_over_is_forgotten_when_half_of_all_psns_have_come(trio):
    """PSNs come again, and then stand for what was executed since."""
    t = trio()
    t.write(0, 1)
    assert t.done(1) == [(1, WC_SUCCESS)]
    responder = responder_of(t)
    floor = responder.epsn + 5
    forge(t, opcodes.RD_RESYNC, floor)
    for k in range(4):
        t.peers[0].post_recv(k, [])

    def answers(psn):
        before = len(t.packets)
        forge(t, opcodes.RD_SEND_ONLY, psn)
        return t.opcodes()[before:]

    again, acknowledged = floor - 1, [opcodes.RD_ACKNOWLEDGE]
    assert answers(again) == []
    for behind, forgotten in ((1, False), ((1 << 23) - 1, False), (1 << 23, True)):
        responder.epsn = (floor + behind) & 0xFFFFFF
        assert answers(responder.epsn) == acknowledged
        responder.epsn = floor & 0xFFFFFF
        assert answers(again) == (acknowledged if forgotten else []), behind


def test_a_receiver_that_is_not_ready_is_waited_for_and_given_up(trio):
    t = trio(rnr_retry=2)
    send(t.qp, SEND, [t.left.sge(0, 10)], t.ees[0], t.peers[0], wr_id=1)
    assert t.done(1) == [(1, WC_RNR_RETRY_EXC_ERR)]
    assert t.ees[0].query()["qp_state"] == RTS
    t.qp.modify({"qp_state": RTS})
    t.peers[0].post_recv(9, [t.rights[0].sge(0, 64)])
    send(t.qp, SEND, [t.left.sge(0, 10)], t.ees[0], t.peers[0], wr_id=2)
    assert t.done(1) == [(2, WC_SUCCESS)]


def test_receives_of_a_queue_pair_are_taken_by_several_contexts_at_a_time():
    network = Network()
    right = DatagramEnd(network.add())
    lefts = [DatagramEnd(network.add(), fill=k + 1) for k in range(3)]
    channels = [join(left, right) for left in lefts]
    peer = right.queue_pair()
    qps = [left.queue_pair() for left in lefts]
    for k in range(3):
        peer.post_recv(k, [right.sge(8192 * k, 8192)])
    for left, qp, (ee, _) in zip(lefts, qps, channels, strict=True):
        send(qp, SEND, [left.sge(0, 5000)], ee, peer)
    found = right.poll(3)
    assert sorted(row.wr_id for row in found) == [0, 1, 2]
    for row in found:
        which = [qp.number for qp in qps].index(row.src_qp) if len({qp.number for qp in qps}) == 3 else -1
        content = bytes(right.memory[8192 * row.wr_id : 8192 * row.wr_id + 5000])
        assert content == bytes([content[0]]) * 5000
        assert which in (-1, content[0] - 1)
    network.close()


# the error cache


def test_a_dead_context_does_not_keep_the_others_waiting(trio):
    t = trio()
    t.dead.add(0)
    t.write(0, 0)
    for k in range(1, 9):
        t.write(1 if k != 5 else 0, k)
    assert t.done(9) == [
        (0, WC_RETRY_EXC_ERR), *[(k, WC_SUCCESS) for k in range(1, 5)], (5, WC_INV_EEC_STATE_ERR),
        *[(k, WC_SUCCESS) for k in range(6, 9)],
    ]  # fmt: skip
    assert t.qp.query()["qp_state"] == RTS
    assert [ee.query()["qp_state"] for ee in t.ees] == [ERR, RTS]
    first_time_out = 4096 << 8
    writes = [p.time_ns for p in t.packets if p.route.destination == t.rights[1].node.gid]
    assert writes[-1] - t.packets[0].time_ns < first_time_out
    assert (t.figures()["ee_error_cache_entries"], t.figures()["ee_error_cache_set_aside"]) == (0, 2)


def test_a_request_is_set_aside_long_before_it_is_sent_again(trio):
    t = trio()
    t.dead.add(0)
    t.write(0, 0, 8)
    t.write(1, 1, 8)
    interval_ns = 2 * (4096 << 8)
    begun_ns = t.network.now
    t.network.run(lambda: t.figures()["ee_error_cache_entries"])
    assert interval_ns // 16 <= t.network.now - begun_ns < interval_ns // 12
    t.network.elapse(interval_ns // 2)
    to_each = [[p for p in t.packets if p.route.destination == right.node.gid] for right in t.rights]
    assert [len(packets) for packets in to_each] == [1, 1]
    t.dead.clear()
    assert t.done(2) == [(0, WC_SUCCESS), (1, WC_SUCCESS)]
    resent = [p.time_ns for p in t.packets if p.route.destination == t.rights[0].node.gid]
    assert resent[1] - begun_ns >= interval_ns


def test_a_context_that_has_answered_is_not_in_trouble_though_it_sends_for_long(trio):
    t = trio(mtu=1)
    for k in range(8):
        t.write(0, k, 60_000)
    assert t.done(8) == [(k, WC_SUCCESS) for k in range(8)]
    t.network.elapse(100_000_000)
    assert t.figures()["ee_error_cache_set_aside"] == 0
    t.write(0, 9)
    assert t.done(1) == [(9, WC_SUCCESS)]
    assert t.figures()["ee_error_cache_set_aside"] == 0


def test_without_a_cache_the_queue_waits_and_stops(trio):
    t = trio(config={"ee_error_cache": 0})
    t.dead.add(0)
    t.write(0, 0)
    t.write(1, 1)
    assert t.done(2) == [(0, WC_RETRY_EXC_ERR), (1, WC_WR_FLUSH_ERR)]
    assert t.qp.query()["qp_state"] == SQE
    assert not [p for p in t.packets if p.route.destination == t.rights[1].node.gid]


def test_a_full_cache_keeps_a_queue_waiting_until_a_place_is_free(trio):
    t = trio(config={"ee_error_cache": 1})
    other = t.left.queue_pair()
    t.dead.add(0)
    t.write(0, 0)
    right = t.rights[0]
    send(other, WRITE, [t.left.sge(0, 8)], t.ees[0], t.peers[0], wr_id=100, va=right.va, rkey=right.key.rkey)
    healthy = t.rights[1]
    send(other, WRITE, [t.left.sge(0, 8)], t.ees[1], t.peers[1], wr_id=101, va=healthy.va,
         rkey=healthy.key.rkey)  # fmt: skip
    t.write(1, 1)
    found = t.left.poll(4)
    assert sorted((row.wr_id, row.status) for row in found) == [
        (0, WC_RETRY_EXC_ERR), (1, WC_SUCCESS), (100, WC_INV_EEC_STATE_ERR), (101, WC_SUCCESS),
    ]  # fmt: skip
    assert t.figures()["ee_error_cache_refused"] == 1
    assert t.figures()["ee_error_cache_most"] == 1
    to_healthy = [p for p in t.packets if p.route.destination == healthy.node.gid]
    assert to_healthy[0].time_ns < to_healthy[-1].time_ns - 2 * (4096 << 8)  # the second queue had to wait


def test_what_was_set_aside_goes_when_the_peer_is_back(trio):
    t = trio(retry_cnt=7)
    t.dead.add(0)
    for k in range(6):
        t.write(k % 2, k)
    t.network.run(lambda: t.figures()["ee_error_cache_entries"] == 3)
    t.dead.clear()
    assert t.done(6) == [(k, WC_SUCCESS) for k in range(6)]
    assert t.figures()["ee_error_cache_entries"] == 0


def test_a_context_is_set_up_again_after_its_failure(trio):
    t = trio()
    t.dead.add(0)
    t.write(0, 0)
    assert t.done(1) == [(0, WC_RETRY_EXC_ERR)]
    t.dead.clear()
    for ee in (t.ees[0], t.theirs[0]):
        ee.modify({"qp_state": RESET})
    establish(t.left, t.ees[0], t.rights[0], t.theirs[0].number, 500, 600)
    establish(t.rights[0], t.theirs[0], t.left, t.ees[0].number, 600, 500)
    t.write(0, 1)
    assert t.done(1) == [(1, WC_SUCCESS)]


@pytest.mark.parametrize("how", ["error", "reset", "destroy"])
def test_a_context_that_ends_ends_what_waits_on_it(trio, how):
    t = trio()
    t.dead.add(0)
    for k in range(3):
        t.write(0, k)
    t.network.run(lambda: t.figures()["ee_error_cache_entries"] == 3)
    if how == "destroy":
        t.ees[0].destroy()
    else:
        t.ees[0].modify({"qp_state": ERR if how == "error" else RESET})
    assert t.done(3) == [(k, WC_INV_EEC_STATE_ERR) for k in range(3)]
    assert t.figures()["ee_error_cache_entries"] == 0
    t.write(1, 4)
    assert t.done(1) == [(4, WC_SUCCESS)]


# resources


def test_a_domain_is_in_use_as_long_as_anything_is_in_it(trio):
    t = trio()
    with pytest.raises(DriverError) as refused:
        t.left.device.dealloc_rdd(t.left.rdd)
    assert refused.value.errno == errno.EBUSY
    domain = t.left.device.alloc_rdd()
    ee = t.left.device.create_ee(domain)
    with pytest.raises(DriverError):
        t.left.device.dealloc_rdd(domain)
    ee.destroy()
    t.left.device.dealloc_rdd(domain)
    with pytest.raises(DriverError) as refused:
        t.left.device.create_ee(domain)
    assert refused.value.errno == errno.EINVAL


def test_a_queue_pair_needs_a_domain_and_takes_no_shared_receives(trio):
    t = trio()
    srq = t.left.device.create_srq(t.left.pd, 4, 1)
    for options in ({}, {"rdd": t.left.rdd, "srq": srq}):
        with pytest.raises(DriverError) as refused:
            t.left.device.create_qp(
                t.left.pd, QPT_RD, t.left.cq, t.left.cq, options.pop("srq", None), 1, 1, 1, 1, 0, True,
                **options,
            )  # fmt: skip
        assert refused.value.errno == errno.EINVAL


def test_attributes_of_a_context_are_read_as_they_were_given(trio):
    t = trio()
    found = t.ees[0].query()
    assert (found["dest_qp_num"], found["timeout"], found["retry_cnt"]) == (t.theirs[0].number, 8, 3)
    t.write(0, 1)
    t.done(1)
    assert t.ees[0].query()["dest_qp_num"] == t.theirs[0].number
    served = t.theirs[0].query()  # by now it has answered for a queue pair that has all three
    assert [served[name] for name in ("qp_access_flags", "min_rnr_timer", "qkey")] == [0, 0, 0]
    with pytest.raises(DriverError) as refused:
        t.ees[0].modify({"qp_state": INIT})
    assert refused.value.errno == errno.EINVAL
    assert t.left.device.query_counters(ee=t.ees[0].number)["packets_sent"] > 0


def test_a_context_is_changed_by_the_tables_of_the_port_that_it_lives_on():
    with Network() as world:
        end = DatagramEnd(world.add(1, ports=2))
        end.node.adapter.set_pkeys(2, (0xFFFF, 0x8001))
        ee, qp = end.device.create_ee(end.rdd), end.qp(UC)
        for element, rights in ((ee, {}), (qp, {"qp_access_flags": 0})):
            element.modify({"qp_state": INIT, "port_num": 2, "pkey_index": 0, **rights})
            element.modify({"qp_state": INIT, "pkey_index": 1})
            assert element.query()["pkey_index"] == 1


def test_a_context_has_no_alternate_path(trio):
    t = trio()
    path = t.left.network.addressing.path(t.rights[1].node)
    before = t.ees[0].query()
    assert before["path_mig_state"] == MIGRATED
    with pytest.raises(DriverError) as refused:
        t.ees[0].modify({
            "alt_ah_attr": path.vector(), "alt_port_num": 1, "alt_pkey_index": 0, "alt_timeout": 8,
        })  # fmt: skip
    assert refused.value.errno == errno.EOPNOTSUPP
    for state in (REARMED, ARMED, MIGRATED):
        with pytest.raises(DriverError) as refused:
            t.ees[0].modify({"path_mig_state": state})
        assert refused.value.errno == errno.EINVAL
    assert t.ees[0].query() == before
    t.write(0, 1)
    assert t.done(1) == [(1, WC_SUCCESS)]


@pytest.mark.parametrize(
    "what", ["unknown context", "context of another port", "context that is not ready", "stranger"]
)
def test_packets_that_are_for_nobody_are_dropped_and_counted(trio, what):
    t = trio()
    t.write(0, 1)
    t.done(1)
    packet = next(p for p in t.packets if p.source is t.left.node)
    right = t.rights[0]
    reasons = {"context that is not ready": "state", "stranger": "source"}
    reason = reasons.get(what, "unknown_qp")
    source = t.left.node.gid
    if what == "unknown context":
        t.theirs[0].destroy()
    elif what == "context of another port":
        right.node.adapter.ee_contexts[t.theirs[0].number].flow.port_number = 2
    elif what == "context that is not ready":
        t.theirs[0].modify({"qp_state": ERR})
    else:
        source = t.rights[1].node.gid
    before = right.node.adapter.port_counters()[f"drops_{reason}"]
    t.network.inject(right.node, packet.data, source, source_port=packet.route.source_port)
    t.network.elapse(1_000_000)
    assert right.node.adapter.port_counters()[f"drops_{reason}"] == before + 1
