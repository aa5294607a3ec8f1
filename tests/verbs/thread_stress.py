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
import errno
import faulthandler
import gc
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HANG_S = 900
ALLOWED = {errno.EBADF, errno.EBUSY, errno.EINVAL, errno.EIO, errno.ENOMEM, errno.ETIMEDOUT}
"""Calls that meet a closed or busy object, a full queue, a range that has moved, or wait in vain."""

LENGTHS = (64, 4096, 8192, 40_000)
ACCESS = 0xF  # local write, remote write, read, atomic
KINDS = ("context", "pd", "cq", "cqex", "channel", "region", "pair", "srq", "ah", "mw")
KEPT = 24
"""So many objects of a kind at most are in the pool: who adds one more closes the oldest."""


def _name_of(memory: Any) -> object:
    """What stands for a memory: its address may be the next one's."""
    return vars(memory).setdefault("stress_name", object())


class Pages:
    """Who has which page, seen from outside the allocator, without a lock that would keep threads apart."""

    def __init__(self, violations: list[str]) -> None:
        from softhca.memory.host import HostMemory

        self._owners: dict[tuple[object, int], object] = {}
        self._violations = violations
        self._nested = threading.local()
        for name in ("allocate", "allocate_shared"):
            setattr(HostMemory, name, self._taking(getattr(HostMemory, name)))
        free = HostMemory.free

        def freeing(memory: Any, frames: Any) -> None:
            frames = list(frames)
            for frame in frames:
                self._owners.pop((_name_of(memory), frame), None)
            free(memory, frames)

        HostMemory.free = freeing  # type: ignore[method-assign]
        close = HostMemory.close

        def closing(memory: Any) -> None:
            close(memory)
            for key in [key for key in list(self._owners) if key[0] is _name_of(memory)]:
                self._owners.pop(key, None)

        HostMemory.close = closing  # type: ignore[method-assign]

    def _taking(self, take: Callable[..., list[int]]) -> Callable[..., list[int]]:
        def taking(memory: Any, *arguments: Any, **named: Any) -> list[int]:
            if getattr(self._nested, "inside", False):
                return take(memory, *arguments, **named)
            self._nested.inside = True
            try:
                frames = take(memory, *arguments, **named)
            finally:
                self._nested.inside = False
            owner = object()
            for frame in frames if not memory._closed else ():
                if self._owners.setdefault((_name_of(memory), frame), owner) is not owner:
                    self._violations.append(f"page {frame} is given twice")
            return frames

        return taking


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


