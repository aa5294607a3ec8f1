"""The responder of unreliable connections: PSNs and opcode sequences (IBTA vol. 1, 9.8.2.2.1, 9.8.2.2.2)."""

from __future__ import annotations

from collections.abc import Iterable

from softhca.conformance.registry import ConformanceError, ensure, expect, holds
from softhca.conformance.rig import PMTU_BYTES, Pair, Setting
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.queues.layout import WC_RECV, WC_RECV_RDMA_WITH_IMM
from softhca.testing.ends import UC
from softhca.transport.states import ERR, INIT, RTR, RTS
from softhca.wire import opcodes as op

FULL = bytes(range(PMTU_BYTES))
CODES = [code for code, row in sorted(op.OPCODES.items()) if row.service == op.UC]
TARGET_OFFSET, TARGET_BYTES = 4096, 1024


def _expected(pair: Pair) -> int:
    """The PSN that the receiver expects, as it stands inside."""
    psn: int = pair.right.adapter.queue_pairs[pair.right_qp.number].receive_engine().epsn
    return psn


def _lengths(pair: Pair) -> list[tuple[int, int]]:
    """What has been received: (number of the receive, bytes)."""
    return [(done.wr_id, done.byte_len) for done in pair.right.completions() if done.opcode == WC_RECV]


@holds("C9-166", "C9-181", "C9-183", "C9-185")
def packets_in_order_are_one_message(setting: Setting) -> None:
    """First, middles and last with PSNs in order, over the wrap of PSNs too, are delivered whole."""
    for first in (0, 5, 0xFFFFFD, 0xFFFFFE, 0xFFFFFF):
        with setting.pair(UC, left_psn=first) as pair:
            pair.receive(0, 2000)
            codes = [op.UC_SEND_FIRST, op.UC_SEND_MIDDLE, op.UC_SEND_MIDDLE, op.UC_SEND_LAST]
            payloads = [FULL, FULL[::-1], FULL, b"end"]
            for number, (code, payload) in enumerate(zip(codes, payloads, strict=True)):
                expect("the expected PSN", _expected(pair), (first + number) & 0xFFFFFF)
                pair.give(pair.packet(code, (first + number) & 0xFFFFFF, payload))
            expect("the expected PSN", _expected(pair), (first + 4) & 0xFFFFFF)
            expect("messages", _lengths(pair), [(1, 3 * PMTU_BYTES + 3)])
            expect("the message", bytes(pair.right.memory[:771]), b"".join(payloads))
            expect("drops", pair.right.drops(), {})


@holds("C9-183", "C9-185", "C9-186")
def any_other_psn_ends_the_message(setting: Setting) -> None:
    """A last packet with a PSN near, far, before or behind the expected one: never executed."""
    for step in (1, 2, -1, -2, 1 << 22, 1 << 23, -(1 << 23) + 1, 0x7FFFFF):
        with setting.pair(UC) as pair:
            pair.receive(0, 600)
            pair.give(pair.packet(op.UC_SEND_FIRST, 50, FULL))
            pair.give(pair.packet(op.UC_SEND_LAST, (51 + step) & 0xFFFFFF, b"out"))
            expect(f"messages with a jump of {step}", _lengths(pair), [])
            expect("drops", pair.right.drops(), {"sequence": 1})
            # the message is over: its right packet comes too late
            pair.give(pair.packet(op.UC_SEND_LAST, 51, b"end"))
            expect("messages with the right packet behind it", _lengths(pair), [])


@holds("C9-182")
def the_expected_psn_stands_still_until_the_queue_may_receive(setting: Setting) -> None:
    """A packet in INIT changes nothing; RTR begins with the PSN that the client sets; ERR takes nothing."""
    with setting.rig() as rig:
        pair = Pair(rig, UC)
        qp = pair.right_qp = pair.right.qp(UC)
        qp.modify({"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qp_access_flags": 0})
        qp.post_recv(1, [pair.right.sge(0, 600)])
        before = _expected(pair)
        pair.give(pair.packet(op.UC_SEND_FIRST, 700, FULL))
        expect("the expected PSN in INIT", _expected(pair), before)
        vector = rig.path(pair.left).vector()
        qp.modify({
            "qp_state": RTR, "path_mtu": 1, "dest_qp_num": pair.left_qp.number, "rq_psn": 0xABCDEF,
            "ah_attr": vector,
        })  # fmt: skip
        expect("the expected PSN in RTR", _expected(pair), 0xABCDEF)
        pair.give(pair.packet(op.UC_SEND_LAST, 701, b"end"))
        expect("messages begun in INIT", _lengths(pair), [])
        pair.give(pair.packet(op.UC_SEND_ONLY, 800, b"now"))
        expect("messages in RTR", _lengths(pair), [(1, 3)])
        expect("the expected PSN", _expected(pair), 801)
        qp.modify({"qp_state": ERR})
        pair.give(pair.packet(op.UC_SEND_ONLY, 900, b"late"))
        expect("the expected PSN in ERR", _expected(pair), 801)
        expect("drops for the state", pair.right.drops().get("state"), 2)


