"""Reliable datagrams: queue pairs, EE contexts and RESYNC (IBTA vol. 1, 9.7.8, 9.9.2, 9.9.3, 10.2.4).

The standard's own numbers of these rules are not told here: a rule goes by its section and a word.
"""

from __future__ import annotations

from softhca.conformance.rd_rig import (
    ACK,
    NAK_ACCESS,
    NAK_INVALID,
    NAK_INVALID_RD,
    NAK_SEQUENCE,
    RdPair,
    RdStation,
    headers,
    transport_of,
)
from softhca.conformance.registry import ensure, expect, holds
from softhca.conformance.rig import LEFT_PSN, Setting
from softhca.queues.layout import (
    WC_INV_EEC_STATE_ERR,
    WC_INV_EECN_ERR,
    WC_LOC_RDD_VIOL_ERR,
    WC_REM_ABORT_ERR,
    WC_REM_ACCESS_ERR,
    WC_REM_INV_RD_REQ_ERR,
    WC_RETRY_EXC_ERR,
    WC_SUCCESS,
    WC_WR_FLUSH_ERR,
)
from softhca.queues.states import ERR, INIT, RTS, SQE
from softhca.testing import Datagram
from softhca.testing.ends import ALL_RIGHTS, QKEY, RC, SEND, WRITE
from softhca.wire import opcodes as op
from softhca.wire.aeth import Aeth
from softhca.wire.deth import Deth
from softhca.wire.rdeth import Rdeth

FULL = bytes(range(256))
FOREVER_NS = 1_000_000_000


@holds("9.7.8-headers")
def packets_name_the_ee_context_the_key_and_both_queue_pairs(setting: Setting) -> None:
    """Requests: RDETH with the peer's EE context, DETH with the Q_Key and the own queue pair; answers: RDETH
    with the requester's, no DETH, to its queue pair."""
    with RdPair(setting) as pair:
        pair.post(WRITE, 600)
        requests, answers = pair.sent(pair.left), pair.sent(pair.right)
        opcodes = [op.RD_RDMA_WRITE_FIRST, op.RD_RDMA_WRITE_MIDDLE, op.RD_RDMA_WRITE_LAST]
        expect("requests", [sent.bth.opcode for sent in requests], opcodes)
        for sent in requests:
            rdeth, deth = headers(sent)[:2]
            wanted = (Rdeth(ee_context=pair.right_ee.number), Deth(QKEY, source_qp=pair.left_qp.number))
            expect("RDETH and DETH of a request", (rdeth, deth), wanted)
            expect("its destination", sent.bth.dest_qp, pair.right_qp.number)
        ensure(bool(answers), "nothing is answered")
        for sent in answers:
            expect("RDETH of an answer", headers(sent)[0], Rdeth(ee_context=pair.left_ee.number))
            expect("its headers", [type(each) for each in headers(sent)], [Rdeth, Aeth])
            expect("its destination", sent.bth.dest_qp, pair.left_qp.number)


@holds("10.2.4-qkey")
def a_high_qkey_stands_for_the_queue_pairs_own(setting: Setting) -> None:
    """A Q_Key of a work request with bit 31: packets bear the sending queue pair's own; any other goes as it
    is."""
    own = QKEY + 7
    for asked, borne in ((0x80000000, own), (0x80000000 | QKEY, own), (0x55, 0x55)):
        with RdPair(setting) as pair:
            pair.post(WRITE, 8, qkey=asked, qp=pair.left.queue_pair(qkey=own))
            (deth,) = {headers(sent)[1] for sent in pair.sent(pair.left)}
            expect(f"Q_Key for {asked:#x}", deth.encode()[:4], borne.to_bytes(4, "big"))


@holds("9.7.8-one-message")
def an_ee_context_has_one_message_under_way(setting: Setting) -> None:
    """Three queue pairs send by one EE context: no message begins before the one before it was acknowledged,
    and each queue pair has its turn."""
    with RdPair(setting) as pair:
        senders = [pair.left.queue_pair() for _ in range(3)]
        for _ in range(2):
            for qp in senders:
                pair.post(WRITE, 300, qp=qp, ring=False)
        for qp in senders:
            qp.ring()
        pair.rig.settle()
        ways = ["request" if sent.source is pair.left.node else "answer" for sent in pair.rig.log]
        expect("packets", ways, ["request", "request", "answer"] * 6)
        firsts = [transport_of(sent) for sent in pair.sent(pair.left)][::2]
        turns = [row.extensions[1] for row in firsts]
        expect("turns", turns, [Deth(QKEY, source_qp=qp.number) for qp in senders] * 2)


