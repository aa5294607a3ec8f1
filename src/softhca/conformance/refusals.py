"""Malformed and unexpected packets as a table: why each is dropped, what it may have written, and that the
receive it would have taken still waits.

Each row is a check.  The packets seem to come from the peer and are sound but for what the row says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from softhca.conformance.registry import expect, register
from softhca.conformance.rig import (
    HCA_SETTINGS,
    ON_NATIVE,
    ON_ROCE,
    PMTU_BYTES,
    UNTOUCHED,
    Pair,
    Rig,
    Setting,
    altered,
    on_link,
)
from softhca.testing.ends import ALL_RIGHTS, LOCAL_WRITE, REMOTE_READ, UC, UD
from softhca.transport.states import RTS
from softhca.wire import opcodes as op
from softhca.wire import vcrc
from softhca.wire.grh import Grh
from softhca.wire.lrh import Lrh
from softhca.wire.packet import Packet

RECEIVE_OFFSET, RECEIVE_BYTES = 1024, 600
TARGET_OFFSET, TARGET_BYTES = 4096, 700
FULL = bytes(range(PMTU_BYTES))
PSN = 0x345
GRH_BYTES = 40

Part = tuple[int, bytes]
"""Opcode and payload of a packet."""


class Bench(Pair):
    """A pair with a receive at memory[1024:1624], if there is to be one, and a region to be written."""

    def __init__(self, rig: Rig, kind: int, receive_bytes: int, access: int) -> None:
        super().__init__(rig, kind, access)
        self.target = self.right.region(TARGET_OFFSET, TARGET_BYTES, va=0x7F0000)
        if receive_bytes:
            self.receive(RECEIVE_OFFSET, receive_bytes)

    def only(self, payload: bytes = b"bad", **fields: Any) -> Packet:
        """A SEND in one packet, of the pair's service."""
        code = op.UD_SEND_ONLY if self.kind == UD else op.UC_SEND_ONLY
        return self.packet(code, PSN, payload, **fields)

    def sequence(self, *packets: Part, length: int | None = None) -> None:
        """Packets of one SEND or RDMA WRITE to the target, PSNs in order; a WRITE's length is that of all."""
        total = sum(len(payload) for _, payload in packets) if length is None else length
        for number, (code, payload) in enumerate(packets):
            self.give(self.write(self.target, code, PSN + number, payload, length=total))


Act = Callable[[Bench], None]


@dataclass(frozen=True)
class Refusal:
    """One row: ``act`` gives packets to a queue pair of ``kind``, and ``dropped`` are counted, by reason.

    ``receive_bytes``: what is posted before (0: nothing); ``access``: the receiving queue pair's rights;
    ``written``: the part of the memory that the packets' own message may have changed.
    """

    name: str
    ids: tuple[str, ...]
    kind: int
    dropped: dict[str, int]
    act: Act
    receive_bytes: int = RECEIVE_BYTES
    access: int = ALL_RIGHTS
    written: tuple[int, int] = (0, 0)
    settings: tuple[Setting, ...] = HCA_SETTINGS

    def __call__(self, setting: Setting) -> None:
        """Give the packets; see that they are dropped without a trace, and that the next message is taken."""
        with Bench(setting.rig(), self.kind, self.receive_bytes, self.access) as pair:
            self.act(pair)
            expect("completions", pair.right.completions(), [])
            expect("answers", [sent.opcode for sent in pair.answers()], [])
            expect("packets dropped, by reason", pair.right.drops(), self.dropped)
            expect("state", pair.right.state_of(pair.right_qp), RTS)
            begin, end = self.written
            outside = pair.right.memory[:begin] + pair.right.memory[end:]
            expect("bytes written outside the message", len(outside) - outside.count(UNTOUCHED), 0)
            self._the_next_message_is_taken(pair)

    def _the_next_message_is_taken(self, pair: Bench) -> None:
        if not self.receive_bytes:
            pair.receive(RECEIVE_OFFSET, RECEIVE_BYTES)
        pair.give(pair.only(b"ok"))
        seen = [(done.wr_id, done.status, done.byte_len) for done in pair.right.completions()]
        if self.receive_bytes >= GRH_BYTES + 2 or self.kind == UC or not self.receive_bytes:
            expect("completions of the next message", seen, [(1, 0, 42 if self.kind == UD else 2)])


