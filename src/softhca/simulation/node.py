"""One host of a world: an adapter that can crash and restart, the device open on it, and what programs do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from softhca.adapter.engine import NEVER, Adapter
from softhca.adapter.resources import Kind
from softhca.adapter.timers import TICK_NS
from softhca.driver.channels import EmbeddedChannel
from softhca.driver.device import DeviceDriver
from softhca.links.impairment import is_off, phase_ns
from softhca.memory.host import HostMemory
from softhca.simulation.frames import place_of
from softhca.transport.observation import MEMORY_HELD, RESPONSE_PACED
from softhca.transport.window import BURST_OVERHEAD_BYTES
from softhca.wire.burst import Burst
from softhca.wire.flows import FIRST_SOURCE_PORT

if TYPE_CHECKING:
    from softhca.simulation.pager import Pager
    from softhca.simulation.world import World

HOST_MEMORY_BYTES = 256 << 20
MILLION = 1_000_000
BURSTS_A_TURN = 1_000
TURNS = 1_000
LATE_NS = 2 * TICK_NS
"""What is due is done no later than that."""

_new_engine: Callable[..., Any] = Adapter


def _port_of_two(entropy: int, destination: bytes | None, source: bytes | None = None) -> int:
    """A source port: half of an adapter's queue pairs go the same way, so that some share bursts."""
    return FIRST_SOURCE_PORT + entropy % 2


def _overhead_when_cut(destination: bytes) -> int:
    """What each packet costs a receiver beyond its bytes, where bursts do not arrive whole."""
    return BURST_OVERHEAD_BYTES


