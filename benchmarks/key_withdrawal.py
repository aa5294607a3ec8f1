"""What withdrawing a window's key costs, against the number of queue pairs and of operations that use it.

``python3 benchmarks/key_withdrawal.py [--queue-pairs N]`` prints a markdown table, with the best case of the
walk of the remote-key manager's model beside it: no row is of the domain.
"""

import argparse
import platform
import statistics
import time

from bench.tables import markdown

from softhca.adapter.config import AdapterConfig
from softhca.adapter.engine import Adapter
from softhca.adapter.remote_keys import RemoteKeyModel
from softhca.driver import services
from softhca.driver.channels import EmbeddedChannel
from softhca.driver.device import DeviceDriver
from softhca.machine.primitives import BODY, address_of
from softhca.memory.host import HostMemory
from softhca.memory.regions import LOCAL_WRITE, MW_BIND, REMOTE_WRITE
from softhca.wire import build, opcodes
from softhca.wire.burst import Arrival
from softhca.wire.framing import ROCE_V4
from softhca.wire.icrc import compute
from softhca.wire.route import Route

OWN, PEER = (bytes(10) + b"\xff\xff\xc0\x00\x02" + bytes([last]) for last in (1, 2))
RC, MTU_BYTES, REPEATS = 2, 1024, 50


class Bench:
    """An adapter without a link, and one device open on it."""

    def __init__(self, memory_bytes=4 << 30):
        self.adapter = Adapter(AdapterConfig((OWN,), max_qp=1 << 17), 1)
        number = -1
        channel = EmbeddedChannel(
            HostMemory(memory_bytes), lambda: self.adapter.kick(1), lambda: False,
            lambda ready, timeout_s: ready(), lambda: self.adapter.detach_host(number),
        )  # fmt: skip
        number = self.adapter.attach_host(channel)
        self.device = DeviceDriver("bench", channel)
        self.pd = self.device.alloc_pd()
        self.cq = self.device.create_cq(64)
        self.srq = self.device.create_srq(self.pd, 64, 1)
        self.buffer = self.device.alloc_host_memory(1 << 16)
        self.region = self.device.reg_mr(
            self.pd, self.buffer.address, self.buffer.length, LOCAL_WRITE | MW_BIND
        )  # fmt: skip
        self.queue_pairs = []
        self.arrival = Arrival()

    def add_queue_pairs(self, count):
        """Until there are so many, each connected and ready to receive."""
        how = services.Reliability(max_rd_atomic=1, max_dest_rd_atomic=1)
        while len(self.queue_pairs) < count:
            qp = self.device.create_qp(self.pd, RC, self.cq, self.cq, self.srq, 1, 0, 1, 0, 0, True)
            services.connect(qp, services.Path(PEER), 7, 0, 0, REMOTE_WRITE, how)
            self.queue_pairs.append(self.adapter.queue_pairs[qp.number])

    def begin_write(self, queue_pair, key):
        """The first packet of an RDMA WRITE arrives."""
        route = Route(ROCE_V4, PEER, OWN)
        out = bytearray(2048)
        o = build.put_bth(
            out, 0, opcodes.RC_RDMA_WRITE_FIRST, False, 0, 0xFFFF, queue_pair.number, False,
            queue_pair.responder.epsn,
        )  # fmt: skip
        o = build.put_reth(out, o, self.buffer.address, key, 4 * MTU_BYTES) + MTU_BYTES
        build.put_icrc(out, o, compute(route, address_of(out), o))
        arrival = self.arrival
        arrival.buffer[: o + 4] = out[: o + 4]
        arrival.length = arrival.stride = o + 4
        arrival.framing, arrival.source, arrival.destination = ROCE_V4, PEER, OWN
        arrival.source_port, arrival.traffic_class = route.source_port, route.traffic_class
        self.adapter.receive(1, arrival, 1)

    def withdraw(self, users):
        """Median microseconds of unbinding a window of type 1 that so many queue pairs write through."""
        times, windows = [], self.adapter.memory_windows
        number, _ = self.device.alloc_mw(self.pd, 1)
        window = windows.members[number]
        for turn in range(REPEATS if users < 1000 else 5):
            place = self.region.lkey, self.buffer.address, 8192, REMOTE_WRITE
            if windows.bind(number, 2, self.pd, turn * 2 & 0xFF, *place):
                raise RuntimeError("the window was not bound")
            for queue_pair in self.queue_pairs[:users]:
                self.begin_write(queue_pair, window.key)
            if len(window.users) != users:
                raise RuntimeError(f"{len(window.users)} of {users} operations use the key")
            start = time.perf_counter_ns()
            code = windows.bind(number, 2, self.pd, turn * 2 + 1 & 0xFF, 0, 0, 0, 0)
            times.append(time.perf_counter_ns() - start)
            if code or window.valid or window.users:
                raise RuntimeError("the window was not unbound")
            for queue_pair in self.queue_pairs[:users]:
                queue_pair.responder.reset()
        self.device.dealloc_mw(number)
        return statistics.median(times) / 1000


def walk_us(vis):
    """What the model's walk takes when no domain is the right one: its best case."""
    model = RemoteKeyModel(vis)
    model.start(1, 1)
    start = time.perf_counter_ns()
    model.walk()
    return (time.perf_counter_ns() - start) / 1000


def withdrawals(bench, most):
    rows = []
    for count in (10, 100, 1000, 10_000):
        if count > most:
            break
        bench.add_queue_pairs(count)
        costs = [f"{bench.withdraw(users):.1f}" if users <= count else "" for users in (0, 1, 10, 100, 1000)]
        rows.append([f"{count:,}", *costs, f"{walk_us(count):,.0f}"])
    columns = [f"{n} users, µs" for n in (0, 1, 10, 100, 1000)]
    return markdown(["queue pairs", *columns, "model's walk, µs"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue-pairs", type=int, default=10_000, help="at most (default %(default)s)")
    args = parser.parse_args()
    bench = Bench()
    print(withdrawals(bench, args.queue_pairs))
    print(f"\nPython {platform.python_version()}, {platform.machine()}, {BODY}")


if __name__ == "__main__":
    main()
