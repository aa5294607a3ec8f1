"""A link that does to its packets what a bad network would, so that programs can be tested on one.

``SOFTHCA_FAULTS`` holds the options of `links.faults`, as in ``loss=1%,reorder=0.5%,seed=7``.  They act on
what an adapter sends, packet by packet, with dice of its own for each destination; what arrives is left
alone (its sender has thrown its dice already).

Theory of operation.  A burst whose packets all pass goes to the wrapped link as it is.  Otherwise what is
left of it is packed into bursts anew, and copies that are to leave later wait in a heap by their moment.
The link gives its next deadline by ``next_deadline`` and sends what is due in ``expire``; who drives the
engine calls both.  Nothing overtakes a packet that is due, and only a bounded number of packets and bytes
waits: beyond it packets are dropped and counted.

What is repeatable: the dice depend on the seed and on the numbers of the two adapters (place in
``SOFTHCA_PEERS`` + 1, else their addresses), and are thrown once a packet, in the order in which packets are
sent to a destination.  The n-th packet from one adapter to another so meets the same fate in every run (with
``corrupt`` and ``truncate`` as long as those before it have the same lengths); which packet is the n-th
follows the real timing of acknowledgements and retransmissions.  ``flap``, ``partition``, ``bandwidth`` and
the end of a run of losses (``burst``) follow the clock as well.
"""

from __future__ import annotations

import heapq
import ipaddress
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from softhca.links.fault_counters import FaultCounters, counters_of
from softhca.links.faults import FOREVER_NS, Faults
from softhca.links.impairment import PASSED, Delivery, Impairment
from softhca.links.link import AGAIN, NEVER, SENT
from softhca.links.variables import FAULTS
from softhca.links.wrapped import WrappedLink
from softhca.wire.burst import Burst
from softhca.wire.route import Route, gid_of

PEERS_VARIABLE = "SOFTHCA_PEERS"

SIMULATED_ONLY = ("stall", "skew", "crash", "cq", "poll", "receives")
"""Faults of an adapter and its clock, not of a link: simulated worlds have them, real links do not."""

NO_FAULTS = Faults(delay_ns=0)
"""A real link has a delay of its own; a simulated one must be given one."""

RETRY_NS = 200_000
"""When the wrapped link had no room, it is tried again so much later."""

MAX_WAITING_PACKETS = 65_536
MAX_WAITING_BYTES = 64 << 20
MAX_DESTINATIONS = 4096
TURN_PACKETS = 512


def parse_faults(text: str) -> Faults:
    """The faults of a real link; FaultsError, in one line that names the bad word and the good ones."""
    return Faults.parse(text, NO_FAULTS, SIMULATED_ONLY)


