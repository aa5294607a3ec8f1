"""What the director does to the victims of a round."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import chaos_attacks
from chaos_plan import LONG_STOPS, VERBS
from chaos_processes import Broken, has_ended, is_isolated, state_of

if TYPE_CHECKING:
    from chaos_joining import Victim

FLOOD_PORTS, FLOOD_RATE, FORGE_RATE = 5000, 25_000, 4000
ATTACK_S = 1.5
ALARM_S = 0.0007
WITHDRAWAL_S = 10.0
ADAPTER_ENDS_S = 15.0
"""By when an adapter process has ended whose only application is gone."""
LIMITED, STRANGER = 200, 400
"""Numbers of the addresses that limited devices and attackers have."""


class Faults:
    """Half of a `chaos_session.Session`: one method a kind of round."""

    victims: list[Victim]
    mode: str
    hub: Any
    bystander: Any
    hub_opened: dict[str, Any]
    figures: Any

    def prefix(self, plan: dict[str, Any]) -> tuple[str, ...]:
        """Words in front of a victim's command."""
        if plan["kind"] != "time_namespace" or os.geteuid():
            return ()
        offset = str(plan["amount"])
        return ("unshare", "--time", "--monotonic", offset, "--boottime", offset, "--fork", "--kill-child")

    def apply(self, plan: dict[str, Any]) -> None:
        """Let it happen to all victims, one after the other."""
        for victim in self.victims:
            getattr(self, "_do_" + plan["kind"])(plan, victim)

    def _hurt(self, victim: Victim, at_ns: int) -> None:
        """The victim is gone: the hub must be told, and nothing that it posts from now on may succeed.  An
        adapter in a process of its own may answer until it has noticed."""
        victim.hurt_ns = at_ns
        if victim.process.adapter:
            self._until(
                lambda: has_ended(victim.process.adapter),
                lambda: f"an adapter process does not end: {state_of(victim.process.adapter)}",
                ADAPTER_ENDS_S,
            )
        if victim.traffic == VERBS:
            self.hub.ask("dead", group=victim.group)

    def _do_kill(self, plan: dict[str, Any], victim: Victim) -> None:
        now = time.monotonic_ns()
        victim.process.kill()
        self.figures.killed += plan["connections"]
        self._hurt(victim, now)

    def _do_stop_short(self, plan: dict[str, Any], victim: Victim) -> None:
        victim.process.signal(signal.SIGSTOP)
        time.sleep(plan["lasts_ms"] / 1000)
        victim.process.signal(signal.SIGCONT)
        self.figures.stopped += plan["connections"]

    def _do_stop_long(self, plan: dict[str, Any], victim: Victim) -> None:
        now = time.monotonic_ns()
        victim.process.signal(signal.SIGSTOP)
        if victim.process.adapter:
            victim.process.signal(signal.SIGSTOP, adapter=True)
        self.figures.stopped += plan["connections"]
        if self.mode == "same_host" or victim.traffic != VERBS:
            # A stopped neighbour's memory is there: what needs no packet goes on, nothing must be told.
            # Conversations may outlast a stop, or not.
            time.sleep(plan["lasts_ms"] / 1000)
            victim.process.signal(signal.SIGCONT)
            return
        victim.hurt_ns = now

    def _do_stop_withdraw(self, plan: dict[str, Any], victim: Victim) -> None:
        victim.process.signal(signal.SIGSTOP)
        if victim.process.adapter:
            victim.process.signal(signal.SIGSTOP, adapter=True)
        self.figures.stopped += plan["connections"]
        begin = time.monotonic_ns()
        how = "withdraw" if victim.traffic == VERBS else "part"
        self.hub.ask(how, WITHDRAWAL_S, group=victim.group)
        self.figures.withdrawal_most_ns = max(self.figures.withdrawal_most_ns, time.monotonic_ns() - begin)

    def _do_adapter_stop(self, plan: dict[str, Any], victim: Victim) -> None:
        now = time.monotonic_ns()
        victim.process.signal(signal.SIGSTOP, adapter=True)
        self.figures.stopped += plan["connections"]
        if victim.traffic == VERBS:
            victim.hurt_ns = now
            return
        time.sleep(plan["lasts_ms"] / 1000)
        victim.process.signal(signal.SIGCONT, adapter=True)

    def _do_adapter_kill(self, plan: dict[str, Any], victim: Victim) -> None:
        now = time.monotonic_ns()
        victim.process.signal(signal.SIGKILL, adapter=True)
        self.figures.killed += plan["connections"]
        victim.hurt_ns = now

    def go_on(self, plan: dict[str, Any]) -> None:
        """Let what was stopped go on."""
        if plan["kind"] in LONG_STOPS:
            for victim in self.victims:
                victim.process.signal(signal.SIGCONT)
                if victim.process.adapter:
                    victim.process.signal(signal.SIGCONT, adapter=True)

    def _end(self, plan: dict[str, Any], victim: Victim, how: str) -> None:
        now = time.monotonic_ns()
        victim.process.ask("end", how=how)
        if victim.process.wait():
            raise Broken(f"a victim that ended by {how!r} has status {victim.process.status}")
        self.figures.ended += plan["connections"]
        self._hurt(victim, max(now, victim.process.ended_ns))

    def _do_end_close(self, plan: dict[str, Any], victim: Victim) -> None:
        self._end(plan, victim, "close")

    def _do_end_leave(self, plan: dict[str, Any], victim: Victim) -> None:
        self._end(plan, victim, "leave")

    def _do_end_threads(self, plan: dict[str, Any], victim: Victim) -> None:
        self._end(plan, victim, "threads")

    def _do_end_interrupt(self, plan: dict[str, Any], victim: Victim) -> None:
        victim.process.signal(signal.SIGINT)
        if victim.process.wait() not in (-signal.SIGINT, 1):
            raise Broken(f"an interrupted victim has status {victim.process.status}")
        self.figures.ended += plan["connections"]
        self._hurt(victim, victim.process.ended_ns)

    def _do_alarms(self, plan: dict[str, Any], victim: Victim) -> None:
        for interval_s in (ALARM_S, 0.0):
            for process in (victim.process, self.hub):
                process.ask("alarms", interval_s=interval_s)
            time.sleep(plan["lasts_ms"] / 1000)

    def _do_link_down(self, plan: dict[str, Any], victim: Victim) -> None:
        self._command("ip", "link", "set", "lo", "down")
        time.sleep(plan["lasts_ms"] / 1000)
        self._command("ip", "link", "set", "lo", "up")

    def _do_narrow(self, plan: dict[str, Any], victim: Victim) -> None:
        self._command(
            "tc",
            "qdisc",
            "add",
            "dev",
            "lo",
            "root",
            "tbf",
            "rate",
            "80mbit",
            "burst",
            "64kb",
            "limit",
            "8mb",
        )
        time.sleep(plan["lasts_ms"] / 1000)
        self._command("tc", "qdisc", "del", "dev", "lo", "root")

    @staticmethod
    def _command(*words: str) -> None:
        """Change the loopback device, where it is this campaign's own."""
        if is_isolated():
            subprocess.run(words, check=True)

    def _do_fork(self, plan: dict[str, Any], victim: Victim) -> None:
        victim.process.ask("fork", count=plan["amount"])
        self.hub.ask("fork", count=1)

    def _do_fork_bare(self, plan: dict[str, Any], victim: Victim) -> None:
        child = victim.process.ask("fork_bare")["child"]
        now = time.monotonic_ns()
        victim.process.kill()
        self.figures.killed += plan["connections"]
        try:
            self._hurt(victim, now)
            self._await_told(plan)
        finally:
            os.kill(child, signal.SIGKILL)

    def _limited(self, victim: Victim) -> list[str]:
        start = LIMITED + victim.process.number * 8
        return [self.address(start + i) for i in range(4)]

    def _do_descriptors(self, plan: dict[str, Any], victim: Victim) -> None:
        self._moves(plan, victim)  # its conversations have all descriptors that they need then
        victim.process.ask("descriptors", spare=plan["amount"], addresses=self._limited(victim))

    def _do_memory(self, plan: dict[str, Any], victim: Victim) -> None:
        self._moves(plan, victim)
        victim.process.ask("memory", spare_bytes=plan["amount"], addresses=self._limited(victim))

    def _do_jump(self, plan: dict[str, Any], victim: Victim) -> None:
        for _ in range(3):
            victim.process.ask("jump", ahead_ns=plan["amount"])
            time.sleep(0.05)

    def _do_time_namespace(self, plan: dict[str, Any], victim: Victim) -> None:
        time.sleep(0.2)

    def _do_flood(self, plan: dict[str, Any], victim: Victim) -> None:
        if not self.attackers:
            source = self.address(STRANGER)
            targets = [self.address(each.number) for each in (self.hub, victim.process)]
            self.attack(
                lambda: chaos_attacks.flood(source, targets, FLOOD_PORTS, FLOOD_RATE, ATTACK_S, plan["seed"])
            )
            time.sleep(ATTACK_S)

    def _do_forge(self, plan: dict[str, Any], victim: Victim) -> None:
        source = self.address(STRANGER + 1)
        target = self.address(self.hub.number)
        known = victim.targets if victim.traffic != VERBS else self._known(victim)
        self.attack(lambda: chaos_attacks.forge(source, target, known, FORGE_RATE, ATTACK_S, plan["seed"]))
        time.sleep(ATTACK_S)

    @staticmethod
    def _known(victim: Victim) -> list[dict[str, Any]]:
        """What a forger knows of the hub's queue pairs."""
        made = victim.hub_made
        return [
            {
                "qpn": qpn,
                "psn": psn,
                "va": va,
                "rkey": made["rkey"],
                "lkey": made["lkey"],
                "private": made["private"],
            }
            for qpn, psn, va in zip(made["qpns"], victim.psns, made["vas"], strict=True)
        ]

    def _do_mad_client(self, plan: dict[str, Any], victim: Victim) -> None:
        path = self.hub_opened["path"]
        self.attack(lambda: chaos_attacks.mad_client(path, ATTACK_S, plan["seed"], plan["amount"] == 5))
        time.sleep(ATTACK_S)
