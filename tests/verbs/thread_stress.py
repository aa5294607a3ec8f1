"""Many threads, all verbs, objects that any of them may close at any moment.

A run is a seed: every thread draws its own calls from it, so many of them, and the switch interval changes
all the time.  What the system makes of it differs from run to run; what must hold does not:

* no call raises anything but the API's errors, with an errno that it may have;
* every word of a region is the region's own stamp, or 0, whoever reads it whenever;
* no page is given to two rings or regions;
* in the end nothing is left: no resource of the adapters, no descriptor, no mapping, and no thread hangs.

Each seed runs in a process of its own, so that a crash is one seed's.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import os
import random
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from stress_domains import Domains, connection
from stress_frame import Frame, Pages

from softhca.verbs import enums as e

HANG_S = 900
SETTLED_S = 10
LENGTHS = (64, 4096, 8192, 40_000)
ACCESS = 0xF  # local write, remote write, read, atomic
ROOMS = ("verbs", "connections", "channels", "sockets")
DEFAULT_INTERVAL_S = 0.005


class Region:
    """A region and its stamp: every word of it is the stamp, or 0 as long as it has not been filled."""

    stamps = iter(range(1, 1 << 62))

    def __init__(self, mr: Any, length: int) -> None:
        self.mr = mr
        self.length = length // 8 * 8
        self.word = (next(self.stamps) * 0x9E3779B97F4A7C15 & (1 << 64) - 1 | 1).to_bytes(8, "little")
        mr.write(self.word * (self.length // 8), self.length)

    def check(self) -> str:
        """What a read of all of it shows that cannot be; empty when all is well."""
        found = self.mr.read(self.length, 0)
        foreign = {found[at : at + 8] for at in range(0, self.length, 8)} - {self.word, bytes(8)}
        return f"foreign bytes in a region: {foreign}" if foreign else ""

    def close(self) -> None:
        self.mr.close()


class Pair:
    """Two connected queue pairs; what is written by them is the stamp of the region that it goes to."""

    def __init__(self, one: Any, other: Any) -> None:
        self.ends = (one, other)

    def close(self) -> None:
        for qp in self.ends:
            qp.close()


class Verbs(Domains):
    """All verbs."""

    KINDS = (
        "context", "pd", "cq", "cqex", "channel", "region", "pair", "srq", "ah", "mw", *Domains.KINDS,
    )  # fmt: skip
    FEW: ClassVar[dict[str, int]] = {"context": 6, "xrcd": 6, "agent": 6}
    SPARED: ClassVar[dict[str, float]] = {"context": 0.9, "pd": 0.7}
    OFTEN = ("do_post", "do_poll", "do_read", "do_write")

    def do_open(self, rng: random.Random) -> None:
        from softhca.verbs.device import Context

        if len(self.pools["context"]) < 3 or rng.random() < 0.05:
            self.put("context", Context(name=rng.choice(self.names)))

    def do_pd(self, rng: random.Random) -> None:
        from softhca.verbs.pd import PD

        if (context := self.any("context", rng)) is not None:
            self.put("pd", PD(context))

    def do_cq(self, rng: random.Random) -> None:
        from softhca.verbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx

        context = self.any("context", rng)
        if context is None:
            return
        channel = self.any("channel", rng) if rng.random() < 0.5 else None
        if rng.random() < 0.2:
            self.put("channel", CompChannel(context))
        elif rng.random() < 0.3:
            self.put("cqex", CQEX(context, CqInitAttrEx(cqe=rng.randrange(1, 400))))
        else:
            if channel is not None and channel.context is not context:
                channel = None
            self.put("cq", CQ(context, rng.randrange(1, 800), channel=channel))

    def do_region(self, rng: random.Random) -> None:
        from softhca.verbs.mr import MR

        if (pd := self.any("pd", rng)) is None:
            return
        length = rng.choice(LENGTHS)
        if rng.random() < 0.3:
            self.put("region", Region(MR(pd, access=ACCESS, buffer=bytearray(length)), length))
        else:
            self.put("region", Region(MR(pd, length, ACCESS if rng.random() < 0.5 else 1), length))

    def do_pair(self, rng: random.Random) -> None:
        from softhca.verbs.qp import QP, QPCap, QPInitAttr

        pd, cq, srq = self.any("pd", rng), self.any("cq", rng), self.any("srq", rng)
        if pd is None or cq is None or cq.context is not pd.ctx:
            return
        if srq is not None and (srq.pd.ctx is not pd.ctx or rng.random() < 0.5):
            srq = None
        cap = QPCap(max_send_wr=rng.randrange(1, 60), max_recv_wr=rng.randrange(1, 60), max_inline_data=64)
        ends = [QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq, cap=cap)) for _ in range(2)]
        for qp, peer in zip(ends, reversed(ends), strict=True):
            qp.to_rts(connection(pd.ctx, peer.qp_num))
        self.put("pair", Pair(*ends))

    def do_srq(self, rng: random.Random) -> None:
        from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr

        if (pd := self.any("pd", rng)) is not None:
            self.put("srq", SRQ(pd, SrqInitAttr(SrqAttr(max_wr=rng.randrange(1, 50), max_sge=1))))

    def do_ah(self, rng: random.Random) -> None:
        from softhca.verbs.addr import AH, AHAttr, GlobalRoute

        if (pd := self.any("pd", rng)) is not None:
            gid = pd.ctx.query_gid(1, 0)
            route = GlobalRoute(dgid=gid, sgid_index=0)
            self.put("ah", AH(pd, attr=AHAttr(is_global=1, port_num=1, gr=route)))

    def do_mw(self, rng: random.Random) -> None:
        from softhca.verbs.mr import MW

        if (pd := self.any("pd", rng)) is not None:
            self.put("mw", MW(pd, e.IBV_MW_TYPE_2))

    def do_post(self, rng: random.Random) -> None:
        from softhca.verbs.wr import SGE, RecvWR, SendWR

        pair, region = self.with_region("pair", rng)
        if pair is None or region is None:
            return
        qp = rng.choice(pair.ends)
        if rng.random() < 0.2:
            element = SGE(region.mr.buf, 0, region.mr.lkey)
            qp.post_recv(RecvWR(rng.randrange(1 << 60), 1, [element]))
            return
        count = rng.randrange(1, 8)
        if rng.random() < 0.5:  # the region's own stamp, as inline data
            words = ctypes.create_string_buffer(region.word * count, 8 * count)
            element = SGE(ctypes.addressof(words), 8 * count, 0)
            flags = e.IBV_SEND_SIGNALED | e.IBV_SEND_INLINE
            opcode = e.IBV_WR_RDMA_WRITE
        else:  # from the region to itself
            element = SGE(region.mr.buf, 8 * count, region.mr.lkey)
            flags = e.IBV_SEND_SIGNALED
            opcode = rng.choice((e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ))
        wr = SendWR(rng.randrange(1 << 60), opcode, 1, sg=[element], send_flags=flags)
        place = rng.randrange(region.length // 8 - count + 1) * 8
        wr.set_wr_rdma(region.mr.rkey, region.mr.buf + place)
        qp.post_send(wr)

    def do_poll(self, rng: random.Random) -> None:
        if rng.random() < 0.3 and (cq := self.any("cqex", rng)) is not None:
            if cq.start_poll() == 0:
                while cq.poll_next() == 0:
                    self.completions += 1
                cq.end_poll()
        elif (cq := self.any("cq", rng)) is not None:
            self.completions += cq.poll(rng.randrange(1, 40))[0]

    def do_event(self, rng: random.Random) -> None:
        if rng.random() < 0.3 and (context := self.any("context", rng)) is not None:
            context.get_async_event(rng.choice((0, 0.001, 0.02)))
        elif (cq := self.any("cq", rng)) is not None and (channel := cq.comp_channel) is not None:
            cq.req_notify(rng.random() < 0.5)
            channel.get_cq_event(cq, rng.choice((0, 0.001, 0.02)))
            cq.ack_events(1)

    def do_read(self, rng: random.Random) -> None:
        if (region := self.any("region", rng)) is not None and (wrong := region.check()):
            self.violations.append(wrong)

    def do_write(self, rng: random.Random) -> None:
        if (region := self.any("region", rng)) is not None:
            region.mr.write(region.word * (region.length // 8), region.length)

    def do_resize(self, rng: random.Random) -> None:
        if (cq := self.any("cq", rng)) is not None:
            cq.resize(rng.randrange(1, 2000))

    def do_query(self, rng: random.Random) -> None:
        if (pair := self.any("pair", rng)) is not None:
            pair.ends[0].query(0)
        if (context := self.any("context", rng)) is not None:
            context.query_device()
            context.query_counters(1)
        if (srq := self.any("srq", rng)) is not None:
            srq.query()

    def do_rereg(self, rng: random.Random) -> None:
        if (region := self.any("region", rng)) is not None:
            region.mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=ACCESS)


def mapped() -> int:
    """Mappings of host memory in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:softhca")