@holds("C9-182")
def the_client_cannot_set_the_expected_psn_while_receiving(setting: Setting) -> None:
    """``rq_psn`` is refused in RTS and changes nothing."""
    with setting.pair(UC, left_psn=123) as pair:
        try:
            pair.right_qp.modify({"qp_state": RTS, "rq_psn": 5})
        except DriverError:
            expect("the expected PSN", _expected(pair), 123)
            return
        raise ConformanceError("rq_psn was accepted in RTS")


@holds("C9-184")
def first_and_only_are_taken_whatever_was_expected(setting: Setting) -> None:
    """Newer, older, repeated: each first or only packet is executed, and counting goes on from its PSN."""
    with setting.pair(UC, left_psn=100) as pair:
        for n in range(6):
            pair.receive(600 * n, 600)
        for psn in (999, 998, 998, 0xFFFFFF):
            pair.give(pair.packet(op.UC_SEND_ONLY, psn, b"x"))
            expect("the expected PSN", _expected(pair), (psn + 1) & 0xFFFFFF)
        for psn in (5, 5):
            pair.give(pair.packet(op.UC_SEND_FIRST, psn, FULL), pair.packet(op.UC_SEND_LAST, psn + 1, b"y"))
        whole = PMTU_BYTES + 1
        expect("messages", _lengths(pair), [(1, 1), (2, 1), (3, 1), (4, 1), (5, whole), (6, whole)])
        expect("drops", pair.right.drops(), {})


@holds("C9-184", "C9-186")
def the_packet_out_of_order_may_begin_the_next_message(setting: Setting) -> None:
    """Inside a message a first or only packet with any PSN: the message is dropped, the packet executed."""
    for psn in (51, 52, 49, 50, 0xFFFFF0):
        with setting.pair(UC) as pair:
            pair.receive(0, 600)
            pair.receive(1000, 600)
            pair.give(pair.packet(op.UC_SEND_FIRST, 50, FULL))
            pair.give(pair.packet(op.UC_SEND_FIRST, psn, FULL[::-1]))
            pair.give(pair.packet(op.UC_SEND_LAST, (psn + 1) & 0xFFFFFF, b"new"))
            expect("messages", _lengths(pair), [(1, PMTU_BYTES + 3)])
            expect("the message", bytes(pair.right.memory[: PMTU_BYTES + 3]), FULL[::-1] + b"new")
            pair.give(pair.packet(op.UC_SEND_FIRST, 50, FULL), pair.packet(op.UC_SEND_ONLY, psn, b"one"))
            expect("messages", _lengths(pair), [(2, 3)])
            expect("dropped messages", pair.right.drops(), {"sequence": 2})


@holds("C9-186", "C9-188")
def everything_up_to_the_next_first_or_only_is_dropped(setting: Setting) -> None:
    """After a gap, middles and lasts in order among themselves are dropped; then a message is taken again, by
    the receive that the lost one held."""
    with setting.pair(UC) as pair:
        pair.receive(0, 1000)
        pair.give(pair.packet(op.UC_SEND_FIRST, 50, FULL))
        for number, code in enumerate((op.UC_SEND_MIDDLE, op.UC_SEND_MIDDLE, op.UC_SEND_LAST)):
            pair.give(pair.packet(code, 52 + number, FULL))
        expect("messages", _lengths(pair), [])
        expect("drops", pair.right.drops(), {"sequence": 3})
        expect("answers", len(pair.answers()), 0)
        pair.give(pair.packet(op.UC_SEND_ONLY, 55, b"next"))
        expect("messages", _lengths(pair), [(1, 4)])
        expect("the message", bytes(pair.right.memory[:4]), b"next")


def _begin(pair: Pair, before: int, after: int) -> int:
    """Bring the receiver to where ``before`` has just been executed, in a message that ``after`` may end; the
    PSN that comes next."""
    row, key = op.OPCODES[before], pair.right.key
    codes = [before]
    if row.position in (op.MIDDLE, op.LAST):
        codes = [op.UC_SEND_FIRST if row.operation == op.SEND else op.UC_RDMA_WRITE_FIRST, before]
    # an empty WRITE ends whatever was under way
    pair.give(pair.packet(op.UC_RDMA_WRITE_ONLY, 10))
    packets = len(codes)
    if after in op.SUCCESSORS[before] and op.OPCODES[after].position == op.LAST:
        packets += 1
    elif row.position in (op.FIRST, op.MIDDLE):
        packets += 2
    for number, code in enumerate(codes):
        pair.give(
            pair.packet(
                code, 20 + number, FULL, va=key.va + TARGET_OFFSET, rkey=key.rkey, length=packets * PMTU_BYTES
            )
        )
    return 20 + len(codes)


