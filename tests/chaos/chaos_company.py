"""Conversations as the director sees them: begun between hub and others, judged, ended."""

from __future__ import annotations

import time
from typing import Any

from chaos_joining import HUB, Victim
from chaos_ledger import DONE, ENDED, FAILED_NS, RECEIVED, SEND_FAILED_NS, SEND_STATUS, STATUS
from chaos_plan import LONG_STOPS, SURVIVE
from chaos_processes import Broken, Process
from chaos_script import SEND, Direction, Shape, mixed
from chaos_talk import shape_of

ECONNRESET, EPIPE = 104, 32
QUIET_S = 30.0
MEET_S = 90.0
COMPANY = ("streams", "channels", "datagrams")
"""What hub and bystander have with each other, all the time: a conversation of each."""
COMPANY_ROW, COMPANY_GROUP = 2, 100
COMPANY_SHAPE = {"slots": 8, "slot_bytes": 16_384, "window": 3, "kinds": [0, 4, 2, 6, 0]}
COMPANY_REST_S = 0.002
PATIENT_ACK, IMPATIENT_ACK, KEEPALIVE_S, LINGER_S = 17, 12, 0.2, 5.0

ORDERLY = frozenset({"end_close"})
"""Ends in which the victim closes its conversations."""
BY_ITSELF = frozenset({"end_leave", "end_threads", "end_interrupt"})
"""Ends of the program that leave that to what ends with it."""


def patience(kind: str, lives: bool, by_cm: bool) -> dict[str, Any]:
    """Settings of sockets, or options of channels: for those that must not end, or whose end is said, and
    those that are to end soon."""
    found: dict[str, Any] = {"ack_timeout": PATIENT_ACK if lives else IMPATIENT_ACK}
    if kind in ("streams", "datagrams"):
        found.update(by_cm=by_cm, connect_s=MEET_S, linger_s=LINGER_S)
        if not lives:
            found["keepalive_s"] = KEEPALIVE_S
        return found
    found["linger_s"] = LINGER_S
    if not lives:
        found["keepalive_s"] = KEEPALIVE_S
    return found


def _last_send(direction: Direction, done: int) -> int:
    """The last of the first ``done`` operations that sends something."""
    while done and direction.operation(done).kind != SEND:
        done -= 1
    return done


