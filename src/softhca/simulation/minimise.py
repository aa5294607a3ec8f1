"""Which faults of a failing world are needed: the fewest that still break the same rule.

The world is run once with its dice, which takes down what befell every packet, and then again and again
with fewer of these decisions in place of the dice (Zeller's ddmin).  What is left at the end is 1-minimal:
without any one of its decisions the rule holds, unless the bound on runs came first.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from softhca.links.decisions import (
    CORRUPTED,
    DELAYED,
    DUPLICATED,
    KINDS,
    LOST,
    REORDERED,
    TRUNCATED,
    Decision,
    Script,
    parse_decisions,
)
from softhca.simulation import runner
from softhca.simulation.frames import BTH_BYTES, IPV4_BYTES, IPV6_BYTES
from softhca.wire.opcodes import OPCODES

MAX_RUNS = 500
GROWTH, MORE_PACKETS = 4, 1_000
"""A world with fewer faults may send so many times the packets, and so many more, before it is given up."""
SWITCHES = (("stall", "stall=0ns/0ns"), ("skew", "skew=0ppm"), ("bandwidth", "bandwidth=0"))
"""Faults of a whole world and the words that switch them off; cuts and flaps are packets lost."""

_HEADER_BYTES = {0x45: IPV4_BYTES, 0x60: IPV6_BYTES}
"""IP and UDP headers by their first byte, which no packet of RC, UC or UD begins with."""
_PHRASES = {
    LOST: "lost",
    DELAYED: "delayed by {} ns",
    REORDERED: "held back by {} ns while others pass",
    DUPLICATED: "duplicated, the copy {} ns later",
    TRUNCATED: "truncated to {} bytes",
    CORRUPTED: "corrupted in bits {}",
}


@dataclass(frozen=True, slots=True)
class Minimised:
    """The faults without which ``rule`` holds in a world.

    ``lines`` tell each of the ``decisions`` for people, ``faults`` are the fault words that are still
    needed, ``command`` runs the world again with only these.  ``minimal``: taking any one decision away
    was tried; else ``MAX_RUNS`` ended the search.
    """

    rule: str
    decisions: tuple[Decision, ...]
    lines: tuple[str, ...]
    faults: str
    recorded: int
    runs: int
    minimal: bool
    command: str

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        document = {name: getattr(self, name) for name in self.__slots__}
        return {**document, "decisions": [str(one) for one in self.decisions], "lines": list(self.lines)}


def minimise(
    scenario: str,
    seed: int,
    faults: str = "",
    only_faults: str | None = None,
    max_runs: int = MAX_RUNS,
    advance: Callable[[int, int], object] | None = None,
) -> Minimised | None:
    """The fewest faults that break the rule that this world breaks first; None when none is broken.

    ``only_faults``: begin with these decisions instead of the dice.  ``advance`` is told after each run how
    many runs were made and how many decisions are left.  ScenarioError, FaultsError.
    """
    script = Script(None if only_faults is None else parse_decisions(only_faults))
    outcome = runner.run_world(scenario, seed, faults, script=script)
    if not outcome.violations:
        return None
    recorded = list(script.taken)
    search = _Search(scenario, seed, faults, outcome, max_runs, advance, len(recorded))
    if not search.breaks(recorded):
        return None  # something decides that the list does not say
    search.switch_off(outcome.faults, recorded)
    found = search.reduce(recorded)
    if search.switch_off(outcome.faults, found):
        found = search.reduce(found)
    heads = search.heads(found)
    return Minimised(
        search.rule,
        tuple(found),
        tuple(describe(one, heads.get(one[:3], b"")) for one in found),
        search.faults,
        len(recorded),
        search.runs,
        not search.ended,
        command_for(scenario, seed, search.faults, found),
    )


def command_for(
    scenario: str, seed: int, faults: str = "", decisions: Sequence[Decision] | None = None
) -> str:
    """The command that runs one world again, with dice or with these decisions only."""
    words = ["softhca", "simulate", "--scenario", scenario, "--seed", str(seed)]
    if faults:
        words += ["--faults", faults]
    if decisions is not None:
        words += ["--only-faults", ",".join(map(str, decisions))]
    return shlex.join(words)


def describe(decision: Decision, head: bytes) -> str:
    """A decision as people say it; ``head`` is the beginning of the packet, if it met one."""
    packet = ""
    head = head[_HEADER_BYTES.get(head[0], 0) :] if head else head
    if len(head) >= BTH_BYTES:
        opcode = OPCODES.get(head[0])
        name = f"opcode {head[0]:#04x}" if opcode is None else opcode.name
        packet = f" ({name} psn {int.from_bytes(head[9:12], 'big')})"
    numbers = ", ".join(map(str, decision.values))
    text = _PHRASES[decision.kind].format(numbers)
    return f"adapter {decision.source}>{decision.destination} packet {decision.packet}{packet} {text}"


class _Search:
    """Runs of one world with fewer and fewer faults; ``ended`` once the bound on runs was met."""

    def __init__(
        self,
        scenario: str,
        seed: int,
        faults: str,
        outcome: runner.Outcome,
        max_runs: int,
        advance: Callable[[int, int], object] | None,
        left: int,
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.faults = faults
        self.rule = outcome.violations[0].rule
        self.most_packets = GROWTH * outcome.packets + MORE_PACKETS
        self.runs = 0
        self.ended = False
        self._max_runs = max_runs
        self._advance = advance
        self._left = left
        self._known: dict[frozenset[Decision], bool] = {}

    def breaks(self, decisions: Sequence[Decision], faults: str | None = None) -> bool:
        """Whether a world that suffers only these decisions breaks the rule; no, after the last run."""
        key = frozenset(decisions)
        if faults is None and key in self._known:
            return self._known[key]
        if self.runs >= self._max_runs:
            self.ended = True
            return False
        self.runs += 1
        broken = self._run(decisions, self.faults if faults is None else faults)
        if faults is None:
            self._known[key] = broken
            if broken:
                self._left = min(self._left, len(decisions))
        if self._advance is not None:
            self._advance(self.runs, self._left)
        return broken

    def _run(self, decisions: Sequence[Decision], faults: str) -> bool:
        try:
            script = Script(decisions, self.most_packets)
            outcome = runner.run_world(self.scenario, self.seed, faults, script=script)
        except Exception:
            return False  # it does not come to rest, or fails in another way than is looked for
        return self.rule in {found.rule for found in outcome.violations}

    def reduce(self, decisions: list[Decision]) -> list[Decision]:
        """A 1-minimal part: without all, without whole kinds, then without ever smaller pieces."""
        if self.breaks([]):
            return []
        for kind in KINDS:
            others = [one for one in decisions if one.kind != kind]
            if len(others) < len(decisions) and self.breaks(others):
                decisions = others
        size = (len(decisions) + 1) // 2
        while True:
            at, before = 0, len(decisions)
            while at < len(decisions):
                rest = decisions[:at] + decisions[at + size :]
                if self.breaks(rest):
                    decisions = rest
                else:
                    at += size
            if size <= 1 and len(decisions) == before:
                return decisions
            size = max(size // 2, 1)

    def switch_off(self, suffered: str, decisions: Sequence[Decision]) -> bool:
        """Try without each fault of the whole world that is in ``suffered``; whether one more went."""
        went = False
        for name, words in SWITCHES:
            if f"{name}=" not in suffered or words in self.faults:
                continue
            others = [word for word in self.faults.split(",") if word and not word.strip().startswith(name)]
            faults = ",".join([*others, words])
            if self.breaks(decisions, faults):
                self.faults, went = faults, True
                self._known.clear()
        return went

    def heads(self, decisions: Sequence[Decision]) -> dict[tuple[int, int, int], bytes]:
        """The first bytes of the packets that these decisions meet."""
        script = Script(decisions)
        runner.run_world(self.scenario, self.seed, self.faults, script=script)
        return script.heads
