"""Processor time that an operation takes, of variants beside each other, also on a busy machine.

    python benchmarks/processor_time.py [--rounds 5] [--only WORD] [NAME=[PATH][?OPTIONS] …]

A variant is softhca as it is imported, or of the folder PATH, with device OPTIONS: ``usual=?uniform=0``.  Of
each, one process has two devices on loopback addresses, and one thread that posts at one and polls both, so
that the thread's processor time is that of both ends and of the kernel between them.  Datagrams are those of
`softhca.sockets`, there and back between two sockets of one thread; streams too, of one device.  What else
runs on the machine costs it caches, but no time on a clock.  Variants take turns in each round; printed are
microseconds an operation, medians of the rounds, and, behind the first variant, ratios to it within the
rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

CASES = {
    "SEND 8 B, one at a time": ("send", 8, 1, 1000),
    "WRITE 8 B, one at a time": ("write", 8, 1, 1000),
    "READ 8 B, one at a time": ("read", 8, 1, 1000),
    "SEND 8 B": ("send", 8, 64, 60),
    "WRITE 8 B": ("write", 8, 64, 60),
    **{f"{verb.upper()} {size >> 10} KiB": (verb, size, max(2, 262_144 // size), max(6, 1_500_000 // size))
       for size in (8_192, 16_384, 32_768, 65_536, 131_072, 1 << 20) for verb in ("send", "write", "read")},
}
"""Verb, bytes, requests in a chain, chains in a measurement."""
DATAGRAMS = {"datagram 64 B": (64, 200), "datagram 60,000 B": (60_000, 50)}
"""Of `softhca.sockets`, there and back in turns: bytes, turns in a measurement."""
STREAMS = {"stream 64 B": (64, 400), "stream 64 KiB": (65_536, 100)}
"""As datagrams, of connected sockets, one device for both of which carries its packets to itself."""
OPCODES = {"send": "IBV_WR_SEND", "write": "IBV_WR_RDMA_WRITE", "read": "IBV_WR_RDMA_READ"}
PLACES = {"near": "127.0.0.42", "far": "127.0.0.43"}
BYTES = 1 << 20
MEASUREMENTS = 5
WARM = 20


class End:
    """A device with a queue pair and registered memory."""

    def __init__(self, name: str) -> None:
        from softhca.verbs import cq, device, enums, mr, pd, qp

        rights = (enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
                  | enums.IBV_ACCESS_REMOTE_READ | enums.IBV_ACCESS_REMOTE_ATOMIC)
        self.context = device.Context(name=name)
        self.domain = pd.PD(self.context)
        self.cq = cq.CQ(self.context, 1024)
        self.region = mr.MR(self.domain, BYTES, rights)
        kind = qp.QPInitAttr(enums.IBV_QPT_RC, scq=self.cq, rcq=self.cq, sq_sig_all=1,
                             cap=qp.QPCap(max_send_wr=256, max_recv_wr=512))
        self.qp = qp.QP(self.domain, kind)
        self.rights = rights

    def connect(self, peer: End) -> None:
        """Bring the queue pair to RTS, towards ``peer``'s."""
        from softhca.verbs import addr, enums, qp

        path = qp.QPAttr()
        path.dest_qp_num, path.qp_access_flags = peer.qp.qp_num, self.rights
        path.path_mtu = enums.IBV_MTU_4096
        route = addr.GlobalRoute(addr.GID(str(peer.context.query_gid(1, 0))))
        path.ah_attr = addr.AHAttr(is_global=1, gr=route)
        path.timeout, path.retry_cnt, path.rnr_retry = 18, 7, 7
        path.max_rd_atomic = path.max_dest_rd_atomic = 16
        self.qp.to_rts(path)


def operation_us(near: End, far: End, verb: str, size: int, chain: int, rounds: int) -> float:
    """Microseconds of processor time an operation.  RuntimeError when one fails."""
    from softhca.verbs import enums, wr

    opcode = getattr(enums, OPCODES[verb])
    first = None
    for _ in range(chain):
        element = wr.SGE(near.region.buf, size, near.region.lkey)
        first = wr.SendWR(opcode=opcode, num_sge=1, sg=[element], next_wr=first)
        first.set_wr_rdma(far.region.rkey, far.region.buf)
    receive = wr.RecvWR(num_sge=1, sg=[wr.SGE(far.region.buf, size, far.region.lkey)])
    messages = chain if verb == "send" else 0

    def once() -> None:
        for _ in range(messages):
            far.qp.post_recv(receive)
        near.qp.post_send(first)
        sent, received = 0, 0
        while sent < chain or received < messages:
            count, completions = near.cq.poll(64)
            if any(each.status for each in completions):
                raise RuntimeError(f"{verb} of {size} bytes ended with status {completions[0].status}")
            sent += count
            if not count or received < messages:
                received += far.cq.poll(64)[0]

    for _ in range(WARM):
        once()
    return median_us(once, rounds) / chain