@holds("9.7.8-one-message")
def a_queue_has_one_message_under_way(setting: Setting) -> None:
    """One queue pair sends by two EE contexts in turn: the second message begins when the first was
    acknowledged."""
    with RdPair(setting) as pair:
        third = RdStation(pair.rig, pair.rig.add(active_mtu=1, **setting.options))
        there = third.queue_pair()
        other, _ = pair.join(third)
        for ee, end, qp in ((pair.left_ee, pair.right, pair.right_qp), (other, third, there)) * 2:
            pair.post(WRITE, 8, ee=ee, qpn=qp.number, va=end.va, rkey=end.key.rkey, ring=False)
        pair.left_qp.ring()
        pair.rig.settle()
        names = {pair.left.node: "request", pair.right.node: "first", third.node: "second"}
        ways = [names[sent.source] for sent in pair.rig.log if sent.source]
        expect("packets", ways, ["request", "first", "request", "second"] * 2)


@holds("9.7.8-order")
def packets_are_executed_once_and_in_order(setting: Setting) -> None:
    """In order: executed; again: acknowledged, not executed; behind a gap: one sequence NAK, and nothing is
    executed until it is filled."""
    with RdPair(setting) as pair:
        sends = [pair.packet(op.RD_SEND_ONLY, n, b"abcd"[: n + 1]) for n in range(4)]
        for _ in sends:
            pair.receive()
        pair.give(sends[0])
        expect("answers", pair.answered(), [(0, ACK)])
        pair.give(sends[0])
        expect("answers to the same again", pair.answered(), [(0, ACK)])
        pair.give(sends[2], sends[3])
        expect("answers to a gap", pair.answered(), [(1, NAK_SEQUENCE)])
        pair.give(sends[1], sends[2])
        expect("answers once it is filled", pair.answered(), [(1, ACK), (2, ACK)])
        expect("messages", [done.byte_len for done in pair.right.completions()], [1, 2, 3])
        pair.whole("a gap")


@holds("9.7.8-queue-pair", "9.7.8-domain", "9.7.8-qkey")
def who_may_not_have_a_request_is_an_invalid_rd_request(setting: Setting) -> None:
    """A queue pair that is not there, of another service, not ready, of another domain; another Q_Key: NAK
    invalid RD request, nothing executed, both EE contexts and the queue pair go on."""
    with RdPair(setting) as pair:
        right, step = pair.right, 0
        elsewhere = right.queue_pair(rdd=right.device.alloc_rdd())
        asleep = right.queue_pair(ready=False)
        asleep.modify({"qp_state": INIT, "qkey": QKEY, "qp_access_flags": ALL_RIGHTS})
        for qp in (elsewhere, asleep, pair.right_qp):
            qp.post_recv(9, [right.sge(0, 600)])
        for what, fields in {
            "no queue pair": {"dest_qp": 0x77777},
            "another service": {"dest_qp": right.qp(RC).number},
            "not ready": {"dest_qp": asleep.number},
            "another domain": {"dest_qp": elsewhere.number},
            "another Q_Key": {"qkey": QKEY ^ 1},
        }.items():
            for opcode in (op.RD_SEND_ONLY, op.RD_RDMA_WRITE_ONLY):
                pair.give(pair.packet(opcode, step, b"no", **fields), pair.packet(op.RD_RESYNC, step))
                expect(f"answers to {what}", pair.answered(), [(step, NAK_INVALID_RD), (step, ACK)])
                step += 1
            expect(f"bytes written after {what}", pair.written(), 0)
            expect(f"completions after {what}", right.completions(), [])
            pair.whole(what)