def add_row(name: str, ids: str, kind: int, dropped: str | dict[str, int], act: Act, **more: Any) -> None:
    """Register a row; ``more`` is `Refusal`'s.  One packet is dropped where ``dropped`` is a reason alone."""
    counted = {dropped: 1} if isinstance(dropped, str) else dropped
    row = Refusal(name, tuple(ids.split()), kind, counted, act, **more)
    register(f"refusals.{name}", row.ids, row, row.settings)


def _link(bench: Bench, **fields: int) -> None:
    """A native packet with other LRH fields and right CRCs."""
    packet = bench.only()
    lrh = replace(Lrh.decode(packet.network[0].encode()), **fields)
    bench.give(replace(packet, network=(lrh,)).with_crcs())


def _global(bench: Bench, **fields: Any) -> None:
    """A native packet with a GRH of which ``fields`` are changed, with right CRCs."""
    plain, bench.route = bench.route, bench.rig.route(bench.left, bench.right, has_grh=True)
    packet = bench.only()
    grh = replace(Grh.decode(packet.network[1].encode()), **fields)
    bench.give(replace(packet, network=(packet.network[0], grh)).with_crcs())
    bench.route = plain


def _damaged(bench: Bench) -> None:
    """One bit of the payload flips; a native packet's VCRC is that of the damaged bytes."""
    data = bytearray(on_link(bench.only(b"damaged!")))
    if bench.rig.setting.native:
        data[-8] ^= 4
        data[-2:] = vcrc.compute(bytes(data[:-2])).to_bytes(2, "little")
    else:
        data[-6] ^= 4
    bench.give(bytes(data))


def _foreign_source(bench: Bench) -> None:
    """From a port that is not the connection's other end."""
    other = bench.rig.station()
    bench.route = bench.rig.route(other, bench.right)
    bench.give(bench.only())
    bench.route = bench.rig.route(bench.left, bench.right)


def _elsewhere(bench: Bench) -> None:
    """To another port's address, though it came here."""
    bench.route = bench.rig.route(bench.left, bench.left)
    bench.give(bench.only())
    bench.route = bench.rig.route(bench.left, bench.right)


def _headers(kind: int) -> None:
    """What 9.6 refuses, of connections and datagrams alike."""
    service = "ud" if kind == UD else "uc"
    ids = "C9-165 C9-201 C9-202" if kind == UD else "C9-165 C9-191"
    other = op.UC_SEND_ONLY if kind == UD else op.UD_SEND_ONLY

    def add(name: str, dropped: str, act: Act, more_ids: str = "", **more: Any) -> None:
        add_row(f"{service}_{name}", f"{ids} {more_ids}", kind, dropped, act, **more)

    add("invariant_crc_wrong", "icrc", _damaged)
    add("version_unknown", "version", lambda b: b.give(altered(b.only(), tver=1)))
    add("pad_longer_than_payload", "pad", lambda b: b.give(altered(b.only(b""), pad=1)))
    add("headers_cut_short", "truncated", lambda b: b.give(_cut(b)))
    add("queue_pair_unknown", "unknown_qp", lambda b: b.give(b.only(dest_qp=b.right_qp.number ^ 0x800000)))
    add("partition_other", "pkey", lambda b: b.give(b.only(pkey=0x8123)))
    add("service_reliable", "service", lambda b: b.give(b.packet(op.RC_SEND_ONLY, PSN, b"bad")))
    add("service_other", "service", lambda b: b.give(b.packet(other, PSN, b"bad")))
    add("destination_other", "destination", _elsewhere)
    add("not_whole_words", "length", lambda b: b.give(on_link(b.only(b"four"))[:-1]), settings=(ON_ROCE,))
    native: dict[str, Any] = {"settings": (ON_NATIVE,)}
    add("variant_crc_wrong", "vcrc", lambda b: b.give(on_link(b.only())[:-1] + b"\0"), **native)
    add("link_version_unknown", "link_header", lambda b: _link(b, lver=1), **native)
    add("link_length_wrong", "length", lambda b: _link(b, packet_length_words=11), **native)
    add("lane_of_management", "lane", lambda b: _link(b, vl=15), **native)
    add("global_version_wrong", "link_header", lambda b: _global(b, version=4), **native)
    add("global_next_header_wrong", "link_header", lambda b: _global(b, next_header=17), **native)
    add("global_length_wrong", "link_header", lambda b: _global(b, payload_length_bytes=24), **native)


