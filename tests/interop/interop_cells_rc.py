"""Cells of the reliable connection: what both sides must do with each other."""

from __future__ import annotations

import sys

from interop_link import FLUSHED, RNR_EXCEEDED, STATE_ERR, WITH_IMMEDIATE, Attributes, expect
from interop_matrix import Case, cell

RECV_RDMA_WITH_IMM = 129  # ibv_wc_opcode
LARGE_PATIENCE_S = 120.0


def odd_sizes(mtu: int) -> tuple[int, ...]:
    """Nothing, odd lengths, and both sides of a packet's border."""
    return (0, 1, 3, 5, mtu - 1, mtu, mtu + 1, 4 * mtu + 7)


@cell("RC SEND")
def send(case: Case) -> None:
    """Messages of every odd size."""
    link = case.link()
    sizes = odd_sizes(link.setting.mtu_bytes)
    room = max(sizes)
    link.requester.memory("from", room, seed=1)
    link.responder.memory("to", room * len(sizes))
    for number in range(len(sizes)):
        link.receive(number, [["to", number * room, room]])
    for number, size in enumerate(sizes):
        link.send(number, "send", [["from", 0, size]])
    link.sent(*[0] * len(sizes))
    for number, (size, completion) in enumerate(zip(sizes, link.received(*[0] * len(sizes)), strict=True)):
        expect("byte_len", completion["byte_len"], size)
        link.responder.holds("to", 1, size, number * room)
        if size < room:
            link.responder.empty("to", number * room + size, min(8, room - size))


@cell("RC SEND with immediate")
def send_immediate(case: Case) -> None:
    """Immediate data comes with messages of no, one and several packets."""
    link = case.link()
    sizes = (0, 7, 3 * link.setting.mtu_bytes + 1)
    room = max(sizes)
    link.requester.memory("from", room, seed=2)
    link.responder.memory("to", room * len(sizes))
    for number, size in enumerate(sizes):
        link.receive(number, [["to", number * room, room]])
        link.send(number, "send_imm", [["from", 0, size]], imm=0xC0FFEE00 + number)
    link.sent(*[0] * len(sizes))
    for number, (size, completion) in enumerate(zip(sizes, link.received(*[0] * len(sizes)), strict=True)):
        expect("byte_len", completion["byte_len"], size)
        expect(
            "immediate",
            (completion["imm_data"], completion["wc_flags"] & WITH_IMMEDIATE),
            (0xC0FFEE00 + number, WITH_IMMEDIATE),
        )
        link.responder.holds("to", 2, size, number * room)


@cell("RC RDMA WRITE")
def write(case: Case) -> None:
    """Every odd size, each at its own place; nothing beside it is touched."""
    link = case.link()
    sizes = odd_sizes(link.setting.mtu_bytes)
    room = max(sizes) + 64
    link.requester.memory("from", room, seed=3)
    there = link.responder.memory("to", room * len(sizes))
    for number, size in enumerate(sizes):
        link.send(
            number,
            "write",
            [["from", 0, size]],
            rkey=there["rkey"],
            address=there["address"] + number * room + 1,
        )
    link.sent(*[0] * len(sizes))
    for number, size in enumerate(sizes):
        link.responder.holds("to", 3, size, number * room + 1)
        link.responder.empty("to", number * room + 1 + size, 63)


@cell("RC RDMA READ")
def read(case: Case) -> None:
    """Every odd size, each from its own place."""
    link = case.link()
    sizes = odd_sizes(link.setting.mtu_bytes)
    room = max(sizes) + 64
    link.requester.memory("to", room * len(sizes))
    there = link.responder.memory("from", room, seed=4)
    for number, size in enumerate(sizes):
        link.send(number, "read", [["to", number * room, size]], rkey=there["rkey"], address=there["address"])
    link.sent(*[0] * len(sizes))
    for number, size in enumerate(sizes):
        link.requester.holds("to", 4, size, number * room)
        link.requester.empty("to", number * room + size, 64)