@holds("9.7.8-rights")
def the_queue_pair_decides_what_its_packets_may_access(setting: Setting) -> None:
    """Its protection domain and the key's rights, not the EE context's: NAK remote access error; an operation
    that the queue pair does not allow: NAK invalid request."""
    with RdPair(setting) as pair:
        right = pair.right
        others = right.queue_pair(pd=right.device.alloc_pd()), right.queue_pair(access=0)
        readable = right.region(0, 64, access=4, va=0x900000)
        for step, (what, fields, wanted) in enumerate((
            ("no such key", {"rkey": pair.right.key.rkey ^ 0x100}, NAK_ACCESS),
            ("another protection domain", {"dest_qp": others[0].number}, NAK_ACCESS),
            ("a key without the right", {"rkey": readable.rkey, "va": readable.va}, NAK_ACCESS),
            ("beyond the range", {"va": right.va + len(right.memory) - 1}, NAK_ACCESS),
            ("a queue pair without the right", {"dest_qp": others[1].number}, NAK_INVALID),
        )):
            packet = pair.packet(op.RD_RDMA_WRITE_ONLY, step, b"no", **fields)
            pair.give(packet, pair.packet(op.RD_RESYNC, step))
            expect(f"answers to {what}", pair.answered(), [(step, wanted), (step, ACK)])
            expect(f"bytes written after {what}", pair.written(), 0)
            pair.whole(what)


@holds("9.7.8-one-message-in")
def a_message_is_for_one_queue_pair(setting: Setting) -> None:
    """A middle packet that names another queue pair, or comes from another one, is an invalid request; the
    receive of the message ends as aborted, the other queue pair's stays."""
    for other in ("destination", "source"):
        with RdPair(setting) as pair:
            bystander = pair.right.queue_pair()
            pair.receive()
            pair.receive(qp=bystander)
            pair.give(pair.packet(op.RD_SEND_FIRST, 0, FULL))
            pair.answered()
            fields = {"dest_qp": bystander.number} if other == "destination" else {"source_qp": 0x4321}
            pair.give(pair.packet(op.RD_SEND_LAST, 1, b"end", **fields))
            expect(f"answers to another {other}", pair.answered(), [(1, NAK_INVALID)])
            expect("completions", pair.statuses(pair.right), [(1, WC_REM_ABORT_ERR)])
            pair.whole(f"a message with another {other}")


@holds("9.7.8-refused")
def behind_a_refusal_nothing_is_executed_until_a_resync(setting: Setting) -> None:
    """Sound requests behind a NAK, also with the PSN that is expected, are not executed; the NAK is said
    again to the one that it refused; behind a RESYNC they are."""
    with RdPair(setting) as pair:
        pair.receive()
        pair.give(pair.packet(op.RD_SEND_ONLY, 0, b"no", qkey=QKEY ^ 1))
        expect("answers", pair.answered(), [(0, NAK_INVALID_RD)])
        for step, wanted in ((0, [(0, NAK_INVALID_RD)]), (1, []), (2, [])):
            pair.give(pair.packet(op.RD_SEND_ONLY, step, b"late"))
            expect(f"answers to a request {step} behind", pair.answered(), wanted)
        expect("completions", pair.right.completions(), [])
        pair.give(pair.packet(op.RD_RESYNC, 4), pair.packet(op.RD_SEND_ONLY, 5, b"now"))
        expect("answers", pair.answered(), [(4, ACK), (5, ACK)])
        expect("messages", [done.byte_len for done in pair.right.completions()], [3])


@holds("9.7.8-resync")
def a_resync_ends_the_message_and_sets_the_expected_psn(setting: Setting) -> None:
    """In the middle of a message, any distance ahead: its receive ends as aborted, the RESYNC is
    acknowledged, the next PSN is expected; what is older is a duplicate then, and not executed."""
    for ahead in (1, 2, 5, 1000, (1 << 23) - 2):
        with RdPair(setting) as pair:
            for _ in range(2):
                pair.receive()
            pair.give(pair.packet(op.RD_SEND_FIRST, 0, FULL))
            pair.answered()
            pair.give(pair.packet(op.RD_RESYNC, ahead))
            expect(f"answers to a RESYNC {ahead} ahead", pair.answered(), [(ahead, ACK)])
            expect("completions", pair.statuses(pair.right), [(1, WC_REM_ABORT_ERR)])
            pair.give(pair.packet(op.RD_SEND_LAST, 1, b"late"))
            pair.answered()
            expect("completions of what is late", pair.statuses(pair.right), [])
            pair.give(pair.packet(op.RD_SEND_ONLY, ahead + 1, b"new"))
            expect("answers behind it", pair.answered(), [(ahead + 1, ACK)])
            expect("completions", pair.statuses(pair.right), [(2, WC_SUCCESS)])


