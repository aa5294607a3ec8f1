"""The named scenarios: what traffic runs in a world, and what it suffers, as data."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from softhca.links.faults import FOREVER_NS, Faults, Partition

RC, UC, UD = 2, 3, 4
SEND, SEND_IMM, WRITE, WRITE_IMM, READ, ADD, SWAP = (
    "send", "send_imm", "write", "write_imm", "read", "add", "swap",
)  # fmt: skip
MESSAGES = (SEND, SEND_IMM, WRITE_IMM)
MTU_BYTES = 1024
NO_FAULTS = Faults()
IMMEDIATE_BASE = 0x5A000000


@dataclass(frozen=True, slots=True)
class Scenario:
    """Two adapters, ``qps`` pairs of queue pairs between them, and in both directions ``operations`` requests
    each of the ``kinds``, 0…``largest_bytes`` long.

    ``receives_first``: receives posted before the traffic begins (0: all); then one more each
    ``receive_every_ns``.  ``shared``: receives come from one shared receive queue an adapter.  ``may_fail``:
    connections may break in this world.  ``first_psn``: −1 is drawn from the seed.  ``ip`` is the version of
    the links' addresses; ``partition``: the seed cuts one direction, sometimes for ever.
    """

    name: str
    text: str
    service: int
    kinds: tuple[str, ...]
    faults: Faults = NO_FAULTS
    qps: int = 2
    operations: int = 12
    largest_bytes: int = 6_000
    receives_first: int = 0
    receive_every_ns: int = 0
    shared: bool = False
    may_fail: bool = False
    first_psn: int = -1
    ip: int = 4
    partition: bool = False


_RC_KINDS = (SEND, SEND_IMM, WRITE, WRITE_IMM, READ, READ, ADD, SWAP)
_UC_KINDS = (SEND, SEND_IMM, WRITE, WRITE_IMM)
_UD_KINDS = (SEND, SEND_IMM)
_CHAOS = Faults(loss=0.1, reordering=0.1, duplication=0.1, jitter_ns=2_000)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("rc-mix", "every RC operation over a clean link", RC, _RC_KINDS),
        Scenario(
            "rc-loss", "RC over a link that loses, also in bursts", RC, _RC_KINDS,
            Faults(loss=0.02, burst_loss=0.002, jitter_ns=500),
        ),
        Scenario("rc-chaos", "RC with 10% loss, reordering and duplication each", RC, _RC_KINDS, _CHAOS),
        Scenario(
            "rc-corrupt", "RC over a link that flips bits and cuts packets", RC, _RC_KINDS,
            Faults(corruption=0.05, truncation=0.02), ip=6,
        ),
        Scenario("uc-mix", "UC over a clean link", UC, _UC_KINDS),
        Scenario("uc-chaos", "UC with 10% loss, reordering and duplication each", UC, _UC_KINDS, _CHAOS),
        Scenario("ud-mix", "UD over a clean link", UD, _UD_KINDS, largest_bytes=MTU_BYTES),
        Scenario(
            "ud-chaos", "UD with 10% loss, reordering and duplication each", UD, _UD_KINDS, _CHAOS,
            largest_bytes=MTU_BYTES,
        ),
        Scenario(
            "rnr", "RC to a receiver that posts its receives late", RC, (SEND, SEND_IMM, WRITE_IMM, READ),
            Faults(loss=0.01), receives_first=1, receive_every_ns=150_000,
        ),
        Scenario(
            "psn-wrap", "RC across the end of the PSNs, with loss", RC, _RC_KINDS,
            Faults(loss=0.03, duplication=0.03), first_psn=0xFFFFF0,
        ),
        Scenario(
            "partition", "RC while one direction is cut, for a while or for ever", RC, _RC_KINDS,
            may_fail=True, partition=True,
        ),
        Scenario(
            "srq", "RC to a shared receive queue, with loss", RC, (SEND, SEND_IMM, WRITE_IMM, WRITE),
            Faults(loss=0.02), qps=3, shared=True,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """One request: its ``kind``, length and bytes, and the immediate if it carries one."""

    index: int
    kind: str
    data: bytes
    immediate: int | None
    elements: int
    gap_ns: int


def dice_of(scenario: Scenario, seed: int, purpose: str) -> random.Random:
    """A generator of its own for each purpose: one more draw for the one does not change the others."""
    return random.Random(f"{scenario.name}/{seed}/{purpose}")


def operations_of(scenario: Scenario, seed: int, end: str) -> list[Operation]:
    """The requests of one queue pair.  Bytes of UC and UD messages tell which message they are."""
    dice = dice_of(scenario, seed, f"operations/{end}")
    smallest = 0 if scenario.service == RC else 8
    found = []
    for index in range(scenario.operations):
        kind = dice.choice(scenario.kinds)
        length = 8 if kind in (ADD, SWAP) else _length(dice, smallest, scenario.largest_bytes)
        if kind in (READ, WRITE):
            length = max(length, 1)
        found.append(
            Operation(
                index,
                kind,
                dice.randbytes(length),
                IMMEDIATE_BASE + index if kind in (SEND_IMM, WRITE_IMM) else None,
                1 if kind in (ADD, SWAP) or length < 2 else dice.randint(1, 2),
                dice.choice((0, 0, 0, dice.randrange(20_000))),
            )
        )
    return found


def _length(dice: random.Random, smallest: int, largest: int) -> int:
    """Mostly the lengths at which something changes: nothing, one packet, one byte more or less."""
    edges = [smallest, smallest + 1, 64, MTU_BYTES - 1, MTU_BYTES, MTU_BYTES + 1, 2 * MTU_BYTES, largest]
    drawn = dice.choice((dice.choice(edges), dice.randint(smallest, largest)))
    return min(drawn, largest)


def faults_of(scenario: Scenario, seed: int) -> Faults:
    """What a world of the scenario suffers by itself."""
    if not scenario.partition:
        return scenario.faults
    dice = dice_of(scenario, seed, "partition")
    source, destination = dice.choice(((1, 2), (2, 1)))
    start_ns = 1_000_000 + dice.randrange(100_000)
    end_ns = dice.choice((FOREVER_NS, start_ns + dice.randrange(1, 20_000_000)))
    return dataclasses.replace(
        scenario.faults, partitions=(Partition(source, destination, start_ns, end_ns),)
    )
