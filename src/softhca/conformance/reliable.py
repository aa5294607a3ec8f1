"""Rules of reliable connections that the transport cites, by statement or section (IBTA vol. 1, 9.7)."""

from __future__ import annotations

from typing import Any

from softhca.conformance.registry import ensure, expect, holds
from softhca.conformance.rig import LEFT_PSN, ON_ROCE, UNTOUCHED, Pair, Setting
from softhca.driver import services
from softhca.queues.layout import WC_RETRY_EXC_ERR, WC_WR_FLUSH_ERR
from softhca.testing import Datagram
from softhca.testing.ends import RC, SEND
from softhca.transport.states import ERR
from softhca.wire import opcodes as op
from softhca.wire.aeth import Aeth
from softhca.wire.atomicacketh import AtomicAckEth
from softhca.wire.atomiceth import AtomicEth
from softhca.wire.layout import Header

ACK, RNR, NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS = 0x00, 0x20, 0x60, 0x61, 0x62
RNR_20_NS = 10_240_000
MOST_BYTES = 1 << 31
FULL = bytes(256)


def _extensions(sent: Datagram) -> tuple[Header, ...]:
    """The extension headers of an answer."""
    return () if sent.packet is None else sent.packet.transport.extensions


def _payload(sent: Datagram) -> bytes:
    return b"" if sent.packet is None else sent.packet.transport.payload


def _syndrome(sent: Datagram) -> int:
    """The syndrome of an answer: an ACK's without its credits, a NAK's whole."""
    syndrome = Aeth.decode(_extensions(sent)[0].encode()).syndrome
    return syndrome if syndrome & 0x60 else ACK


def _answered(pair: Pair) -> list[tuple[int, int]]:
    """PSN and syndrome of each answer since the last call."""
    found = [(sent.bth.psn, _syndrome(sent)) for sent in pair.answers()]
    pair.rig.log.clear()
    return found


@holds("C9-9")
def no_operation_moves_more_than_two_gib(setting: Setting) -> None:
    """RDMA WRITE and READ requests that say 2^31 + 1 bytes and more are refused as invalid before their key
    is looked at; nothing is written and nothing is sent."""
    for opcode, payload in ((op.RC_RDMA_WRITE_FIRST, FULL), (op.RC_RDMA_READ_REQUEST, b"")):
        for length in (MOST_BYTES + 1, 0xFFFFFFFF):
            with setting.pair(RC) as pair:
                va, key = pair.right.va, pair.right.key.rkey
                packet = pair.packet(opcode, LEFT_PSN, payload, va=va, rkey=key ^ 0x100, length=length)
                pair.give(packet)
                expect(f"answers to {length} bytes", _answered(pair), [(LEFT_PSN, NAK_INVALID)])
                expect("state", pair.right.state_of(pair.right_qp), ERR)
                expect("bytes written", len(pair.right.memory) - pair.right.memory.count(UNTOUCHED), 0)


@holds("C9-60", settings=(ON_ROCE,))
def psns_are_older_or_newer_by_half_of_their_circle(setting: Setting) -> None:
    """The 2^23 PSNs before the expected one are duplicates, which are acknowledged and not executed; the
    others are gaps, which get one NAK."""
    for expected in (0, 5, 0x7FFFFF, 0x800000, 0xFFFFFF):
        for step, answer in ((-1, ACK), (-(1 << 23), ACK), (1, NAK_SEQUENCE), ((1 << 23) - 1, NAK_SEQUENCE)):
            with setting.pair(RC, left_psn=expected) as pair:
                pair.receive(0, 100)
                psn = (expected + step) & 0xFFFFFF
                pair.give(pair.packet(op.RC_SEND_ONLY, psn, b"x", ack_request=1))
                seen = [syndrome for _, syndrome in _answered(pair)]
                expect(f"answers to PSN {psn:#x} for {expected:#x}", seen, [answer])
                expect("completions", pair.right.completions(), [])
                pair.give(pair.packet(op.RC_SEND_ONLY, expected, b"it", ack_request=1))
                expect("completions", [done.byte_len for done in pair.right.completions()], [2])


@holds("C9-60")
def a_mute_peer_leaves_few_psns_open(setting: Setting) -> None:
    """Nothing is answered: what was sent and not acknowledged stays far below 2^23 PSNs, retries too."""
    with setting.pair(RC) as pair:
        pair.rig.tamper = lambda sent: None
        for _ in range(32):
            pair.post(SEND, [pair.left.sge(0, 8192)] * 2)
        pair.rig.elapse(1_000_000_000)
        ahead = {(sent.bth.psn - LEFT_PSN) & 0xFFFFFF for sent in pair.sent()}
        expect("packets beyond what was posted", max(ahead) < 32 * 64, True)
        expect("the first is sent again", len(pair.sent()) > len(ahead), True)


