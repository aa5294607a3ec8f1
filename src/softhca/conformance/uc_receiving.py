"""The responder of unreliable connections: what valid requests do (IBTA vol. 1, 9.8.1, 9.8.2.2)."""

from __future__ import annotations

from typing import Any

from softhca.conformance.registry import expect, holds
from softhca.conformance.rig import PMTU_BYTES, UNTOUCHED, Pair, Setting
from softhca.queues.layout import WC_LOC_PROT_ERR, WC_RECV, WC_RECV_RDMA_WITH_IMM, WC_SUCCESS, WC_WR_FLUSH_ERR
from softhca.testing.ends import UC
from softhca.transport.states import ERR
from softhca.wire import opcodes as op

FULL = bytes(range(PMTU_BYTES))
OFFSET = 4096


def _message(pair: Pair, codes: tuple[int, int, int, int], payload: bytes, psn: int) -> None:
    """Hand over the packets of one message of which ``codes`` are first, middle, last and only."""
    first, middle, last, only = codes
    pieces = [payload[n : n + PMTU_BYTES] for n in range(0, len(payload), PMTU_BYTES)] or [b""]
    for number, piece in enumerate(pieces):
        ends = number == len(pieces) - 1
        code = (only if ends else first) if number == 0 else (last if ends else middle)
        fields: dict[str, Any] = {"rkey": pair.right.key.rkey, "length": len(payload), "imm": 7}
        fields["va"] = pair.right.va + OFFSET
        pair.give(pair.packet(code, psn + number, piece, **fields))


SEND = (op.UC_SEND_FIRST, op.UC_SEND_MIDDLE, op.UC_SEND_LAST, op.UC_SEND_ONLY)
SEND_IMM = (*SEND[:2], op.UC_SEND_LAST_WITH_IMMEDIATE, op.UC_SEND_ONLY_WITH_IMMEDIATE)
WRITE = (op.UC_RDMA_WRITE_FIRST, op.UC_RDMA_WRITE_MIDDLE, op.UC_RDMA_WRITE_LAST, op.UC_RDMA_WRITE_ONLY)
WRITE_IMM = (*WRITE[:2], op.UC_RDMA_WRITE_LAST_WITH_IMMEDIATE, op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE)
SIZES = (0, 1, 3, 255, 256, 257, 511, 512, 768, 769)


@holds("C9-168", "C9-169", "C9-190", "C9-194", "C9-195", "C9-196", "C9-197")
def sends_of_every_length_are_executed(setting: Setting) -> None:
    """Only packets of 0 to PMTU bytes, firsts and middles of a PMTU, lasts of 1 to PMTU bytes, into a receive
    that holds them exactly: delivered, and no byte beside them."""
    for codes in (SEND, SEND_IMM):
        with setting.pair(UC) as pair:
            for number, size in enumerate(SIZES, 1):
                pair.right.memory[:] = bytes([UNTOUCHED]) * len(pair.right.memory)
                pair.receive(100, size)
                payload = bytes(1 + n % 128 for n in range(size))
                _message(pair, codes, payload, 10 * number)
                done = pair.right.completions()
                seen = [(c.wr_id, c.status, c.opcode, c.byte_len, c.imm_data) for c in done]
                wanted = (number, WC_SUCCESS, WC_RECV, size, 7 if codes is SEND_IMM else 0)
                expect(f"completions of {size} bytes", seen, [wanted])
                expect(f"the message of {size} bytes", bytes(pair.right.memory[100 : 100 + size]), payload)
                expect("bytes beside it", _changed(pair, 100, size), 0)
            expect("drops", pair.right.drops(), {})


@holds("C9-168", "C9-170", "C9-190", "C9-192.2.1", "C9-195", "C9-196", "C9-197")
def writes_of_every_length_are_executed(setting: Setting) -> None:
    """The same for RDMA WRITE, which takes a receive only with immediate data."""
    for codes in (WRITE, WRITE_IMM):
        with setting.pair(UC) as pair:
            pair.receive(100, 64)
            for number, size in enumerate(SIZES, 1):
                pair.right.memory[:] = bytes([UNTOUCHED]) * len(pair.right.memory)
                payload = bytes(1 + n % 128 for n in range(size))
                _message(pair, codes, payload, 10 * number)
                seen = [(c.wr_id, c.opcode, c.byte_len, c.imm_data) for c in pair.right.completions()]
                wanted = [] if codes is WRITE else [(number, WC_RECV_RDMA_WITH_IMM, size, 7)]
                expect(f"completions of {size} bytes", seen, wanted)
                expect(f"{size} bytes", bytes(pair.right.memory[OFFSET : OFFSET + size]), payload)
                expect("bytes beside them", _changed(pair, OFFSET, size), 0)
                if codes is WRITE_IMM:
                    pair.receive(100, 64)
            expect("drops", pair.right.drops(), {})