@holds("C9-167", "C9-187", "C9-188", "C9-189")
def every_pair_of_opcodes_is_taken_or_refused_by_the_table(setting: Setting) -> None:
    """All 144: each UC opcode behind each other one, PSNs in order, is executed exactly if it may follow."""
    for before in CODES:
        with setting.pair(UC) as pair:
            for _ in range(30):
                pair.receive(0, 2048)
            for after in CODES:
                name = f"{op.OPCODES[after].name} behind {op.OPCODES[before].name}"
                psn = _begin(pair, before, after)
                pair.right.completions()
                drops = pair.right.drops().get("sequence", 0)
                key, length = pair.right.key, PMTU_BYTES << (op.OPCODES[after].position == op.FIRST)
                pair.give(
                    pair.packet(
                        after, psn, FULL, va=key.va + TARGET_OFFSET, rkey=key.rkey, length=length
                    )
                )
                refused = pair.right.drops().get("sequence", 0) - drops
                may = after in op.SUCCESSORS[before]
                expect(f"dropped for the sequence: {name}", refused, 0 if may else 1)
                taken = may or op.OPCODES[after].position in (op.FIRST, op.ONLY)
                ensure(not taken or _expected(pair) == psn + 1, f"the next PSN is not expected: {name}")
                _see_that_it_counts(pair, name, after, taken)
                expect("drops for other reasons", set(pair.right.drops()) - {"sequence"}, set())


def _see_that_it_counts(pair: Pair, name: str, after: int, taken: bool) -> None:
    """An end completes a receive exactly if it was taken (a plain WRITE completes none)."""
    row = op.OPCODES[after]
    seen = [done.opcode for done in pair.right.completions()]
    wanted: Iterable[int] = ()
    if taken and row.position in (op.LAST, op.ONLY):
        if row.operation == op.SEND:
            wanted = (WC_RECV,)
        elif "immdt" in row.headers:
            wanted = (WC_RECV_RDMA_WITH_IMM,)
    expect(f"completions: {name}", seen, list(wanted))


@holds("C9-189")
def a_first_or_only_that_breaks_the_sequence_is_executed(setting: Setting) -> None:
    """Inside a SEND a WRITE begins, and the other way round: the new message is delivered whole."""
    with setting.pair(UC) as pair:
        pair.receive(0, 600)
        target = pair.right.region(TARGET_OFFSET, TARGET_BYTES, va=0x7F0000)
        pair.give(pair.packet(op.UC_SEND_FIRST, 50, FULL))
        pair.give(pair.write(target, op.UC_RDMA_WRITE_FIRST, 51, FULL, length=PMTU_BYTES + 4))
        pair.give(pair.packet(op.UC_RDMA_WRITE_LAST, 52, b"last"))
        written = bytes(pair.right.memory[TARGET_OFFSET : TARGET_OFFSET + PMTU_BYTES + 4])
        expect("what was written", written, FULL + b"last")
        pair.give(pair.write(target, op.UC_RDMA_WRITE_FIRST, 60, FULL[::-1], length=2 * PMTU_BYTES))
        pair.give(pair.packet(op.UC_SEND_ONLY, 61, b"send"))
        expect("messages", _lengths(pair), [(1, 4)])
        ensure(pair.right.drops() == {"sequence": 2}, f"two messages were broken off: {pair.right.drops()}")


@holds("C9-186", "C9-188", "C9-191")
def a_shared_receive_serves_the_next_message(setting: Setting) -> None:
    """With a shared receive queue: what is refused takes no receive, and the one that a broken-off message
    held is the next message's."""
    with setting.rig() as rig:
        pair = Pair(rig, UC, left_psn=50)
        station = pair.right
        shared = station.device.create_srq(station.pd, 8, 1)
        pair.right_qp = station.qp(UC, srq=shared)
        services.connect(pair.right_qp, rig.path(pair.left), pair.left_qp.number, 50, 0)
        for number in range(1, 4):
            shared.post(number, [station.sge(600 * number, 300)])
        pair.give(pair.packet(op.UC_SEND_LAST, 50, b"end"), pair.packet(op.UC_SEND_ONLY, 51, bytes(260)))
        pair.give(pair.packet(op.UC_SEND_FIRST, 60, FULL), pair.packet(op.UC_SEND_LAST, 62, b"gap"))
        pair.give(pair.packet(op.UC_SEND_FIRST, 70, FULL), pair.packet(op.UC_SEND_LAST, 71, bytes(45)))
        expect("completions", station.completions(), [])
        for number in range(1, 4):
            pair.give(pair.packet(op.UC_SEND_ONLY, 80 + number, b"next"))
            expect("messages", _lengths(pair), [(number, 4)])
        expect("drops", station.drops(), {"sequence": 2, "length": 1, "receive_length": 1})