class Stress:
    """What the threads share: pools that anybody adds to, takes from and closes."""

    def __init__(self, names: list[str], seed: int, steps: int) -> None:
        from softhca.verbs import enums

        self.e = enums
        self.names = names
        self.seed = seed
        self.steps = steps
        self.violations: list[str] = []
        self.pools: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        self.calls = 0
        self.refusals = 0
        self.completions = 0
        self.actions = [
            getattr(self, name) for name in dir(self) if name.startswith("do_")
            for _ in range(6 if name in ("do_post", "do_poll", "do_read", "do_write") else 1)
        ]  # fmt: skip

    # pools

    def put(self, kind: str, thing: Any) -> None:
        pool = self.pools[kind]
        pool.append(thing)
        if len(pool) > (6 if kind == "context" else KEPT):
            self.take(kind, 0).close()

    def take(self, kind: str, position: int) -> Any:
        try:
            return self.pools[kind].pop(position)
        except IndexError:
            return Nothing

    def any(self, kind: str, rng: random.Random) -> Any:
        pool = list(self.pools[kind])
        return rng.choice(pool) if pool else None

    # what threads do

    def do_open(self, rng: random.Random) -> None:
        from softhca.verbs.device import Context

        if len(self.pools["context"]) < 3 or rng.random() < 0.05:
            self.put("context", Context(name=rng.choice(self.names)))

    def do_close(self, rng: random.Random) -> None:
        kind = rng.choice(list(self.pools))
        if kind == "context" and rng.random() < 0.9:
            return
        if kind == "pd" and rng.random() < 0.7:
            return
        pool = self.pools[kind]
        if not pool:
            return
        if rng.random() < 0.5:
            self.take(kind, rng.randrange(-1, 1)).close()
        else:  # and leave it to others, closed
            rng.choice(list(pool) or [Nothing]).close()

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
        from softhca.verbs.addr import AHAttr, GlobalRoute
        from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

        pd, cq, srq = self.any("pd", rng), self.any("cq", rng), self.any("srq", rng)
        if pd is None or cq is None or cq.context is not pd.ctx:
            return
        if srq is not None and (srq.pd.ctx is not pd.ctx or rng.random() < 0.5):
            srq = None
        cap = QPCap(max_send_wr=rng.randrange(1, 60), max_recv_wr=rng.randrange(1, 60), max_inline_data=64)
        ends = [QP(pd, QPInitAttr(self.e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq, cap=cap)) for _ in range(2)]
        gid = pd.ctx.query_gid(1, 0)
        for qp, peer in zip(ends, reversed(ends), strict=True):
            attr = QPAttr(port_num=1)
            attr.qp_access_flags = ACCESS
            attr.path_mtu, attr.dest_qp_num, attr.rq_psn, attr.sq_psn = 3, peer.qp_num, 1, 1
            attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
            attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 1, 10, 1, 0
            attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=GlobalRoute(dgid=gid, sgid_index=0))
            qp.to_rts(attr)
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
            self.put("mw", MW(pd, self.e.IBV_MW_TYPE_2))

    def do_post(self, rng: random.Random) -> None:
        from softhca.verbs.wr import SGE, RecvWR, SendWR

        pair, region = self.any("pair", rng), self.any("region", rng)
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
            flags = self.e.IBV_SEND_SIGNALED | self.e.IBV_SEND_INLINE
            opcode = self.e.IBV_WR_RDMA_WRITE
        else:  # from the region to itself
            element = SGE(region.mr.buf, 8 * count, region.mr.lkey)
            flags = self.e.IBV_SEND_SIGNALED
            opcode = rng.choice((self.e.IBV_WR_RDMA_WRITE, self.e.IBV_WR_RDMA_READ))
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
            region.mr.rereg(self.e.IBV_REREG_MR_CHANGE_ACCESS, access=ACCESS)

    def do_collect(self, rng: random.Random) -> None:
        if rng.random() < 0.02:
            gc.collect()

    # the run

    def worker(self, number: int) -> None:
        from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

        rng = random.Random(self.seed * 1_000_003 + number)
        for _ in range(self.steps):
            if rng.random() < 0.02:
                sys.setswitchinterval(10 ** rng.uniform(-6, -2.5))
            action = rng.choice(self.actions)
            self.calls += 1
            try:
                action(rng)
            except PyverbsUserError:
                self.refusals += 1
            except PyverbsRDMAError as error:
                self.refusals += 1
                if error.error_code not in ALLOWED:
                    self.violations.append(f"{action.__name__}: {error}")
            except Exception as error:
                self.violations.append(f"{action.__name__}: {type(error).__name__}: {error} {_where(error)}")
            if self.violations:
                return

    def run(self, threads: int) -> None:
        workers = [threading.Thread(target=self.worker, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        while any(self.pools.values()):
            for kind in self.pools:
                while self.pools[kind]:
                    self.take(kind, -1).close()


class Nothing:
    """What an empty pool gives."""

    @staticmethod
    def close() -> None:
        """Nothing to close."""


def _where(error: BaseException) -> str:
    trace, places = error.__traceback__, []
    while trace is not None:
        places.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " < ".join(reversed(places))


def mapped() -> int:
    """Mappings of host memory in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:softhca")


def one(seed: int, threads: int, steps: int, mode: str) -> list[str]:
    """One seed in this process; what was violated."""
    from softhca.driver import registry
    from softhca.runtime import devices

    faulthandler.dump_traceback_later(HANG_S, exit=True)
    base = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}"
    names = ["left", "right"]
    same_host = seed % 2 if mode == "embedded" else 0
    words = (f"{name}=udp:{base}.{number + 2}?same_host={same_host}" for number, name in enumerate(names))
    devices.add(",".join(words), mode)
    violations: list[str] = []
    Pages(violations)
    descriptors = len(os.listdir("/proc/self/fd"))
    observers = [registry.open_device(name) for name in names]
    stress = Stress(names, seed, steps)
    stress.violations = violations
    stress.run(threads)
    sys.setswitchinterval(0.005)
    from softhca.verbs.base import close_deferred

    gc.collect()
    close_deferred()
    for name in names:
        left = {kind: count for kind, count in devices.find(name).resources().items() if count}
        if left:
            violations.append(f"left at {name}: {left}")
    for observer in observers:
        observer.close()
    del observers, observer
    for name in names:
        devices.remove(name)
    stress.pools.clear()
    gc.collect()
    if len(os.listdir("/proc/self/fd")) > descriptors:
        open_ones = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                     if os.path.exists(f"/proc/self/fd/{fd}")]  # fmt: skip
        violations.append(f"descriptors are left: {open_ones}")
    if mapped():
        violations.append(f"{mapped()} mappings are left")
    print(f"seed {seed} {mode}: {stress.calls} calls, {stress.refusals} refused, "
          f"{stress.completions} completions, {len(violations)} violations", flush=True)  # fmt: skip
    for each in violations[:5]:
        print(f"  {each}", flush=True)
    return violations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="1..1", metavar="FIRST..LAST")
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--steps", type=int, default=150, help="calls of each thread")
    parser.add_argument("--modes", default="embedded,process")
    parser.add_argument("--seconds", type=float, default=0, help="go on with further seeds for so long")
    parser.add_argument("--here", action="store_true", help="one seed, in this process")
    options = parser.parse_args()
    first, last = (int(end) for end in options.seeds.split(".."))
    modes = options.modes.split(",")
    if options.here:
        return 1 if one(first, options.threads, options.steps, modes[0]) else 0
    began, seed, failed, runs = time.monotonic(), first, 0, 0
    while seed <= last or time.monotonic() - began < options.seconds:
        for mode in modes:
            command = [sys.executable, __file__, "--here", "--seeds", f"{seed}..{seed}", "--modes", mode,
                       "--threads", str(options.threads), "--steps", str(options.steps)]  # fmt: skip
            status = subprocess.run(command, check=False).returncode
            runs += 1
            if status:
                failed += 1
                print(f"seed {seed} {mode}: status {status}; again: {' '.join(command)}", flush=True)
        seed += 1
    usage = os.times()
    print(f"{runs} runs, {failed} failed, {usage.children_user + usage.children_system:.0f} s of CPU time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
