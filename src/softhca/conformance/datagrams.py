"""Unreliable datagrams, both sides (IBTA vol. 1, 9.8.3)."""

from __future__ import annotations

from softhca.conformance.registry import ConformanceError, ensure, expect, holds
from softhca.conformance.rig import LEFT_PSN, PMTU_BYTES, UNTOUCHED, Pair, Setting
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.queues.layout import WC_LOC_LEN_ERR, WC_LOC_PROT_ERR, WC_RECV, WC_SUCCESS, WC_WR_FLUSH_ERR
from softhca.testing.ends import QKEY, SEND, SEND_IMM, UD
from softhca.transport.states import ERR, INIT, RTR, RTS, SQE
from softhca.wire import opcodes as op

GRH_BYTES = 40
SIZES = (0, 1, 2, 3, 4, 255, 256)


@holds("C9-200")
def a_datagram_is_one_packet_within_the_pmtu(setting: Setting) -> None:
    """Every size up to the PMTU goes as one packet; one byte more completes in error, and nothing is sent."""
    with setting.pair(UD) as pair:
        for size in SIZES:
            pair.post(SEND, [pair.left.sge(0, size)])
        expect("payloads", [sent.payload_bytes for sent in pair.sent()], list(SIZES))
        expect("opcodes", {sent.opcode for sent in pair.sent()}, {"UD_SEND_ONLY"})
        pair.left.completions()
        for size in (PMTU_BYTES + 1, 2 * PMTU_BYTES, 8192):
            pair.post(SEND, [pair.left.sge(0, size)])
            expect(f"statuses of {size} bytes", _statuses(pair), [WC_LOC_LEN_ERR])
            expect("packets", len(pair.sent()), len(SIZES))
            pair.left_qp.modify({"qp_state": RTS})


def _statuses(pair: Pair) -> list[int]:
    return [done.status for done in pair.left.completions()]


@holds("C9-201", "C9-206")
def datagrams_arrive_whole_with_their_senders_address(setting: Setting) -> None:
    """SEND and SEND with immediate of every size: payload behind 40 bytes, the sender's queue pair and port,
    no byte beside it, and no answer."""
    with setting.pair(UD) as pair:
        for number, size in enumerate(SIZES, 1):
            for opcode, imm in ((SEND, 0), (SEND_IMM, 9)):
                pair.right.memory[:] = bytes([UNTOUCHED]) * len(pair.right.memory)
                pair.receive(100, GRH_BYTES + size, number)
                pair.left.memory[:size] = bytes(1 + n % 128 for n in range(size))
                pair.post(opcode, [pair.left.sge(0, size)], imm=imm)
                done = pair.right.completions()
                seen = [(c.wr_id, c.status, c.opcode, c.byte_len, c.imm_data, c.src_qp) for c in done]
                length = GRH_BYTES + size
                wanted = (number, WC_SUCCESS, WC_RECV, length, imm, pair.left_qp.number)
                expect(f"completions of {size} bytes", seen, [wanted])
                begin = 100 + GRH_BYTES
                expect("the payload", pair.right.memory[begin : begin + size], pair.left.memory[:size])
                _see_the_sender(pair, done[0].slid)
                outside = pair.right.memory[:100] + pair.right.memory[begin + size :]
                expect("bytes beside it", len(outside) - outside.count(UNTOUCHED), 0)
        expect("drops", pair.right.drops(), {})
        expect("answers", len(pair.answers()), 0)


def _see_the_sender(pair: Pair, slid: int) -> None:
    """The LID on native links, elsewhere the address in front of the payload."""
    if pair.rig.setting.native:
        expect("the sender's LID", slid, pair.left.lid)
    else:
        expect("the sender's GID", bytes(pair.right.memory[108:124]), pair.left.gid)


