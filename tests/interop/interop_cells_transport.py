"""Cells of what only a live peer shows of the transport: NAKs behind RNR NAKs, several queue pairs in one
window, requests that a responder must have room for, and what stands in the headers below.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interop_capture import read_frames
from interop_link import UNHURRIED, Attributes, CellError, Link, expect
from interop_matrix import SHORT_SETTINGS, Case, cell

LATE_S = 0.4
LATE_MESSAGES = 16
RNR_TIMERS = (1, 5, 12)  # 0.01, 0.06 and 0.64 ms
MEGABYTE = 1_000_000
NOTHING_AGAIN = ("transport_timeouts", "transport_retransmissions")
HOPS, LABEL, CLASS = 9, 0x12345, 0x68
PORTS = range(0xC000, 0x10000)


@contextlib.contextmanager
def counted(link: Link, ours_asks: bool) -> Iterator[dict[str, int]]:
    """How our side's counters move while the block runs; filled when it ends."""
    ours = link.requester if ours_asks else link.responder
    before = ours.ask("counters")["counters"]
    moved: dict[str, int] = {}
    yield moved
    after = ours.ask("counters")["counters"]
    moved.update({name: after[name] - before[name] for name in after})


def nothing_again(moved: dict[str, int]) -> None:
    """Nothing was lost, so we have sent nothing twice and waited for no timer."""
    expect("again", {name: moved[name] for name in NOTHING_AGAIN}, dict.fromkeys(NOTHING_AGAIN, 0))


@cell("late receiver, sequence NAKs", network=True, core=False, settings=SHORT_SETTINGS)
def late(case: Case) -> None:
    """Long SENDs under way find no receive for many RNR timers.  The kernel's NAKs of a sequence error behind
    each of its RNR NAKs come when they come; no retry may be spent on them.
    """
    for timer in RNR_TIMERS:
        link = case.link(attributes=Attributes(min_rnr_timer=timer))
        size = 5 * link.setting.mtu_bytes + 3
        link.requester.memory("from", size, seed=3)
        link.responder.memory("to", LATE_MESSAGES * size)
        link.send(0, "send", [["from", 0, size]], count=LATE_MESSAGES)
        time.sleep(LATE_S)
        for number in range(LATE_MESSAGES):
            link.receive(number, [["to", number * size, size]])
            link.received()
        link.sent(*[0] * LATE_MESSAGES)
        for number in range(LATE_MESSAGES):
            link.responder.holds("to", 3, size, number * size)


def many_writes(case: Case, queue_pairs: int, count: int = 10) -> None:
    """``count`` RDMA WRITEs of a megabyte on each queue pair, all posted before one completes."""
    link = case.link(attributes=UNHURRIED)
    names = ["qp", *(f"qp{number}" for number in range(1, queue_pairs))]
    for name in names[1:]:
        link.add(name)
    link.requester.memory("from", MEGABYTE, seed=4)
    there = link.responder.memory("to", MEGABYTE)
    where = {"rkey": there["rkey"], "address": there["address"], "count": count}
    with counted(link, case.ours_asks) as moved:
        for name in names:
            link.send(0, "write", [["from", 0, MEGABYTE]], name, **where)
        for name in names:
            link.sent(*[0] * count, name=name, patience_s=120.0)
    link.responder.holds("to", 4, MEGABYTE)
    nothing_again(moved)


@cell("80 MB over 8 queue pairs, nothing twice", core=False, network=True)
def eight(case: Case) -> None:
    """Who blocks on the window that all share must have asked for an acknowledgement."""
    many_writes(case, 8)


@cell("max_rd_atomic 3", network=True)
def three_reads(case: Case) -> None:
    """A kernel that is told 3 has four READs under way: a responder that allows 3 keeps room for them."""
    link = case.link(attributes=Attributes(max_rd_atomic=3, max_dest_rd_atomic=3))
    size, reads = 24 * link.setting.mtu_bytes, 16
    link.requester.memory("back", size)
    link.requester.memory("old", 8)
    there = link.responder.memory("from", size, seed=5)
    counter = link.responder.memory("counter", 8)
    link.send(
        0, "read", [["back", 0, size]], rkey=there["rkey"], address=there["address"], count=reads
    )  # together: so many as may are under way
    link.send(
        reads, "fetch_add", [["old", 0, 8]], rkey=counter["rkey"], address=counter["address"], compare_add=1,
        count=reads,
    )  # fmt: skip
    link.sent(*[0] * 2 * reads)
    link.requester.holds("back", 5, size)
    seen = link.responder.ask("get", name="counter", offset=0, length=8)["data"]
    expect("additions", seen, reads.to_bytes(8, sys.byteorder).hex())


def sent_by_us(case: Case, work: Any) -> list[dict[str, int]]:
    """The headers of what our side sends while ``work`` runs."""
    assert case.sides.capture is not None
    with tempfile.TemporaryDirectory(prefix="softhca-interop-") as folder:
        path = Path(folder, "headers.pcap")
        with case.sides.capture(path):
            work()
        own = case.addresses[0] if case.ours_asks else case.addresses[1]
        return [frame for frame in read_frames(path) if frame["source"] == own]


def everything(link: Link) -> None:
    """One WRITE of several packets and a READ, which the other side takes: its ICRC is right."""
    size = 3 * link.setting.mtu_bytes + 5
    link.requester.memory("from", size, seed=6)
    link.requester.memory("back", size)
    there = link.responder.memory("to", size)
    where = {"rkey": there["rkey"], "address": there["address"]}
    link.send(0, "write", [["from", 0, size]], **where)
    link.send(1, "read", [["back", 0, size]], **where)
    link.sent(0, 0)
    link.responder.holds("to", 6, size)
    link.requester.holds("back", 6, size)


@cell("hop limit, flow label, traffic class", network=True)
def headers(case: Case) -> None:
    """What the address vector says stands in every IP header, requests and responses, and in the ICRC."""
    fields = Attributes(hop_limit=HOPS, flow_label=LABEL, traffic_class=CLASS)
    link = case.link(attributes=fields)
    packets = sent_by_us(case, lambda: everything(link))
    version = case.setting.version
    wanted = (HOPS, CLASS, LABEL if version == 6 else 0)
    found = Counter((each["hops"], each["class"], each["label"]) for each in packets)
    expect("hops, class, label of our packets", set(found), {wanted})


@cell("source ports of 64 queue pairs", network=True, core=False, settings=SHORT_SETTINGS)
def ports(case: Case) -> None:
    """64 queue pairs are as many flows to a switch, or nearly so."""
    link = case.link()
    names = ["qp", *(f"qp{number}" for number in range(1, 64))]
    for name in names[1:]:
        link.add(name)
    link.requester.memory("from", 64, seed=7)
    there = link.responder.memory("to", 64)

    def once() -> None:
        for name in names:
            link.send(0, "write", [["from", 0, 64]], name, rkey=there["rkey"], address=there["address"])
            link.sent(name=name)

    found = {packet["port"] for packet in sent_by_us(case, once)}
    outside = sorted(port for port in found if port not in PORTS)
    expect("source ports outside of 0xC000-0xFFFF", outside, [])
    if len(found) < 60:
        raise CellError(f"64 queue pairs have {len(found)} source ports")
