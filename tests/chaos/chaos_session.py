"""One session: a hub and a bystander that live through it, and the rounds in which others join and suffer."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from chaos_company import Company
from chaos_faults import Faults
from chaos_joining import BYSTANDER, BYSTANDER_GROUP, FIRST_VICTIM, HUB, MOST_VICTIMS, Joining, Victim
from chaos_ledger import DONE, FAILED_NS, GAP_NS, PROCESS_ROW, STATUS, Ledger
from chaos_plan import SURVIVE, VERBS
from chaos_processes import Broken, Process, children, reap, run_child, waited_ns
from chaos_script import make_pool

from machine_speed import limit_s

REMOTE_OPERATION, RETRY_EXCEEDED, GONE = 11, 12, 255
QUIET_S = 30.0
TOLD_STEP_MS = 10
SECOND_NS = 1_000_000_000
PAUSE_LIMIT_S = 8.0
MORE = {"descriptors": 64, "mappings": 16, "resident_kib": 65_536}
"""What there may be more of.  A link opens a socket for each source port that its flows have, so many at
most."""


@dataclass
class Figures:
    """What was counted."""

    rounds: int = 0
    connects: int = 0
    killed: int = 0
    stopped: int = 0
    ended: int = 0
    processes: int = 0
    operations: int = 0
    told: dict[str, dict[str, int]] = field(default_factory=dict)
    """By traffic: how many were told of their peer's end within so many `TOLD_STEP_MS`."""
    told_late: int = 0
    told_most_ns: int = 0
    withdrawal_most_ns: int = 0
    pause_most_ns: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    traffic: dict[str, int] = field(default_factory=dict)


def _held(process: Process) -> dict[str, int]:
    found = process.ask("leaks")
    del found["wrong"]
    return found


