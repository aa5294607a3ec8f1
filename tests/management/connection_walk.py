"""Connections over a network that loses a fifth of the messages, duplicates and reorders; ends that die;
programs that are slow, reject, propose alternate paths, disconnect and go.  By a seed each, in virtual time.

``python tests/management/connection_walk.py --seeds 1..2000``.  What must hold of each seed:

* no side is left in the middle of anything, and with all retries both end in the same way: established, or
  over, unless an adapter has gone, or a program in the middle whose REJ was lost, which is sent once; with
  few retries one may give up and the other not hear of it;
* each program is told in an order that makes sense (`ORDERS`), and how it ended, and last, and once, that
  the time-wait is over;
* each proposal of a path is answered once, unless the connection ends before;
* when all is over, no manager keeps a connection, a peer or a deadline.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import replace

from connection_peers import GIDS, REPLY, REQUEST, Network, lossy

from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm import states as s
from softhca.management.cm.elements import NEVER_NS
from softhca.management.cm.path_states import QUIET

LOSS = 0.2
EXPONENT = 8
MANY_RETRIES = 15
MOST_THOUGHT_NS = 3_000_000_000
PATHS = {e.PATH_REQUEST, e.PATH_ANSWER}
LAP = m.Lap(alternate_local_gid=GIDS[0], alternate_remote_gid=GIDS[1])
ENDED = {e.REJECTED, e.UNREACHABLE, e.DISCONNECTED}
FIRST = 0
ORDERS = {
    # what a program may be told after what
    FIRST: {e.REQUEST, e.REPLIED, e.REJECTED, e.UNREACHABLE},
    e.REQUEST: {e.ESTABLISHED, e.REJECTED, e.UNREACHABLE, e.DISCONNECT_REQUEST, e.DISCONNECTED},
    e.REPLIED: {e.REJECTED, e.DISCONNECT_REQUEST, e.DISCONNECTED},
    e.ESTABLISHED: {e.DISCONNECT_REQUEST, e.DISCONNECTED},
    e.DISCONNECT_REQUEST: {e.DISCONNECTED},
}


class Walk:
    """One seed; ``outcome`` is what became of it."""

    def __init__(self, seed: int) -> None:
        dice = self.dice = random.Random(seed)
        network = self.network = Network(seed)
        network.fate = lossy(seed, LOSS)
        self.told: list[dict[int, list[int]]] = [{}, {}]
        self.over: set[tuple[int, int]] = set()
        self.proposed = [0, 0]
        self.thoughts: list[tuple[int, int, int, int]] = []
        self.gone: set[int] = set()
        self.rejects = dice.random() < 0.1
        self.disconnects = [dice.random() < 0.4 for _ in (0, 1)]
        self.slow = dice.random() < 0.2
        self.retries = dice.choice((0, 1, MANY_RETRIES, MANY_RETRIES, MANY_RETRIES))
        exponents = {"remote_cm_response_timeout": EXPONENT, "local_cm_response_timeout": EXPONENT}
        network.listen()
        network.connect(replace(REQUEST, max_cm_retries=self.retries, **exponents))
        self.death_ns = (
            dice.randrange(20_000_000_000) >> dice.randrange(20) if dice.random() < 0.3 else NEVER_NS
        )
        self.dies = dice.randrange(2)
        self.death = dice.choice(("adapter", "program"))

    def run(self) -> str:
        """Go on until nothing happens any more."""
        while self._step():
            self._listen_to_events()
        outcome = self._judge()
        self._end()
        return outcome

    def _step(self) -> bool:
        network = self.network
        times = [
            manager.next_deadline() for n, manager in enumerate(network.managers) if n not in network.cut
        ]
        times += [arrival[0] for arrival in network._arrivals[:1]]
        arrived = min(times)
        thought = min(self.thoughts, default=(NEVER_NS, 0, 0, 0))
        due = min(arrived, thought[0])
        if self.death_ns <= min(due, NEVER_NS - 1):
            self._die()
        elif due >= NEVER_NS:
            return False
        elif thought[0] <= arrived:
            self.thoughts.remove(thought)
            network.now = max(network.now, thought[0])
            self._act(*thought[1:])
        else:
            self._network_step()
        return True

    def _network_step(self) -> None:
        """As `Network.step`, with the deadlines of who lives."""
        network = self.network
        network.now = max(network.now, self._due())
        if network._arrivals and network._arrivals[0][0] <= network.now:
            network.arrive_one()
        for number, manager in enumerate(network.managers):
            if number not in network.cut:
                manager.expire(network.now)

    def _due(self) -> int:
        network = self.network
        times = [
            manager.next_deadline() for n, manager in enumerate(network.managers) if n not in network.cut
        ]
        return min([*times, *(arrival[0] for arrival in network._arrivals[:1])])

    def _die(self) -> None:
        network, own = self.network, self.dies
        network.now = max(network.now, self.death_ns)
        self.death_ns = NEVER_NS
        self.gone.add(own)
        self.thoughts = [thought for thought in self.thoughts if thought[1] != own]
        if self.death == "adapter":
            network.cut.add(own)
        else:
            network.managers[own].destroy_all(network.programs[own], network.now)

    def _listen_to_events(self) -> None:
        network = self.network
        for own, program in enumerate(network.programs):
            for event in program.events:
                told = self.told[own].setdefault(event.number, [])
                last = told[-1] if told else FIRST
                assert own not in self.gone, "a program that has gone is told something"
                assert (own, event.number) not in self.over, "something is told after the time-wait"
                if event.kind == e.TIMEWAIT_OVER:
                    assert last in ENDED | {e.DISCONNECT_REQUEST}, told
                    self.over.add((own, event.number))
                    continue
                if event.kind in PATHS:
                    self._take_path(own, event)
                    continue
                assert event.kind in ORDERS[last], (own, told, event.kind)
                told.append(event.kind)
                thought_ns = self.dice.randrange(MOST_THOUGHT_NS) if self.slow else 0
                self.thoughts.append((network.now + thought_ns, own, event.number, event.kind))
            program.events.clear()

    def _propose(self, own: int, number: int) -> None:
        """Now and then, where the connection is established, and the peer waits for no answer to its own."""
        network = self.network
        found = network.managers[own]._tables.find(number)
        if self.dice.random() >= 0.3 or not isinstance(found, e.Connection):
            return
        if found.state == s.ESTABLISHED and found.path_state == QUIET:
            network.managers[own].load_path(network.programs[own], number, LAP, network.now)
            self.proposed[own] += 1

    def _take_path(self, own: int, event: e.Event) -> None:
        """The peer proposes a path, or answers."""
        network = self.network
        if event.kind == e.PATH_ANSWER:
            self.proposed[own] -= 1
            assert self.proposed[own] == 0
            self._propose(own, event.number)
        elif self.dice.random() < 0.9:
            network.managers[own].answer_path(network.programs[own], event.number, m.Apr(), network.now)

    def _act(self, own: int, number: int, kind: int) -> None:
        """What a program does about an event; a moment that has passed is refused."""
        network = self.network
        manager, program, now = network.managers[own], network.programs[own], network.now
        try:
            if kind == e.REQUEST and self.rejects:
                manager.reject(program, number, 28, b"", b"", now)
            elif kind == e.REQUEST:
                manager.reply(program, number, REPLY, now)
            elif kind == e.REPLIED and self.rejects:
                manager.reject(program, number, 28, b"", b"", now)
            elif kind == e.REPLIED:
                manager.ready(program, number, b"", now)
            elif kind == e.DISCONNECT_REQUEST:
                manager.disconnect(program, number, b"", now)
            if kind in (e.REPLIED, e.ESTABLISHED) and not self.rejects and self.disconnects[own]:
                self.thoughts.append((now + self.dice.randrange(MOST_THOUGHT_NS), own, number, FIRST))
            elif kind == FIRST:
                manager.disconnect(program, number, b"", now)
            if kind in (e.REPLIED, e.ESTABLISHED):
                self._propose(own, number)
        except OSError:
            told = self.told[own][number]
            assert told[-1] != kind or kind == e.DISCONNECT_REQUEST or self.disconnects[own], told

    def _judge(self) -> str:
        """Both sides' ends: agreed, where both live."""
        network = self.network
        ends: list[list[str]] = [
            [element.state for element in manager._tables if isinstance(element, e.Connection)]
            for manager in network.managers
        ]
        for own, states in enumerate(ends):
            if own not in network.cut:
                assert set(states) <= {s.ESTABLISHED, s.CLOSED}, ends
                if s.ESTABLISHED in states:
                    assert self.proposed[own] == 0, "a proposal has had no answer"
        live = [states.count(s.ESTABLISHED) for states in ends]
        if network.cut:
            return "its peer has gone" if live[1 - self.dies] else "over without its peer"
        if live[0] != live[1]:  # one side has given up, and all it said of that was lost
            ended = int(live[0] > live[1])
            assert self.retries < MANY_RETRIES or ended in self.gone, (ends, self.told)
            assert ended in self.gone or any(told[-1] in ENDED for told in self.told[ended].values())
            return "given up by one"
        assert live[0] <= 1
        for own in {0, 1} - self.gone:
            for told in self.told[own].values():
                assert live[own] or told[-1] in {*ENDED, e.DISCONNECT_REQUEST} or self.rejects, told
        return "established" if live[0] else "over"

    def _end(self) -> None:
        """Programs end: nothing is left, whoever still answers."""
        network = self.network
        for own, manager in enumerate(network.managers):
            if own not in network.cut:
                manager.destroy_all(network.programs[own], network.now)
        while self._due() < NEVER_NS:
            self._network_step()
        for own, manager in enumerate(network.managers):
            if own not in network.cut:
                assert manager._tables.connections == 0
                assert not manager._by_remote
                assert not manager._by_end
                assert not manager._by_local
                assert len(manager._timers) == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Walk connections over a bad network.")
    parser.add_argument("--seeds", default="1..2000", help="A..B")
    first, last = map(int, parser.parse_args().seeds.split(".."))
    outcomes: Counter[str] = Counter()
    for seed in range(first, last + 1):
        try:
            outcomes[Walk(seed).run()] += 1
        except AssertionError as error:
            print(f"seed {seed}: {error}")
            return 1
    print(f"{last - first + 1} seeds: {dict(outcomes.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
