"""Where the time of one small message at a time goes: two devices of this process, driven by one thread.

``python3 benchmarks/lone_message.py [--rounds N]`` sends 8 bytes to and fro by SEND, as ``softhca perf
send-lat`` does, and prints what each call of one way costs and how many system calls it makes.  A figure is
the least of many rounds: what it costs when nothing else is in the way.
"""

import argparse
from time import perf_counter_ns

from bench.timed_link import TimedLink
from cost_picture import RIGHTS, floor, join

from softhca.machine.primitives import BODY
from softhca.runtime import devices
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

DEPTH = 64
SIGNAL_EVERY = 32
WARM_UP = 200
CALLS = ("post_send", "post_recv", "poll that finds nothing", "poll that finds the message")


class End:
    """A device with memory, queues and one RC queue pair; what its link was called for stands in ``links``:
    nanoseconds and calls by ``send`` and ``receive``.
    """

    def __init__(self, name):
        self.context = Context(name=name)
        pd = PD(self.context)
        self.send_cq, self.receive_cq = CQ(self.context, DEPTH), CQ(self.context, DEPTH)
        self.mr = MR(pd, 4096, RIGHTS)
        caps = QPCap(DEPTH, DEPTH, 1, 1, 8)
        self.qp = QP(
            pd, QPInitAttr(e.IBV_QPT_RC, scq=self.send_cq, rcq=self.receive_cq, cap=caps, sq_sig_all=0)
        )
        element = SGE(self.mr.buf, 8, self.mr.lkey)
        quiet, told = e.IBV_SEND_INLINE, e.IBV_SEND_INLINE | e.IBV_SEND_SIGNALED
        self.sends = [SendWR(0, e.IBV_WR_SEND, 1, 0, [element], flags) for flags in (quiet, told)]
        self.receive = RecvWR(0, 1, [element])
        self.links = {"send": [0, 0], "receive": [0, 0]}
        self.loop = loop = devices.find(name).engine.loop
        self.link, self.timed = loop.ports[0].link, TimedLink(loop.ports[0].link, self._took)

    def _took(self, kind, ns):
        self.links[kind][0] += ns
        self.links[kind][1] += 1

    def watch(self, links):
        """Time the link's calls, or leave them as they are."""
        self.loop.ports[0].link = self.timed if links else self.link

    def join(self, peer):
        join(self, peer)
        for _ in range(DEPTH // 2):
            self.qp.post_recv(self.receive)

    def called(self, call, *arguments):
        """What ``call`` returns; its nanoseconds and, by link call, theirs and how many."""
        for spent in self.links.values():
            spent[:] = 0, 0
        begin = perf_counter_ns()
        result = call(*arguments)
        took = perf_counter_ns() - begin
        return result, (took, *self.links["send"], *self.links["receive"])


def one_way(left, right, number):
    """One message: what each of `CALLS` has cost."""
    costs = {}
    right.receive_cq.poll(1)  # an acknowledgement may have come
    (count, _), costs[CALLS[2]] = right.called(right.receive_cq.poll, 1)
    assert not count
    signaled = number % SIGNAL_EVERY == 0
    _, costs[CALLS[0]] = left.called(left.qp.post_send, left.sends[signaled])
    while not count:
        (count, _), costs[CALLS[3]] = right.called(right.receive_cq.poll, 1)
    _, costs[CALLS[1]] = right.called(right.qp.post_recv, right.receive)
    if number % SIGNAL_EVERY == SIGNAL_EVERY - 1:
        left.send_cq.poll(1)
    return costs


def rounds_of(left, right, count):
    found = []
    for number in range(count):
        found += [one_way(left, right, number), one_way(right, left, number)]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000, metavar="N", help="messages to and fro")
    args = parser.parse_args()
    devices.add("left=udp:*?same_host=0,right=udp:*?same_host=0")
    left, right = End("left"), End("right")
    left.join(right)
    right.join(left)
    timer_ns = floor(lambda: None)
    figures = []
    for links in (False, True):
        for end in (left, right):
            end.watch(links)
        rounds_of(left, right, WARM_UP)
        figures.append(rounds_of(left, right, args.rounds))
    print("| call | in all | sending | receiving | system calls |\n| --- | --- | --- | --- | --- |")
    for call in CALLS:
        whole = min(each[call][0] for each in figures[0]) - timer_ns
        parts = [each[call] for each in figures[1]]
        sending, receiving = (min(part[place] for part in parts) for place in (1, 3))
        calls = sorted(part[2] + part[4] for part in parts)[len(parts) // 2]
        spent = " | ".join(f"{part / 1e3:.2f} µs" for part in (whole, sending, receiving))
        print(f"| {call} | {spent} | {calls} |")
    print(f"\n{BODY}; a timer takes {timer_ns} ns, which is taken off the first column")
    for end in (left, right):
        end.context.close()


if __name__ == "__main__":
    main()