def _cut(bench: Bench) -> Packet:
    """A packet that ends before the extension header that its opcode needs does."""
    code = op.UD_SEND_ONLY if bench.kind == UD else op.UC_RDMA_WRITE_ONLY
    return bench.packet(code, PSN, b"", extensions=())


def _connection_headers() -> None:
    """What else 9.6 and the opcode table refuse of connections."""
    add_row("uc_from_a_foreign_source", "C9-165 C9-191", UC, "source", _foreign_source)
    codes = [*range(0x2C, 0x40)]
    counted = {"opcode": len(codes)}
    add_row("uc_opcodes_reserved", "C9-190 C9-191", UC, counted, partial(_reserved, codes=codes))


def _sequences() -> None:
    """What the PSN and the opcodes' sequence refuse (C9-183 ff.)."""
    send, write = (op.UC_SEND_FIRST, op.UC_SEND_MIDDLE, op.UC_SEND_LAST), (
        op.UC_RDMA_WRITE_FIRST, op.UC_RDMA_WRITE_MIDDLE, op.UC_RDMA_WRITE_LAST,
    )  # fmt: skip
    for what, codes, other, written in (
        ("send", send, write, (RECEIVE_OFFSET, RECEIVE_OFFSET + RECEIVE_BYTES)),
        ("write", write, send, (TARGET_OFFSET, TARGET_OFFSET + TARGET_BYTES)),
    ):
        first, middle, last = codes
        begun: dict[str, Any] = {"written": written}

        def gap(b: Bench, first: int = first, last: int = last) -> None:
            b.give(b.write(b.target, first, PSN, FULL, length=PMTU_BYTES + 3))
            b.give(b.write(b.target, last, PSN + 2, b"gap"))

        def again(b: Bench, first: int = first, middle: int = middle, last: int = last) -> None:
            b.sequence((first, FULL), (middle, FULL), length=2 * PMTU_BYTES + 3)
            b.give(b.write(b.target, middle, PSN + 1, FULL), b.write(b.target, last, PSN + 2, b"end"))

        for name, code in (("middle", middle), ("last", last)):
            payload = FULL if code == middle else b"end"
            add_row(f"uc_{what}_{name}_without_first", "C9-167 C9-187 C9-191", UC, "sequence",
                    partial(_one, code=code, payload=payload))  # fmt: skip
        add_row(f"uc_{what}_gap", "C9-166 C9-183 C9-186 C9-191", UC, "sequence", gap, **begun)
        add_row(f"uc_{what}_packet_twice", "C9-166 C9-183 C9-186 C9-188", UC, {"sequence": 2}, again, **begun)
        for name, code in (("middle", other[1]), ("last", other[2])):
            payload = FULL if code == other[1] else b"end"
            parts = ((first, FULL), (code, payload), (last, b"end"))
            add_row(f"uc_{what}_with_{name}_of_the_other", "C9-167 C9-187 C9-188 C9-191", UC, {"sequence": 2},
                    partial(_parts, parts=parts, length=2 * PMTU_BYTES + 3), **begun)  # fmt: skip