@holds("9.7.4.1.1")
def the_expected_packet_is_executed_once(setting: Setting) -> None:
    """In order: executed and acknowledged; again: acknowledged, not executed; behind a gap: one NAK."""
    with setting.pair(RC, left_psn=50) as pair:
        for n in range(4):
            pair.receive(100 * n, 100)
        send = [pair.packet(op.RC_SEND_ONLY, 50 + n, b"abc"[: n + 1], ack_request=1) for n in range(6)]
        pair.give(send[0])
        expect("answers", _answered(pair), [(50, ACK)])
        pair.give(send[0])
        expect("answers to the same again", _answered(pair), [(50, ACK)])
        pair.give(send[2], send[3], send[2])
        expect("answers to a gap", _answered(pair), [(51, NAK_SEQUENCE)])
        pair.give(send[1], send[2])
        expect("answers once it is filled", _answered(pair), [(51, ACK), (52, ACK)])
        pair.give(send[5])
        expect("answers to the next gap", _answered(pair), [(53, NAK_SEQUENCE)])
        expect("messages", [done.byte_len for done in pair.right.completions()], [1, 2, 3])


@holds("9.7.4.1.2", settings=(ON_ROCE,))
def a_wrong_opcode_sequence_ends_the_connection(setting: Setting) -> None:
    """Each request behind each beginning that it may not follow: NAK invalid request, and the error state."""
    requests = [code for code, row in op.OPCODES.items() if row.service == op.RC and not row.is_response]
    begins = (None, op.RC_SEND_FIRST, op.RC_RDMA_WRITE_FIRST)
    for before in begins:
        may = {code for code in requests if op.OPCODES[code].position in (op.FIRST, op.ONLY)}
        may = may if before is None else set(op.SUCCESSORS[before])
        for code in sorted(set(requests) - may):
            with setting.pair(RC, left_psn=50) as pair:
                pair.receive(0, 2000)
                key: dict[str, Any] = {"rkey": pair.right.key.rkey, "length": 1024}
                key["va"] = pair.right.va + 4096
                if before is not None:
                    pair.give(pair.packet(before, 50, FULL, **key))
                payload = FULL if op.OPCODES[code].payload else b""
                psn = 50 if before is None else 51
                pair.give(pair.packet(code, psn, payload, **key))
                name = op.OPCODES[code].name
                expect(f"answers to {name}", _answered(pair), [(psn, NAK_INVALID)])
                expect(f"state after {name}", pair.right.state_of(pair.right_qp), ERR)


@holds("9.7.4.1.6")
def a_wrong_payload_length_ends_the_connection(setting: Setting) -> None:
    """First and middle of other than a PMTU, an empty last, what is longer than a PMTU: NAK invalid."""
    first, middle, last, only = (op.RC_SEND_FIRST, op.RC_SEND_MIDDLE, op.RC_SEND_LAST, op.RC_SEND_ONLY)
    for begin, code, size in (
        (False, first, 252), (False, first, 260), (False, first, 255), (False, only, 257),
        (True, middle, 252), (True, middle, 260), (True, last, 0), (True, last, 257),
    ):  # fmt: skip
        with setting.pair(RC, left_psn=50) as pair:
            pair.receive(0, 2000)
            if begin:
                pair.give(pair.packet(first, 50, FULL))
            pair.give(pair.packet(code, 50 + begin, bytes(size)))
            name = f"{op.OPCODES[code].name} of {size} bytes"
            expect(f"answers to {name}", _answered(pair), [(50 + begin, NAK_INVALID)])
            beyond = pair.right.memory[256 if begin else 0 :]
            expect("bytes written", len(beyond) - beyond.count(UNTOUCHED), 0)


@holds("9.7.4.1.5")
def a_key_violation_ends_the_connection(setting: Setting) -> None:
    """WRITE, READ and atomics with a bad key: NAK remote access error, nothing read or written."""
    for code in (op.RC_RDMA_WRITE_ONLY, op.RC_RDMA_READ_REQUEST, op.RC_FETCH_ADD, op.RC_COMPARE_SWAP):
        with setting.pair(RC, left_psn=50) as pair:
            va, key = pair.right.va, pair.right.key.rkey ^ 0x100
            if op.OPCODES[code].headers == ("atomiceth",):
                packet = pair.packet(code, 50, extensions=(AtomicEth(va, key, 1, 0),))
            else:
                payload = b"bad!" if code == op.RC_RDMA_WRITE_ONLY else b""
                packet = pair.packet(code, 50, payload, va=va, rkey=key, length=4)
            pair.give(packet)
            expect(f"answers to {op.OPCODES[code].name}", _answered(pair), [(50, NAK_ACCESS)])
            expect("state", pair.right.state_of(pair.right_qp), ERR)
            expect("bytes written", len(pair.right.memory) - pair.right.memory.count(UNTOUCHED), 0)


