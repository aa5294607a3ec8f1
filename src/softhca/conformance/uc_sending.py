"""The requester of unreliable connections (IBTA vol. 1, 9.8.2.1)."""

from __future__ import annotations

from itertools import pairwise

from softhca.conformance.registry import ConformanceError, ensure, expect, holds
from softhca.conformance.rig import LEFT_PSN, PMTU_BYTES, Pair, Setting
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.queues.layout import WC_LOC_PROT_ERR, WC_LOC_QP_OP_ERR, WC_SUCCESS, WC_WR_FLUSH_ERR
from softhca.testing import Datagram
from softhca.testing.ends import READ, SEND, SEND_IMM, UC, WRITE, WRITE_IMM
from softhca.transport.states import INIT, RTR, RTS, SQE
from softhca.wire.opcodes import FIRST, LAST, MIDDLE, OPCODES, SUCCESSORS
from softhca.wire.opcodes import UC as UC_SERVICE

PSN_MASK = 0xFFFFFF
OPERATIONS = (SEND, SEND_IMM, WRITE, WRITE_IMM)
SIZES = (0, 1, 255, 256, 257, 511, 512, 513, 1000)


def _everything(pair: Pair) -> list[Datagram]:
    """Messages of every operation and of sizes around the PMTU."""
    for opcode in OPERATIONS:
        for size in SIZES:
            pair.receive(4096, 1024)
            pair.post(opcode, [pair.left.sge(0, size)], va=pair.right.va, rkey=pair.right.key.rkey, imm=5)
            pair.rig.settle()
            pair.right.completions()
            pair.left.completions()
    return pair.sent()


@holds("C9-172", "C9-175")
def psns_count_up_by_one_and_wrap(setting: Setting) -> None:
    """Messages of all kinds one after another: each packet's PSN is one more than the one before, over the
    wrap too."""
    with setting.pair(UC, left_psn=0xFFFFFD) as pair:
        psns = [sent.bth.psn for sent in _everything(pair)]
        ensure(len(psns) > 60, f"only {len(psns)} packets were sent")
        expect("PSNs", psns, [(0xFFFFFD + n) & PSN_MASK for n in range(len(psns))])


@holds("C9-172", "C9-173")
def the_first_packet_has_the_psn_that_was_set(setting: Setting) -> None:
    """Any 24-bit value, the least and the greatest too; one that has 25 bits is refused."""
    for psn in (0, 1, 0x800000, 0xABCDEF, 0xFFFFFF):
        with setting.pair(UC, left_psn=psn) as pair:
            pair.post(SEND, b"x")
            expect("first PSN", [sent.bth.psn for sent in pair.sent()], [psn])
    with setting.rig() as rig:
        left, right = rig.station(), rig.station()
        try:
            services.connect(left.qp(UC), rig.path(right), 0x100, 0, PSN_MASK + 1)
        except DriverError:
            return
        raise ConformanceError("a PSN of 25 bits was accepted")


