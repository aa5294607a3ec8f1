"""Cells of the unreliable services, UC and UD."""

from __future__ import annotations

import ipaddress

from interop_link import GRH_VALID, SUCCESS, WITH_IMMEDIATE, expect
from interop_matrix import Case, cell

GRH_BYTES = 40
BATCH = 8
ATTEMPTS = 5


@cell("UC SEND, with and without immediate")
def send(case: Case) -> None:
    """Odd sizes and several packets, each delivered before the next is sent: nothing may be lost here."""
    link = case.link("UC")
    mtu = link.setting.mtu_bytes
    room = 5 * mtu
    link.requester.memory("from", room, seed=1)
    link.responder.memory("to", room)
    for number, size in enumerate((0, 1, 3, mtu - 1, mtu, mtu + 1, 4 * mtu + 7)):
        for opcode, flags in (("send", 0), ("send_imm", WITH_IMMEDIATE)):
            link.responder.ask("zero", name="to")
            link.receive(number, [["to", 0, room]])
            link.send(number, opcode, [["from", 0, size]], imm=0xABCD0000 + number)
            link.sent()
            completion = link.received()[0]
            seen = (completion["byte_len"], completion["wc_flags"] & WITH_IMMEDIATE)
            expect("length, flags", seen, (size, flags))
            if flags:
                expect("immediate", completion["imm_data"], 0xABCD0000 + number)
            link.responder.holds("to", 1, size)


@cell("UC RDMA WRITE, with and without immediate")
def write(case: Case) -> None:
    """A WRITE without immediate is seen when the one behind it has come."""
    link = case.link("UC")
    mtu = link.setting.mtu_bytes
    sizes = (0, 1, 3, mtu, mtu + 1, 3 * mtu + 5)
    room = max(sizes)
    link.requester.memory("from", room, seed=2)
    there = link.responder.memory("to", room * (len(sizes) + 1))
    link.responder.memory("unused", 8)
    for number, size in enumerate(sizes):
        address = there["address"] + number * room
        link.receive(number, [["unused", 0, 8]])
        link.send(number, "write", [["from", 0, size]], rkey=there["rkey"], address=address)
        link.send(
            number,
            "write_imm",
            [["from", 0, size]],
            rkey=there["rkey"],
            address=there["address"] + len(sizes) * room,
            imm=number,
        )
        link.sent(0, 0)
        completion = link.received()[0]
        expect("length, immediate", (completion["byte_len"], completion["imm_data"]), (size, number))
        link.responder.holds("to", 2, size, number * room)
        link.responder.holds("to", 2, size, len(sizes) * room)


@cell("UC 1 MiB SEND", network=True)
def mebibyte(case: Case) -> None:
    """A long message; a loss would spoil it, so it may take some attempts.

    Each has queue pairs of its own, so that nothing of a lost one is left in the next.
    """
    link = case.link("UC")
    length = 1 << 20
    link.requester.memory("from", length, seed=3)
    link.responder.memory("to", length)
    for attempt in range(ATTEMPTS):
        name = f"attempt{attempt}"
        link.add(name)
        link.receive(attempt, [["to", 0, length]], name=name)
        link.send(attempt, "send", [["from", 0, length]], name=name)
        link.sent(name=name)
        found = link.responder.ask("poll", name=f"{name}:receive", count=1, patience_s=3.0)["completions"]
        if found:
            expect("status", found[0]["status"], SUCCESS)
            break
    else:
        expect(f"one of {ATTEMPTS} messages arrives", False, True)
    link.responder.holds("to", 3, length)


@cell("UD SEND, with and without immediate")
def datagrams(case: Case) -> None:
    """Odd sizes up to the MTU; 40 bytes in front of the data hold where it came from."""
    link = case.link("UD")
    mtu = link.setting.mtu_bytes
    sizes = (0, 1, 3, 5, mtu - 1, mtu)
    room = GRH_BYTES + mtu
    link.requester.memory("from", mtu, seed=4)
    link.responder.memory("to", room * len(sizes))
    for opcode, flags in (("send", 0), ("send_imm", WITH_IMMEDIATE)):
        link.responder.ask("zero", name="to")
        for number, size in enumerate(sizes):
            link.receive(number, [["to", number * room, room]])
            link.send(number, opcode, [["from", 0, size]], imm=0x11223300 + number)
            link.sent()
            completion = link.received()[0]
            seen = (completion["byte_len"], completion["wc_flags"] & (WITH_IMMEDIATE | GRH_VALID))
            expect("length, flags", seen, (size + GRH_BYTES, flags | GRH_VALID))
            expect("source", completion["src_qp"], link.requester.qps["qp"])
            if flags:
                expect("immediate", completion["imm_data"], 0x11223300 + number)
            link.responder.holds("to", 4, size, number * room + GRH_BYTES)
            header = link.responder.ask("get", name="to", offset=number * room, length=GRH_BYTES)["data"]
            _came_from(case, bytes.fromhex(header))


def _came_from(case: Case, header: bytes) -> None:
    """Addresses in what stands in front of a datagram: an IPv6 header, or an IPv4 header at its end."""
    packed = [ipaddress.ip_address(address).packed for address in case.addresses]
    length = len(packed[0])
    seen = [header[at : at + length] for at in (GRH_BYTES - 2 * length, GRH_BYTES - length)]
    expect("source and destination in the GRH", seen, packed)
    expect("version in the GRH", header[0 if length == 16 else 20] >> 4, 6 if length == 16 else 4)


@cell("UD shared receive queue")
def shared(case: Case) -> None:
    """Datagrams to two queue pairs take their receives from one queue."""
    link = case.link("UD", srq_depth=BATCH)
    link.add("second")
    size = 33
    room = GRH_BYTES + size
    link.requester.memory("from", size, seed=5)
    link.responder.memory("to", room * BATCH)
    for number in range(BATCH):
        link.receive(number, [["to", number * room, room]])
    for number in range(BATCH):
        name = ("qp", "second")[number % 2]
        link.send(number, "send", [["from", 0, size]], name=name)
        link.sent(name=name)
        expect("receive", link.received(name=name)[0]["wr_id"], number)
        link.responder.holds("to", 5, size, number * room + GRH_BYTES)
