"""What a flood of junk costs, by the number of sources that it comes from.

``python3 benchmarks/flood.py [--rate 25000] [--sources 5000] [--kind random] [--rounds 9]``: one process
writes 64 KiB RDMA WRITEs to another, and what stands there in the end is read; a third, without privilege,
sends junk to the target's RoCE port, in each round from one UDP port and from many in turn, and not at all.
Printed are the medians, and the median of each round's own ratios: rounds are paired, so that what else the
machine does is in both.

``random``: random bytes.  ``nobody``: packets for a queue pair that does not exist.  ``unknown``: for the
target's, from an address that is not its peer's.  ``peer``: for the target's, from its peer's own address,
which any user of this host may bind; their ICRC is wrong.
"""

import argparse
import json
import random
import resource
import socket
import statistics
import subprocess
import sys
import time

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

WRITER, TARGET, STRANGER = "127.0.77.2", "127.0.77.3", "127.0.77.4"
ROCE_PORT = 4791
RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
SIZE, DEPTH, JUNK_BYTES, TICK_S = 1 << 16, 16, 64, 0.002
SPARE_DESCRIPTORS = 64


class End:
    """A device at ``address`` with a region and one RC queue pair."""

    def __init__(self, address):
        devices.add(f"end=udp:{address}?same_host=0")
        self.context = Context(name="end")
        pd = PD(self.context)
        self.cq = CQ(self.context, 2 * DEPTH)
        self.mr = MR(pd, SIZE, RIGHTS)
        init = QPInitAttr(e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(DEPTH, 1, 1, 1), sq_sig_all=1)
        self.qp = QP(pd, init)
        self.card = {
            "gid": str(self.context.query_gid(1, 0)), "qp": self.qp.qp_num, "rkey": self.mr.rkey,
            "address": self.mr.buf,
        }  # fmt: skip

    def join(self, card):
        """Connect with who has sent this card."""
        path = QPAttr(path_mtu=5)
        path.dest_qp_num, path.qp_access_flags = card["qp"], RIGHTS
        path.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(GID(card["gid"])))
        path.timeout, path.retry_cnt, path.rnr_retry = 18, 7, 7
        self.qp.to_rts(path)


def tell(what):
    print(json.dumps(what), flush=True)


def be_target():
    """Lie there and be written to, until standard input ends; then tell what was received and dropped."""
    end = End(TARGET)
    tell(end.card)
    end.join(json.loads(sys.stdin.readline()))
    tell("ready")
    sys.stdin.readline()
    content = end.mr.read(SIZE, 0)
    tell({"pattern": content == content[:1] * SIZE})
    end.context.close()


def be_flooder(count, rate, source, junk):
    """Send ``rate`` datagrams a second from ``count`` ports in turn, from ``go`` to ``stop``; tell how many a
    second it became."""
    senders = []
    for _ in range(count):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.bind((source, 0))
        sender.setblocking(False)
        senders.append(sender)
    tell("ready")
    position = 0
    for line in sys.stdin:
        begin = time.perf_counter()
        seconds, sent = float(line), 0
        while (now := time.perf_counter() - begin) < seconds:
            due = int(now * rate) - sent
            for _ in range(due):
                try:
                    senders[position].sendto(junk, (TARGET, ROCE_PORT))
                except BlockingIOError:
                    break
                position = (position + 1) % count
                sent += 1
            time.sleep(TICK_S)
        tell(sent / seconds)


class Child:
    """This script in another part; its answers are lines of JSON."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--part", *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a part of the benchmark has ended")
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def junk_of(kind, queue_pair):
    """The datagram that is sent, and the address it comes from."""
    data = bytearray(random.Random(1).randbytes(JUNK_BYTES))
    if kind != "random":
        data[:5] = bytes([0x0A, 0x40, 0xFF, 0xFF, 0])  # an RDMA WRITE ONLY, partition 0xFFFF
        number = queue_pair ^ 0x00FF00 if kind == "nobody" else queue_pair
        data[5:8] = number.to_bytes(3, "big")
    return bytes(data), WRITER if kind == "peer" else STRANGER


def throughput(end, target, seconds):
    """Megabytes written in so long; RuntimeError when the connection is lost."""
    element = SGE(end.mr.buf, SIZE, end.mr.lkey)
    request = SendWR(0, e.IBV_WR_RDMA_WRITE, 1, 0, [element], 0)
    request.set_wr_rdma(target["rkey"], target["address"])
    posted = done = 0
    begin = time.perf_counter()
    while (now := time.perf_counter() - begin) < seconds or done < posted:
        while posted - done < DEPTH and now < seconds:
            end.qp.post_send(request)
            posted += 1
        count, completions = end.cq.poll(DEPTH)
        for completion in completions[:count]:
            if completion.status:
                raise RuntimeError(f"the connection is lost: status {completion.status}")
        done += count
    return done * SIZE / 1e6 / (time.perf_counter() - begin)


def measure(args):
    end, target = End(WRITER), Child("target")
    card = target.hear()
    target.ask(end.card)
    target.hear()
    end.join(card)
    junk, source = junk_of(args.kind, card["qp"])
    floods = {count: Child("flooder", count, args.rate, source, junk.hex()) for count in (1, args.sources)}
    for flood in floods.values():
        flood.hear()
    end.mr.write(b"\x5a" * SIZE, SIZE, 0)
    throughput(end, card, args.seconds)
    rounds, rates = [], []
    for number in range(args.rounds):
        round_of = {}
        # in another order each time, so that what drifts does not stand always at the same place
        for count in sorted((0, *floods), key=lambda count: random.Random(f"{number}/{count}").random()):
            if count:
                floods[count].ask(args.seconds + 0.2)
                time.sleep(0.1)
            round_of[count] = throughput(end, card, args.seconds)
            if count:
                rates.append(floods[count].hear())
        rounds.append(round_of)
    target.ask("end")
    whole = target.hear()["pattern"]
    for child in (target, *floods.values()):
        child.end()
    end.context.close()
    return rounds, rates, whole


def main():
    if sys.argv[1:2] == ["--part"]:
        if sys.argv[2] == "target":
            be_target()
        else:
            be_flooder(int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], bytes.fromhex(sys.argv[6]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rate", type=int, default=25_000, help="datagrams a second")
    parser.add_argument("--sources", type=int, default=5000, help="UDP ports of the flood from many")
    parser.add_argument("--kind", choices=("random", "nobody", "unknown", "peer"), default="random")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="each measurement")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < args.sources + SPARE_DESCRIPTORS:
        parser.error(f"{args.sources} sources take as many descriptors; this process may have {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rounds, rates, whole = measure(args)
    print(f"| flood ({args.kind}) | MB/s |\n| --- | --- |")
    for count in (0, 1, args.sources):
        name = f"from {count:,} ports" if count else "none"
        print(f"| {name} | {statistics.median(each[count] for each in rounds):,.0f} |")
    ratio = statistics.median(each[args.sources] / each[1] for each in rounds)
    print(f"\nfrom {args.sources:,} ports beside 1: {ratio:.1%} of the throughput, median of {args.rounds}")
    print(f"{statistics.median(rates):,.0f} datagrams a second; {BODY}")
    print(f"bytes at the target: {'right' if whole else 'WRONG'}")


if __name__ == "__main__":
    main()
