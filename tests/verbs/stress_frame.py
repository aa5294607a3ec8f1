"""What every room of the thread stress has: pools that threads add to, take from and close, and its oracle
of pages."""

from __future__ import annotations

import contextlib
import errno
import gc
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

ALLOWED = {errno.EBADF, errno.EBUSY, errno.EINVAL, errno.EIO, errno.ENOMEM, errno.ETIMEDOUT}
"""Calls that meet a closed or busy object, a full queue, a range that has moved, or wait in vain."""

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


class Frame:
    """What the threads share: pools that anybody adds to, takes from and closes.

    A room says its ``KINDS`` of objects, of which it keeps ``FEW`` fewer, the actions that are called six
    times as ``OFTEN``, and which errnos its calls may have; its actions are the methods ``do_…``.
    """

    KINDS: tuple[str, ...] = ()
    FEW: ClassVar[dict[str, int]] = {}
    SPARED: ClassVar[dict[str, float]] = {}
    """How often a close spares an object of a kind."""
    OFTEN: tuple[str, ...] = ()
    ALLOWED: ClassVar[set[int]] = ALLOWED
    THREADS = 0
    DESCRIPTORS = 0
    """So many threads and descriptors of the library may live on."""
    base = ""
    """The first three numbers of the devices' addresses."""
    interval_s = 0.0

    def __init__(self, names: list[str], seed: int, steps: int) -> None:
        self.names = names
        self.seed = seed
        self.steps = steps
        self.violations: list[str] = []
        self.pools: dict[str, list[Any]] = {kind: [] for kind in self.KINDS}
        self.calls = 0
        self.refusals = 0
        self.completions = 0
        self.actions = [
            getattr(self, name) for name in dir(self) if name.startswith("do_")
            for _ in range(6 if name in self.OFTEN else 1)
        ]  # fmt: skip

    # pools

    def put(self, kind: str, thing: Any) -> None:
        pool = self.pools[kind]
        pool.append(thing)
        if len(pool) > self.FEW.get(kind, KEPT):
            self.take(kind, 0).close()

    def take(self, kind: str, position: int) -> Any:
        try:
            return self.pools[kind].pop(position)
        except IndexError:
            return Nothing

    def any(self, kind: str, rng: random.Random) -> Any:
        pool = list(self.pools[kind])
        return rng.choice(pool) if pool else None

    def with_region(self, kind: str, rng: random.Random) -> tuple[Any, Any]:
        """Something of a kind that has two queue pairs, and a region: mostly one that it may use."""
        thing, region = self.any(kind, rng), self.any("region", rng)
        if thing is not None and rng.random() < 0.9:
            fit = [each for each in list(self.pools["region"]) if each.mr.pd is thing.ends[0].pd]
            region = rng.choice(fit) if fit else None
        return thing, region

    # what threads do in every room

    def do_close(self, rng: random.Random) -> None:
        kind = rng.choice(self.KINDS)
        if rng.random() < self.SPARED.get(kind, 0.0):
            return
        pool = self.pools[kind]
        if not pool:
            return
        if rng.random() < 0.5:
            self.take(kind, rng.randrange(-1, 1)).close()
        else:  # and leave it to others, closed
            rng.choice(list(pool) or [Nothing]).close()

    def do_collect(self, rng: random.Random) -> None:
        if rng.random() < 0.02:
            gc.collect()

    # the run

    def refusal(self, error: BaseException) -> bool:
        """Whether ``error`` is one that a call of the API may end with."""
        from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

        if isinstance(error, PyverbsRDMAError):
            return error.error_code in self.ALLOWED
        return isinstance(error, PyverbsUserError)

    def worker(self, number: int) -> None:
        rng = random.Random(self.seed * 1_000_003 + number)
        if self.interval_s:
            sys.setswitchinterval(self.interval_s)
        for _ in range(self.steps):
            if rng.random() < 0.02 and not self.interval_s:
                sys.setswitchinterval(10 ** rng.uniform(-6, -2.5))
            action = rng.choice(self.actions)
            self.calls += 1
            try:
                action(rng)
            except Exception as error:
                self.refusals += 1
                if not self.refusal(error):
                    word = f"{action.__name__}: {type(error).__name__}: {error} {_where(error)}"
                    self.violations.append(word)
            if self.violations:
                return

    def run(self, threads: int) -> None:
        workers = [threading.Thread(target=self.worker, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.end()

    def end(self) -> None:
        """Close all that is left."""
        while any(self.pools.values()):
            for kind in self.pools:
                while self.pools[kind]:
                    with contextlib.suppress(OSError):
                        self.take(kind, -1).close()

    def let_go(self) -> None:
        """Give back what the room itself keeps, once all is closed."""


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
