"""What posting and polling by `QPEx` and `CQEX` cost beside `QP.post_send` and `CQ.poll`.

    python benchmarks/extended_calls.py [--rounds 15] [--posts 4000]

One process has a device and a queue pair of each kind, connected to themselves; a thread posts RDMA WRITEs of
8 bytes, alone or in chains, and polls until they are done.  In each round the kinds take turns.  Printed are
microseconds of the thread's processor time an operation, medians of the rounds, and the median of the ratios
within a round, with the least and the greatest: what it takes to post alone, and altogether, with the
adapter's work.  *Made anew*: the classic calls with a work request made for each message, as a batch has it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("SOFTHCA_DEVICES", "softhca0=udp:*,softhca1=udp:*")

from softhca.verbs import addr, cq, device, enums, mr, pd, qp, wr

RIGHTS = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
DEPTH = 128
BYTES = 4096
CHAINS = (1, 16)
KINDS = ("post_send, poll", "made anew", "QPEx, CQEX")
Round = Callable[[int], int]
"""Posts a chain of so many and waits for it; nanoseconds that posting took."""


class End:
    """A device with memory, and a queue pair that is connected to itself."""

    def __init__(self, name: str, extended: bool) -> None:
        self.context = device.Context(name=name)
        self.domain = pd.PD(self.context)
        self.region = mr.MR(self.domain, BYTES, RIGHTS)
        cap = qp.QPCap(max_send_wr=DEPTH, max_recv_wr=1)
        self.cq: Any
        self.qp: Any
        if extended:
            self.cq = cq.CQEX(
                self.context, cq.CqInitAttrEx(cqe=DEPTH, wc_flags=enums.IBV_WC_EX_WITH_BYTE_LEN)
            )
            mask = enums.IBV_QP_INIT_ATTR_PD | enums.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
            wanted = qp.QPInitAttrEx(
                enums.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=0, pd=self.domain,
                comp_mask=mask, send_ops_flags=enums.IBV_QP_EX_WITH_RDMA_WRITE,
            )  # fmt: skip
            self.qp = qp.QPEx(self.context, wanted)
        else:
            self.cq = cq.CQ(self.context, DEPTH)
            kind = qp.QPInitAttr(enums.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=0)
            self.qp = qp.QP(self.domain, kind)
        path = qp.QPAttr()
        path.dest_qp_num, path.qp_access_flags = self.qp.qp_num, RIGHTS
        path.path_mtu = enums.IBV_MTU_4096
        route = addr.GlobalRoute(addr.GID(str(self.context.query_gid(1, 0))))
        path.ah_attr = addr.AHAttr(is_global=1, gr=route)
        path.timeout, path.retry_cnt, path.rnr_retry = 18, 7, 7
        self.qp.to_rts(path)

    def requests(self, chain: int) -> wr.SendWR:
        """``chain`` WRITEs, of which the last is told."""
        element = wr.SGE(self.region.buf, 8, self.region.lkey)
        first = None
        for number in range(chain):
            flags = 0 if number else enums.IBV_SEND_SIGNALED
            first = wr.SendWR(1, enums.IBV_WR_RDMA_WRITE, 1, 0, [element], flags, first)
            first.set_wr_rdma(self.region.rkey, self.region.buf + 8)
        assert first is not None
        return first


def classic(end: End, anew: bool) -> Round:
    """By `QP.post_send` and `CQ.poll`, of requests made once or each time."""
    made = {chain: end.requests(chain) for chain in CHAINS}

    def post(chain: int) -> int:
        began = time.thread_time_ns()
        end.qp.post_send(end.requests(chain) if anew else made[chain])
        took = time.thread_time_ns() - began
        poll = end.cq.poll
        while True:
            found, completions = poll()
            if found:
                break
        if completions[0].status or completions[0].wr_id != 1:
            raise RuntimeError(str(completions[0]))
        return took

    return post


def extended(end: End) -> Round:
    """By `QPEx` and `CQEX`."""
    element = wr.SGE(end.region.buf, 8, end.region.lkey)
    rkey, place = end.region.rkey, end.region.buf + 8
    batch, queue = end.qp, end.cq

    def post(chain: int) -> int:
        began = time.thread_time_ns()
        batch.wr_start()
        batch.wr_id, batch.wr_flags = 1, 0
        for number in range(chain):
            if number == chain - 1:
                batch.wr_flags = enums.IBV_SEND_SIGNALED
            batch.wr_rdma_write(rkey, place)
            batch.wr_set_sge(element)
        batch.wr_complete()
        took = time.thread_time_ns() - began
        while queue.start_poll():
            pass
        status, wr_id = queue.status, queue.wr_id
        queue.end_poll()
        if status or wr_id != 1:
            raise RuntimeError(f"status {status}, wr_id {wr_id}")
        return took

    return post


def measured(post: Round, chain: int, posts: int) -> tuple[float, float]:
    """Microseconds an operation: to post it, and altogether."""
    posting = 0
    began = time.thread_time_ns()
    for _ in range(posts // chain):
        posting += post(chain)
    whole = time.thread_time_ns() - began
    operations = posts // chain * chain * 1000
    return posting / operations, whole / operations


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--posts", type=int, default=4000, help="operations in each measurement")
    arguments = parser.parse_args()
    plain, other = End("softhca0", False), End("softhca1", True)
    kinds = dict(zip(KINDS, (classic(plain, False), classic(plain, True), extended(other)), strict=True))
    for chain in CHAINS:
        for post in kinds.values():
            measured(post, chain, arguments.posts // 4)
        rounds = []
        for number in range(arguments.rounds):
            names = KINDS if number % 2 else KINDS[::-1]
            rounds.append({name: measured(kinds[name], chain, arguments.posts) for name in names})
        for place, what in enumerate(("to post", "altogether")):
            for name in KINDS:
                ratios = [each[name][place] / each[KINDS[0]][place] for each in rounds]
                print(
                    f"chains of {chain}, {what}, {name}: "
                    f"{statistics.median(each[name][place] for each in rounds):.2f} us, "
                    f"{statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
