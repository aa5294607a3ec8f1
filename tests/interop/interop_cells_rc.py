"""Cells of the reliable connection: what both sides must do with each other."""

from __future__ import annotations

from interop_link import expect
from interop_matrix import Case, cell


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
        expect("immediate", (completion["imm_data"], completion["wc_flags"] & 2), (0xC0FFEE00 + number, 2))
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
