"""Who polls completion queues in a world, and gives each completion to the program that it is for."""

from __future__ import annotations

from typing import Protocol

from softhca.driver.device import Completion, CqHandle, QpHandle
from softhca.simulation.node import Node

BATCH = 64


class CompletionConsumer(Protocol):
    """A program as a poller sees it."""

    qp: QpHandle

    def take(self, completion: Completion) -> bool:
        """Be given a completion; whether its sender may have wanted it to be seen at once."""

    def take_late(self, completion: Completion) -> None:
        """Be given one that nobody was told of, when all is over."""

    def advance(self) -> bool:
        """Go on after completions."""


class Poller:
    """Polls one completion queue for the programs whose queue pairs use it.

    ``armed``: only after an event, as a program that sleeps does; else
    whenever there is something.  ``solicited``: an event only for what the sender wants to be seen at once.
    ``every_ns``: not more often than that.
    """

    def __init__(
        self, node: Node, cq: CqHandle, armed: bool = False, solicited: bool = False, every_ns: int = 0
    ) -> None:
        self.node = node
        self.cq = cq
        self._programs: dict[int, CompletionConsumer] = {}
        self._armed = armed
        self._solicited = solicited
        self._signalled = armed
        self._fired = False
        self._wanted = False
        self._every_ns = every_ns
        self._not_before_ns = 0
        if armed:
            cq.on_event = self._on_event

    def add(self, program: CompletionConsumer) -> None:
        """A program whose completions come here."""
        self._programs[program.qp.number] = program

    def _on_event(self) -> None:
        self._signalled = self._fired = True

    def turn(self) -> bool:
        """Poll and let the programs go on; whether there was anything."""
        if self._armed:
            self.node.device.events.dispatch()
            if not self._signalled:
                return False
        elif not self.cq.waiting():
            return False
        if self._every_ns and self._must_wait():
            return False
        completions = self.cq.poll(BATCH)
        touched = dict.fromkeys(completion.qp_num for completion in completions)
        for completion in completions:
            self._wanted = self._wanted or completion.status != 0
            program = self._programs.get(completion.qp_num)
            if program is None:
                self.node.world.report.fail(
                    "completions of one's own", f"adapter {self.node.number}: queue pair {completion.qp_num}"
                )
                continue
            self._wanted = program.take(completion) or self._wanted
        for number in touched:
            if number in self._programs:
                self._programs[number].advance()
        if self._armed and not completions:
            if self._solicited and self._fired and not self._wanted:
                text = f"adapter {self.node.number}: an event, and nothing that the sender wanted to be seen"
                self.node.world.report.fail("events have a cause", text)
            self._signalled = self._fired = self._wanted = False
            self.cq.arm(self._solicited)
            # what came between the last poll and arming has no event
            self._signalled = self.cq.waiting() > 0
            return self._signalled
        return bool(completions)

    def drain(self) -> None:
        """The world is at rest: take what a program that slept has not seen."""
        if self._solicited:
            for completion in self.cq.poll(self.cq.entries):
                self._programs[completion.qp_num].take_late(completion)

    def _must_wait(self) -> bool:
        world = self.node.world
        if world.now < self._not_before_ns:
            return True
        self._not_before_ns = world.now + self._every_ns
        world.at(self._not_before_ns, self._wake)
        return False

    def _wake(self, _: object) -> None:
        self.node.turn()
