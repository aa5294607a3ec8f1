"""A datagram socket beside the kernel's: queue pairs, peers and how they are reached, both receive queues.

The kernel's socket keeps the address and the port, and everything goes by it to peers that have nothing else.
Which way a peer is reached is found out when it is first sent to, and again while it is used, in the
background; what comes is believed when its sender is found at the address that it names.
Any thread may call any method; one lock guards the state, and nobody waits with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket as kernel
import threading
import time
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.machine.condition import Condition
from softhca.machine.kernel_sockets import KernelSocket
from softhca.machine.signals import suppressed
from softhca.sockets import connecting, requests, resolving
from softhca.sockets.connecting import mapped, text_of
from softhca.sockets.datagram_credits import SMALLEST_WINDOW, Address
from softhca.sockets.datagram_path import DatagramPath
from softhca.sockets.datagram_peer import Decided, Peer, agrees
from softhca.sockets.datagram_port import DatagramPort, PeerPath
from softhca.sockets.datagram_protocol import Hello
from softhca.sockets.datagram_room import PeerRoom
from softhca.sockets.datagram_state import Claim
from softhca.sockets.hub import HUB, before_fork
from softhca.sockets.port_lookup import PortAdvertisement
from softhca.sockets.readiness import Readiness
from softhca.sockets.resolving import DatagramListener, Found
from softhca.sockets.settings import Settings
from softhca.sockets.waiting import Guard

RENEW_S = 1.0
"""A way that is used is asked for again after so long."""
AGAIN_S = 0.05
"""A peer is not asked for more often, whatever comes from there."""
MOST_PEERS = 1024
GOODBYE_S = 0.2
_UNRESOLVED = (ValueError, *requests.FAILED)
_KERNEL_EVENTS = select.EPOLLIN | select.EPOLLONESHOT
_KERNEL_CHANGES = select.EPOLLIN | select.EPOLLET

MOST_ADMISSIONS = 64


class DatagramEnd(DatagramPath):
    """What a bound datagram socket has; shared by its duplicates, closed with the last.  ``one`` is the
    kernel's socket, of whose descriptor this has a duplicate (``udp``).  `PoolError`, PyverbsError, OSError.
    """

    def __init__(self, one: KernelSocket, settings: Settings) -> None:
        self.settings = settings
        self.udp = KernelSocket(one.family, one.type, one.proto, fileno=os.dup(KernelSocket.fileno(one)))
        self.udp.setblocking(False)
        self.version = 4 if one.family == kernel.AF_INET else 6
        host, port = self.udp.getsockname()[:2]
        self.host, self.port = str(host), int(port)
        self.addresses = [mapped(self.host)]
        if self.host == "::" and not one.getsockopt(kernel.IPPROTO_IPV6, kernel.IPV6_V6ONLY):
            self.addresses.append(mapped("0.0.0.0"))
        self._begin_path(self.version, self.udp.fileno())
        self.users: weakref.WeakSet[KernelSocket] = weakref.WeakSet()
        self.connected: Address | None = None
        self._count = 1
        self._admissions = 0
        self._guard = Guard(self)
        self._make_locks()
        self._wakes = 0
        self._peers: OrderedDict[Address, Peer] = OrderedDict()
        self._refused: Counter[str] = Counter()
        self._resolutions: weakref.WeakSet[resolving.Resolution] = weakref.WeakSet()
        self._room = PeerRoom(self)
        self._outbox: deque[Callable[[], object]] = deque()
        self._advertisements: list[PortAdvertisement] = []
        self._listener: DatagramListener | None = None
        self._serving = self._kernel_troubled = False
        try:
            self.readiness = Readiness()
        except BaseException:
            self.udp.close()
            raise
        try:
            self._serve_port()
        except BaseException:
            self.close()
            raise
        self._inode = self.readiness.inode
        _ends[self._inode] = self

    def _make_locks(self) -> None:
        self._woken_lock = threading.RLock()
        self._woken = Condition(self._woken_lock)

    def _serve_port(self) -> None:
        with requests.LOCK:
            self._listener = requests.listener_of(DatagramListener, self.port)
            self._listener.join(self)
            self._serving = True
            for place in self._listener.places:
                self.ports.append(DatagramPort(place, self.settings, self._on_event))
            self._drive(self.ports)
            for each in self.addresses:
                self._advertisements.append(PortAdvertisement(self.port, each, self._listener.gids, None))
            before_fork.append(self.retire)
        HUB.watch(self.udp.fileno(), self._kernel_news, _KERNEL_EVENTS)

    # being found

    def serves(self, address: bytes) -> bool:
        """Whether datagrams to ``address`` come here."""
        return address in self.addresses or connecting.any_like(address) in self.addresses

    def number_at(self, place: LocalPort) -> int | None:
        """The queue pair at a port of a device; None where it has none, or nothing is served any more."""
        if self._serving:
            port = self._port_at(place)
            if port is not None and not port.failed:
                return port.number
        return None

    def window_at(self, place: LocalPort, claim: Claim | None) -> int:
        """How many messages may come to a port of a device at first, from whom a true ``claim`` names."""
        port = self._port_at(place)
        if port is None:
            return SMALLEST_WINDOW
        with self._guard:
            now_ns, credits = time.monotonic_ns(), port.state.credits
            if claim is None:
                return credits.first(now_ns)
            return credits.admit(claim.source, claim.address, now_ns)

    def _port_at(self, place: LocalPort) -> DatagramPort | None:
        at = place.device, place.port
        for port in self.ports:
            if (port.place.device, port.place.port) == at:
                return port
        return None

    def retire(self) -> None:
        """Be found no more, and send by the kernel alone, since nobody can find out whose queue pair this is;
        what comes by the ways that peers know is still taken.  May be called again.
        """
        if not self._serving:
            return
        with requests.LOCK:
            if not self._serving:
                return
            self._serving = False
            with contextlib.suppress(ValueError):
                before_fork.remove(self.retire)
            for sign in self._advertisements:
                sign.close()
            if self._listener is not None:
                self._listener.leave(self)

    # peers

    def peer_at(self, host: str, port: int) -> Peer:
        """What is known of a numeric address."""
        key = mapped(host), port
        with self._guard:
            found = self._peers.get(key)
            if found is None:
                if len(self._peers) >= MOST_PEERS:
                    self._forget_one()
                found = self._peers[key] = Peer(host, key)
            else:
                self._peers.move_to_end(key)
            return found

    def _forget_one(self) -> None:
        for key, each in self._peers.items():
            if not each.asking and not each.checking:
                del self._peers[key]
                if each.way is not None:
                    each.way.end()
                return

    def way_to(self, peer: Peer, deadline_s: float | None, blocking: bool) -> PeerPath | None:
        """How to send there; None: by the kernel, at least for now.  A peer that was never asked for is
        waited for where ``blocking``, for as long as a connection would.
        """
        if not self._serving:
            return None
        now_s = time.monotonic()
        if not peer.asking and now_s - peer.since_s >= RENEW_S:
            if peer.asked:
                HUB.soon(partial(self._ask, peer))
            else:
                self._ask(peer)
        if not peer.asked and blocking:
            limit_s = now_s + self.settings.connect_s
            self.wait(lambda: peer.asked, limit_s if deadline_s is None else min(limit_s, deadline_s))
            peer.asked = True  # one that does not answer is waited for once
        way = peer.way
        return None if way is None or way.port.failed else way

    def _ask(self, peer: Peer) -> None:
        with self._guard:
            if peer.asking or self.closed:
                return
            peer.asking = True
        self._resolve(peer, b"", partial(self._introduce, peer), partial(self._found, peer))

    def _check(self, peer: Peer, hint: bytes) -> None:
        """Ask which queue pair a peer has, at the GID ``hint``; its claims are decided then."""
        with self._guard:
            if peer.checking:
                return
            peer.checking = True
        self._resolve(peer, hint, self._hello_only, partial(self._checked, peer))

    def _resolve(
        self, peer: Peer, hint: bytes, introduce: resolving.Introduce, done: resolving.Done
    ) -> None:
        try:
            resolution = resolving.resolve(peer.host, peer.key[1], hint, introduce, done)
        except _UNRESOLVED:
            done(None)
            return
        with self._guard:
            closed = self.closed
            if not closed:
                self._resolutions.add(resolution)
        if closed:
            resolution.call_off()

    @staticmethod
    def _hello_only(towards: bytes, _: LocalPort) -> Hello:
        return Hello(towards)

    def _introduce(self, peer: Peer, towards: bytes, place: LocalPort) -> Hello:
        """This side is going to send, which the peer is to know before."""
        number = self.number_at(place)
        return Hello(towards, self._host_towards(peer), self.port, number) if number else Hello(towards)

    def _host_towards(self, peer: Peer) -> bytes:
        host = self.host
        if connecting.any_like(mapped(host)) == mapped(host):
            address = (peer.host, peer.key[1]) if self.version == 4 else (peer.host, peer.key[1], 0, 0)
            host = connecting.source_towards(address, self.udp.family) or host
        return mapped(host)

    def _found(self, peer: Peer, found: Found | None) -> None:
        """How a peer is reached."""
        with self._guard:
            peer.asking, peer.since_s = False, time.monotonic()
            if not self.closed:
                self._change_way(peer, found)
            peer.asked = True
            self._changed()
        self._wake()

    def _checked(self, peer: Peer, found: Found | None) -> None:
        """What a peer has; its claims are decided.  One that is not true says nothing of the way there."""
        decided = []
        with self._guard:
            peer.checking, peer.checked_s = False, time.monotonic()
            if found is not None and not self.closed:
                peer.since_s = peer.checked_s
                self._change_way(peer, found)
            claims, peer.claims = peer.claims, []
            for port, claim, done in claims:
                decided.append((done, self._decide(peer, port, claim, found)))
            peer.asked = peer.asked or not peer.asking
            self._changed()
        for done, true in decided:
            done(true)
        self._wake()

    def _change_way(self, peer: Peer, found: Found | None) -> None:
        before = peer.way
        if before is not None and found is not None:
            same = (before.found.gid, before.found.qp_num) == (found.gid, found.qp_num)
            if same and before.port.place == found.place:
                return
        peer.way = None
        if before is not None:
            before.end()
        if found is None:
            return
        port = self._port_at(found.place)
        if port is not None:
            with suppressed(*requests.FAILED):
                peer.way = PeerPath(port, found, self._host_towards(peer), self.port)

    def admit(self, place: LocalPort, claim: Claim, done: Decided) -> None:
        """The hub: who is going to send from ``claim`` asks for a way here; ``done`` is told whether it is
        to be believed.
        """
        port = self._port_at(place)
        if port is None or self._admissions >= MOST_ADMISSIONS:
            done(False)
            return
        with self._guard:
            known = port.state.believes(claim, time.monotonic_ns())
            self._admissions += not known
        if known:
            done(True)
            return

        def decided(true: bool) -> None:
            with self._guard:
                self._admissions -= 1
            done(true)

        self._ask_for(port, claim, decided)

    def _ask_for(self, port: DatagramPort, claim: Claim, done: Decided = bool) -> None:
        """The hub: is ``claim`` true?"""
        host = text_of(claim.address[0], self.version)
        decided: bool | None = None
        if host is None or self.closed:
            with self._guard:
                port.state.decide(claim, False, time.monotonic_ns())
            done(False)
            return
        peer = self.peer_at(host, claim.address[1])
        with self._guard:
            fresh = time.monotonic() - max(peer.since_s, peer.checked_s) < AGAIN_S
            if peer.asked and (fresh or agrees(peer.way, claim)):
                decided = self._decide(peer, port, claim, peer.way.found if peer.way is not None else None)
                self._changed()
            else:
                peer.claims.append((port, claim, done))
        if decided is not None:
            done(decided)
        else:
            self._check(peer, claim.source[0])
        self._wake()

    def _decide(self, peer: Peer, port: DatagramPort, claim: Claim, found: Found | None) -> bool:
        true = found is not None and (found.gid, found.qp_num) == claim.source
        port.state.decide(claim, true, time.monotonic_ns())
        return true

    def _settle(self, port: DatagramPort) -> None:
        """With the lock: ask, tell and forget what is due after messages have come to a port."""
        for claim in port.state.claims():
            HUB.soon(partial(self._ask_for, port, claim))
        while port.state.gone:
            gone = self._peers.get(port.state.gone.pop().address)
            if gone is not None:
                if gone.way is not None:
                    self._end_last(gone.way)
                gone.way, gone.since_s = None, 0.0
        self._tell_credits(port)
        if port.failed:
            self.retire()

    def _end_last(self, way: PeerPath) -> None:
        """Of a peer that has closed: one more message, which it drops, answers for what was sent before, so
        that a close waits for nothing.
        """
        if not way.port.idle and way.port.has_room() and not way.closed:
            with suppressed(*requests.FAILED):
                way.port.send_closed(way)
        way.end()

    def _tell_credits(self, port: DatagramPort) -> None:
        """Who may send more is told so, where it is the one to which datagrams would go."""
        credit = port.state.credits
        for sender, limit, window in credit.due(time.monotonic_ns()):
            peer = self._peers.get(sender.address)
            way = None if peer is None else peer.way
            if way is not None and way.port is port and way.source == sender.source:
                with suppressed(*requests.FAILED):
                    if port.send_credit(way, limit, window):
                        credit.tell(sender, limit)

    # readiness and waits

    def _kernel_news(self) -> None:
        """The hub: the kernel has something."""
        with self._guard:
            self._kernel_ready = True
            self._changed()
        self._wake()

    def _wake(self) -> None:
        with self._woken_lock:
            self._wakes += 1
            self._woken.notify_all()
        for port in self.ports:
            with suppressed(*requests.FAILED):
                port.driver.wake_waiters()

    def _lacks_room(self) -> bool:
        """Whether a send that was not to wait was refused, and would be still."""
        return self._room.missing

    def poll(self) -> None:
        """The program may wait for the descriptor from here on."""
        with self._guard:
            self.polled = True
            if not self.closed:
                self._pump()
                self._changed()

    def _sleep(self, ended: Callable[[], bool], deadline_s: float | None) -> bool:
        """Wait for events until ``ended()``; False at the deadline."""
        try:
            return self.ports[0].completion_thread.wait(ended, deadline_s)
        except DriverError:
            return self._wait_alone(ended, deadline_s)

    def _wait_alone(self, ended: Callable[[], bool], deadline_s: float | None) -> bool:
        """The same where the adapter is gone: the kernel's datagrams are all that may come."""
        while True:
            seen = self._wakes
            if ended():
                return True
            left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)
            with self._woken_lock:
                if not self._woken.wait_for(partial(self._woken_since, seen), left_s):
                    return False

    def _woken_since(self, seen: int) -> bool:
        return self._wakes != seen

    def _look_at_kernel(self) -> None:
        looking = select.poll()
        with self._guard:
            if self.closed:
                return
            looking.register(self.udp.fileno(), select.POLLIN)
            found = looking.poll(0)
            if found and found[0][1] & select.POLLIN:
                return
            self._kernel_ready = False
            # Errors in a queue of their own (IP_RECVERR) stay; what comes beside them is a datagram.
            troubled = bool(found)
            if not (troubled and self._kernel_troubled):
                HUB.watch_again(self.udp.fileno(), _KERNEL_CHANGES if troubled else _KERNEL_EVENTS)
            self._kernel_troubled = troubled
            self._changed()

    # what it knows

    def reaches(self, address: tuple[Any, ...]) -> bool:
        """Whether datagrams to a numeric address go by RDMA now."""
        with self._guard:
            peer = self._peers.get((mapped(str(address[0])), int(address[1])))
            if peer is None or peer.way is None or not self._serving:
                return False
            return not peer.way.port.failed

    def dropped(self) -> Counter[str]:
        """What was dropped here, by reason; what the adapter dropped is in its own counters."""
        with self._guard:
            self._pump()
            return sum([port.state.dropped for port in self.ports], Counter())

    # the end

    def connect(self, only: Address | None) -> None:
        """Take datagrams of one address alone."""
        with self._guard:
            self.connected = only
            for port in self.ports:
                if only is not None:
                    port.state.connect(only)

    def join(self) -> DatagramEnd:
        """One more user."""
        with self._lock:
            self._count += 1
        return self

    def leave(self) -> None:
        """One user less."""
        with self._lock:
            self._count -= 1
            if self._count:
                return
        _ends.pop(self._inode, None)
        self.close()

    def close(self) -> None:
        """Tell the peers, and give everything back; may be called again."""
        self.retire()
        with self._guard:
            if self.closed:
                return
            self._notify_peers()
        if self.ports:
            with suppressed(*requests.FAILED):
                self.wait(lambda: all([port.idle for port in self.ports]), time.monotonic() + GOODBYE_S)
        with self._guard:
            self.closed = True
            peers = list(self._peers.values())
            self._peers.clear()
            resolutions = list(self._resolutions)
        for resolution in resolutions:
            resolution.call_off()
        HUB.forget(self.udp.fileno())
        for peer in peers:
            if peer.way is not None:
                peer.way.close()
        for port in self.ports:
            port.close()
        self.udp.close()
        self.readiness.close()
        self._wake()

    def _notify_peers(self) -> None:
        for peer in self._peers.values():
            if peer.way is not None and not peer.way.port.failed and peer.way.port.has_room():
                with suppressed(*requests.FAILED):
                    peer.way.port.send_closed(peer.way)

    def abandon(self) -> None:
        """In a forked child: all but the kernel's socket is the parent's."""
        self.closed = True
        self._lock = threading.RLock()
        self._make_locks()
        self.readiness.abandon()
        for port in self.ports:
            port.abandon()
        self.udp.close()
        self.readiness.close()


_ends: weakref.WeakValueDictionary[int, DatagramEnd] = weakref.WeakValueDictionary()
"""By the descriptor's inode: a duplicate of the descriptor is a duplicate of the socket."""


def end_of(inode: int) -> DatagramEnd | None:
    """The one that has a descriptor, with one user more."""
    found = _ends.get(inode)
    return None if found is None else found.join()


def kind_of(number: int) -> tuple[int, int, int] | None:
    """Family, type and protocol of what a descriptor stands for, where it is one of these."""
    try:
        found = _ends.get(os.fstat(number).st_ino)
    except OSError:
        return None
    return None if found is None else (found.udp.family, found.udp.type, found.udp.proto)


def living() -> list[DatagramEnd]:
    """All of this process."""
    return list(_ends.values())