@holds("9.7.5.1.2")
def duplicates_are_answered_and_not_executed_again(setting: Setting) -> None:
    """An atomic gives the result that it had; a READ gives what memory holds now; a WRITE writes nothing."""
    with setting.pair(RC, left_psn=50) as pair:
        va, key = pair.right.va, pair.right.key.rkey
        pair.right.memory[:8] = (5).to_bytes(8, "little")
        add = pair.packet(op.RC_FETCH_ADD, 50, extensions=(AtomicEth(va, key, 3, 0),), ack_request=1)
        pair.give(add, add)
        pair.rig.settle()
        results = [AtomicAckEth.decode(_extensions(sent)[1].encode()).original for sent in pair.answers()]
        expect("results of the atomic", results, [5, 5])
        expect("the counter", int.from_bytes(pair.right.memory[:8], "little"), 8)
        pair.rig.log.clear()
        read = pair.packet(op.RC_RDMA_READ_REQUEST, 51, va=va + 64, rkey=key, length=4)
        pair.give(read)
        pair.right.memory[64:68] = b"anew"
        pair.give(read)
        payloads = [_payload(sent) for sent in pair.answers()]
        expect("what was read", payloads, [bytes([UNTOUCHED]) * 4, b"anew"])
        pair.rig.log.clear()
        write = pair.packet(op.RC_RDMA_WRITE_ONLY, 52, b"once", va=va + 128, rkey=key, ack_request=1)
        pair.give(write)
        pair.right.memory[128:132] = b"mine"
        pair.give(write)
        expect("answers to the WRITE", _answered(pair), [(52, ACK), (52, ACK)])
        expect("what stands there", bytes(pair.right.memory[128:132]), b"mine")


@holds("9.7.5.2.8")
def an_rnr_nak_delays_the_request(setting: Setting) -> None:
    """No receive: RNR NAK with the timer that was set; the same PSN comes again when that time is over."""
    with setting.pair(RC, left_psn=50, reliability=services.Reliability(min_rnr_timer=20)) as pair:
        pair.post(SEND, b"soon")
        expect("answers", _answered(pair), [(50, RNR | 20)])
        told_ns = pair.rig.now
        pair.receive(0, 100)
        pair.rig.elapse(RNR_20_NS // 2)
        expect("packets before the time is over", len(pair.sent()), 0)
        pair.rig.elapse(10 * RNR_20_NS)
        expect("PSNs sent again", [sent.bth.psn for sent in pair.sent()], [50])
        waited_ns = pair.sent()[0].time_ns - told_ns
        ensure(waited_ns >= RNR_20_NS, f"sent again after {waited_ns} ns")
        expect("messages", [done.byte_len for done in pair.right.completions()], [4])
        expect("completions", [done.status for done in pair.left.completions()], [0])


@holds("9.7.6.1")
def a_request_is_tried_as_often_as_was_set(setting: Setting) -> None:
    """Nothing is answered: the first time and ``retry_cnt`` times more, then the request fails, the next is
    flushed, and the queue pair is in error."""
    for retries in (0, 1, 3):
        how = services.Reliability(timeout=8, retry_cnt=retries)
        with setting.pair(RC, left_psn=50, reliability=how) as pair:
            pair.rig.tamper = lambda sent: None
            pair.post(SEND, b"x", wr_id=1)
            pair.rig.elapse(1_000_000_000)
            pair.post(SEND, b"y", wr_id=2)
            seen = [(done.wr_id, done.status) for done in pair.left.completions()]
            expect("completions", seen, [(1, WC_RETRY_EXC_ERR), (2, WC_WR_FLUSH_ERR)])
            expect("PSNs", [sent.bth.psn for sent in pair.sent()], [50] * (1 + retries))
            expect("state", pair.left.state_of(pair.left_qp), ERR)


@holds("9.7.7.2")
def acknowledgements_count_the_receives(setting: Setting) -> None:
    """Each ACK tells how many receives are posted, in the code of the standard, rounded down; and the MSN."""
    for posted, code in ((1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 4), (7, 5), (9, 6), (13, 7), (17, 8)):
        with setting.pair(RC, left_psn=50) as pair:
            for _ in range(posted):
                pair.receive(0, 100)
            pair.give(pair.packet(op.RC_SEND_ONLY, 50, b"x", ack_request=1))
            (sent,) = pair.answers()
            aeth = Aeth.decode(_extensions(sent)[0].encode())
            expect(f"credits of {posted - 1} receives, MSN", (aeth.syndrome, aeth.msn), (code, 1))
