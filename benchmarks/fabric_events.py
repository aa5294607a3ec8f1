"""How many events a second a switched fabric simulates: each host of a fat tree sends to the others in turn.

``python benchmarks/fabric_events.py [--radix 8] [--packets 60] [--rounds 5] [--lengths mixed]``.  Packets are
of one length, so that many events are at one time, or with ``--lengths mixed`` of lengths at random, and
hardly any two are.  Counted is the processor's time of this process, so that what else runs matters less;
the best round stands first.  ``--json FILE`` writes the figures to a file, too.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from random import Random

from softhca.fabric.generators import fat_tree
from softhca.fabric.routing import route
from softhca.fabric.switching import events
from softhca.fabric.switching.fabric import SwitchedFabric
from softhca.fabric.switching.packet import Packet
from softhca.fabric.topology import Topology

PACKET_BYTES = 2112
SHORTEST_BYTES, LONGEST_BYTES = 64, 4160
EVENTS = 100_000_000


class Load:
    """A fat tree, its forwarding tables, and a LID for each host."""

    def __init__(self, topology: Topology) -> None:
        routes = route(topology)
        self.topology = topology
        switches = routes.graph.switches.tolist()
        self.tables = {switch: routes.tables[number].tolist() for number, switch in enumerate(switches)}
        ends = routes.graph.endpoints
        lids = dict(zip(ends.node.tolist(), routes.lids.base.tolist(), strict=True))
        self.hosts = [(node, lids[node]) for node in topology.end_nodes]
        self.arrived = 0

    def deliver(self, node: int, packet: Packet, now_ps: int) -> None:
        """A packet has arrived."""
        self.arrived += 1

    def run(self, packets: int, lengths: Random | None = None) -> tuple[int, float]:
        """So many packets of each host, all as long or of lengths at random: events, and seconds of processor
        time."""
        fabric = SwitchedFabric(self.topology, self.tables, self.deliver)
        count = len(self.hosts)
        for step in range(packets):
            for place, (node, lid) in enumerate(self.hosts):
                goal = self.hosts[(place + 1 + step % (count - 1)) % count][1]  # never itself
                size = lengths.randint(SHORTEST_BYTES, LONGEST_BYTES) if lengths else PACKET_BYTES
                fabric.send(node, Packet(lid, goal, size))
        self.arrived = 0
        gc.collect()  # the fabric of the round before is not this one's to free
        start = time.process_time()
        fabric.events.run_all(EVENTS)
        spent = time.process_time() - start
        if self.arrived != packets * count:
            raise SystemExit(f"{self.arrived} of {packets * count} packets have arrived")
        return fabric.events.executed, spent


def main() -> int:
    """Run the rounds; print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--radix", type=int, default=8)
    parser.add_argument("--packets", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", choices=("one", "mixed"), default="one")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    load = Load(fat_tree(args.radix))
    compiled = not events.__file__.endswith(".py")
    mixed = args.lengths == "mixed"
    rounds = [load.run(args.packets, Random(1) if mixed else None) for _ in range(args.rounds)]
    rates = sorted((round(count / spent) for count, spent in rounds), reverse=True)
    document = {
        "hosts": len(load.hosts), "switches": len(load.topology.switches), "events": rounds[0][0],
        "compiled": compiled, "events_per_s": rates,
    }  # fmt: skip
    print(json.dumps(document))
    if args.json:
        args.json.write_text(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
