"""Where our packets differ from the kernel's, packet by packet, and why; the list is exact (`expected`)."""

from __future__ import annotations

from dataclasses import dataclass

from replay_capture import Captured, Record, load, record_of

from softhca.transport.states import RC, UC, UD


@dataclass(frozen=True)
class Plan:
    """How a capture is replayed: its service, path MTU, number of packets and of sides that send requests."""

    service: int
    pmtu: int
    packets: int
    directions: int


REPLAYED = {
    "rc_pingpong": Plan(RC, 1024, 50, 2),
    "uc_pingpong": Plan(UC, 1024, 20, 2),
    "ud_pingpong": Plan(UD, 1024, 10, 2),
    "ud_pingpong_ipv6": Plan(UD, 1024, 6, 2),
    "ib_write_bw": Plan(RC, 1024, 25, 1),
    "ib_read_bw": Plan(RC, 1024, 25, 1),
    "ib_send_bw_odd": Plan(RC, 1024, 20, 1),
    "atomic": Plan(RC, 1024, 14, 1),
    "mix": Plan(RC, 1024, 32, 1),
    "mix_ipv6": Plan(RC, 1024, 32, 1),
    "psn_wrap": Plan(RC, 1024, 16, 1),
    "rnr": Plan(RC, 1024, 63, 1),
    "bad_rkey": Plan(RC, 1024, 2, 1),
    "send_inv": Plan(RC, 1024, 6, 1),
    "loss5": Plan(RC, 1024, 152, 1),
}
NOT_REPLAYED = {
    "rping": "connection management, which is no matter of the transport",
    "ucmatose": "connection management, which is no matter of the transport",
}
# The capture's requester sends this packet because its transport timer has run out.
TIME_OUTS = {"loss5": (151,)}


@dataclass(frozen=True)
class Changed:
    """``field`` is not the captured value in the packets ``values``: number → (captured, ours)."""

    reason: str
    field: str
    values: dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Absent:
    """These captured packets are not sent by us."""

    reason: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Extra:
    """A packet of ours before number ``before`` that the capture does not have: ``like``, but ``values``."""

    reason: str
    before: int
    like: int
    values: dict[str, int]


Difference = Changed | Absent | Extra


def _credits(codes: dict[int, tuple[int, ...]]) -> Changed:
    """Our credit code → the captured packets that have it in the place of 31."""
    values = {number: (31, code) for code, numbers in codes.items() for number in numbers}
    return Changed(CREDITS, "syndrome", values)


MIGREQ = "the kernel leaves BTH's MigReq bit 0; ours is 1, as channel adapters send it where no path migrates"
CREDITS = "the kernel sends syndrome 31 (no credit limit); ours tells how many receives are posted"
RNR_SILENCE = "after an RNR NAK the kernel NAKs the rest of the message as well (sequence); ours is silent"
REPLAYED_MSN = "a READ answered again: the kernel gives its present MSN, ours that of the first answer"
LOST = "lost before the capture point"
ASKS = "a loss has narrowed our window, so ours asks for an ACK with every burst, not only at the end"
SENT_ON = "the kernel sent on before it took the NAK of packet 45; ours goes back at once"

# Holds for every packet of every capture: field, captured, ours, reason.
EVERYWHERE = ("migreq", 0, 1, MIGREQ)

DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "rc_pingpong": (_credits({4: (5, 10), 3: (15, 20), 2: (25, 30), 1: (35, 40), 0: (45, 50)}),),
    "ib_write_bw": (_credits({0: (6, 22, 23, 24, 25)}),),
    "ib_read_bw": (_credits({0: (6, 9, 10, 13, 14, 17, 18, 21, 22, 25)}),),
    "ib_send_bw_odd": (_credits({4: (6,), 3: (13,), 2: (15,), 1: (19,), 0: (20,)}),),
    "atomic": (_credits({0: (2, 4, 6, 8, 10, 12, 14)}),),
    "mix": (_credits({4: (2,), 3: (4,), 2: (6,), 1: (9,), 0: (11, 13, 15, 17, 19, 21, 23, 29, 32)}),),
    "mix_ipv6": (_credits({4: (2,), 3: (4,), 2: (6,), 1: (9,), 0: (11, 13, 15, 17, 19, 21, 23, 29, 32)}),),
    "psn_wrap": (_credits({3: (3,), 2: (6,), 1: (9,), 0: (12, 14, 16)}),),
    "send_inv": (_credits({1: (2,), 0: (4,)}),),
    "rnr": (
        Absent(RNR_SILENCE, (4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60)),
        _credits({0: (63,)}),
    ),
    "loss5": (
        _credits(
            {
                6: (20, 21),
                5: (38, 39),
                4: (40, 41),
                3: (42,),
                2: (60,),
                1: (61,),
                0: (
                    *(62, 67, 87, 88, 97, 104, 107, 108, 111, 112, 115, 118, 121, 122, 125),
                    *(129, 132, 133, 136, 137, 140, 146, 147, 148, 149, 150, 152),
                ),
            }
        ),
        Changed(ASKS, "ack_request", dict.fromkeys((64, 69, 73, 77, 84, 94), (0, 1))),
        Changed(REPLAYED_MSN, "msn", {129: (22, 20), 132: (22, 20), 133: (22, 21), 136: (22, 21)}),
        Extra(LOST, 7, 23, {}),
        Extra(LOST, 15, 32, {}),
        Extra(LOST, 44, 52, {}),
        Absent(SENT_ON, (46, 47, 48, 49, 50, 51)),
        Extra(f"{LOST}; {ASKS}", 81, 90, {"ack_request": 1}),
        Extra(LOST, 87, 67, {"psn": 0x9C0471, "msn": 12}),
        Extra(LOST, 97, 67, {"psn": 0x9C047D, "msn": 15}),
        Extra(LOST, 116, 129, {}),
        Extra(LOST, 118, 132, {}),
        Extra(LOST, 146, 151, {}),
    ),
}


def lost_requests(name: str) -> list[tuple[int, int]]:
    """PSNs of request packets that were lost before the capture point, and the number they stood before."""
    packets = load(name)
    extras = [d for d in DIFFERENCES.get(name, ()) if isinstance(d, Extra)]
    return [(packets[d.like - 1].psn, d.before) for d in extras if not packets[d.like - 1].is_reply]


def concerns(difference: Difference, numbers: set[int]) -> bool:
    """Whether ``difference`` belongs to the packets with these numbers."""
    if isinstance(difference, Changed):
        return not numbers.isdisjoint(difference.values)
    if isinstance(difference, Absent):
        return not numbers.isdisjoint(difference.numbers)
    return difference.like in numbers


def expected(name: str, packets: tuple[Captured, ...], credits: bool) -> list[tuple[int, Record]]:
    """What we must send where the capture has ``packets``: the packet's number and its fields, in order.

    Every difference that concerns these packets is applied, and must be one; so a difference that does not
    occur shows as well as one that is not listed.  Without ``credits`` those of credits are left out.
    """
    records = {packet.number: record_of(packet.transport) for packet in packets}
    rows = {float(number): record for number, record in records.items()}
    concerned = [d for d in DIFFERENCES.get(name, ()) if concerns(d, set(records))]
    for difference in concerned:
        if isinstance(difference, Changed) and (credits or difference.reason != CREDITS):
            for number in records.keys() & difference.values.keys():
                captured, ours = difference.values[number]
                assert records[number][difference.field] == captured != ours, (difference.reason, number)
                records[number][difference.field] = ours
    for difference in concerned:
        if isinstance(difference, Absent):
            for number in difference.numbers:
                del rows[float(number)]
        elif isinstance(difference, Extra):
            rows[difference.before - 0.5] = {**records[difference.like], **difference.values}
    field, captured, ours, _ = EVERYWHERE
    for record in rows.values():
        assert record[field] == captured != ours
        record[field] = ours
    return [(int(place + 0.5), rows[place]) for place in sorted(rows)]