@cell("RC RDMA WRITE with immediate")
def write_immediate(case: Case) -> None:
    """The immediate takes a receive, whose memory stays as it was."""
    link = case.link()
    sizes = (0, 3, 2 * link.setting.mtu_bytes + 5)
    room = max(sizes)
    link.requester.memory("from", room, seed=5)
    there = link.responder.memory("to", room * len(sizes))
    link.responder.memory("unused", 64)
    link.receive(0, [["unused", 0, 64]], count=len(sizes))
    for number, size in enumerate(sizes):
        link.send(
            number, "write_imm", [["from", 0, size]], rkey=there["rkey"],
            address=there["address"] + number * room, imm=0x01020300 + number,
        )  # fmt: skip
    link.sent(*[0] * len(sizes))
    for number, (size, completion) in enumerate(zip(sizes, link.received(*[0] * len(sizes)), strict=True)):
        seen = (completion["byte_len"], completion["imm_data"], completion["wc_flags"] & WITH_IMMEDIATE)
        expect("length, immediate", seen, (size, 0x01020300 + number, WITH_IMMEDIATE))
        expect("opcode", completion["opcode"], RECV_RDMA_WITH_IMM)
        link.responder.holds("to", 5, size, number * room)
    link.responder.empty("unused", 0, 64)


@cell("RC compare-and-swap, fetch-and-add")
def atomics(case: Case) -> None:
    """Originals and results, a match and a mismatch, a sum that wraps around."""
    link = case.link()
    link.requester.memory("back", 64)
    there = link.responder.memory("word", 64)
    words = {"rkey": there["rkey"], "address": there["address"] + 8}
    steps = (
        ("fetch_add", 5, 0),
        ("compare_swap", 5, 0x1122334455667788),
        ("compare_swap", 5, 0x0102030405060708),
        ("fetch_add", 2**64 - 0x1122334455667789, 0),
        ("fetch_add", 1, 0),
    )
    for number, (opcode, compare_add, swap) in enumerate(steps):
        link.send(number, opcode, [["back", 8 * number, 8]], compare_add=compare_add, swap=swap, **words)
    link.sent(*[0] * len(steps))
    back = bytes.fromhex(link.requester.ask("get", name="back", offset=0, length=40)["data"])
    found = [int.from_bytes(back[at : at + 8], sys.byteorder) for at in range(0, 40, 8)]
    expect("originals", found, [0, 5, 0x1122334455667788, 0x1122334455667788, 2**64 - 1])
    word = bytes.fromhex(link.responder.ask("get", name="word", offset=0, length=24)["data"])
    expect("the word and what is beside it", word, bytes(24))


@cell("RC several SGEs")
def elements(case: Case) -> None:
    """Gathered from and scattered to elements of odd lengths, among them empty ones."""
    link = case.link()
    total = 2 * link.setting.mtu_bytes + 1
    pieces = (1, 7, link.setting.mtu_bytes)
    parts = [*pieces, total - sum(pieces)]
    link.requester.memory("from", total, seed=6)
    there = link.responder.memory("to", 3 * total)
    gathered = _spread("from", parts)
    scattered = _spread("to", [parts[2], 3, parts[3], total])
    link.receive(0, scattered)
    link.send(0, "send", gathered)
    link.send(1, "write", gathered, rkey=there["rkey"], address=there["address"] + 2 * total)
    link.sent(0, 0)
    expect("byte_len", link.received()[0]["byte_len"], total)
    for offset in (0, 2 * total):
        link.responder.holds("to", 6, total, offset)
    link.requester.memory("back", total + 8)
    link.send(2, "read", _spread("back", parts), rkey=there["rkey"], address=there["address"])
    link.sent()
    link.requester.holds("back", 6, total)
    link.requester.empty("back", total, 8)


def _spread(name: str, parts: list[int]) -> list[list[object]]:
    """Elements of these lengths, one behind the other."""
    return [[name, sum(parts[:at]), length] for at, length in enumerate(parts)]


def _large(case: Case, length: int) -> None:
    link = case.link()
    link.requester.memory("from", length, seed=7)
    there = link.responder.memory("to", length)
    where = {"rkey": there["rkey"], "address": there["address"]}
    link.receive(0, [["to", 0, length]])
    link.send(0, "send", [["from", 0, length]])
    link.sent(patience_s=LARGE_PATIENCE_S)
    link.received()
    link.responder.holds("to", 7, length)
    link.responder.ask("fill", name="to", seed=8)
    link.send(1, "read", [["from", 0, length]], **where)
    link.sent(patience_s=LARGE_PATIENCE_S)
    link.requester.holds("from", 8, length)
    link.requester.ask("fill", name="from", seed=9)
    link.send(2, "write", [["from", 0, length]], **where)
    link.sent(patience_s=LARGE_PATIENCE_S)
    link.responder.holds("to", 9, length)


@cell("RC 1 MiB SEND, READ, WRITE")
def mebibyte(case: Case) -> None:
    """Messages of many packets, compared by digest."""
    _large(case, 1 << 20)


