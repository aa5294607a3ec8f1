"""What happens in a campaign, decided by its seed alone: sessions of rounds as plain data.

A session is one mode: two processes that live through it, with traffic between them, and rounds in which
other processes join one of them and suffer.  A round is a dict that JSON can hold: what a failed one prints
is all that is needed to run it again.
"""

from __future__ import annotations

import random
from typing import Any

from chaos_script import ATOMIC, READ, SEND, WRITE, mixed

MODES = ("udp", "same_host", "process")
"""Adapters in the program over UDP; the same with shared memory between them; adapters in processes of their
own (over UDP)."""

ROUNDS_A_SESSION, STORM_ROUNDS = 12, 100

KINDS: dict[str, tuple[int, str]] = {
    # name: (weight, modes that have it; empty: all)
    "kill": (6, ""),
    "stop_short": (2, ""),
    "stop_long": (3, ""),
    "end_close": (2, ""),
    "end_leave": (1, ""),
    "end_threads": (2, ""),
    "fork": (2, ""),
    "fork_bare": (1, ""),
    "end_interrupt": (1, ""),
    "stop_withdraw": (3, ""),
    "alarms": (1, ""),
    "link_down": (1, ""),
    "narrow": (1, ""),
    "descriptors": (2, ""),
    "memory": (2, ""),
    "jump": (2, "udp same_host"),
    "time_namespace": (1, ""),
    "flood": (2, ""),
    "forge": (2, ""),
    "adapter_kill": (2, "process"),
    "adapter_stop": (2, "process"),
    "mad_client": (3, "process"),
}
"""What befalls the victims of a round."""

SURVIVE = frozenset(
    {"stop_short", "fork", "descriptors", "memory", "jump", "time_namespace", "flood", "forge", "mad_client"}
    | {"alarms", "link_down", "narrow"}
)
"""Kinds in which no connection may end."""

PATIENT, IMPATIENT = (17, 7), (12, 7)
"""``timeout`` and ``retry_cnt`` of connections that must not end, and of those that are to end soon: after
8 time-outs of 34 ms."""

STOPPED = (12, 3)
"""And of those to peers that are stopped for long: 4 time-outs of 34 ms."""

LONG_STOPS = frozenset({"stop_long", "stop_withdraw", "adapter_stop"})

VERBS = "verbs"
TRAFFIC = {VERBS: 5, "streams": 3, "channels": 3, "datagrams": 1, "messages": 1}
"""What the connections of a round's victims are, by weight: queue pairs of verbs; streams and datagrams of
`softhca.sockets`; channels, and such as are not acknowledged."""

VERBS_ALONE = frozenset({"memory"})
"""Kinds that conversations do not have; nor have datagrams `forge`."""

FRESH = frozenset({"end_threads", "end_interrupt", "time_namespace"})
"""Kinds whose victims are programs of their own, one in a round."""

MIXES = (
    (WRITE, WRITE, READ, SEND, ATOMIC, WRITE),
    (WRITE,),
    (SEND, SEND, SEND, WRITE),
    (READ, WRITE, READ),
    (ATOMIC, WRITE, SEND),
)


def shape(chance: random.Random, connections: int) -> dict[str, Any]:
    """The memory of each connection; less where there are many."""
    slots = chance.choice((6, 8, 16))
    most = 65_536 if connections <= 2 else 8192 if connections <= 8 else 512
    sizes = [each for each in (64, 256, 512, 4096, 8192, 65_536) if each <= most]
    return {
        "slots": slots,
        "slot_bytes": chance.choice(sizes),
        "window": chance.choice((1, 4, slots - 2)),
        "kinds": list(chance.choice(MIXES)),
    }


def round_of(
    seed: int, mode: str, number: int, only: tuple[str, ...] = (), traffic: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Round ``number`` of a session; ``only`` such kinds, with such ``traffic``."""
    chance = random.Random(mixed(mixed(seed) ^ number))
    names = [
        name
        for name, (_, modes) in KINDS.items()
        if (not modes or mode in modes.split()) and (not only or name in only)
    ]
    kind = chance.choices(names, [KINDS[name][0] for name in names])[0]
    many = kind in ("kill", "end_close", "stop_long") and chance.random() < 0.5
    # Those that are told of an end are few: many to one peer wait for each other's room with each retry.
    connections = chance.choice((1, 2, 8, 16) if kind in SURVIVE else (1, 2, 4))
    victims = chance.choice((2, 4)) if many else chance.choice((1, 1, 2))
    timeout, retry = PATIENT if kind in SURVIVE else STOPPED if kind in LONG_STOPS else IMPATIENT
    plan = {
        "number": number,
        "kind": kind,
        "victims": victims if kind not in FRESH | {"memory"} else 1,
        "connections": connections,
        "memory": chance.choice(("arena", "arena", "own")),
        "shape": shape(chance, connections),
        "buffer": chance.choice((0, 0, 131_072)),
        "timeout": timeout,
        "retry": retry,
        "delay_ms": chance.choice((0, 1, 5, 20, 100, 300)),
        "lasts_ms": {
            "stop_short": chance.choice((5, 30, 150)),
            "stop_long": chance.choice((700, 1500)),
            "link_down": chance.choice((5, 60, 200)),
            "adapter_stop": 1500,
        }.get(kind, 400),
        "amount": _amount(kind, chance),
        "seed": chance.getrandbits(48),
    }
    names = [VERBS] if kind in VERBS_ALONE else list(traffic or TRAFFIC)
    if kind == "forge":
        names = [name for name in names if name != "datagrams"] or [VERBS]
    plan["traffic"] = chance.choices(names, [TRAFFIC[name] for name in names])[0]
    plan["by_cm"] = plan["traffic"] == "streams" and chance.random() < 0.3
    if plan["traffic"] != VERBS:
        # Two threads each at both ends.
        plan.update(victims=min(plan["victims"], 2), connections=min(plan["connections"], 2))
        plan["shape"] = shape(chance, plan["connections"])
    return plan


def _amount(kind: str, chance: random.Random) -> int:
    """How much of it: spare descriptors, spare bytes, nanoseconds, forks."""
    if kind == "descriptors":
        return chance.randrange(0, 24)
    if kind == "memory":
        return chance.choice((1 << 20, 16 << 20, 256 << 20, 2 << 30))
    if kind == "jump":
        return chance.choice((50_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000, 10**15))
    if kind == "time_namespace":
        return chance.choice((10, 86_400, 86_400 * 3650))
    return chance.choice((1, 2, 5))


def storm_round(seed: int, number: int, victims: int, connections: int) -> dict[str, Any]:
    """One round of a storm: as many connections as possible, killed, closed or stopped."""
    chance = random.Random(mixed(mixed(seed ^ 0x570) ^ number))
    kind = chance.choice(("kill", "kill", "kill", "end_close", "stop_long"))
    timeout, retry = STOPPED if kind == "stop_long" else IMPATIENT
    return {
        "number": number,
        "kind": kind,
        "victims": victims,
        "connections": connections,
        "memory": "arena",
        "shape": {"slots": 4, "slot_bytes": 64, "window": 2, "kinds": list(MIXES[0])},
        "buffer": 0,
        "timeout": timeout,
        "retry": retry,
        "delay_ms": chance.choice((0, 5, 20)),
        "lasts_ms": 700,
        "amount": 1,
        "gentle": True,
        "seed": chance.getrandbits(48),
        "traffic": VERBS,
        "by_cm": False,
    }
