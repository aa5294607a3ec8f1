"""What a message costs over more and more queue pairs: two devices of this process, driven by one thread.

``python3 benchmarks/queue_pairs.py [--rounds N] [COUNT ...]`` prints for each number of queue pairs the
processor time of both ends a message (8-byte RDMA WRITEs, chains of 16, as ``softhca perf write-bw --qps``
posts them), and system calls, bursts and acknowledgements a chain.  Nothing waits for another process, so
that the figures hardly depend on what else runs; the least of several rounds counts.
"""

import argparse
import gc
from collections import deque
from time import thread_time

from softhca.machine.primitives import BODY
from softhca.runtime import devices
from softhca.verbs import enums as e
from softhca.verbs.addr import GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, SendWR

CHAIN = 16
MOST_POSTED = 16_384
TURNS = 16
RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
COUNTS = [1, 10, 100, 1_000, 10_000]


def depth_of(count):
    """How many requests a queue pair keeps posted, as `softhca perf` has it."""
    return max(CHAIN, min(128, MOST_POSTED // count) // CHAIN * CHAIN)


class End:
    """A device with memory, a completion queue and ``count`` queue pairs."""

    def __init__(self, name, count):
        self.name = name
        self.context = Context(name=name)
        pd, depth = PD(self.context), depth_of(count)
        self.cq = CQ(self.context, depth * count)
        self.mr = MR(pd, 4096, RIGHTS)
        caps = QPCap(max_send_wr=depth, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=caps, sq_sig_all=0)
        self.qps = [QP(pd, init) for _ in range(count)]

    def join(self, peer):
        route = GlobalRoute(GID(str(peer.context.query_gid(1, 0))))
        handle = AHAttr(is_global=1, gr=route)
        for mine, theirs in zip(self.qps, peer.qps, strict=True):
            path = QPAttr(path_mtu=5)
            path.dest_qp_num, path.qp_access_flags, path.ah_attr = theirs.qp_num, RIGHTS, handle
            path.timeout, path.retry_cnt, path.rnr_retry = 18, 7, 7
            mine.to_rts(path)

    def counted(self):
        """Calls of sendmsg, calls of recvmsg, bursts and packets sent so far."""
        link = devices.find(self.name).engine.link
        return link.send_calls, link.receive_calls, link.bursts_sent, link.datagrams_sent


class Pair:
    """Two ends with ``count`` connections; ``run`` carries so many chains over all of them in turn."""

    def __init__(self, count):
        self.count = count
        names = f"left{count}", f"right{count}"
        devices.add(",".join(f"{name}=udp:*?same_host=0" for name in names))
        self.left, self.right = (End(name, count) for name in names)
        self.left.join(self.right)
        self.right.join(self.left)
        self.first = self.last = None
        for position in range(CHAIN):
            flags = 0 if position else e.IBV_SEND_SIGNALED
            element = SGE(self.left.mr.buf, 8, self.left.mr.lkey)
            self.first = SendWR(0, e.IBV_WR_RDMA_WRITE, 1, 0, [element], flags, self.first)
            self.first.set_wr_rdma(self.right.mr.rkey, self.right.mr.buf)
            self.last = self.last or self.first

    def run(self, chains):
        turns, room = deque(range(self.count)), [depth_of(self.count) // CHAIN] * self.count
        to_post = to_complete = chains
        while to_complete:
            for _ in range(min(len(turns), TURNS)):
                index = turns.popleft()
                self.last.wr_id = index
                while room[index] and to_post:
                    self.left.qps[index].post_send(self.first)
                    room[index] -= 1
                    to_post -= 1
            self.right.context.progress()
            for completion in self.left.cq.poll(TURNS)[1]:
                assert completion.status == e.IBV_WC_SUCCESS
                room[completion.wr_id] += 1
                turns.append(completion.wr_id)
                to_complete -= 1

    def measured(self, chains):
        """Nanoseconds a message, and the figures of `End.counted` a chain for both ends."""
        before = self.left.counted(), self.right.counted()
        begin = thread_time()
        self.run(chains)
        spent = (thread_time() - begin) * 1e9 / chains / CHAIN
        after = self.left.counted(), self.right.counted()
        return spent, [
            [(new - old) / chains for old, new in zip(*end, strict=True)]
            for end in zip(before, after, strict=True)
        ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", nargs="*", type=int, default=COUNTS, metavar="COUNT", help="queue pairs")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="rounds, in turn (default 7)")
    args = parser.parse_args()
    pairs = [Pair(count) for count in args.counts]
    for pair in pairs:
        pair.run(max(pair.count, 1000))
    gc.collect()
    gc.freeze()
    rounds = [[pair.measured(max(5_000, pair.count)) for pair in pairs] for _ in range(args.rounds)]
    best = [min(row[place] for row in rounds) for place in range(len(pairs))]
    print(f"{BODY}; 8-byte RDMA WRITEs in chains of {CHAIN}\n")
    print("| queue pairs | a message, both ends | against the first | calls to send, data / answers "
          "| packets, data / answers | looks, sender / receiver |")
    print("| --- | --- | --- | --- | --- | --- |")
    for pair, (spent, (left, right)) in zip(pairs, best, strict=True):
        print(f"| {pair.count:,} | {spent:.0f} ns | {spent / best[0][0]:.2f} × "
              f"| {left[0]:.2f} / {right[0]:.2f} | {left[3]:.1f} / {right[3]:.2f} "
              f"| {left[1]:.2f} / {right[1]:.2f} |")
    for pair in pairs:
        pair.left.context.close()
        pair.right.context.close()


if __name__ == "__main__":
    main()
