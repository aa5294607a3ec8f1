"""Three adapters with reliable datagrams: what their tests share."""

from softhca.testing import SENT, Network
from softhca.testing.ends import WRITE
from softhca.testing.reliable_datagrams import DatagramEnd, join, send

SHORT = {"timeout": 8, "retry_cnt": 3}
"""A peer that is gone is given up after 4 ms."""


class Trio:
    """A left end with one queue pair, and two right ends on adapters of their own, each with a queue pair and
    an EE context to the left one."""

    def __init__(self, faults="", config=None, work_requests=16, **reliability):
        self.network = Network(faults, seed=7)
        self.left = DatagramEnd(self.network.add(**(config or {})), work_requests=work_requests)
        self.rights = [DatagramEnd(self.network.add()) for _ in range(2)]
        self.qp = self.left.queue_pair()
        self.peers = [right.queue_pair() for right in self.rights]
        pairs = [join(self.left, right, **(SHORT | reliability)) for right in self.rights]
        self.ees = [pair[0] for pair in pairs]
        self.theirs = [pair[1] for pair in pairs]
        self.packets = self.network.record(SENT)
        self.dead = set()
        self.network.tamper = lambda sent: None if self.lost(sent) else sent.data

    def lost(self, sent):
        return any(sent.route.destination == self.rights[which].node.gid for which in self.dead)

    def write(self, which, number=0, length=3000, **fields):
        """An RDMA WRITE to one of the right ends, its number as work request."""
        right = self.rights[which]
        fields = {"va": right.va, "rkey": right.key.rkey} | fields
        send(self.qp, WRITE, [self.left.sge(0, length)], self.ees[which], self.peers[which],
             wr_id=number, **fields)  # fmt: skip

    def done(self, count):
        return [(completion.wr_id, completion.status) for completion in self.left.poll(count)]

    def inject(self, sent):
        """Let a packet that was sent to the first right end arrive there (once more)."""
        node, taken = self.rights[0].node, self.rights[0].node.adapter.port_counters()["packets_received"]
        self.network.inject(node, sent.data, self.left.node.gid, source_port=sent.route.source_port)
        assert node.adapter.port_counters()["packets_received"] == taken + 1

    def opcodes(self):
        return [packet.packet.transport.bth.opcode for packet in self.packets]

    def figures(self):
        return self.left.node.adapter.port_counters()