@holds("C9-202")
def a_local_error_of_the_sender_stops_its_send_queue_only(setting: Setting) -> None:
    """A bad key: the request fails, what is behind it is flushed, the receive side goes on; RTS heals."""
    with setting.pair(UD) as pair:
        pair.left_qp.post_recv(50, [pair.left.sge(4096, 300)])
        pair.post(SEND, b"before", wr_id=1)
        pair.post(SEND, [(pair.left.va, 8, pair.left.key.lkey ^ 0x100)], wr_id=2)
        pair.post(SEND, b"behind", wr_id=3)
        seen = [(done.wr_id, done.status) for done in pair.left.completions()]
        expect("completions", seen, [(1, WC_SUCCESS), (2, WC_LOC_PROT_ERR), (3, WC_WR_FLUSH_ERR)])
        expect("state", pair.left.state_of(pair.left_qp), SQE)
        back = pair.right.device.create_ah(pair.right.pd, pair.rig.path(pair.left).vector())
        pair.right_qp.post_send(SEND, 2 | 8, 0, 7, 0, 0, 0, 0, back, pair.left_qp.number, QKEY, [], b"yes")
        pair.right_qp.ring()
        expect("received meanwhile", [(c.wr_id, c.status) for c in pair.left.completions()], [(50, 0)])
        pair.left_qp.modify({"qp_state": RTS})
        pair.post(SEND, b"again")
        expect("packets", len(pair.sent()), 2)


@holds("C9-202")
def a_local_error_of_the_receiver_ends_its_queue_pair(setting: Setting) -> None:
    """The receive names a key that is none: it ends with that error, the next is flushed, nobody is told."""
    with setting.pair(UD) as pair:
        bad = (pair.right.va, 300, pair.right.key.lkey ^ 0x100)
        for number in (1, 2):
            pair.right_qp.post_recv(number, [bad])
        pair.post(SEND, b"x")
        seen = [(done.wr_id, done.status) for done in pair.right.completions()]
        expect("completions", seen, [(1, WC_LOC_PROT_ERR), (2, WC_WR_FLUSH_ERR)])
        expect("state", pair.right.state_of(pair.right_qp), ERR)
        expect("answers", len(pair.answers()), 0)


@holds("C9-203")
def a_datagram_completes_when_it_has_gone(setting: Setting) -> None:
    """The link swallows everything: each request completes all the same, in order, once it is sent, and
    nothing is sent twice."""
    with setting.pair(UD) as pair:
        pair.rig.tamper = lambda sent: None
        for number in range(5):
            pair.post(SEND, b"lost", wr_id=number)
            expect("packets", len(pair.sent()), number + 1)
            seen = [(done.wr_id, done.status) for done in pair.left.completions()]
            expect("completions", seen, [(number, WC_SUCCESS)])
        pair.rig.elapse(10_000_000_000)
        expect("packets in the end", len(pair.sent()), 5)


@holds("C9-203", "C9-204")
def psns_count_up_from_what_was_set(setting: Setting) -> None:
    """From any 24-bit value, over the wrap, whatever becomes of the packets; 25 bits are refused."""
    for first in (0, 1, 0x800000, 0xFFFFFE, 0xFFFFFF):
        with setting.pair(UD, left_psn=first) as pair:
            for _ in range(5):
                pair.post(SEND, b"x")
            expect("PSNs", [s.bth.psn for s in pair.sent()], [(first + n) & 0xFFFFFF for n in range(5)])
    with setting.rig() as rig:
        qp = rig.station().qp(UD)
        try:
            services.start_datagrams(qp, QKEY, 1 << 24)
        except DriverError:
            return
        raise ConformanceError("a PSN of 25 bits was accepted")