def room_of(name: str) -> type[Frame]:
    """The class of a room."""
    if name == "verbs":
        return Verbs
    if name == "connections":
        from stress_connections import Connections

        return Connections
    if name == "channels":
        from stress_channels import Channels

        return Channels
    from stress_sockets import Sockets

    return Sockets


def switches() -> int:
    """How often threads of this process have given the processor to others so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


def one(seed: int, options: argparse.Namespace, mode: str, room: str) -> list[str]:
    """One seed in this process; what was violated."""
    from softhca.driver import registry
    from softhca.runtime import devices

    faulthandler.dump_traceback_later(options.hang, exit=True)
    base = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}"
    names = ["left", "right"]
    same_host = seed % 2 if mode == "embedded" else 0
    for name in registry.names():
        devices.remove(name)
    words = (f"{name}=udp:{base}.{number + 2}?same_host={same_host}" for number, name in enumerate(names))
    devices.add(",".join(words), mode)
    violations: list[str] = []
    Pages(violations)
    descriptors = len(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    observers = [registry.open_device(name) for name in names]
    stress = room_of(room)(names, seed, options.steps)
    stress.base = base
    stress.interval_s = options.interval
    stress.violations = violations
    began, before = time.process_time(), switches()
    stress.run(options.threads)
    seconds, count = time.process_time() - began, switches() - before
    sys.setswitchinterval(DEFAULT_INTERVAL_S)
    stress.pools.clear()
    look_for_leaks(stress, observers, descriptors, threads)
    print(f"{room} seed {seed} {mode}: {stress.calls} calls, {stress.refusals} refused, "
          f"{stress.completions} completions, {count} switches in {seconds:.1f} s of CPU time, "
          f"{len(violations)} violations", flush=True)  # fmt: skip
    for each in violations[:5]:
        print(f"  {each}", flush=True)
    return violations


def look_for_leaks(stress: Frame, observers: list[Any], descriptors: int, threads: int) -> None:
    """Whether anything is left at the adapters or in this process."""
    from softhca.runtime import devices
    from softhca.verbs.base import close_deferred

    gc.collect()
    close_deferred()
    stress.let_go()
    for name in stress.names:
        left = {kind: count for kind, count in devices.find(name).resources().items() if count}
        if left:
            stress.violations.append(f"left at {name}: {left}")
    while observers:
        observers.pop().close()
    for name in stress.names:
        devices.remove(name)
    gc.collect()
    end_s = time.monotonic() + SETTLED_S
    while mapped() and time.monotonic() < end_s:  # a thread of the library may be about to end
        time.sleep(0.01)
        gc.collect()
    if len(os.listdir("/proc/self/fd")) > descriptors + stress.DESCRIPTORS:
        open_ones = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                     if os.path.exists(f"/proc/self/fd/{fd}")]  # fmt: skip
        stress.violations.append(f"descriptors are left: {open_ones}")
    if mapped():
        stress.violations.append(f"{mapped()} mappings are left")
    if threading.active_count() > threads + stress.THREADS:
        left_ones = [thread.name for thread in threading.enumerate()]
        stress.violations.append(f"threads are left: {left_ones}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="1..1", metavar="FIRST..LAST")
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--steps", type=int, default=150, help="calls of each thread")
    parser.add_argument("--modes", default="embedded,process")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="what is called")
    parser.add_argument("--interval", type=float, default=0, help="of switches, in seconds (0: it changes)")
    parser.add_argument("--seconds", type=float, default=0, help="go on with further seeds for so long")
    parser.add_argument("--hang", type=float, default=HANG_S, help="a run of more seconds hangs")
    parser.add_argument("--here", action="store_true", help="one seed, in this process")
    options = parser.parse_args()
    first, last = (int(end) for end in options.seeds.split(".."))
    modes, rooms = options.modes.split(","), options.rooms.split(",")
    if options.here:
        return 1 if one(first, options, modes[0], rooms[0]) else 0
    began, seed, failed, runs = time.monotonic(), first, 0, 0
    while seed <= last or time.monotonic() - began < options.seconds:
        for room, mode in ((room, mode) for room in rooms for mode in modes):
            command = [sys.executable, __file__, "--here", "--seeds", f"{seed}..{seed}", "--modes", mode,
                       "--rooms", room, "--threads", str(options.threads), "--steps", str(options.steps),
                       "--interval", str(options.interval), "--hang", str(options.hang)]  # fmt: skip
            status = subprocess.run(command, check=False).returncode
            runs += 1
            if status:
                failed += 1
                print(f"{room} seed {seed} {mode}: status {status}; again: {' '.join(command)}", flush=True)
        seed += 1
    usage = os.times()
    print(f"{runs} runs, {failed} failed, {usage.children_user + usage.children_system:.0f} s of CPU time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