class Node:
    """Adapter ``number`` of a world with the one device open on it.  ``engine`` is None while it is down.

    ``tasks`` are asked for something to do whenever the adapter had something to do; they say whether they
    did anything.  ``crashes`` counts how often the adapter has died.  ``events`` are the asynchronous events
    (kind, element) that the present device has had, and how often, as far as `hear` took them.  A ``pager``
    holds memory.  ``ports``: their numbers, ``gids``: theirs.
    """

    def __init__(self, world: World, number: int, mtu: int, ports: int = 1) -> None:
        dice = random.Random(f"{world.seed}/node/{number}")
        faults = world.faults
        self.world = world
        self.number = number
        self.gid = world.frames.gid(number)
        self.mtu = mtu
        self.ports = range(1, ports + 1)
        self.gids = [world.frames.gid(place_of(number, port)) for port in self.ports]
        self.tasks: list[Callable[[], bool]] = []
        self.crashes = 0
        self.events: Counter[tuple[int, int]] = Counter()
        self.engine: Any = None
        self.pager: Pager | None = None
        self.devices: list[DeviceDriver] = []
        self._skew_ppm = dice.randint(-faults.skew_ppm, faults.skew_ppm) if faults.skew_ppm else 0
        self._stall_phase_ns = phase_ns(f"{world.seed}/{faults.seed}/stall/{number}", faults.stall_period_ns)
        self._wake_ns = NEVER
        self._burst = Burst()
        self._start()

    @property
    def device(self) -> DeviceDriver:
        """The device that was opened last."""
        return self.devices[-1]

    def _start(self) -> None:
        dice = random.Random(f"{self.world.seed}/adapter/{self.number}/{self.crashes}")
        config = self.world.frames.config(self.number, self.mtu, len(self.ports))
        overhead: Callable[[bytes], int] | None = None
        if self.world.window_bytes:
            config = replace(config, window_bytes=self.world.window_bytes)
            overhead = _overhead_when_cut
        if self.world.uniform is not None:
            config = replace(config, uniform_bursts=self.world.uniform)
        if self.world.dcqcn is not None:
            config = replace(config, congestion=self.world.dcqcn)
        engine = self.engine = _new_engine(
            config, seed=dice.getrandbits(64), overhead_for=overhead, now=self.clock()
        )
        engine.observer = self._observe
        for port in engine.ports:
            port.source_port_for = _port_of_two
        self._free_entries: int = engine.regions.tpt.free_entries

        def kick() -> None:
            if self.engine is engine:
                engine.kick(self.clock())

        def detach() -> None:
            if self.engine is engine:
                engine.detach_host(host)

        channel = EmbeddedChannel(
            HostMemory(HOST_MEMORY_BYTES), kick, lambda: False, lambda ready, timeout_s: ready(), detach,
            lambda: self.engine is engine,
        )  # fmt: skip
        host = engine.attach_host(channel)
        self.devices.append(DeviceDriver(f"adapter{self.number}", channel))
        self.events.clear()

    def crash(self) -> None:
        """The adapter dies with all that it knew; the host and its memory stay."""
        self.crashes += 1
        self.engine = None
        self.tasks.clear()
        self.world.trace.add(self.world.now, "crash", self.number)

    def restart(self) -> None:
        """A new adapter with the same address; a device is open on it."""
        self._start()
        self.world.trace.add(self.world.now, "restart", self.number)

    def hear(self) -> None:
        """Take the asynchronous events that are there."""
        if self.engine is not None:
            self.events.update(iter(lambda: self.device.next_event(0), None))

    def clock(self) -> int:
        """What the adapter believes the time is."""
        now = self.world.now
        return now + now * self._skew_ppm // MILLION

    def _observe(self, event: str, qp: int, psn: int, state: str, reason: str) -> None:
        """Something happened inside the adapter (`softhca.transport.observation`)."""
        self.world.trace.inside(self.world.now, event, self.number, qp, psn, state, reason)
        if event == MEMORY_HELD:
            truly = self.pager is not None and self.pager.holding
            self.world.wire.held(self.world.now, (self.number, qp), psn, reason, truly)
        elif event == RESPONSE_PACED:
            until_ns = self._world_time(self.clock() + int(reason.split()[1])) + self.world.faults.stall_ns
            self.world.wire.paced((self.number, qp), until_ns + LATE_NS)

    def _world_time(self, local_ns: int) -> int:
        """The first moment of the world at which `clock` shows ``local_ns``."""
        if not self._skew_ppm:
            return local_ns
        moment = local_ns * MILLION // (MILLION + self._skew_ppm)
        while moment + moment * self._skew_ppm // MILLION < local_ns:
            moment += 1
        return moment

    def stalled_until(self) -> int:
        """0, or when the adapter goes on."""
        period_ns, stall_ns = self.world.faults.stall_period_ns, self.world.faults.stall_ns
        if not period_ns:
            return 0
        moment = self.world.now + self._stall_phase_ns
        return self.world.now + period_ns - moment % period_ns if is_off(moment, period_ns, stall_ns) else 0

    def turn(self) -> None:
        """Let the adapter and its programs do all that can be done at this moment; then plan the next one."""
        engine = self.engine
        if engine is None:
            return
        wake_ns = self.stalled_until()
        if not wake_ns:
            now = self.clock()
            engine.expire(now)
            for _ in range(TURNS):
                busy = self._transmit(now)
                for task in self.tasks:
                    busy = task() or busy
                if not busy or self.engine is not engine:
                    break
            else:
                self.world.report.fail("adapters come to rest", f"adapter {self.number} always has work")
            deadline_ns = engine.next_deadline()
            if deadline_ns >= NEVER:
                return
            wake_ns = max(self._world_time(deadline_ns), self.world.now + 1)
        if wake_ns < self._wake_ns or self._wake_ns <= self.world.now:
            self._wake_ns = wake_ns
            self.world.at(wake_ns, self._wake, wake_ns)

    def _wake(self, planned_ns: int) -> None:
        if planned_ns == self._wake_ns:
            self._wake_ns = NEVER
            self.turn()

    def _transmit(self, now: int) -> bool:
        engine, burst, sent = self.engine, self._burst, False
        for port in self.ports:
            for _ in range(BURSTS_A_TURN):
                if not engine.transmit(port, burst, now):
                    break
                self.world.carry(self, burst)
                sent = True
        return sent

    def drops(self) -> dict[str, int]:
        """Why the adapter dropped packets, and how many, by name; empty while it is down."""
        if self.engine is None:
            return {}
        counters = self.engine.port_counters()
        return {name: count for name, count in counters.items() if count and name.startswith("drops_")}

    def resources(self) -> dict[str, int]:
        """What exists in the adapter, and the bytes charged to its windows."""
        if self.engine is None:
            return {}
        engine = self.engine
        counts = {kind.name: engine.resources.count(kind) for kind in Kind}
        counts["queue pairs known by number"] = len(engine.queue_pairs)
        counts["address handles known"] = len(engine.handles)
        counts["timers"] = engine.timers.count()
        counts["queue pairs that wait for memory"] = len(engine.memory_waiters)
        counts["translations"] = self._free_entries - engine.regions.tpt.free_entries
        windows = engine.port.windows.values()
        counts["bytes in flight"] = sum(window.in_flight_bytes for window in windows)
        counts["window waiters"] = sum(len(window.waiters) for window in windows)
        return counts

    def close(self) -> None:
        """Close every device and give the memory back."""
        for device in self.devices:
            device.close()
        if self.pager is not None:
            self.pager.close()
