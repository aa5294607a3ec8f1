"""Cells over a bad network: what leaves the guest is lost, doubled, reordered or damaged by netem."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from interop_guest import Guest
from interop_link import Attributes, expect
from interop_matrix import SHORT_SETTINGS, Case, cell
from interop_network import MTU_BYTES

ROUNDS = 24
PATIENT = Attributes(timeout=15, retry_cnt=7)  # 0.13 s at a time
PATIENCE_S = 120.0


@contextlib.contextmanager
def netem(guest: Guest, words: str, both: bool = False) -> Iterator[None]:
    """While the block runs, a guest's interface does ``words`` to what it sends; ``both``: and to what it
    receives, which goes through another interface first.
    """
    guest.run(*f"tc qdisc add dev eth0 root netem {words}".split())
    try:
        if both:
            for command in (
                f"ip link set ifb0 mtu {MTU_BYTES} up",
                "tc qdisc add dev eth0 handle ffff: ingress",
                "tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0",
                f"tc qdisc add dev ifb0 root netem {words}",
            ):
                guest.run(*command.split())
        yield
    finally:
        guest.run("tc", "qdisc", "delete", "dev", "eth0", "root")
        if both:
            guest.run("tc", "qdisc", "delete", "dev", "eth0", "ingress", check=False)
            guest.run("tc", "qdisc", "delete", "dev", "ifb0", "root", check=False)


def traffic(case: Case, words: str) -> None:
    """Every operation of RC, whose results must be those of a good network."""
    link = case.link(attributes=PATIENT)
    size = 5 * link.setting.mtu_bytes + 3
    link.requester.memory("from", ROUNDS * size, seed=1)
    link.requester.memory("back", ROUNDS * size)
    link.requester.memory("old", 8 * ROUNDS)
    there = link.responder.memory("to", ROUNDS * size)
    counter = link.responder.memory("counter", 8)
    link.responder.memory("in", ROUNDS * size)
    where = {"rkey": there["rkey"]}
    with netem(case.sides.guest, words):
        for number in range(ROUNDS):
            offset = number * size
            link.receive(number, [["in", offset, size]])
            address = there["address"] + offset
            link.send(number, "write", [["from", offset, size]], address=address, **where)
            link.send(number, "send", [["from", offset, size]])
            link.send(number, "read", [["back", offset, size]], address=address, **where)
            link.send(
                number,
                "fetch_add",
                [["old", 8 * number, 8]],
                rkey=counter["rkey"],
                address=counter["address"],
                compare_add=1 << number,
            )
            if number % 4 == 3:
                link.sent(*[0] * 16, patience_s=PATIENCE_S)
        link.received(*[0] * ROUNDS, patience_s=PATIENCE_S)
    for end, name in ((link.responder, "to"), (link.responder, "in"), (link.requester, "back")):
        end.holds(name, 1, ROUNDS * size)
    seen = link.responder.ask("get", name="counter", offset=0, length=8)["data"]
    sums = link.requester.ask("get", name="old", offset=0, length=8 * ROUNDS)["data"]
    originals = b"".join(((1 << number) - 1).to_bytes(8, sys.byteorder) for number in range(ROUNDS))
    expect(
        "atomics done once",
        (sums, seen),
        (originals.hex(), ((1 << ROUNDS) - 1).to_bytes(8, sys.byteorder).hex()),
    )


@cell("netem: 5 % lost", settings=SHORT_SETTINGS)
def lost(case: Case) -> None:
    """Loss."""
    traffic(case, "loss 5%")


@cell("netem: 10 % doubled", core=False, settings=SHORT_SETTINGS)
def doubled(case: Case) -> None:
    """Duplication."""
    traffic(case, "duplicate 10%")


@cell("netem: reordered", core=False, settings=SHORT_SETTINGS)
def reordered(case: Case) -> None:
    """A quarter goes at once, the rest 2 ms later."""
    traffic(case, "delay 2ms reorder 25% 50%")


@cell("netem: 3 % damaged", core=False, settings=SHORT_SETTINGS)
def damaged(case: Case) -> None:
    """One bit of a packet is wrong, which its ICRC tells."""
    traffic(case, "corrupt 3%")
