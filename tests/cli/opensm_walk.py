"""OpenSM, or our own manager, on a served fabric whose cables and managers come and go, by seeds.

``python tests/cli/opensm_walk.py --seeds 1..20 --steps 12`` (Debian: opensm infiniband-diags ibsim-utils).
A seed draws a random fabric (from 1000 on one of `REGULAR`), which manager it has, and the steps.  After each
step Debian's own tools are asked until what they print is what the manager's part of the fabric must be, or
until they have been asked too often:

* ``ibnetdiscover`` prints the nodes and links that the manager's host reaches by cables that are in, no more;
* ``iblinkinfo`` shows every one of these links ACTIVE, and none of those that are out;
* no LID is given twice;
* by the tables that ``ibroute`` prints, packets from every host reach every host, none in a circle; OpenSM's
  ways (min-hop) lead there from every switch, and cross no more switches than they must;
* ``sminfo`` shows a master at the manager's host.

What happens between a step and its end is the kernel's doing; what must hold at the end is not.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
from fabric_bench import Bench  # noqa: E402

from softhca.fabric.generators import dragonfly, fat_tree, random_fabric, torus  # noqa: E402
from softhca.fabric.topology import Topology, TopologyError  # noqa: E402
from softhca.fabric.topology_file import read_ibnetdiscover  # noqa: E402

TURNS = 60
"""How often the tools are asked after a step; each turn starts several programs."""

REGULAR_SEEDS = 1000
REGULAR: tuple[Callable[[], Topology], ...] = (
    lambda: fat_tree(4, 2),
    lambda: torus([3, 3], 1),
    lambda: torus([2, 3], 2, wrap=False),
    lambda: dragonfly(3, 1, 1),
)

MANAGER_HOST = "h0"
STANDBY_HOST = "h1"
_ROUTE = re.compile(r"0x([0-9a-f]{4}) (\d{3}) : \((?:Channel Adapter|Switch) portguid 0x([0-9a-f]{16})")
_MASTER = re.compile(r"sm lid (\d+) sm guid 0x([0-9a-f]+), .* state 3 SMINFO_MASTER")


class Unsettled(AssertionError):
    """What is wrong yet; the walk's failure when it stays so."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Unsettled(what)


