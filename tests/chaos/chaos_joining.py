"""How the processes of a session find each other: devices opened, queue pairs made, connected, set going."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chaos_ledger import GAP_NS, PROCESS_ROW
from chaos_plan import FRESH, PATIENT, VERBS
from chaos_processes import Process
from chaos_script import mixed

HUB, BYSTANDER, FIRST_VICTIM, MOST_VICTIMS = 0, 1, 2, 8
BYSTANDER_GROUP = 0
FIRST_ROW = 8
OPEN_S = 60.0
SHAPE = {"slots": 8, "slot_bytes": 16_384, "window": 3, "kinds": [0, 4, 2, 6, 0]}
GENTLE_SHAPE = {"slots": 4, "slot_bytes": 1024, "window": 1, "kinds": [0, 4, 2, 6, 0]}
GENTLE_S = 0.002


@dataclass
class Victim:
    """A process of one round, and its connections to the hub.  ``hurt_ns``: when it ended or was stopped for
    good, 0: it lives."""

    process: Process
    group: int
    rows: list[int]
    hub_rows: list[int]
    seeds: list[int]
    traffic: str = VERBS
    made: dict[str, Any] = field(default_factory=dict)
    hub_made: dict[str, Any] = field(default_factory=dict)
    opened: dict[str, Any] = field(default_factory=dict)
    targets: list[dict[str, int]] = field(default_factory=list)
    """What a forger knows of the hub's ends of its conversations."""
    hurt_ns: int = 0

    @property
    def psns(self) -> list[int]:
        """Where the PSNs of its connections begin, in both directions."""
        return [mixed(seed) & 0xFFFFFF for seed in self.seeds]


class Joining:
    """A third of a `chaos_session.Session`."""

    mode: str
    seed: int
    hub: Process
    bystander: Process
    hub_opened: dict[str, Any]
    bystander_opened: dict[str, Any]
    victims: list[Victim]
    figures: Any
    address: Any
    start: Any
    prefix: Any
    meet_victims: Any

    def open(self, processes: list[Process], buffer: int = 0) -> list[dict[str, Any]]:
        """Let processes open their devices, all at once."""
        options = [] if self.mode == "same_host" else ["same_host=0"]
        if buffer:
            options.append(f"buffer={buffer}")
        mode = "process" if self.mode == "process" else "embedded"
        for process in processes:
            text = f"chaos=udp:{self.address(process.number)}" + ("?" + "&".join(options) if options else "")
            process.tell("open", devices_text=text, mode=mode)
        opened = [process.hear("open", OPEN_S) for process in processes]
        for process, words in zip(processes, opened, strict=True):
            process.adapter = words["adapter"]
        return opened

    def join_bystander(self, gentle: bool) -> None:
        """Two connections between hub and bystander, for the whole session."""
        seeds = [mixed(self.seed ^ 77) >> 8, mixed(self.seed ^ 78) >> 8]
        shape = GENTLE_SHAPE if gentle else SHAPE
        words = {"group": BYSTANDER_GROUP, "shape": shape, "kind": "arena", "rows": [0, 1], "seeds": seeds}
        mine, theirs = (
            process.ask("make", side=side, **words) for side, process in enumerate((self.hub, self.bystander))
        )
        self._connect(self.hub, self.bystander_opened, theirs, BYSTANDER_GROUP, [9, 10], PATIENT)
        self._connect(self.bystander, self.hub_opened, mine, BYSTANDER_GROUP, [9, 10], PATIENT)
        for process in (self.hub, self.bystander):
            process.hear("connect")
            process.ask("run", group=BYSTANDER_GROUP)
        if gentle:
            self.bystander.ask("rest", seconds=GENTLE_S)

    @staticmethod
    def _connect(
        process: Process,
        opened: dict[str, Any],
        far: dict[str, Any],
        group: int,
        psns: list[int],
        reliability: tuple[int, int],
    ) -> None:
        process.tell(
            "connect",
            group=group,
            gid=opened["gid"],
            mtu=opened["mtu"],
            far=far,
            psns=psns,
            peer_psns=psns,
            timeout=reliability[0],
            retry=reliability[1],
        )

    def join(self, plan: dict[str, Any]) -> None:
        """Start the round's victims, connect them to the hub, and let traffic begin."""
        self.hub.ledger.set(PROCESS_ROW, GAP_NS, 0)
        count = plan["connections"]
        fresh = plan["kind"] in FRESH
        for i in range(plan["victims"]):
            process = self.start(
                FIRST_VICTIM + i, fresh=fresh, prefix=self.prefix(plan), tells=plan["kind"] != "end_interrupt"
            )
            rows = list(range(count))
            self.victims.append(
                Victim(
                    process,
                    1 + i,
                    rows,
                    [FIRST_ROW + i * count + row for row in rows],
                    [mixed(plan["seed"] ^ i << 20 ^ row) >> 8 for row in rows],
                    plan["traffic"],
                )
            )
        opened = self.open([victim.process for victim in self.victims], plan["buffer"])
        for victim, words in zip(self.victims, opened, strict=True):
            victim.opened = words
        if plan["traffic"] == VERBS:
            self._join_by_verbs(plan)
        else:
            self.meet_victims(plan)

    def _join_by_verbs(self, plan: dict[str, Any]) -> None:
        for victim in self.victims:
            words = {
                "group": victim.group,
                "shape": plan["shape"],
                "kind": plan["memory"],
                "seeds": victim.seeds,
            }
            victim.process.tell("make", side=1, rows=victim.rows, **words)
            self.hub.tell("make", side=0, rows=victim.hub_rows, **words)
        for victim in self.victims:
            victim.made = victim.process.hear("make")
            victim.hub_made = self.hub.hear("make")
        how = plan["timeout"], plan["retry"]
        for victim in self.victims:
            self._connect(self.hub, victim.opened, victim.made, victim.group, victim.psns, how)
            self._connect(victim.process, self.hub_opened, victim.hub_made, victim.group, victim.psns, how)
        for victim in self.victims:
            victim.process.hear("connect")
            self.hub.hear("connect")
            self.figures.connects += len(victim.rows)
        for victim in self.victims:
            self.hub.tell("run", group=victim.group)
            victim.process.tell("run", group=victim.group)
        for victim in self.victims:
            victim.process.hear("run")
            self.hub.hear("run")