@holds("9.7.8-resync-again")
def a_resync_that_comes_again_changes_nothing(setting: Setting) -> None:
    """At once, behind a message, and in the middle of one: it is acknowledged, what was executed is not
    executed again, and the message under way goes on."""
    with RdPair(setting) as pair:
        for _ in range(3):
            pair.receive()
        resync = pair.packet(op.RD_RESYNC, 1)
        done = pair.packet(op.RD_SEND_ONLY, 2, b"one")
        pair.give(resync, resync)
        expect("answers", pair.answered(), [(1, ACK), (1, ACK)])
        pair.give(done, resync)
        expect("the first answer", pair.answered()[0], (2, ACK))
        pair.give(done)
        pair.answered()
        pair.give(pair.packet(op.RD_SEND_FIRST, 3, FULL), resync, pair.packet(op.RD_SEND_LAST, 4, b"end"))
        expect("messages", [found.byte_len for found in pair.right.completions()], [3, 259])


@holds("9.7.8-unknown-ee")
def packets_to_no_ready_ee_context_are_for_nobody(setting: Setting) -> None:
    """RDETH of an EE context that is not there, in RESET or in the error state: no answer, nothing executed,
    and counted."""
    with RdPair(setting) as pair:
        pair.receive()
        asleep = pair.right.device.create_ee(pair.right.rdd)
        for what, number in (("unknown", 0x333333), ("in RESET", asleep.number)):
            before = sum(pair.right.drops().values())
            pair.give(pair.packet(op.RD_SEND_ONLY, 0, b"no", ee=number))
            expect(f"answers of an EE context {what}", pair.answered(), [])
            expect("packets dropped", sum(pair.right.drops().values()), before + 1)
        pair.right_ee.modify({"qp_state": ERR})
        for opcode in (op.RD_SEND_ONLY, op.RD_RESYNC):
            pair.give(pair.packet(opcode, 0, b"no" if opcode == op.RD_SEND_ONLY else b""))
            expect("answers of an EE context in error", pair.answered(), [])
        expect("packets dropped", pair.right.drops()["state"] >= 2, True)
        expect("completions", pair.right.completions(), [])


@holds("9.7.8-local")
def a_request_that_may_not_use_its_ee_context_sends_nothing(setting: Setting) -> None:
    """No such EE context, one of another domain, one that is not in RTS: the work request fails, no packet is
    sent, no EE context changes."""
    with RdPair(setting) as pair:
        device = pair.left.device
        foreign, asleep = device.create_ee(device.alloc_rdd()), device.create_ee(pair.left.rdd)
        gone = device.create_ee(pair.left.rdd)
        gone.destroy()
        for ee, status, state in (
            (gone, WC_INV_EECN_ERR, SQE), (foreign, WC_LOC_RDD_VIOL_ERR, SQE),
            (asleep, WC_INV_EEC_STATE_ERR, RTS),
        ):  # fmt: skip
            pair.post(WRITE, 8, ee=ee, wr_id=status)
            expect("completions", pair.statuses(pair.left), [(status, status)])
            expect("state of the queue pair", pair.left_qp.query()["qp_state"], state)
            pair.left_qp.modify({"qp_state": RTS})
        expect("packets", len(pair.sent(pair.left)), 0)
        pair.whole("requests that could not go")


@holds("9.9.2-request-error", "9.7.8-resync-sender")
def a_refused_request_stops_its_queue_and_not_the_channel(setting: Setting) -> None:
    """The request fails, those behind it in its queue are flushed, the queue is in SQE; another queue's
    message goes on by the same EE context behind a RESYNC, whose PSN was never sent before."""
    with RdPair(setting) as pair:
        other = pair.left.queue_pair()
        for wr_id, fields in ((1, {"rkey": 1}), (2, {}), (3, {"qp": other})):
            pair.post(WRITE, 300, wr_id=wr_id, **fields)
        wanted = [(1, WC_REM_ACCESS_ERR), (2, WC_WR_FLUSH_ERR), (3, WC_SUCCESS)]
        expect("completions", sorted(pair.statuses(pair.left)), wanted)
        pair.whole("a request that was refused")
        pair.go_on()
        expect("state of the other queue", other.query()["qp_state"], RTS)
        packets = [(sent.bth.opcode, (sent.bth.psn - LEFT_PSN) & 0xFFFFFF) for sent in pair.sent(pair.left)]
        first, last = op.RD_RDMA_WRITE_FIRST, op.RD_RDMA_WRITE_LAST
        wanted = [(first, 0), (last, 1), (op.RD_RESYNC, 2), (first, 3), (last, 4)]
        expect("packets", packets, wanted)
        pair.post(WRITE, 8, wr_id=4)
        expect("completions", pair.statuses(pair.left), [(4, WC_SUCCESS)])