class Walk:
    """One seed: a served fabric, its manager, and what has been done to it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = Random(seed)
        self.topology = self.draw() if seed < REGULAR_SEEDS else self.dice.choice(REGULAR)()
        self.is_opensm = self.dice.random() < 0.7
        self.bench = Bench(folder, self.topology, *(() if self.is_opensm else ("--manager", MANAGER_HOST)))
        self.out: set[int] = set()
        self.host = MANAGER_HOST
        self.lids: dict[int, int] = {}
        self.done: list[str] = []
        self._opensm: subprocess.Popen[str] | None = None
        self._options = folder / "opensm.conf"
        self._options.write_text("sminfo_polling_timeout 500\npolling_retry_number 2\n")

    def draw(self) -> Topology:
        """A random fabric."""
        return random_fabric(self.dice.randint(3, 6), self.dice.randint(1, 2), 3, self.dice)

    def begin(self) -> None:
        """Bring the fabric up."""
        if self.is_opensm:
            self._opensm = self.start_opensm(self.host)
        self.settle()

    def start_opensm(self, host: str) -> subprocess.Popen[str]:
        """An OpenSM at a host, which says what it does; nobody waits for it here."""
        command = ["opensm", "-f", os.devnull, "-F", str(self._options)]
        return self.bench.start(command, self.bench.environment(host))

    # steps

    def step(self) -> None:
        """One more step, and wait for what must follow."""
        steps: list[Callable[[], str]] = [self.take_out, self.take_out, self.put_in, self.take_out_several]
        if self.is_opensm:
            steps += [self.restart_manager, self.hand_over]
        self.done.append(self.dice.choice(steps)())
        self.settle()

    def take_out(self) -> str:
        """Take a cable out that is not the manager's own."""
        own = self.topology.index(self.host)
        left = [
            index
            for index, link in enumerate(self.topology.links)
            if index not in self.out and own not in (link.end_a.node, link.end_b.node)
        ]
        if not left:
            return self.put_in()
        index = self.dice.choice(left)
        self.ask("fail", index)
        self.out.add(index)
        return f"out {index}"

    def take_out_several(self) -> str:
        """Cables come out and in again faster than a manager looks."""
        return ", ".join(self.dice.choice([self.take_out, self.put_in])() for _ in range(3))

    def put_in(self) -> str:
        """Put a cable in that is out, if one is."""
        if not self.out:
            return "nothing"
        index = self.dice.choice(sorted(self.out))
        self.ask("restore", index)
        self.out.discard(index)
        return f"in {index}"

    def restart_manager(self) -> str:
        """Kill OpenSM while it may be in the middle of a sweep, and start another one at its host."""
        self.take_out()
        self.kill_manager()
        self._opensm = self.start_opensm(self.host)
        return "kill the manager after a cable came out, start another"

    def hand_over(self) -> str:
        """An OpenSM at another host stands by, and has to notice that the master was killed."""
        other = STANDBY_HOST if self.host == MANAGER_HOST else MANAGER_HOST
        if self.topology.index(other) not in self.reached():
            return "nothing"
        standby = self.start_opensm(other)
        self.kill_manager()
        self._opensm, self.host = standby, other
        return f"kill the manager, {other} takes over"

    def kill_manager(self) -> None:
        """End OpenSM as a crash would."""
        assert self._opensm is not None
        self._opensm.send_signal(signal.SIGKILL)
        self._opensm.wait()

    def ask(self, word: str, index: int) -> None:
        """Take a cable out or put it in."""
        end = self.topology.links[index].end_a
        self.bench.ask(word, self.bench.end_text(self.topology.nodes[end.node].name, end.port))

    # what must hold

    def reached(self) -> set[int]:
        """The nodes that the manager's host reaches."""
        return set(self.distances(self.topology.index(self.host)))

    def distances(self, begin: int) -> dict[int, int]:
        """How many switches packets from a node cross to each node it reaches; itself counts if it is one."""
        left = self.topology.without(self.out)
        found, waiting = {begin: int(left.nodes[begin].is_switch)}, [begin]
        for here in waiting:
            if here != begin and not left.nodes[here].is_switch:
                continue
            for port in range(1, left.nodes[here].port_count + 1):
                peer = left.peer(here, port)
                if peer is not None and peer.node not in found:
                    found[peer.node] = found[here] + left.nodes[peer.node].is_switch
                    waiting.append(peer.node)
        return found

    def settle(self) -> None:
        """Ask until all holds; AssertionError with what does not when it never does."""
        for _ in range(TURNS):
            try:
                return self.check()
            except Unsettled as error:
                wrong = error
        raise AssertionError(f"after {self.done}: {wrong}")

    def check(self) -> None:
        """Unsettled where the fabric is not yet what it must be."""
        reached = self.reached()
        self.check_discovery(reached)
        self.check_links(reached)
        tables = self.tables(reached)
        for switch in tables if self.is_opensm else self.leaves(reached):
            least = self.distances(switch)
            for host in reached:
                if not self.topology.nodes[host].is_switch:
                    count = self.crossed(tables, switch, host)
                    is_short = not self.is_opensm or count == least[host]
                    expect(is_short, f"{switch} to {host} by {count} switches")
        self.check_master()

    def leaves(self, reached: set[int]) -> set[int]:
        """The switches by which packets of hosts enter."""
        found = set()
        for index in self.links(reached):
            link = self.topology.links[index]
            for here, there in ((link.end_a, link.end_b), (link.end_b, link.end_a)):
                if self.topology.nodes[here.node].is_switch and not self.topology.nodes[there.node].is_switch:
                    found.add(here.node)
        return found

    def check_discovery(self, reached: set[int]) -> None:
        """Nodes, links and LIDs."""
        text = self.bench.run("ibnetdiscover", host=self.host, status=None)
        try:
            seen = read_ibnetdiscover(text)
        except TopologyError as error:
            raise Unsettled(f"ibnetdiscover: {error}") from None
        guids = {node.guid for node in seen.nodes}
        expect(guids == {self.topology.nodes[index].guid for index in reached}, f"nodes {len(guids)}")
        expect(cables(seen, range(len(seen.links))) == cables(self.topology, self.links(reached)), "links")
        by_guid = {node.guid: index for index, node in enumerate(self.topology.nodes)}
        self.lids = {}
        for guid, lid in re.findall(r'^Switch\s+\d+ "S-([0-9a-f]{16})".* lid (\d+) ', text, re.MULTILINE):
            self.lids[by_guid[int(guid, 16)]] = int(lid)
        for guid, body in re.findall(r'^Ca\s+\d+ "H-([0-9a-f]{16})".*\n((?:\[.*\n)+)', text, re.MULTILINE):
            (self.lids[by_guid[int(guid, 16)]],) = {int(lid) for lid in re.findall(r"# lid (\d+) lmc", body)}
        expect(set(self.lids) == reached, "a node without a LID in the print")
        expect(0 not in self.lids.values(), "a node has no LID")
        expect(len(set(self.lids.values())) == len(self.lids), f"a LID is given twice: {self.lids}")

    def links(self, reached: set[int]) -> list[int]:
        """The links that are in, between nodes that are reached."""
        return [
            index
            for index, link in enumerate(self.topology.links)
            if index not in self.out and link.end_a.node in reached
        ]

    def check_links(self, reached: set[int]) -> None:
        """Every link is ACTIVE at both ends."""
        text = self.bench.run("iblinkinfo", "--line", host=self.host, status=None)
        active, wanted = text.count("Active/  LinkUp"), 2 * len(self.links(reached))
        expect(active == wanted, f"{active} ends of links are active, not {wanted}")

    def tables(self, reached: set[int]) -> dict[int, dict[int, int]]:
        """By switch, the port to each LID.  Asked by directed routes: up-down routing has no way between some
        of a tree's roots."""
        found, ways = {}, self.directed_routes()
        for switch in sorted(reached):
            if self.topology.nodes[switch].is_switch:
                text = self.bench.run("ibroute", "-D", ways[switch], host=self.host, status=None)
                found[switch] = {int(lid, 16): int(port) for lid, port, _ in _ROUTE.findall(text)}
        return found

    def directed_routes(self) -> dict[int, str]:
        """To each node that the manager's host reaches, as the tools take them: the ports to leave by."""
        left, begin = self.topology.without(self.out), self.topology.index(self.host)
        found, waiting = {begin: "0"}, [begin]
        for here in waiting:
            for port in range(1, left.nodes[here].port_count + 1):
                peer = left.peer(here, port)
                if peer is not None and peer.node not in found:
                    found[peer.node] = f"{found[here]},{port}"
                    if left.nodes[peer.node].is_switch:
                        waiting.append(peer.node)
        return found

    def crossed(self, tables: dict[int, dict[int, int]], switch: int, host: int) -> int:
        """How many switches a packet crosses."""
        left, here, count = self.topology.without(self.out), switch, 1
        while True:
            port = tables[here].get(self.lids[host])
            expect(port is not None, f"switch {here} has no way to host {host}")
            peer = left.peer(here, port or 0) if port else None
            if peer is None:
                raise Unsettled(f"the way from {here} to {host} leads nowhere")
            if peer.node == host:
                return count
            expect(left.nodes[peer.node].is_switch, f"the way from {here} to {host} ends at {peer.node}")
            here, count = peer.node, count + 1
            expect(count <= len(tables), f"a packet from {switch} to {host} goes in a circle")

    def check_master(self) -> None:
        """The manager of this host is the master."""
        found = _MASTER.search(self.bench.run("sminfo", host=self.host, status=None))
        if found is None:
            raise Unsettled("sminfo shows no master")
        expect(int(found[1]) == self.lids[self.topology.index(self.host)], f"the master is at {found[1]}")

    def close(self) -> None:
        self.bench.close()


def cables(topology: Topology, links: range | list[int]) -> set[frozenset[tuple[int, int]]]:
    """The two ends, GUID and port, of each of some links."""
    return {
        frozenset((topology.nodes[end.node].guid, end.port) for end in (link.end_a, link.end_b))
        for link in (topology.links[index] for index in links)
    }


def walk(seed: int, steps: int, folder: Path) -> list[str]:
    """What was done; AssertionError with the first thing that stays wrong."""
    one = Walk(seed, folder)
    try:
        one.begin()
        for _ in range(steps):
            one.step()
    finally:
        one.close()
    return one.done


def main() -> int:
    """Walk seed after seed; status 1 at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1..20", metavar="FIRST..LAST")
    parser.add_argument("--steps", type=int, default=12)
    asked = parser.parse_args()
    first, last = (int(word) for word in asked.seeds.split(".."))
    for seed in range(first, last + 1):
        with tempfile.TemporaryDirectory() as folder:
            print(f"seed {seed}: {'; '.join(walk(seed, asked.steps, Path(folder)))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