def _changed(pair: Pair, offset: int, length: int) -> int:
    """How many bytes outside a range are not as they were."""
    memory = pair.right.memory
    return sum(byte != UNTOUCHED for byte in memory[:offset] + memory[offset + length :])


@holds("C9-192.2.1")
def a_write_may_fill_its_region_to_the_last_byte(setting: Setting) -> None:
    """At the begin, at the end, and all of a region: written; nothing beside it."""
    with setting.pair(UC) as pair:
        region = pair.right.region(OFFSET, 300, va=0x7F0000)
        for start, size in ((0, 1), (299, 1), (0, 300), (44, 256)):
            pair.right.memory[:] = bytes([UNTOUCHED]) * len(pair.right.memory)
            payload = bytes(size)
            pieces = [payload[:PMTU_BYTES], payload[PMTU_BYTES:]]
            codes = (WRITE[0], WRITE[2]) if pieces[1] else (WRITE[3],)
            for number, code in enumerate(codes):
                packet = pair.write(
                    region, code, 5 + number, pieces[number], va=region.va + start, length=size
                )
                pair.give(packet)
            expect("zeros written", pair.right.memory.count(0), size)
            expect("bytes beside them", _changed(pair, OFFSET + start, size), 0)
        expect("drops", pair.right.drops(), {})


@holds("C9-193")
def the_key_of_an_empty_write_is_not_looked_at(setting: Setting) -> None:
    """Any key and address, with immediate data and without: no drop, and the receive completes."""
    with setting.pair(UC) as pair:
        pair.receive(0, 64)
        for key, va in ((0, 0), (0xDEADBEEF, (1 << 64) - 1), (pair.right.key.rkey ^ 1, 1)):
            pair.give(pair.packet(op.UC_RDMA_WRITE_ONLY, 5, b"", rkey=key, va=va))
        expect("completions", pair.right.completions(), [])
        packet = pair.packet(op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 9, b"", rkey=0xDEADBEEF, va=1, imm=3)
        pair.give(packet)
        seen = [(c.wr_id, c.status, c.opcode, c.byte_len, c.imm_data) for c in pair.right.completions()]
        expect("completions", seen, [(1, WC_SUCCESS, WC_RECV_RDMA_WITH_IMM, 0, 3)])
        expect("drops", pair.right.drops(), {})
        expect("bytes written", _changed(pair, 0, 0), 0)


@holds("C9-170")
def a_local_error_ends_the_receive_queue(setting: Setting) -> None:
    """A valid message whose receive names a key that is none: the receive ends with the local error, the next
    ones are flushed, and the peer hears nothing."""
    with setting.pair(UC) as pair:
        bad = (pair.right.va, 64, pair.right.key.lkey ^ 0x100)
        pair.right_qp.post_recv(1, [bad])
        pair.right_qp.post_recv(2, [bad])
        pair.give(pair.packet(op.UC_SEND_ONLY, 5, b"x"))
        seen = [(c.wr_id, c.status) for c in pair.right.completions()]
        expect("completions", seen, [(1, WC_LOC_PROT_ERR), (2, WC_WR_FLUSH_ERR)])
        expect("state", pair.right.state_of(pair.right_qp), ERR)
        expect("answers", len(pair.answers()), 0)
        expect("bytes written", _changed(pair, 0, 0), 0)


@holds("C9-169")
def a_write_without_immediate_needs_no_receive(setting: Setting) -> None:
    """No receive is posted: the WRITE is executed all the same."""
    with setting.pair(UC) as pair:
        _message(pair, WRITE, FULL + b"end", 5)
        expect("what was written", bytes(pair.right.memory[OFFSET : OFFSET + PMTU_BYTES + 3]), FULL + b"end")
        expect("drops", pair.right.drops(), {})


@holds("C9-191")
def nothing_is_ever_answered(setting: Setting) -> None:
    """A sound message that asks for an acknowledgement gets none."""
    with setting.pair(UC) as pair:
        pair.receive(0, 600)
        pair.give(pair.packet(op.UC_SEND_FIRST, 5, FULL, ack_request=1))
        pair.give(pair.packet(op.UC_SEND_LAST, 6, b"end", ack_request=1))
        expect("messages", [c.byte_len for c in pair.right.completions()], [PMTU_BYTES + 3])
        pair.rig.elapse(10_000_000)
        expect("answers", [sent.opcode for sent in pair.answers()], [])