def median_us(once: Callable[[], object], rounds: int) -> float:
    """Microseconds of the thread's processor time that ``once`` takes, the mean of so many rounds; the median
    of several measurements.
    """
    found = []
    for _ in range(MEASUREMENTS):
        begun = time.thread_time()
        for _ in range(rounds):
            once()
        found.append((time.thread_time() - begun) / rounds * 1e6)
    return statistics.median(found)


def datagram_us(size: int, turns: int) -> float:
    """Microseconds of processor time that one thread takes to send a datagram and to receive it.
    RuntimeError where they do not go by RDMA.
    """
    from softhca import sockets

    text, room = bytes(size), bytearray(size)
    with contextlib.ExitStack() as opened:
        ends = [opened.enter_context(sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)) for _ in "12"]
        for each in ends:
            each.settimeout(20)
            each.bind(("127.0.0.1", 0))
        names = [each.getsockname() for each in ends]

        def once() -> None:
            for one, other, name in zip(ends, ends[::-1], names[::-1], strict=True):
                one.sendto(text, name)
                other.recvfrom_into(room)

        for _ in range(WARM):
            once()
        if ends[0].datagrams is None or not ends[0].datagrams.reaches(names[1]):
            raise RuntimeError("datagrams go by the kernel")
        return median_us(once, turns) / 2


def stream_us(size: int, turns: int) -> float:
    """Microseconds of processor time that one thread takes to send a message and to receive it.
    RuntimeError where it does not go by RDMA.
    """
    from softhca import sockets

    text, room = bytearray(size), bytearray(size)
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(sockets.create_server(("127.0.0.1", 0)))
        client = opened.enter_context(sockets.create_connection(server.getsockname()))
        accepted = opened.enter_context(server.accept()[0])
        if client.stream is None:
            raise RuntimeError("streams go by the kernel")

        def once() -> None:
            for one, other in ((client, accepted), (accepted, client)):
                one.sendall(text)
                other.recv_into(room, size, sockets.MSG_WAITALL)

        for _ in range(WARM):
            once()
        return median_us(once, turns) / 2


def measure(only: str) -> dict[str, float]:
    """All cases whose name has ``only`` in it, in this process, whose devices are ``near`` and ``far``."""
    found = {name: datagram_us(*case) for name, case in DATAGRAMS.items() if only in name}
    found |= {name: stream_us(*case) for name, case in STREAMS.items() if only in name}
    near, far = End("near"), End("far")
    near.connect(far)
    far.connect(near)
    verbs = {name: operation_us(near, far, *case) for name, case in CASES.items() if only in name}
    return {**verbs, **found}


def measured(variant: str, only: str) -> dict[str, float]:
    """The same in a process of its own.  CalledProcessError when it fails."""
    path, _, options = variant.partition("?")
    more = f"&{options}" if options else ""
    devices = (f"{name}=udp:{place}?same_host=0{more}" for name, place in PLACES.items())
    environment = {**os.environ, "SOFTHCA_DEVICES": ",".join(devices)}
    if path:
        environment["PYTHONPATH"] = path
    done = subprocess.run([sys.executable, __file__, "--here", "--only", only], env=environment,
                          stdout=subprocess.PIPE, check=True, timeout=600)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def table(rounds: dict[str, list[dict[str, float]]]) -> list[str]:
    """The lines to be printed: ``rounds`` has what each round of each variant gave."""
    names = list(rounds)
    first = names[0]
    lines = ["| operation | " + " | ".join(
        f"{name}, µs" if name == first else f"{name}, µs | {name} / {first}" for name in names
    ) + " |"]  # fmt: skip
    lines.append("| --- |" + " --- |" * (2 * len(names) - 1))
    for case in rounds[first][0]:
        cells = []
        for name in names:
            cells.append(f"{statistics.median(each[case] for each in rounds[name]):.1f}")
            if name != first:
                pairs = zip(rounds[name], rounds[first], strict=True)
                ratios = [mine[case] / others[case] for mine, others in pairs]
                cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f})")
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return lines


def main(words: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("variants", nargs="*", default=["now="], metavar="NAME=[PATH][?OPTIONS]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.here:
        return print(json.dumps(measure(args.only)))
    rounds: dict[str, list[dict[str, float]]] = {each.partition("=")[0]: [] for each in args.variants}
    for _ in range(args.rounds):
        for each in args.variants:
            name, _, variant = each.partition("=")
            rounds[name].append(measured(variant, args.only))
    return print("\n".join(table(rounds)))


if __name__ == "__main__":
    main()