def _lengths() -> None:
    """Payload lengths that a position does not allow (C9-195 ff.)."""
    send, write = (op.UC_SEND_FIRST, op.UC_SEND_MIDDLE, op.UC_SEND_LAST, op.UC_SEND_ONLY), (
        op.UC_RDMA_WRITE_FIRST, op.UC_RDMA_WRITE_MIDDLE, op.UC_RDMA_WRITE_LAST, op.UC_RDMA_WRITE_ONLY,
    )  # fmt: skip
    for what, codes, written in (
        ("send", send, (RECEIVE_OFFSET, RECEIVE_OFFSET + RECEIVE_BYTES)),
        ("write", write, (TARGET_OFFSET, TARGET_OFFSET + TARGET_BYTES)),
    ):
        first, middle, last, only = codes
        for name, ids, begin, code, size in (
            ("first_short", "C9-195", (), first, 252),
            ("first_long", "C9-195", (), first, 260),
            ("first_empty", "C9-195", (), first, 0),
            ("first_padded", "C9-195 C9-199", (), first, 255),
            ("middle_short", "C9-195", (first,), middle, 252),
            ("middle_long", "C9-195", (first,), middle, 260),
            ("middle_padded", "C9-195 C9-199", (first,), middle, 253),
            ("only_long", "C9-196", (), only, 257),
            ("last_empty", "C9-197", (first,), last, 0),
            ("last_long", "C9-197", (first,), last, 257),
        ):
            parts = (*((part, FULL) for part in begin), (code, bytes(size)))
            begun = written if begin else (0, 0)
            act = partial(_parts, parts=parts, length=len(parts) * PMTU_BYTES)
            # pad bytes make the opcode invalid
            reason = "opcode" if "C9-199" in ids else "length"
            add_row(f"uc_{what}_{name}", f"{ids} C9-191", UC, reason, act, written=begun)


def _parts(bench: Bench, parts: tuple[Part, ...], length: int) -> None:
    """Packets of one message that is ``length`` long, as a WRITE says."""
    bench.sequence(*parts, length=length)


def _one(bench: Bench, code: int, payload: bytes) -> None:
    """One packet that would not be wrong elsewhere."""
    bench.give(bench.packet(code, PSN, payload))


def _reserved(bench: Bench, codes: list[int]) -> None:
    """Packets that are sound but for their opcode."""
    for code in codes:
        bench.give(altered(bench.only(), opcode=code))


def _resources() -> None:
    """No receive, or too small a one (C9-169, C9-194, C9-205, C9-207)."""
    none: dict[str, Any] = {"receive_bytes": 0}
    add_row("uc_send_without_receive", "C9-169 C9-191", UC, "no_receive", lambda b: b.give(b.only()), **none)
    add_row("uc_write_with_immediate_without_receive", "C9-169", UC, "no_receive",
            lambda b: b.sequence((op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, b"bad")), **none)  # fmt: skip
    add_row("uc_send_longer_than_receive", "C9-169 C9-194", UC, "receive_length",
            lambda b: b.give(b.only(bytes(101))), receive_bytes=100)  # fmt: skip
    add_row("uc_message_longer_than_receive", "C9-169 C9-194", UC, "receive_length",
            lambda b: b.sequence((op.UC_SEND_FIRST, FULL), (op.UC_SEND_LAST, bytes(45))),
            receive_bytes=300, written=(RECEIVE_OFFSET, RECEIVE_OFFSET + 300))  # fmt: skip
    ids = "C9-169 C9-207 C9-201"
    add_row("ud_without_receive", ids, UD, "no_receive", lambda b: b.give(b.only()), **none)
    add_row("ud_longer_than_receive", "C9-169 C9-205", UD, "receive_length",
            lambda b: b.give(b.only(bytes(61))), receive_bytes=100)  # fmt: skip
    add_row("ud_receive_without_room_for_grh", "C9-169 C9-205", UD, "receive_length",
            lambda b: b.give(b.only(b"")), receive_bytes=39)  # fmt: skip
    add_row("ud_longer_than_pmtu", "C9-205", UD, "length", lambda b: b.give(b.only(bytes(257))))