def _leaked(first: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    """What there is more of than there may be."""
    return {name: count for name, count in now.items() if count > first[name] + MORE.get(name, 0)}


class Session(Joining, Faults, Company):
    """A hub, a bystander, their traffic, and what they hold.  ``block`` are the first two numbers of
    its loopback addresses; ``gentle``: the bystander leaves the processors to others."""

    def __init__(self, mode: str, seed: int, block: str, gentle: bool = False) -> None:
        self.mode = mode
        self.seed = seed
        self.block = block
        self.figures = Figures()
        self.ledgers = {number: Ledger() for number in range(FIRST_VICTIM + MOST_VICTIMS)}
        self.victims: list[Victim] = []
        self.attackers: list[int] = []
        self.base: dict[str, Any] = {}
        make_pool(seed)  # the children have it then
        self.hub = self.start(HUB)
        self.bystander = self.start(BYSTANDER)
        self.hub_opened, self.bystander_opened = self.open([self.hub, self.bystander])
        self.join_bystander(gentle)
        self.gentle = gentle
        self.waited_ns = 0
        if not gentle:
            self.meet_bystander()

    def address(self, number: int) -> str:
        """The address of a process."""
        return f"{self.block}.{number // 200}.{number % 200 + 2}"

    def start(self, number: int, **words: Any) -> Process:
        self.figures.processes += 1
        return Process(self.ledgers, number, self.seed, **words)

    # A round

    def play(self, plan: dict[str, Any]) -> None:
        """One round.  `Broken` where a promise is."""
        self.figures.rounds += 1
        for counts, name in ((self.figures.kinds, plan["kind"]), (self.figures.traffic, plan["traffic"])):
            counts[name] = counts.get(name, 0) + 1
        before = self._bystander_done()
        self.join(plan)
        self._watch(plan["delay_ms"] / 1000)
        self.waited_ns = self._waited_ns()
        self.apply(plan)
        self._await_told(plan)
        for victim in self.victims:
            if plan["traffic"] == VERBS:
                self._judge(plan, victim)
            else:
                self.judge_talk(plan, victim)
        self.victims = []
        self._end_attackers()
        self._flows(before)
        self._look_for_leaks()

    def bound_ns(self) -> int:
        """By when an end must be told: a second, on a machine as fast as `machine_speed` has it, twice the
        longest time for which the hub itself had no turn, and the time since the round's faults began for
        which it, or its adapter's process, waited for a processor."""
        gap_ns = self.hub.ledger.get(PROCESS_ROW, GAP_NS)
        return int(limit_s(1.0) * SECOND_NS) + 2 * gap_ns + max(self._waited_ns() - self.waited_ns, 0)

    def _waited_ns(self) -> int:
        return max(waited_ns(self.hub.pid), waited_ns(self.hub.adapter))

    def _await_told(self, plan: dict[str, Any]) -> None:
        """The hub is told of every connection whose peer has ended or stands still, in time.  Of a datagrams'
        peer nobody is told."""
        waiting = {
            row: victim
            for victim in self.victims
            if victim.hurt_ns and victim.traffic != "datagrams"
            for row in victim.hub_rows
        }
        while waiting:
            for row, victim in list(waiting.items()):
                verbs = victim.traffic == VERBS
                failed_ns = self.hub.ledger.get(row, FAILED_NS) if verbs else self.talk_told(row)
                if failed_ns:
                    self._count_told(victim.traffic, failed_ns - victim.hurt_ns)
                    del waiting[row]
                elif time.monotonic_ns() - victim.hurt_ns > self.bound_ns():
                    raise Broken(
                        f"connection {row} of the hub ({victim.traffic}) is not told of its peer's end in "
                        f"{self.bound_ns() / 1e9:.2f} s; {len(waiting)} are not\n"
                        + self.hub.ask("stand")["threads"]
                    )
            time.sleep(0.005)
        self.go_on(plan)

    def _count_told(self, traffic: str, after_ns: int) -> None:
        figures = self.figures
        step = str(max(after_ns, 0) // (TOLD_STEP_MS * 1_000_000) + 1)
        counts = figures.told.setdefault(traffic, {})
        counts[step] = counts.get(step, 0) + 1
        figures.told_late += after_ns > SECOND_NS
        figures.told_most_ns = max(figures.told_most_ns, after_ns)

    def _judge(self, plan: dict[str, Any], victim: Victim) -> None:
        """Every byte of the hub's memory, and of the victim's where it lives; how its connections ended."""
        lives = plan["kind"] in SURVIVE
        statuses = {row: self.hub.ledger.get(row, STATUS) for row in victim.hub_rows}
        allowed = [0] if lives else [RETRY_EXCEEDED]
        if plan["kind"] == "stop_withdraw" or (plan["kind"], self.mode) == ("stop_long", "same_host"):
            # Destroyed before it was told; or what needs no packet goes on in a stopped neighbour's memory.
            allowed.append(0)
        if self.mode == "process" and plan["memory"] == "own" and not lives:
            allowed.append(REMOTE_OPERATION)  # the adapter still answers, the program's own memory is gone
        bad = {row: status for row, status in statuses.items() if status not in allowed}
        if bad:
            raise Broken(f"the hub's connections ended with {bad} in a round of {plan['kind']}")
        self._rest(plan, victim, lives)
        self.hub.ask(
            "check",
            group=victim.group,
            ledger=victim.process.number,
            rows=victim.rows,
            last=plan["kind"] != "stop_withdraw",
        )
        self.figures.operations += sum(
            ledger.get(row, DONE)
            for ledger, rows in ((self.hub.ledger, victim.hub_rows), (victim.process.ledger, victim.rows))
            for row in rows
        )
        self.hub.ask("drop", group=victim.group)
        self.dismiss(plan, victim)

    def _rest(self, plan: dict[str, Any], victim: Victim, lives: bool) -> None:
        """Let both ends come to rest, and look at the victim's bytes where it lives."""
        process = victim.process
        alive = process.status is None and plan["kind"] != "adapter_kill"
        nothing: dict[str, Any] = {"left": [], "ended": {}}
        if alive:
            process.tell("quiet", group=victim.group, limit_s=QUIET_S)
        mine = theirs = nothing
        if plan["kind"] != "stop_withdraw":
            mine = self.hub.ask("quiet", QUIET_S + 10, group=victim.group, limit_s=QUIET_S)
        if alive:
            theirs = process.hear("quiet", QUIET_S + 10)
        if mine["left"] or theirs["left"]:
            raise Broken(
                f"{len(mine['left'])} connections of the hub do not come to rest, "
                f"{len(theirs['left'])} of the victim"
            )
        if lives and (mine["ended"] or theirs["ended"]):
            raise Broken(f"connections ended: {mine['ended']} of the hub, {theirs['ended']} of the victim")
        if alive:
            process.ask("check", group=victim.group, ledger=HUB, rows=victim.hub_rows, last=lives)
        elif process.status is None:
            self._until(
                lambda: all(process.ledger.get(row, STATUS) == GONE for row in victim.rows),
                lambda: "a program is not told of the end of its adapter's process",
                5,
            )

    def dismiss(self, plan: dict[str, Any], victim: Victim) -> None:
        """Let a victim that lives end in order."""
        process = victim.process
        if process.status is None:
            if plan["kind"] != "adapter_kill":
                process.ask("drop", group=victim.group)
            process.ask("end", how="close")
            if process.wait():
                raise Broken(f"a victim ended with status {process.status}")
        process.close()

    # What must hold besides

    def _bystander_done(self) -> list[int]:
        return [process.ledger.get(row, DONE) for process in (self.hub, self.bystander) for row in (0, 1)]

    def _watch(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def _flows(self, before: list[int]) -> None:
        """The bystander's bytes flow and are right, and its connections have not ended."""
        begin = time.monotonic_ns()
        for process in (self.hub, self.bystander):
            for row in (0, 1):
                if process.ledger.get(row, STATUS):
                    raise Broken(
                        f"a connection of the bystander ended with {process.ledger.get(row, STATUS)}"
                    )
        now = self._bystander_done()
        while not all(new > old for new, old in zip(self._bystander_done(), now, strict=True)):
            if time.monotonic_ns() - begin > limit_s(PAUSE_LIMIT_S) * 1e9:
                raise Broken("the bystander's bytes do not flow")
            time.sleep(0.001)
        self.figures.pause_most_ns = max(self.figures.pause_most_ns, time.monotonic_ns() - begin)
        if not self.gentle:
            self.company_flows(self.company_received(), limit_s(PAUSE_LIMIT_S))
        for process, ledger in ((self.hub, BYSTANDER), (self.bystander, HUB)):
            process.ask("check", group=BYSTANDER_GROUP, ledger=ledger, rows=[0, 1], last=False)

    def _look_for_leaks(self) -> None:
        """No process is left, and hub and bystander hold what they held after the first round."""
        known = {self.hub.pid, self.bystander.pid, self.hub.adapter, self.bystander.adapter}
        self._until(lambda: not reap(known), lambda: f"processes are left: {reap(known)}", 15)
        for process in (self.hub, self.bystander):
            first = self.base.get(str(process.number))
            if first is None:
                self.base[str(process.number)] = _held(process)
                continue
            # The bystander's conversations go on meanwhile: what they have now and then is no leak.
            least: dict[str, int] = {}

            def same(
                process: Process = process, first: dict[str, int] = first, least: dict[str, int] = least
            ) -> bool:
                for name, count in _held(process).items():
                    least[name] = min(count, least.get(name, count))
                return not _leaked(first, least)

            def told(
                process: Process = process, first: dict[str, int] = first, least: dict[str, int] = least
            ) -> str:
                who = "the hub" if process is self.hub else "the bystander"
                return f"leaks of {who}: {_leaked(first, least)} at least, of {first}; now {_held(process)}"

            self._until(same, told, 5)

    @staticmethod
    def _until(what: Any, word: Any, quiet_s: float) -> None:
        """``quiet_s``: the limit on a quiet machine."""
        end = time.monotonic() + limit_s(quiet_s)
        while not what():
            if time.monotonic() > end:
                raise Broken(word())
            time.sleep(0.02)

    def _end_attackers(self) -> None:
        for pid in self.attackers:
            _, status = os.waitpid(pid, 0)
            if status:
                raise Broken(f"an attacker failed itself: {status}")
        self.attackers = []

    def attack(self, call: Any) -> None:
        """Run an attacker beside."""
        self.attackers.append(run_child(call))

    def close(self, broken: bool = False) -> None:
        """End the session; in order unless something is ``broken``."""
        try:
            if not broken:
                if not self.gentle:
                    self.part_company()
                for process in (self.hub, self.bystander):
                    process.tell("quiet", group=BYSTANDER_GROUP, limit_s=QUIET_S)
                for process in (self.hub, self.bystander):
                    process.hear("quiet", QUIET_S + 10)
                for process, ledger in ((self.hub, BYSTANDER), (self.bystander, HUB)):
                    process.ask("check", group=BYSTANDER_GROUP, ledger=ledger, rows=[0, 1], last=True)
                self.figures.operations += sum(self._bystander_done())
                for process in (self.hub, self.bystander):
                    process.ask("end", how="close")
                    if process.wait():
                        raise Broken(f"process {process.number} ended with status {process.status}")
                self._until(lambda: not reap(set()), lambda: f"processes are left: {children()}", 15)
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """End all that is left."""
        for victim in self.victims:
            victim.process.close()
        for process in (self.hub, self.bystander):
            process.close()
        for child in children():
            os.kill(child, signal.SIGKILL)
            os.kill(child, signal.SIGCONT)
            os.waitpid(child, 0)
        for ledger in self.ledgers.values():
            ledger.close()
