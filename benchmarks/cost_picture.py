"""Where each microsecond of a message goes: two devices of this process, driven by one thread, by stages.

``python3 benchmarks/cost_picture.py [--svg FILE] [--rounds N]`` prints a table and draws it.  A stage's
figure is the least of many rounds: what it costs when nothing else is in the way.  The two ends of a
connection work at the same time in two processes, so that the longer one decides.
"""

import argparse
import sys
from time import perf_counter_ns
from types import SimpleNamespace

from bench.timed_link import TimedLink

from softhca.machine.primitives import BODY, address_of, copy, crc32
from softhca.runtime import devices
from softhca.verbs import enums as e
from softhca.verbs.addr import GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, SendWR

DEPTH = 256
RIGHTS = 7
MIB = 1 << 20
CASES = (("8-byte RDMA WRITE, 64 in a chain", 8, 64), ("1 MiB RDMA WRITE", MIB, 1))
STAGES = (
    ("encode", "sender", "post: encode the work requests"),
    ("build", "sender", "take them, build packets, copy, CRC"),
    ("send", "sender", "send: system calls"),
    ("acknowledged", "sender", "take acknowledgements, complete, poll"),
    ("receive", "receiver", "receive: system calls"),
    ("place", "receiver", "check CRC, headers and key, copy into place"),
    ("answer", "receiver", "acknowledge: system calls"),
)
COLOURS = ("#4477aa", "#66ccee", "#ee6677", "#ccbb44", "#aa3377", "#228833", "#bbbbbb")


class End:
    """A device with memory, queues and one RC queue pair; the time that its link takes in ``sending_ns`` and
    ``receiving_ns``.
    """

    def __init__(self, name):
        self.context = Context(name=name)
        pd = PD(self.context)
        self.cq = CQ(self.context, 2 * DEPTH)
        self.mr = MR(pd, MIB, RIGHTS)
        caps = QPCap(max_send_wr=DEPTH, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=caps, sq_sig_all=0))
        self.sending_ns = self.receiving_ns = 0
        loop = devices.find(name).engine.loop
        loop.ports[0].link = TimedLink(loop.ports[0].link, self._took)

    def _took(self, kind, ns):
        if kind == "send":
            self.sending_ns += ns
        else:
            self.receiving_ns += ns

    def spent(self):
        """Time in the link since the last call: sending, receiving."""
        both = self.sending_ns, self.receiving_ns
        self.sending_ns = self.receiving_ns = 0
        return both


def join(end, peer):
    """Connect the queue pair of ``end`` to that of ``peer``."""
    path = QPAttr(path_mtu=5)
    path.dest_qp_num, path.qp_access_flags = peer.qp.qp_num, RIGHTS
    path.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(GID(str(peer.context.query_gid(1, 0)))))
    path.timeout, path.retry_cnt, path.rnr_retry = 18, 7, 7
    end.qp.to_rts(path)


def chain_of(left, right, size, count):
    chain = None
    for position in range(count, 0, -1):
        flags = e.IBV_SEND_SIGNALED if position == count else 0
        chain = SendWR(0, e.IBV_WR_RDMA_WRITE, 1, 0, [SGE(left.mr.buf, size, left.mr.lkey)], flags, chain)
        chain.set_wr_rdma(right.mr.rkey, right.mr.buf)
    return chain


def once(left, right, chain):
    """Carry one chain; nanoseconds by stage."""
    spent = SimpleNamespace(**{name: 0 for name, _, _ in STAGES})
    poster, ring = left.qp.handle._send, left.qp.handle.ring
    left.spent(), right.spent()
    begin = perf_counter_ns()
    poster.write(chain)
    posted = perf_counter_ns()
    ring()
    built = perf_counter_ns()
    sending, _ = left.spent()
    spent.encode, spent.send, spent.build = posted - begin, sending, built - posted - sending
    done = 0
    while not done:
        begin = perf_counter_ns()
        right.context.progress()
        took = perf_counter_ns() - begin
        sending, receiving = right.spent()
        spent.answer += sending
        spent.receive += receiving
        spent.place += took - sending - receiving
        begin = perf_counter_ns()
        done, _ = left.cq.poll(1)
        took = perf_counter_ns() - begin
        sending, receiving = left.spent()
        if sending:  # what the window had kept back
            spent.send += sending
            spent.build += took - sending - receiving
            spent.acknowledged += receiving
        else:
            spent.acknowledged += took
    return spent