def _rights() -> None:
    """RDMA WRITEs that nobody has allowed (C9-170, C9-190, C9-192.2.1)."""
    ids = "C9-170 C9-192.2.1 C9-191"

    def add(name: str, act: Act, **more: Any) -> None:
        add_row(f"uc_write_{name}", ids, UC, "protection", act, **more)

    def write(bench: Bench, **fields: Any) -> None:
        bench.give(bench.write(bench.target, op.UC_RDMA_WRITE_ONLY, PSN, b"bad!", **fields))

    def region(bench: Bench, **changes: Any) -> None:
        key = bench.right.region(TARGET_OFFSET, TARGET_BYTES, **changes)
        bench.give(bench.write(key, op.UC_RDMA_WRITE_ONLY, PSN, b"bad!"))

    def over_the_end(bench: Bench) -> None:
        """Two packets are inside, the third is not."""
        bench.sequence((op.UC_RDMA_WRITE_FIRST, FULL), (op.UC_RDMA_WRITE_MIDDLE, FULL),
                       (op.UC_RDMA_WRITE_LAST, FULL))  # fmt: skip

    def dead(bench: Bench) -> None:
        """The key dies between two packets of one message."""
        bench.give(bench.write(bench.target, op.UC_RDMA_WRITE_FIRST, PSN, FULL, length=260))
        bench.right.device.dereg_mr(bench.target.handle)
        bench.give(bench.write(bench.target, op.UC_RDMA_WRITE_LAST, PSN + 1, b"late"))

    add("key_unknown", lambda b: write(b, rkey=b.target.rkey ^ 0x100))
    add("key_old", lambda b: write(b, rkey=b.target.rkey ^ 1))
    add("before_the_region", lambda b: write(b, va=b.target.va - 1))
    add("beyond_the_region", lambda b: write(b, va=b.target.va + TARGET_BYTES - 3))
    add("address_wraps", lambda b: write(b, va=(1 << 64) - 2))
    add("without_write_access", lambda b: region(b, access=LOCAL_WRITE | REMOTE_READ))
    add("of_another_domain", lambda b: region(b, pd=b.right.device.alloc_pd()))
    add("key_dies", dead, written=(TARGET_OFFSET, TARGET_OFFSET + PMTU_BYTES))
    add("ends_beyond_the_region", over_the_end, written=(TARGET_OFFSET, TARGET_OFFSET + 2 * PMTU_BYTES))
    add_row("uc_write_not_supported", "C9-168 C9-190 C9-191", UC, "opcode", write,
            access=LOCAL_WRITE | REMOTE_READ)  # fmt: skip
    add_row("uc_empty_write_not_supported", "C9-168 C9-190 C9-191", UC, "opcode",
            lambda b: b.give(b.packet(op.UC_RDMA_WRITE_ONLY, PSN)), access=0)  # fmt: skip


def _write_lengths() -> None:
    """RDMA WRITEs that carry more or less than they say."""
    for name, packets, length in (
        ("only_says_more", ((op.UC_RDMA_WRITE_ONLY, b"four"),), 8),
        ("only_says_less", ((op.UC_RDMA_WRITE_ONLY, b"four"),), 3),
        ("last_says_more", ((op.UC_RDMA_WRITE_FIRST, FULL), (op.UC_RDMA_WRITE_LAST, b"end")), 260),
        ("last_says_less", ((op.UC_RDMA_WRITE_FIRST, FULL), (op.UC_RDMA_WRITE_LAST, b"end")), 258),
    ):
        begun = (TARGET_OFFSET, TARGET_OFFSET + PMTU_BYTES) if len(packets) > 1 else (0, 0)
        act = partial(_parts, parts=packets, length=length)
        add_row(f"uc_write_{name}", "C9-191 C9-192.2.1", UC, "length", act, written=begun)


def _datagrams() -> None:
    """The same of datagrams."""
    add_row("ud_qkey_wrong", "C9-201 C9-202", UD, "qkey", lambda b: b.give(b.only(qkey=0x1234566)))
    codes = [*range(0x60, 0x64), *range(0x66, 0x80)]
    counted = {"opcode": len(codes)}
    add_row("ud_opcodes_reserved", "C9-168 C9-206", UD, counted, partial(_reserved, codes=codes))


_headers(UC)
_headers(UD)
_connection_headers()
_sequences()
_lengths()
_resources()
_rights()
_write_lengths()
_datagrams()