@cell("RC 64 MiB SEND, READ, WRITE", core=False)
def large(case: Case) -> None:
    """The same with 64 MiB."""
    _large(case, 64 << 20)


@cell("RC many requests under way")
def many(case: Case) -> None:
    """WRITEs, READs, atomics and SENDs in one queue; each READ brings what the WRITE before it left.

    A WRITE may overtake the READ in front of it unless it is fenced.
    """
    link = case.link()
    rounds, size = 12, link.setting.mtu_bytes + 3
    link.requester.memory("from", rounds * size, seed=10)
    link.requester.memory("back", rounds * size)
    link.requester.memory("old", 8 * rounds)
    there = link.responder.memory("to", size)
    counter = link.responder.memory("counter", 8)
    link.responder.memory("in", size)
    link.receive(0, [["in", 0, size]], count=rounds)
    where = {"rkey": there["rkey"], "address": there["address"]}
    for number in range(rounds):
        link.send(4 * number, "write", [["from", number * size, size]], fence=True, **where)
        link.send(4 * number + 1, "read", [["back", number * size, size]], **where)
        link.send(
            4 * number + 2, "fetch_add", [["old", 8 * number, 8]], rkey=counter["rkey"],
            address=counter["address"], compare_add=number,
        )  # fmt: skip
        link.send(4 * number + 3, "send", [["from", number * size, size]])
    expect("order", [each["wr_id"] for each in link.sent(*[0] * 4 * rounds)], list(range(4 * rounds)))
    link.received(*[0] * rounds)
    link.requester.holds("back", 10, rounds * size)
    seen = link.responder.ask("get", name="counter", offset=0, length=8)["data"]
    expect("counter", int.from_bytes(bytes.fromhex(seen), sys.byteorder), sum(range(rounds)))


@cell("RC PSN passes 2²⁴ − 1")
def psn_wraps(case: Case) -> None:
    """The sequence numbers wrap in the middle of messages, of READs as well."""
    link = case.link(psn=0xFFFFFD)
    size = 3 * link.setting.mtu_bytes
    link.requester.memory("from", size, seed=11)
    link.requester.memory("back", size)
    there = link.responder.memory("to", size)
    where = {"rkey": there["rkey"], "address": there["address"]}
    link.send(0, "write", [["from", 0, size // 3]], **where)
    link.send(1, "write", [["from", 0, size]], **where)
    link.send(2, "read", [["back", 0, size]], **where)
    link.sent(0, 0, 0)
    link.requester.holds("back", 11, size)


@cell("RC shared receive queue")
def shared(case: Case) -> None:
    """Two queue pairs take their receives from one queue, one after the other."""
    link = case.link(srq_depth=16)
    link.add("second", psn=0x100)
    size = link.setting.mtu_bytes + 1
    link.requester.memory("from", size, seed=12)
    link.responder.memory("to", 6 * size)
    for number in range(6):
        link.receive(number, [["to", number * size, size]])
    taken = []
    for number in range(6):
        name = ("qp", "second")[number % 2]
        link.send(number, "send", [["from", 0, size]], name=name)
        link.sent(name=name)
        taken.append(link.received(name=name)[0]["wr_id"])
    expect("receives in the order in which they were posted", taken, list(range(6)))
    for number in range(6):
        link.responder.holds("to", 12, size, number * size)


@cell("RC receiver not ready, then ready")
def not_ready(case: Case) -> None:
    """A SEND waits for a receive that is posted late."""
    link = case.link()
    size = 3 * link.setting.mtu_bytes
    link.requester.memory("from", size, seed=13)
    link.responder.memory("to", 2 * size)
    for number in range(2):
        link.send(number, "send", [["from", 0, size]])
    expect("completions without a receive", link.requester.completions("qp", (), 0.0), [])
    for number in range(2):
        link.receive(number, [["to", number * size, size]])
        link.received()
        link.responder.holds("to", 13, size, number * size)
    link.sent(0, 0)


@cell("RC receiver never ready")
def never_ready(case: Case) -> None:
    """With a finite retry count the requester gives up; what stands behind is flushed."""
    link = case.link(attributes=Attributes(rnr_retry=2, min_rnr_timer=1))
    link.requester.memory("from", 16, seed=14)
    for number in range(2):
        link.send(number, "send", [["from", 0, 16]])
    link.sent(RNR_EXCEEDED, FLUSHED)
    expect("state", link.requester.ask("state", name="qp")["state"], STATE_ERR)