class Company:
    """A part of a `chaos_session.Session`."""

    hub: Process
    bystander: Process
    figures: Any
    victims: list[Victim]
    seed: int
    address: Any
    _until: Any

    # How they begin

    def meet(
        self, peer: Process, group: int, kind: str, how: dict[str, Any], rows: tuple[list[int], list[int]],
        seeds: list[int], shape: dict[str, Any], rest_s: float = 0.0,
    ) -> list[dict[str, int]]:  # fmt: skip
        """Conversations between the hub (``rows[0]``) and ``peer`` (``rows[1]``) begin; what a forger would
        like to know of the hub's ends."""
        count = len(seeds)
        ends = (self.hub, peer)
        met = [
            process.ask(
                "meet",
                group=group,
                kind=kind,
                side=side,
                address=self.address(process.number),
                patience=how,
                count=count,
            )
            for side, process in enumerate(ends)
        ]
        names: list[list[Any]] = [[], []]
        if kind == "datagrams":
            names = [met[1]["names"], met[0]["names"]]
        else:
            peer.ask("approach", MEET_S, group=group, name=met[0]["name"], count=count)
        for side, process in enumerate(ends):
            process.tell("settle", group=group, shape=shape, rows=rows[side], seeds=seeds, names=names[side])
        targets: list[dict[str, int]] = self.hub.hear("settle", MEET_S)["targets"]
        peer.hear("settle", MEET_S)
        for process in ends:
            process.ask("talk", group=group, rest_s=rest_s)
        self.figures.connects += count
        return targets

    def meet_bystander(self) -> None:
        """Those that go on for the whole session."""
        for i, kind in enumerate(COMPANY):
            self.meet(
                self.bystander,
                COMPANY_GROUP + i,
                kind,
                patience(kind, True, False),
                ([COMPANY_ROW + i], [COMPANY_ROW + i]),
                [mixed(self.seed ^ 1000 + i) >> 8],
                COMPANY_SHAPE,
                COMPANY_REST_S,
            )

    def meet_victims(self, plan: dict[str, Any]) -> None:
        """Those of a round."""
        for victim in self.victims:
            patient = plan["kind"] in SURVIVE | ORDERLY  # an adapter without a turn for a while is no end
            how = patience(plan["traffic"], patient, plan["by_cm"])
            rows = (victim.hub_rows, victim.rows)
            victim.targets = self.meet(
                victim.process, victim.group, plan["traffic"], how, rows, victim.seeds, plan["shape"]
            )

    # How they are judged

    def talk_told(self, row: int) -> int:
        """When the hub's end ``row`` was told of its peer's end in both directions; 0: it was not yet."""
        times = [self.hub.ledger.get(row, field) for field in (FAILED_NS, SEND_FAILED_NS)]
        return max(times) if all(times) else 0

    def judge_talk(self, plan: dict[str, Any], victim: Victim) -> None:
        """How the conversations of a victim ended, and every byte of them."""
        kind = plan["kind"]
        process = victim.process
        alive = process.status is None
        lives = kind in SURVIVE
        self._ends_as_it_should(plan, victim.hub_rows, self.hub)
        if kind in LONG_STOPS | {"adapter_kill"}:
            self._both_know(plan, victim)
        if lives:
            self._moves(plan, victim)
            for each in (self.hub, process):
                each.tell("hush", group=victim.group, limit_s=QUIET_S)
            for each in (self.hub, process):
                if left := each.hear("hush", QUIET_S + 10)["left"]:
                    raise Broken(f"senders of process {each.number} do not come to rest: {left}")
            if plan["traffic"] in ("streams", "channels"):
                self._arrives(plan, victim)
            self._ends_as_it_should(plan, victim.hub_rows, self.hub)
            self._ends_as_it_should(plan, victim.rows, process)
        rows = list(zip(victim.hub_rows, victim.rows, strict=True))
        self.hub.ask("hear", group=victim.group, ledger=process.number, rows=[theirs for _, theirs in rows])
        if alive:
            process.ask("hear", group=victim.group, ledger=HUB, rows=[mine for mine, _ in rows])
        if kind in ORDERLY:
            self._all_came(plan, victim)
        self.figures.operations += sum(
            ledger.get(row, DONE)
            for ledger, which in ((self.hub.ledger, victim.hub_rows), (process.ledger, victim.rows))
            for row in which
        )
        self.hub.ask("forget", MEET_S, group=victim.group)
        if alive:
            process.ask("forget", MEET_S, group=victim.group)
            process.ask("end", how="close")
            if process.wait():
                raise Broken(f"a victim ended with status {process.status}")
        process.close()

    def _both_know(self, plan: dict[str, Any], victim: Victim) -> None:
        """Where one end has ended, or was closed, the other one and all its threads are told."""

        def over(ledger: Any, row: int) -> list[bool]:
            return [bool(ledger.get(row, field)) for field in (STATUS, SEND_STATUS)]

        def agree() -> bool:
            for row, far in self._pairs(victim):
                mine, theirs = over(self.hub.ledger, row), over(victim.process.ledger, far)
                if plan["kind"] in ("adapter_kill", "stop_withdraw"):
                    mine = [True, True]
                if len({*mine, *theirs}) > 1:
                    return False
            return True

        def differ() -> str:
            ends = [
                (over(self.hub.ledger, row), over(victim.process.ledger, far))
                for row, far in self._pairs(victim)
            ]
            threads = "\n".join(each.ask("stand")["threads"] for each in (victim.process, self.hub))
            return f"one end of {plan['traffic']} has ended, the other goes on: {ends}\n{threads}"

        if plan["traffic"] != "datagrams":
            self._until(agree, differ, QUIET_S)

    def _allowed(self, plan: dict[str, Any]) -> tuple[set[int], set[int]]:
        """What the receiving and the sending half may be told, 0: nothing."""
        kind = plan["kind"]
        if kind in SURVIVE or plan["traffic"] == "datagrams":
            return {0}, {0}
        if kind in ORDERLY:
            # As TCP has it, a stream that is closed with data unread is reset.
            orderly = {ENDED, ECONNRESET} if plan["traffic"] == "streams" else {ENDED}
            return orderly, {ENDED, EPIPE, ECONNRESET}
        if kind in BY_ITSELF:
            return {ENDED, ECONNRESET}, {ENDED, EPIPE, ECONNRESET}
        if kind in LONG_STOPS:
            return {0, ECONNRESET}, {0, EPIPE, ECONNRESET}
        return {ECONNRESET}, {EPIPE, ECONNRESET}

    def _ends_as_it_should(self, plan: dict[str, Any], rows: list[int], process: Process) -> None:
        for field, allowed in zip((STATUS, SEND_STATUS), self._allowed(plan), strict=True):
            statuses = {row: process.ledger.get(row, field) for row in rows}
            if bad := {row: status for row, status in statuses.items() if status not in allowed}:
                half = "receivers" if field == STATUS else "senders"
                raise Broken(
                    f"{half} of {plan['traffic']} of process {process.number} ended with {bad} "
                    f"in a round of {plan['kind']}"
                )

    def _moves(self, plan: dict[str, Any], victim: Victim) -> None:
        """Something arrives at both ends from here on."""
        ends = ((self.hub.ledger, victim.hub_rows), (victim.process.ledger, victim.rows))
        before = [ledger.get(row, RECEIVED) for ledger, rows in ends for row in rows]

        def moved() -> bool:
            now = [ledger.get(row, RECEIVED) for ledger, rows in ends for row in rows]
            return all(new > old for new, old in zip(now, before, strict=True))

        if plan["traffic"] in ("streams", "datagrams", "messages"):
            self._until(moved, lambda: f"{plan['traffic']} do not flow", QUIET_S)

    def _arrives(self, plan: dict[str, Any], victim: Victim) -> None:
        """All that was sent arrives."""
        words = Shape(**{**plan["shape"], "kinds": tuple(plan["shape"]["kinds"])})
        made = shape_of(plan["traffic"], words)
        awaited = []
        for (row, far), seed in zip(self._pairs(victim), victim.seeds, strict=True):
            mine, theirs = self.hub.ledger, victim.process.ledger
            awaited.append((theirs, far, _last_send(Direction(seed * 2, made), mine.get(row, DONE))))
            awaited.append((mine, row, _last_send(Direction(seed * 2 + 1, made), theirs.get(far, DONE))))
        self._until(
            lambda: all(ledger.get(row, RECEIVED) == last for ledger, row, last in awaited),
            lambda: "what was sent does not arrive",
            QUIET_S,
        )

    @staticmethod
    def _pairs(victim: Victim) -> list[tuple[int, int]]:
        return list(zip(victim.hub_rows, victim.rows, strict=True))

    def _all_came(self, plan: dict[str, Any], victim: Victim) -> None:
        """A peer that has closed in order has sent what it said that it had."""
        if plan["traffic"] == "streams":
            for row, far in self._pairs(victim):
                done, heard = victim.process.ledger.get(far, DONE), self.hub.ledger.get(row, RECEIVED)
                if heard < done and self.hub.ledger.get(row, STATUS) == ENDED:
                    raise Broken(f"{done} operations were sent before a close, {heard} arrived")

    # The bystander's

    def company_flows(self, before: list[int], limit_s: float) -> None:
        """The bystander's conversations have not ended, and go on."""
        rows = range(COMPANY_ROW, COMPANY_ROW + len(COMPANY))
        for process in (self.hub, self.bystander):
            for row in rows:
                for field in (STATUS, SEND_STATUS):
                    if status := process.ledger.get(row, field):
                        raise Broken(f"the bystander's {COMPANY[row - COMPANY_ROW]} ended with {status}")
        end = time.monotonic() + limit_s
        while not all(new > old for new, old in zip(self.company_received(), before, strict=True)):
            if time.monotonic() > end:
                now = self.company_received()
                raise Broken(f"the bystander's conversations do not flow: {before}, now {now}")
            time.sleep(0.001)
        for i in range(len(COMPANY)):
            for process, ledger in ((self.hub, self.bystander.number), (self.bystander, HUB)):
                process.ask("hear", group=COMPANY_GROUP + i, ledger=ledger, rows=[COMPANY_ROW + i])

    def company_received(self) -> list[int]:
        """How much each end has received up to now."""
        rows = range(COMPANY_ROW, COMPANY_ROW + len(COMPANY))
        return [process.ledger.get(row, RECEIVED) for process in (self.hub, self.bystander) for row in rows]

    def part_company(self) -> None:
        """They end."""
        for i in range(len(COMPANY)):
            for process in (self.hub, self.bystander):
                process.ask("hush", group=COMPANY_GROUP + i, limit_s=QUIET_S)
        for i in range(len(COMPANY)):
            for process in (self.hub, self.bystander):
                process.ask("forget", MEET_S, group=COMPANY_GROUP + i)
        self.figures.operations += sum(self.company_received())