def measure(left, right, size, count, rounds):
    """The least of each stage, in nanoseconds a message."""
    chain = chain_of(left, right, size, count)
    left.qp.post_send(chain)  # the first post makes the poster, which `once` calls by itself
    while not left.cq.poll(1)[0]:
        right.context.progress()
    for _ in range(20):
        once(left, right, chain)
    found = [once(left, right, chain) for _ in range(rounds)]
    return {name: min(getattr(each, name) for each in found) / count for name, _, _ in STAGES}


def floor(call, rounds=2000):
    """The least time of a call, in nanoseconds."""
    best = 1 << 60
    for _ in range(rounds):
        begin = perf_counter_ns()
        call()
        best = min(best, perf_counter_ns() - begin)
    return best


def drawn(cases):
    """The picture: for each case a bar for each end."""
    width, bar, left = 760, 26, 120
    rows, y = [], 40
    for title, figures in cases:
        rows.append(f'<text x="10" y="{y}" font-weight="bold">{title}</text>')
        y += 14
        ends = {side: [each for each in STAGES if each[1] == side] for side in ("sender", "receiver")}
        most = max(sum(figures[name] for name, _, _ in stages) for stages in ends.values())
        for side, stages in ends.items():
            x, total = left, sum(figures[name] for name, _, _ in stages)
            rows.append(f'<text x="10" y="{y + 18}">{side} {total / 1e3:.3g} µs</text>')
            for name, _, _ in stages:
                length = figures[name] / most * (width - left - 10)
                colour = COLOURS[[each[0] for each in STAGES].index(name)]
                place = f'x="{x:.1f}" y="{y}" width="{length:.1f}" height="{bar}"'
                rows.append(f'<rect {place} fill="{colour}"/>')
                if length > 34:
                    rows.append(f'<text x="{x + 3:.1f}" y="{y + 17}">{figures[name] / 1e3:.2f}</text>')
                x += length
            y += bar + 6
        y += 24
    for index, (_, side, text) in enumerate(STAGES):
        rows.append(f'<rect x="10" y="{y - 10}" width="12" height="12" fill="{COLOURS[index]}"/>')
        rows.append(f'<text x="28" y="{y}">{side}: {text}</text>')
        y += 18
    size = f'width="{width}" height="{y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    paper = f'<rect {size} fill="white"/>'
    return "\n".join([head, paper, '<text x="10" y="18">Microseconds a message</text>', *rows, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", metavar="FILE", help="draw the table there")
    parser.add_argument("--rounds", type=int, default=300, metavar="N", help="rounds a case")
    args = parser.parse_args()
    devices.add("left=udp:*?same_host=0,right=udp:*?same_host=0")
    left, right = End("left"), End("right")
    join(left, right)
    join(right, left)
    cases = [(title, measure(left, right, size, count, args.rounds)) for title, size, count in CASES]
    print("| stage | " + " | ".join(title for title, _ in cases) + " |\n| --- | --- | --- |")
    for name, side, text in STAGES:
        spent = " | ".join(f"{figures[name] / 1e3:.2f} µs" for _, figures in cases)
        print(f"| {side}: {text} | {spent} |")
    page, other = bytearray(4096), bytearray(4096)
    source, target = address_of(page), address_of(other)
    call = floor(lambda: crc32(0, source, 0))
    print(f"\n{BODY}; of 4 KiB: CRC-32 {floor(lambda: crc32(0, source, 4096)) - call} ns, "
          f"copy {floor(lambda: copy(target, source, 4096)) - call} ns")
    if args.svg:
        with open(args.svg, "w", encoding="utf-8") as file:
            file.write(drawn(cases))
        print(f"drawn: {args.svg}", file=sys.stderr)
    for end in (left, right):
        end.context.close()


if __name__ == "__main__":
    main()
