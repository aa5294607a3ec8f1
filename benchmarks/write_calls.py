"""Count the calls of Python functions from ``post_send`` of one RDMA WRITE to the system call that sends it.

Run it with interpreted modules (``SOFTHCA_EXT=skip``, or ``PYTHONPATH=src`` where nothing was built).  Calls
that read or write one integer are not counted; ``--list`` prints each function that is.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from types import FrameType
from typing import Any

os.environ["SOFTHCA_DEVICES"] = "one=udp:*?same_host=0,other=udp:*?same_host=0"

import softhca
from softhca.verbs import enums as e
from softhca.verbs.addr import AHAttr, GlobalRoute
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, SendWR

ROOT = os.path.dirname(str(softhca.__file__)) + os.sep
LAYERS = (
    "machine", "wire", "links", "memory", "queues", "management", "transport", "fabric", "adapter", "driver",
    "runtime", "verbs",
)  # fmt: skip
WORDS = {"store64", "load64", "put16", "put24", "put32", "put64", "_at", "_whole", "_pair"}
RIGHTS = 15
LENGTH_BYTES = 4096


class End:
    """One adapter's objects."""

    def __init__(self, name: str) -> None:
        self.context = Context(name=name)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, 1 << 16, RIGHTS)
        cap = QPCap(16, 16, 2, 2, 64)
        self.qp = QP(self.pd, QPInitAttr(e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))

    def connect(self, peer: End) -> None:
        """To RTS, towards ``peer``."""
        attr = QPAttr(port_num=1)
        attr.qp_access_flags, attr.path_mtu, attr.dest_qp_num = RIGHTS, e.IBV_MTU_4096, peer.qp.qp_num
        attr.rq_psn = attr.sq_psn = 100
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 18, 7, 7
        route = GlobalRoute(dgid=peer.context.query_gid(1, 0), sgid_index=0)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)


class Calls:
    """A profiler: (function, its package, its caller's package) until a socket sends."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, str]] = []
        self.sent = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or self.sent or not frame.f_code.co_filename.startswith(ROOT):
            return
        if frame.f_code.co_name.startswith("send") and _package(frame) == "machine":
            self.sent = True
        if frame.f_code.co_name not in WORDS:
            name = f"{frame.f_code.co_filename[len(ROOT):]}:{frame.f_code.co_name}"
            caller = "" if frame.f_back is None else _package(frame.f_back)
            self.found.append((name, _package(frame), caller))


def _package(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    return name[len(ROOT) :].partition(os.sep)[0] if name.startswith(ROOT) else ""


def write(one: End, other: End, calls: Calls | None = None) -> None:
    """One RDMA WRITE and its completion."""
    request = SendWR(
        opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(one.mr.buf, LENGTH_BYTES, one.mr.lkey)]
    )
    request.set_wr_rdma(other.mr.rkey, other.mr.buf)
    sys.setprofile(calls)
    try:
        one.qp.post_send(request)
    finally:
        sys.setprofile(None)
    while not one.cq.poll(1)[0]:
        other.cq.poll(1)


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="each function with its number of calls")
    options = parser.parse_args()
    one, other = End("one"), End("other")
    one.connect(other)
    other.connect(one)
    for _ in range(5):
        write(one, other)
    calls = Calls()
    write(one, other, calls)
    if not calls.sent:
        raise SystemExit("no call of a socket was seen: compiled modules hide theirs")
    packages = Counter(package for _, package, _ in calls.found)
    print(f"{len(calls.found)} calls:", ", ".join(f"{name} {n}" for name, n in packages.most_common()))
    across = [(caller, package) for _, package, caller in calls.found if caller and caller != package]
    upward = [pair for pair in across if LAYERS.index(pair[1]) > LAYERS.index(pair[0])]
    steps = ", ".join(" → ".join(pair) for pair in upward)
    print(f"{len(across)} lead into another package, upwards: {steps}")
    if options.list:
        for name, n in Counter(name for name, _, _ in calls.found).items():
            print(f"{n:3} {name}")


if __name__ == "__main__":
    main()