@holds("9.9.2-request-error")
def an_invalid_rd_request_is_told_as_such(setting: Setting) -> None:
    """The sender of a request that its receiver's queue pair may not have completes it as an invalid RD
    request."""
    with RdPair(setting) as pair:
        pair.post(WRITE, 8, wr_id=1, qkey=QKEY ^ 1)
        expect("completions", pair.statuses(pair.left), [(1, WC_REM_INV_RD_REQ_ERR)])
        pair.whole("an invalid RD request")


def _goes_to(sent: Datagram, station: RdStation) -> bool:
    """Whether a packet is for this station."""
    found = sent.route.dlid, sent.route.destination
    return bool(station.lid == found[0] if found[0] else station.gid == found[1])


@holds("9.9.2-ee-error")
def an_ee_context_that_does_not_get_through_is_in_error(setting: Setting) -> None:
    """Nothing is answered: as many tries as were set, then the EE context is in error; its other requests end
    for its state; requests by a healthy one had gone meanwhile, and complete in order."""
    with RdPair(setting) as pair:
        third = RdStation(pair.rig, pair.rig.add(active_mtu=1, **setting.options))
        there = third.queue_pair()
        healthy, _ = pair.join(third)
        pair.rig.tamper = lambda sent: None if _goes_to(sent, pair.right) else sent.data
        pair.post(WRITE, 8, wr_id=1)
        pair.post(WRITE, 8, wr_id=2, ee=healthy, qpn=there.number, va=third.va, rkey=third.key.rkey)
        pair.post(WRITE, 8, wr_id=3)
        pair.rig.elapse(FOREVER_NS)
        wanted = [(1, WC_RETRY_EXC_ERR), (2, WC_SUCCESS), (3, WC_INV_EEC_STATE_ERR)]
        expect("completions", pair.statuses(pair.left), wanted)
        expect("state of the EE context", pair.left_ee.query()["qp_state"], ERR)
        expect("state of the other one", healthy.query()["qp_state"], RTS)
        expect("state of the queue", pair.left_qp.query()["qp_state"], RTS)
        times = [sent.time_ns for sent in pair.rig.log if _goes_to(sent, pair.right)]
        expect("times that it was sent", len(times), 2)
        before = [sent.time_ns for sent in pair.rig.log if _goes_to(sent, third)]
        ensure(before[0] < times[-1] + (4096 << 8), "the healthy EE context had to wait for the error")


@holds("9.9.3-receive-error")
def a_receive_that_is_too_small_is_its_queue_pairs_own_fault(setting: Setting) -> None:
    """A message that is longer than its receive: NAK, the receive completes with an error; the EE
    contexts go on, and another queue pair behind them takes the next message."""
    with RdPair(setting) as pair:
        other = pair.right.queue_pair()
        pair.receive(100)
        pair.receive(600, other)
        pair.post(SEND, 300, wr_id=1)
        pair.rig.settle()
        ensure(bool([row for row in pair.statuses(pair.right) if row[1]]), "the receive has no error")
        (failed,) = pair.statuses(pair.left)
        ensure(failed[1] != WC_SUCCESS, "the sender believes it done")
        pair.go_on()
        pair.post(SEND, 300, wr_id=2, qpn=other.number)
        expect("completions", pair.statuses(pair.left), [(2, WC_SUCCESS)])
        expect("completions there", pair.statuses(pair.right), [(2, WC_SUCCESS)])
        states = [each.query()["qp_state"] for each in (pair.left_ee, pair.right_ee)]
        expect("states of the EE contexts", states, [RTS, RTS])
