"""What a process of a round does to itself: limits, forks, a clock that jumps, threads inside calls."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import signal
import threading
import time
from typing import Any

from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.runtime import devices
from softhca.runtime.clock import now_ns

NAME = "chaos"
M_ARENA_MAX = -8
"""Of mallopt(3)."""
STACK_BYTES = 1 << 20
"""Of a thread: the C library keeps 40 MiB of stacks of threads that have ended."""
MOST_THREADS = 24
SETTLED_S = 2.0
LIMITED = "127.199.{}.{}"


def _limit_for(spare: int) -> int:
    """The limit with which ``spare`` more descriptors can be had."""
    taken = set(map(int, os.listdir("/proc/self/fd")))
    limit = 0
    while spare or limit in taken:
        spare -= limit not in taken
        limit += 1
    return limit


class Inside:
    """Orders that an actor carries out on itself; see `chaos_actor.Actor`."""

    driver: Any
    pd: int
    cq: Any
    wrong: list[str]
    child_is_refused: Any

    def order_leaks(self) -> dict[str, Any]:
        """What this process holds, and its adapter."""
        gc.collect()
        names = os.listdir("/proc/self/fd")
        with open("/proc/self/maps") as maps, open("/proc/self/status") as status:
            places = sum(1 for _ in maps)
            words = dict(line.split(":", 1) for line in status)
        counts: dict[str, int] = {}
        device = devices.find(NAME)
        if self.driver is not None and self.driver.alive:
            counts = device.resources()
        return {
            "descriptors": len(names) - 1,
            "threads": int(words["Threads"]),
            "mappings": places,
            "resident_kib": int(words["VmRSS"].split()[0]),
            **counts,
        }

    @staticmethod
    def warm_up() -> None:
        """Have the memory that threads leave behind, as many as a round has: it is no leak then."""
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
        threading.stack_size(STACK_BYTES)
        together = threading.Barrier(MOST_THREADS)
        threads = [threading.Thread(target=together.wait) for _ in range(MOST_THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def order_descriptors(self, spare: int, addresses: list[str]) -> dict[str, Any]:
        """Open more devices while only ``spare`` more descriptors may be had; all must be refused in order or
        work, and leave nothing."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        before = len(os.listdir("/proc/self/fd"))
        threads = threading.active_count()
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_limit_for(spare), hard), hard))
        opened, refused = [], 0
        try:
            for i, address in enumerate(addresses):
                devices.add(f"limited{i}=udp:{address}")
                try:
                    opened.append(registry.open_device(f"limited{i}"))
                except DriverError:
                    refused += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self._again(len(addresses), opened, before, threads)
        return {"refused": refused}

    def order_memory(self, spare_bytes: int, addresses: list[str]) -> dict[str, Any]:
        """The same with so much more address space: also regions and queues of the open device."""
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/status") as status:
            size = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize"))
        before = len(os.listdir("/proc/self/fd"))
        threads = threading.active_count()
        resource.setrlimit(resource.RLIMIT_AS, (size + spare_bytes, hard))
        opened, refused = [], 0
        try:
            for i, address in enumerate(addresses):
                devices.add(f"limited{i}=udp:{address}")
                try:
                    opened.append(registry.open_device(f"limited{i}"))
                except (DriverError, MemoryError):
                    refused += 1
            for _ in range(4):
                with contextlib.suppress(DriverError, MemoryError):
                    self.driver.create_cq(4096).destroy()
                with contextlib.suppress(DriverError, MemoryError):
                    held = bytearray(spare_bytes // 4)
                    self.driver.dereg_mr(self.driver.reg_mr(self.pd, 0, len(held), 1, None, held).handle)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        self._again(len(addresses), opened, before, threads)
        return {"refused": refused}

    def _again(self, count: int, opened: list[Any], before: int, threads: int) -> None:
        """Without the limit all can be opened, and nothing is left of what was."""
        for driver in opened:
            driver.close()
        for i in range(count):
            try:
                registry.open_device(f"limited{i}").close()
            except DriverError as error:
                self.wrong.append(f"a device that was refused for want is refused without: {error}")
            devices.remove(f"limited{i}")
        gc.collect()
        end = time.monotonic() + SETTLED_S
        while (now := len(os.listdir("/proc/self/fd"))) > before and time.monotonic() < end:
            time.sleep(0.01)  # a thread has opened one for a moment
        if now > before:
            self.wrong.append(f"{now - before} descriptors are left behind refused openings")
        if (now := threading.active_count()) > threads:
            self.wrong.append(f"{now - threads} threads are left behind refused openings")

    def order_jump(self, ahead_ns: int) -> None:
        """Let the engine's clock leap ahead, as a machine's does that slept, in one moment."""
        engine = devices.find(NAME).engine
        if engine is None:
            return
        loop = engine.loop
        inner = loop.clock
        with loop.lock:
            loop.clock = lambda: inner() + ahead_ns

    def order_alarms(self, interval_s: float) -> None:
        """Have a signal handled so often; 0: no more."""
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, interval_s, interval_s)

    def order_fork(self, count: int) -> None:
        """Fork; each child must find its device refused, and can end."""
        for _ in range(count):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    self.driver.alloc_pd()
                except DriverError:
                    status = 0 if self.child_is_refused() else 2
                finally:
                    os._exit(status)
            _, status = os.waitpid(child, 0)
            if status:
                self.wrong.append(f"a forked child ended with {status}")

    def order_fork_bare(self) -> dict[str, Any]:
        """Fork as a C library does, without Python's hooks; the child sleeps."""
        libc = ctypes.CDLL(None)
        child = libc.fork()
        if child == 0:
            libc.sleep(20)
            libc._exit(0)
        return {"child": child}

    def enter_calls(self) -> None:
        """Threads inside ``poll``, waits for completions and for events, and for ever."""
        for target in (self._poll_on, self._poll_on, self._wait_on, self._wait_on, self._await_event):
            threading.Thread(target=target, daemon=True).start()
        time.sleep(now_ns() % 7 * 0.001)

    def _poll_on(self) -> None:
        with contextlib.suppress(DriverError):
            while True:
                self.cq.poll(16)

    def _wait_on(self) -> None:
        with contextlib.suppress(DriverError):
            while True:
                self.cq.arm()
                self.driver.wait_completion("chaos")

    def _await_event(self) -> None:
        with contextlib.suppress(DriverError):
            while True:
                self.driver.next_event()
