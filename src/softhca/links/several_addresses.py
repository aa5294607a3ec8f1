"""The link of a port that has several IP addresses: one link for each of them.

A packet leaves by the link of its source address, which also chose its UDP source port; so what a peer sees
is what a port with that address alone would have sent.  What comes to any of the addresses is received, of
each in turn.  Groups are joined once for each version of IP, at the first address of that version.

Addresses may come and go (`SeveralAddresses.add`, `SeveralAddresses.remove`).  What is sent from one that has
gone is refused, as the kernel does it, and groups are joined anew at the next address of that version.
"""

from __future__ import annotations

import errno
import logging
import select
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from softhca.links.link import AGAIN, NEVER, Link
from softhca.wire.burst import Arrival, Burst
from softhca.wire.flows import source_port
from softhca.wire.route import V4_MAPPED_PREFIX, is_multicast

_log = logging.getLogger("softhca.links")


class SeveralAddresses(Link):
    """``links`` (`RoceUdpLink`, or what wraps them) by the addresses of one port, the first one first, whose
    ``address`` and ``gid`` name the port.  ``gids`` are all of them; ``active_mtu`` is the least.

    They are this link's from here on, also where making it fails.  OSError EMFILE.  The name and the MTU stay
    those of the beginning, whatever addresses come and go; ``links`` and ``gids`` are the present ones.
    """

    def __init__(self, links: Sequence[Any]) -> None:
        first = links[0]
        super().__init__(first.framing, any(each.sees_packets for each in links))
        self.links = tuple(links)
        self.address: str = first.address
        self.gid: bytes = first.gid
        self.gids: tuple[bytes, ...] = tuple(each.gid for each in links)
        self.active_mtu = min(each.active_mtu for each in links)
        self._by_gid = dict(zip(self.gids, self.links, strict=True))
        self._first: dict[bool, Any] = {}
        self._joined: set[bytes] = set()
        self._frames = False
        self._gone: dict[str, int] = {}
        self._gone_shown: dict[str, int] = {}
        self._choose_first()
        self._turn = 0
        self._own_copies = 0
        self._blocked: Any = None
        with ExitStack() as undone:
            for each in links:
                undone.callback(each.close)
            self._epoll = _waiting_for([each.fileno() for each in links])
            undone.callback(self._epoll.close)
            self._groups = _waiting_for([each.group_fileno() for each in links])
            undone.pop_all()

    # addresses that come and go

    def add(self, link: Any) -> None:
        """One address more; its link is this one's from here on, also where that fails (OSError EMFILE)."""
        with ExitStack() as undone:
            undone.callback(link.close)
            self._epoll.register(link.fileno(), select.EPOLLIN)
            undone.callback(self._epoll.unregister, link.fileno())
            if link.group_fileno() >= 0:
                self._groups.register(link.group_fileno(), select.EPOLLIN)
            undone.pop_all()
        self._become((*self.links, link))
        if self._frames and link.gid == self.gid:
            try:
                link.listen_for_frames()
            except OSError as error:
                _log.warning("no Ethernet frames come to %s any more: %s", link.address, error)

    def remove(self, gid: bytes) -> None:
        """The address ``gid`` has gone: its link is closed, and what stood in it lost.  KeyError: none."""
        link = self._by_gid[gid]
        self._epoll.unregister(link.fileno())
        if link.group_fileno() >= 0:
            self._groups.unregister(link.group_fileno())
        if self._blocked is link:
            self._blocked = None
        _add_to(self._gone, dict(link.counters()))
        _add_to(self._gone_shown, dict(link.shown_counters()))
        self._become(tuple(each for each in self.links if each is not link))
        link.close()

    def _become(self, links: tuple[Any, ...]) -> None:
        self.links = links
        self.gids = tuple(each.gid for each in links)
        self._by_gid = dict(zip(self.gids, links, strict=True))
        self._turn = 0
        self._choose_first()

    def _choose_first(self) -> None:
        """The first link of each version of IP; where it is another one, groups are joined there."""
        before, self._first = self._first, {_is_v4(each.gid): each for each in reversed(self.links)}
        for gid in list(self._joined):
            link = self._first.get(_is_v4(gid))
            if link is not None and link is not before.get(_is_v4(gid)):
                try:
                    link.join(gid)
                except OSError as error:
                    _log.warning("%s is no member of a group any more: %s", link.address, error)

    # sending

    def source_port_for(
        self, entropy: int, destination: bytes | None = None, source: bytes | None = None
    ) -> int:
        """As `RoceUdpLink`'s, of the link of the address ``source``; where none is said, of the first one of
        the version of ``destination``, or of all.  Where there is none, nothing leaves, from whatever port.
        """
        link = self._from(source, destination)
        return source_port(entropy) if link is None else int(link.source_port_for(entropy, destination))

    def _from(self, source: bytes | None, destination: bytes | None) -> Any:
        link = None if source is None else self._by_gid.get(source)
        if link is None and destination is not None:
            link = self._first.get(_is_v4(destination))
        if link is None and self.links:
            link = self.links[0]
        return link

    def send(self, burst: Burst) -> int:
        """`Link.send`, by the link of the address that the burst's route begins at."""
        assert burst.route is not None
        link = self._by_gid.get(burst.route.source)
        if link is None:
            return -errno.EADDRNOTAVAIL
        result = int(link.send(burst))
        self._blocked = link if result == AGAIN else None
        return result

    def abandon(self, burst: Burst) -> None:
        """`Link.abandon`."""
        blocked, self._blocked = self._blocked, None
        if blocked is not None:
            blocked.abandon(burst)

    def preserves_bursts(self, destination: bytes) -> bool:
        """`Link.preserves_bursts`, of what leaves from the first address of that version of IP."""
        link = self._from(None, destination)
        return link is not None and bool(link.preserves_bursts(destination))

    # receiving

    def receive(self, arrival: Arrival) -> bool:
        """`Link.receive`, of each address in turn."""
        links = self.links
        for step in range(len(links)):
            link = links[(self._turn + step) % len(links)]
            while link.receive(arrival):
                if self._is_own_copy(arrival):
                    self._own_copies += 1
                    continue
                self._turn = (self._turn + step + 1) % len(links)
                return True
        return False

    def _is_own_copy(self, arrival: Arrival) -> bool:
        """Whether the kernel gives back what left for a group here: the link drops what left from its own
        address alone.
        """
        assert arrival.destination is not None
        return is_multicast(arrival.destination) and arrival.source in self._by_gid

    def fileno(self) -> int:
        """`Link.fileno`: readable where one of the links' is."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    def group_fileno(self) -> int:
        """`Link.group_fileno`."""
        return -1 if self._groups.closed else self._groups.fileno()

    def join(self, gid: bytes) -> None:
        """`Link.join`, at the first address of the group's version of IP; EINVAL where there is none."""
        link = self._first.get(_is_v4(gid))
        if link is None:
            raise OSError(errno.EINVAL, "the port has no address of the group's IP version")
        link.join(gid)
        self._joined.add(gid)

    def leave(self, gid: bytes) -> None:
        """`Link.leave`."""
        self._joined.discard(gid)
        link = self._first.get(_is_v4(gid))
        if link is not None:
            link.leave(gid)

    def listen_for_frames(self) -> None:
        """`Link.listen_for_frames`, at the first address, which names the port's Ethernet station; OSError
        EADDRNOTAVAIL where that one has gone."""
        link = self._by_gid.get(self.gid)
        if link is None:
            raise OSError(errno.EADDRNOTAVAIL, f"the port has lost its first address, {self.address}")
        link.listen_for_frames()
        self._frames = True

    # what is held back, and what is counted

    def next_deadline(self) -> int:
        """`Link.next_deadline`: the earliest."""
        return min([NEVER, *(int(each.next_deadline()) for each in self.links)])

    def expire(self, now: int) -> bool:
        """`Link.expire`."""
        return any([each.expire(now) for each in self.links])

    def counters(self) -> dict[str, int]:
        """`Link.counters`: the sums, with those of addresses that have gone.  Copies of what left here for a
        group are among ``receive_drops``."""
        found = self._sums(lambda link: dict(link.counters()), self._gone)
        found["receive_drops"] = found.get("receive_drops", 0) + self._own_copies
        return found

    def shown_counters(self) -> dict[str, int]:
        """`Link.shown_counters`: the sums."""
        return self._sums(lambda link: dict(link.shown_counters()), self._gone_shown)

    def _sums(self, of: Callable[[Any], dict[str, int]], gone: dict[str, int]) -> dict[str, int]:
        found = dict(gone)
        for each in self.links:
            _add_to(found, of(each))
        return found

    def close(self) -> None:
        """`Link.close`."""
        for each in self.links:
            each.close()
        self._epoll.close()
        self._groups.close()


def _add_to(sums: dict[str, int], further: dict[str, int]) -> None:
    for name, value in further.items():
        sums[name] = sums.get(name, 0) + value


def _is_v4(gid: bytes) -> bool:
    return gid.startswith(V4_MAPPED_PREFIX)


def _waiting_for(descriptors: Sequence[int]) -> select.epoll:
    """An epoll that is readable where one of ``descriptors`` (-1: none) is.  OSError EMFILE."""
    made = select.epoll()
    try:
        for each in descriptors:
            if each >= 0:
                made.register(each, select.EPOLLIN)
    except OSError:
        made.close()
        raise
    return made