class FaultyLink(WrappedLink):
    """The link that it wraps, which holds packets back.

    ``number_of`` gives the number of the adapter with a GID, ``clock`` nanoseconds of the same origin as the
    ``now`` of `expire`.  The times of ``partition`` count from the making of this link.
    """

    def __init__(
        self,
        link: Any,
        faults: Faults,
        number_of: Callable[[bytes], int],
        clock: Callable[[], int],
        counters: FaultCounters | None = None,
    ) -> None:
        super().__init__(link)
        link.counts = False  # packets leave here in any order, so they must not be made for places in bursts
        self._clock = clock
        self._number_of = number_of
        self._number = number_of(link.gid)
        self._faults = _begun(faults, clock())
        self._directions: dict[bytes, Impairment] = {}
        self.fault_counters = counters or FaultCounters()
        self._heap: list[tuple[int, int, Route, bytes]] = []
        self._waiting_bytes = 0
        self._sequence = 0
        self._ready: deque[tuple[Route, bytes]] = deque()
        self._piece = Burst()
        self._stuck = False
        self._retry_ns = 0
        self._kept: Any = None
        self._process = os.getpid()

    def counters(self) -> dict[str, int]:
        """The link's counters, and what its faults did, under ``faults_``…"""
        return {**self._link.counters(), **self.shown_counters()}

    def shown_counters(self) -> dict[str, int]:
        """What the faults did, under ``faults_``…"""
        return {f"faults_{name}": number for name, number in self.fault_counters.as_dict().items()}

    # The link's interface

    def send(self, burst: Any) -> int:
        """As the link's.  A burst that was touched counts as sent: what is left of it is kept here."""
        if self._kept is burst:
            return self._send_whole(burst)
        now = self._clock()
        self.expire(now)
        if self._stuck or self._is_due(now):
            return AGAIN  # nothing overtakes what is due; the dice are not thrown yet
        packets = self._treat(burst, now)
        if packets is None:
            return self._send_whole(burst)
        self._ready.extend((burst.route, data) for data in packets)
        self._drain(now)
        return SENT

    def _send_whole(self, burst: Any) -> int:
        result: int = self._link.send(burst)
        self._kept = burst if result == AGAIN else None
        return result

    def abandon(self, burst: Any) -> None:
        """As the link's."""
        if self._kept is burst:
            self._kept = None
            self._link.abandon(burst)

    def close(self) -> None:
        """Send what still waits, as if its time had come, and close the link; may be called again.

        A network would deliver it, too; so the last acknowledgement of a program that ends is not lost.
        In a forked child it is the parent's to send.
        """
        self._kept = None
        if self._process == os.getpid():
            while self.expire(NEVER):
                pass
        self._heap.clear()
        self._ready.clear()
        self._stuck = False
        self._link.close()

    # The interface of a link that holds packets back

    def next_deadline(self) -> int:
        """When `expire` is to be called, ``NEVER`` when nothing waits."""
        if self._kept is not None:
            return NEVER  # who holds the burst gives it again, and nothing may pass it
        if self._stuck:
            return self._retry_ns
        return min(self._heap[0][0], NEVER) if self._heap else NEVER

    def expire(self, now: int) -> bool:
        """Send what is due at ``now``, a bounded number of packets; whether any of it left."""
        if self._kept is not None or not (self._stuck or self._is_due(now)):
            return False
        if self._stuck and not self._drain(now):
            return False
        while self._is_due(now) and len(self._ready) < TURN_PACKETS:
            _, _, route, data = heapq.heappop(self._heap)
            self._waiting_bytes -= len(data)
            self._ready.append((route, data))
        return self._drain(now)

    def _is_due(self, now: int) -> bool:
        return bool(self._heap) and self._heap[0][0] <= now

    # Dice

    def _treat(self, burst: Any, now: int) -> list[bytes] | None:
        """The packets of ``burst`` that are to leave now; None when all of them are, untouched."""
        direction = self._direction(burst.route.destination)
        view, length = memoryview(burst.data), burst.length
        stride = burst.stride or length
        leaving: list[bytes] = []
        touched = False
        count = self.fault_counters.count
        for at in range(0, length, stride or 1):
            data = bytes(view[at : min(at + stride, length)])
            count("packets")
            if len(self._heap) >= MAX_WAITING_PACKETS or self._waiting_bytes >= MAX_WAITING_BYTES:
                count("overflowed")
                touched = True
                continue
            copies = direction.send(data, now)
            if len(copies) == 1 and copies[0].what == PASSED and copies[0].time_ns <= now:
                leaving.append(data)
                continue
            touched = True
            if not copies:
                count("lost")
            for copy in copies:
                self._count(copy, now)
                if copy.time_ns > now:
                    self._hold(copy, burst.route)
                elif copy.data:
                    leaving.append(copy.data)
        return leaving if touched else None

    def _count(self, copy: Delivery, now: int) -> None:
        if copy.what != PASSED:
            self.fault_counters.count(copy.what)
        if copy.time_ns > now and copy.what not in ("reordered", "duplicated"):
            self.fault_counters.count("delayed")

    def _hold(self, copy: Delivery, route: Route) -> None:
        """Keep a copy until its time comes."""
        if not copy.data:
            return  # one that was cut to nothing
        self._sequence += 1
        self._waiting_bytes += len(copy.data)
        heapq.heappush(self._heap, (copy.time_ns, self._sequence, route, copy.data))

    def _direction(self, destination: bytes) -> Impairment:
        direction = self._directions.get(destination)
        if direction is None:
            if len(self._directions) >= MAX_DESTINATIONS:
                del self._directions[next(iter(self._directions))]
            direction = Impairment(self._faults, "real", self._number, self._number_of(destination))
            self._directions[destination] = direction
        return direction

    # Bursts

    def _drain(self, now: int) -> bool:
        """Send all that is ready; False when the link has no room."""
        while self._stuck or self._ready:
            if not self._stuck:
                self._pack()
            self._stuck = self._link.send(self._piece) == AGAIN
            if self._stuck:
                self._retry_ns = now + RETRY_NS
                return False
        return True

    def _pack(self) -> None:
        """Fill the piece with as many ready packets as make one burst: one route, one length but the last."""
        piece = self._piece
        route, data = self._ready.popleft()
        stride = length = len(data)
        piece.buffer[:stride] = data
        packets = 1
        while self._ready and len(data) == stride:
            other, data = self._ready[0]
            if other is not route or len(data) > stride or length + len(data) > piece.capacity:
                break
            self._ready.popleft()
            piece.buffer[length : length + len(data)] = data
            length += len(data)
            packets += 1
        piece.route, piece.length, piece.stride, piece.packets = route, length, stride, packets


def _begun(faults: Faults, start_ns: int) -> Faults:
    """``faults`` whose partitions count from ``start_ns``."""
    return replace(
        faults,
        partitions=tuple(
            replace(
                cut,
                start_ns=cut.start_ns + start_ns,
                end_ns=cut.end_ns if cut.end_ns == FOREVER_NS else cut.end_ns + start_ns,
            )
            for cut in faults.partitions
        ),
    )


def adapter_numbers(peers: str) -> Callable[[bytes], int]:
    """The number of the adapter with a GID: its place in ``peers`` (addresses, by commas) + 1.

    An address that is not there has a number far beyond, made from the address: dice of its own, and no word
    of the options names it.
    """
    known: dict[bytes, int] = {}
    for number, word in enumerate(peers.split(","), 1):
        try:
            packed = ipaddress.ip_address(word.strip()).packed
        except ValueError:
            continue
        known.setdefault(gid_of(packed), number)
    return lambda gid: known.get(gid) or (1 << 128) + int.from_bytes(gid, "big")


def impaired(link: Any, clock: Callable[[], int], environment: Mapping[str, str] = os.environ) -> Any:
    """``link`` itself, or with faults when ``SOFTHCA_FAULTS`` names any.

    FaultsError when it cannot be read, OSError when its counters cannot be kept; the link is closed then.
    """
    text = environment.get(FAULTS, "")
    if not text.strip():
        return link
    try:
        faults = parse_faults(text)
        numbers = adapter_numbers(environment.get(PEERS_VARIABLE, ""))
        return FaultyLink(link, faults, numbers, clock, counters_of(link.address, environment))
    except BaseException:
        link.close()
        raise