@holds("C9-174")
def the_psn_stands_still_until_the_queue_may_transmit(setting: Setting) -> None:
    """Doorbells in INIT and RTR, before the host may post, send nothing and use no PSN up."""
    with setting.rig() as rig:
        left, right = rig.station(), rig.station()
        qp = left.qp(UC)
        ready = {"path_mtu": 1, "dest_qp_num": 0x123, "rq_psn": 9, "ah_attr": rig.path(right).vector()}
        steps = (
            {"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0},
            {"qp_state": RTR, **ready},
        )
        for step in steps:
            qp.modify(step)
            qp.state = RTS  # a host that does not know better
            qp.post_send(SEND, 2 | 8, 0, 1, 0, 0, 0, 0, 0, 0, 0, [], b"early")
            qp.ring()
            rig.settle()
            expect(f"packets sent in state {step['qp_state']}", len(rig.log), 0)
        qp.modify({"qp_state": RTS, "sq_psn": 77})
        rig.settle()
        expect("PSNs once in RTS", [sent.bth.psn for sent in rig.log], [77, 78])


@holds("C9-174")
def the_psn_cannot_be_set_while_sending(setting: Setting) -> None:
    """``sq_psn`` is refused in RTS, and counting goes on."""
    with setting.pair(UC) as pair:
        pair.post(SEND, b"x")
        pair.rig.settle()
        try:
            pair.left_qp.modify({"qp_state": RTS, "sq_psn": 5})
        except DriverError:
            pair.post(SEND, b"y")
            expect("PSNs", [sent.bth.psn for sent in pair.sent()], [LEFT_PSN, LEFT_PSN + 1])
            return
        raise ConformanceError("sq_psn was accepted in RTS")


@holds("C9-174")
def a_flushed_request_uses_no_psn(setting: Setting) -> None:
    """In SQE requests complete flushed; back in RTS the next packet has the PSN behind the last one sent."""
    with setting.pair(UC) as pair:
        pair.post(SEND, b"x")
        pair.post(READ, [pair.left.sge(0, 4)], va=pair.right.va, rkey=pair.right.key.rkey)
        pair.post(SEND, b"flushed")
        statuses = [done.status for done in pair.left.completions()]
        expect("statuses", statuses, [WC_SUCCESS, WC_LOC_QP_OP_ERR, WC_WR_FLUSH_ERR])
        expect("state", pair.left.state_of(pair.left_qp), SQE)
        pair.left_qp.modify({"qp_state": RTS})
        pair.post(SEND, b"y")
        expect("PSNs", [sent.bth.psn for sent in pair.sent()], [LEFT_PSN, LEFT_PSN + 1])


@holds("C9-176")
def opcodes_are_of_the_service_and_in_sequence(setting: Setting) -> None:
    """Messages of all kinds: every opcode is UC's, and each one may follow the one before it."""
    with setting.pair(UC) as pair:
        codes = [sent.bth.opcode for sent in _everything(pair)]
        expect("services", {OPCODES[code].service for code in codes}, {UC_SERVICE})
        expect("opcodes that were used", len(set(codes)), 12)
        for before, after in pairwise(codes):
            ensure(after in SUCCESSORS[before], f"{OPCODES[after].name} behind {OPCODES[before].name}")


@holds("C9-176")
def operations_that_uc_lacks_are_not_sent(setting: Setting) -> None:
    """READ and atomics complete in error; no packet leaves."""
    for opcode in (READ, 5, 6):
        with setting.pair(UC) as pair:
            pair.post(opcode, [pair.left.sge(0, 8)], va=pair.right.va, rkey=pair.right.key.rkey)
            expect("statuses", [done.status for done in pair.left.completions()], [WC_LOC_QP_OP_ERR])
            expect("packets", len(pair.sent()), 0)


@holds("C9-177")
def first_and_middle_packets_carry_a_pmtu(setting: Setting) -> None:
    """Messages of all kinds and sizes: no first or middle packet carries more or less than a PMTU."""
    with setting.pair(UC) as pair:
        sizes = _sizes(_everything(pair), (FIRST, MIDDLE))
        expect("payload of first and middle packets", sizes, {PMTU_BYTES})


@holds("C9-178")
def an_empty_message_is_an_only_packet(setting: Setting) -> None:
    """0 to PMTU bytes are one only packet, one byte more are two packets."""
    with setting.pair(UC) as pair:
        for opcode in OPERATIONS:
            for size, packets in ((0, ["ONLY"]), (1, ["ONLY"]), (256, ["ONLY"]), (257, ["FIRST", "LAST"])):
                pair.rig.log.clear()
                pair.receive(4096, 1024)
                pair.post(opcode, [pair.left.sge(0, size)], va=pair.right.va, rkey=pair.right.key.rkey)
                sent = pair.sent()
                names = [each.opcode.removesuffix("_WITH_IMMEDIATE").rpartition("_")[2] for each in sent]
                expect(f"packets of {size} bytes", names, packets)
                expect("payload", sum(each.payload_bytes for each in sent), size)


@holds("C9-179")
def a_last_packet_is_never_empty(setting: Setting) -> None:
    """Messages of all kinds and sizes, multiples of the PMTU too: a last packet carries 1 to PMTU bytes."""
    with setting.pair(UC) as pair:
        sizes = _sizes(_everything(pair), (LAST,))
        ensure(PMTU_BYTES in sizes and 1 in sizes, f"sizes that were tried: {sorted(sizes)}")
        ensure(min(sizes) > 0 and max(sizes) <= PMTU_BYTES, f"last packets of {sorted(sizes)} bytes")


def _sizes(packets: list[Datagram], positions: tuple[int, ...]) -> set[int]:
    found = {sent.payload_bytes for sent in packets if OPCODES[sent.bth.opcode].position in positions}
    ensure(bool(found), "no such packet was sent")
    return found


@holds("C9-180")
def a_request_completes_when_its_last_packet_has_gone(setting: Setting) -> None:
    """Nobody answers and nothing arrives: the request completes all the same, with its last packet sent and
    not before."""
    with setting.pair(UC) as pair:
        pair.rig.tamper = lambda sent: None
        for number in range(20):  # more than may be under way at a time
            pair.post(SEND, [pair.left.sge(0, 8192)] * 2, wr_id=number)
        done: list[int] = []
        while len(done) < 20:
            done += [completion.wr_id for completion in pair.left.cq.poll(1)]
            gone = len(pair.rig.log)
            ensure(64 * len(done) <= gone, f"{len(done)} requests of 64 packets done after {gone} packets")
            if pair.rig.now > 1 << 30:
                raise ConformanceError(f"only {len(done)} of 20 requests complete")
            pair.rig.elapse(10_000)
        expect("completions", done, list(range(20)))
        expect("packets that ask for an answer", sum(sent.bth.ack_request for sent in pair.sent()), 0)


@holds("C9-180")
def a_local_error_completes_the_request(setting: Setting) -> None:
    """A key that is none: the request ends with a local error; those before it have gone, those behind it are
    flushed."""
    with setting.pair(UC) as pair:
        pair.post(SEND, b"before", wr_id=1)
        pair.post(SEND, [(pair.left.va, 600, pair.left.key.lkey ^ 0x100)], wr_id=2)
        pair.post(SEND, b"behind", wr_id=3)
        seen = [(done.wr_id, done.status) for done in pair.left.completions()]
        wanted = [(1, WC_SUCCESS), (2, WC_LOC_PROT_ERR), (3, WC_WR_FLUSH_ERR)]
        expect("completions", seen, wanted)
        expect("packets", len(pair.sent()), 1)