@holds("C9-203", "C9-204")
def the_psn_moves_only_while_the_queue_may_transmit(setting: Setting) -> None:
    """Doorbells in INIT and RTR send nothing and use no PSN up; flushed requests neither; RTS refuses a new
    one."""
    with setting.pair(UD) as pair:
        qp = pair.left_qp = pair.left.qp(UD)
        steps = ({"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qkey": QKEY}, {"qp_state": RTR})
        for step in steps:
            qp.modify(step)
            qp.state = RTS  # a host that does not know better
            pair.post(SEND, b"early")
            expect(f"packets in state {step['qp_state']}", len(pair.sent()), 0)
        qp.modify({"qp_state": RTS, "sq_psn": 77})
        expect("PSNs once in RTS", [sent.bth.psn for sent in pair.sent()], [77, 78])
        pair.post(SEND, [pair.left.sge(0, 257)])
        pair.post(SEND, b"flushed")
        pair.rig.settle()
        qp.modify({"qp_state": RTS})
        pair.post(SEND, b"next")
        expect("PSNs after an error", [sent.bth.psn for sent in pair.sent()], [77, 78, 79])
        try:
            qp.modify({"qp_state": RTS, "sq_psn": 5})
        except DriverError:
            return
        raise ConformanceError("sq_psn was accepted in RTS")


@holds("o9-144")
def datagrams_are_taken_whatever_their_psn(setting: Setting) -> None:
    """Forward, backward, repeated: each one is delivered."""
    with setting.pair(UD) as pair:
        psns = (LEFT_PSN, 5, 5, 4, 0xFFFFFF, 0, 0x800000)
        for psn in psns:
            pair.receive(0, 100)
            pair.give(pair.packet(op.UD_SEND_ONLY, psn, b"x"))
        done = [c.wr_id for c in pair.right.completions()]
        expect("completions", done, list(range(1, len(psns) + 1)))
        expect("drops", pair.right.drops(), {})


@holds("C9-205")
def a_datagram_may_fill_its_receive(setting: Setting) -> None:
    """Room for exactly 40 bytes and the payload is enough, one byte less is not, and that receive waits."""
    with setting.pair(UD) as pair:
        for number, size in enumerate(SIZES, 1):
            pair.receive(0, GRH_BYTES + size)
            before = pair.right.drops().get("receive_length", 0)
            if size + 1 <= PMTU_BYTES:
                pair.give(pair.packet(op.UD_SEND_ONLY, 5, bytes(size + 1)))
                expect("drops", pair.right.drops().get("receive_length", 0), before + 1)
                expect("completions", pair.right.completions(), [])
            pair.give(pair.packet(op.UD_SEND_ONLY, 6, bytes(size)))
            seen = [(done.wr_id, done.byte_len) for done in pair.right.completions()]
            expect("completions", seen, [(number, GRH_BYTES + size)])


@holds("C9-205")
def pad_bytes_are_not_payload(setting: Setting) -> None:
    """Payloads of 1 to 3 bytes beyond whole words: length and memory tell the payload alone."""
    with setting.pair(UD) as pair:
        for number, size in enumerate((5, 6, 7, 8), 1):
            pair.receive(0, 100)
            pair.give(pair.packet(op.UD_SEND_ONLY, number, bytes(size)))
            seen = [done.byte_len for done in pair.right.completions()]
            expect("length", seen, [GRH_BYTES + size])
            found = pair.right.memory[GRH_BYTES + size]
            ensure(found == UNTOUCHED, f"a byte behind {size} bytes of payload is {found}")
            pair.right.memory[GRH_BYTES : GRH_BYTES + size] = bytes([UNTOUCHED]) * size


@holds("C9-207", "C9-201")
def a_datagram_without_receive_leaves_the_queue_pair_as_it_was(setting: Setting) -> None:
    """Ten find no receive: each is dropped, the state stays, and the next one with a receive is taken."""
    with setting.pair(UD) as pair:
        for number in range(10):
            pair.post(SEND, b"lost")
            pair.rig.settle()
            expect("drops", pair.right.drops(), {"no_receive": number + 1})
        expect("state", pair.right.state_of(pair.right_qp), RTS)
        pair.receive(0, 100)
        pair.post(SEND, b"here")
        seen = [(done.wr_id, done.byte_len) for done in pair.right.completions()]
        expect("completions", seen, [(1, GRH_BYTES + 4)])
        expect("answers", len(pair.answers()), 0)
