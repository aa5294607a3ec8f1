"""How many connections a second two adapters on the loopback set up and tear down through the communication
manager: ``python benchmarks/connections.py [--connections N] [--outstanding N] [--rounds N] [--live N]``.

One program has both ends, so that everything takes turns on one processor: REQ, REP, RTU, DREQ and DREP, and
the commands of both sides; no queue pair is made.  It prints the rate of each round and the processor time
that a connection took, which tells something on a busy machine too, the medians, and how much more memory and
how many descriptors the program has after the last round than after the first.  With ``--live`` so many
connections are up while the rounds run.
"""

import argparse
import os
import resource
import statistics
import time

os.environ.setdefault("SOFTHCA_DEVICES", "active=udp:*,passive=udp:*")

from softhca.driver import connections as cm
from softhca.verbs.device import Context

SERVICE = 0x0106_1C46


class Ends:
    """Both ends: what they are told, they answer."""

    def __init__(self, outstanding: int) -> None:
        self.contexts = [Context(name=name) for name in ("active", "passive")]
        self.active, self.passive = (context.driver.open_connections(1, 1024) for context in self.contexts)
        self.passive.listen(SERVICE, 1024)
        self.path = cm.CmPath(gid=bytes(self.contexts[1].query_gid(1, 0).raw), ack_timeout=1)
        self.outstanding = outstanding
        self.number = 0x100
        self.stay = False
        self.live: list[int] = []

    def run(self, count: int) -> None:
        """Make and end so many connections."""
        begun = done = 0
        while done < count:
            while begun < count and begun - done < self.outstanding:
                self.number += 1
                self.active.connect(SERVICE, self.path, cm.CmQueuePair(self.number, 1))
                begun += 1
            while (event := self.passive.receive(0)) is not None:
                self._passive(event)
            while (event := self.active.receive(0)) is not None:
                done += self._active(event)

    def keep(self, count: int) -> None:
        """Make so many connections that stay."""
        self.stay = True
        self.run(count)
        self.stay = False

    def _passive(self, event: cm.CmEvent) -> None:
        if event.kind == cm.CM_REQUEST:
            self.passive.reply(event.id, cm.CmQueuePair(event.queue_pair.qp_num, 2))
        elif event.kind == cm.CM_DISCONNECT_REQUEST:
            self.passive.disconnect(event.id)
            self.passive.destroy(event.id)

    def _active(self, event: cm.CmEvent) -> int:
        """1 where a connection has ended."""
        if event.kind == cm.CM_REPLIED:
            self.active.ready(event.id)
            if self.stay:
                self.live.append(event.id)
                return 1
            self.active.disconnect(event.id)
        elif event.kind == cm.CM_DISCONNECTED:
            self.active.destroy(event.id)
            return 1
        elif event.kind != cm.CM_TIMEWAIT_OVER:  # which may come before the end was taken
            raise SystemExit(f"connection {event.id}: event {event.kind}, status {event.status}")
        return 0

    def close(self) -> None:
        """Close all."""
        for each in (self.active, self.passive, *self.contexts):
            each.close()


def held() -> tuple[int, int]:
    """Memory that the program has, in KiB, and its descriptors."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[1])
    return pages * resource.getpagesize() // 1024, len(os.listdir("/proc/self/fd"))


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--connections", type=int, default=1500)
    parser.add_argument("--outstanding", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--live", type=int, default=0)
    options = parser.parse_args()
    ends = Ends(options.outstanding)
    rates, costs, before = [], [], (0, 0)
    if options.live:
        empty, begin = held(), time.perf_counter()
        ends.keep(options.live)
        rate, (memory, _) = len(ends.live) / (time.perf_counter() - begin), held()
        each = (memory - empty[0]) / options.live
        print(f"{len(ends.live)} live, made at {rate:.0f} a second, {each:.1f} KiB each for both", flush=True)
    for number in range(options.rounds):
        begin, used = time.perf_counter(), time.process_time()
        ends.run(options.connections)
        rates.append(options.connections / (time.perf_counter() - begin))
        costs.append((time.process_time() - used) * 1e6 / options.connections)
        now, rate = held(), f"{rates[-1]:.0f} connections a second, {costs[-1]:.0f} µs of processor time each"
        print(f"{rate}; {now[0]} KiB, {now[1]} descriptors", flush=True)
        before = now if number == 0 else before
    after = held()
    rate, cost = statistics.median(rates), statistics.median(costs)
    print(f"median {rate:.0f}, {cost:.0f} µs, {options.outstanding} at a time")
    more = f"{after[0] - before[0]} KiB and {after[1] - before[1]} descriptors"
    print(f"{more} more than after the first round")
    ends.close()


if __name__ == "__main__":
    main()
