"""One of 100 EE contexts fails: what the error cache is for, as a table and a picture.

``python benchmarks/rd_error_cache.py [--svg FILE]``: two adapters in virtual time, 100 pairs of EE contexts
between them, 8 queue pairs that send all the time by all of them.  In the middle the peer's end of one EE
context gets into error, so that nothing answers on it until its requester gives up.  The same three times:
without a failure, with one and the error cache, with one and without it.  Virtual time: the figures do not
depend on the machine.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

from bench.tables import markdown

from softhca.driver.device import QpHandle
from softhca.queues.states import ERR, RTS, SQE
from softhca.testing import Datagram, Network
from softhca.testing.ends import WRITE
from softhca.testing.reliable_datagrams import DatagramEnd, join, send

CONTEXTS, QUEUE_PAIRS, DEPTH, BYTES = 100, 8, 8192, 256
STEP_NS, STEPS, FAILS_AT = 1_000_000, 40, 5
HOW = {"timeout": 8, "retry_cnt": 3}
SPANS = ((0, 5), (5, 7), (7, 20), (5, 40))
RUNS = {
    "no EE context fails": (False, 4096),
    "one of 100 fails": (True, 4096),
    "one fails, no error cache": (True, 0),
}


class Sender:
    """A queue pair that sends by all EE contexts in turn, and goes on where an error has stopped it."""

    def __init__(self, left: DatagramEnd, dice: random.Random) -> None:
        self.left, self.dice = left, dice
        self.cq = left.device.create_cq(DEPTH + 1)
        self.qp = left.queue_pair(cq=self.cq)
        self.under_way = 0

    def go_on(self, channels: list[Any], peer: QpHandle, right: DatagramEnd) -> None:
        """Take completions, and post what there is room for."""
        self.under_way -= len(self.cq.poll(DEPTH))
        if self.qp.query()["qp_state"] == SQE:
            self.qp.modify({"qp_state": RTS})
        while self.under_way < DEPTH:
            ee = channels[self.dice.randrange(CONTEXTS)][0]
            send(self.qp, WRITE, [self.left.sge(0, BYTES)], ee, peer, va=right.va, rkey=right.key.rkey,
                 ring=False)  # fmt: skip
            self.under_way += 1
        self.qp.ring()


def measured(fails: bool, cache: int) -> list[int]:
    """Messages by the 99 other EE contexts that the peer has acknowledged, in each step of time."""
    network, dice = Network(seed=1), random.Random(1)
    left = DatagramEnd(network.add(ee_error_cache=cache), work_requests=DEPTH)
    right = DatagramEnd(network.add())
    channels = [join(left, right, **HOW) for _ in range(CONTEXTS)]
    peer = right.queue_pair()
    senders = [Sender(left, dice) for _ in range(QUEUE_PAIRS)]
    counted, begun_ns, failing = [0] * STEPS, network.now, channels[0][0].number

    def seen(sent: Datagram) -> bytes:
        step = (network.now - begun_ns) // STEP_NS
        if sent.source is right.node and step < STEPS:
            counted[step] += sent.packet.transport.extensions[0].ee_context != failing
        return sent.data

    network.tamper = seen
    for step in range(10 * STEPS):
        if fails and step == 10 * FAILS_AT:
            channels[0][1].modify({"qp_state": ERR})
        for sender in senders:
            sender.go_on(channels, peer, right)
        network.elapse(STEP_NS // 10)
    network.close()
    return counted


def draw(results: dict[str, list[int]], name: str) -> None:
    """Throughput over time."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "softhca"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 3.6))
    for (label, counts), style in zip(results.items(), ("-", "--", ":"), strict=True):
        axes.step(range(STEPS), [count / 1000 for count in counts], style, where="post", label=label, lw=2)
    axes.axvline(FAILS_AT, color="grey", lw=1)
    axes.set(xlabel="ms of virtual time", ylabel="messages a ms, thousands", ylim=(0, None))
    axes.set_title("Messages by the 99 other EE contexts")
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(name, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--svg", metavar="FILE", help="draw it (matplotlib)")
    options = parser.parse_args()
    results = {name: measured(*run) for name, run in RUNS.items()}
    whole = results["no EE context fails"]
    rows = [
        [name, *(f"{sum(counts[start:end]) / sum(whole[start:end]):.1%}" for start, end in SPANS)]
        for name, counts in results.items()
    ]
    head = ["messages of those without a failure", *(f"{start} to {end} ms" for start, end in SPANS)]
    sys.stdout.write(markdown(head, rows) + "\n")
    if options.svg:
        draw(results, options.svg)


if __name__ == "__main__":
    main()
