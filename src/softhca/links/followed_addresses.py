"""The link of a port that has all addresses of its interface, those that come and go included.

Theory of operation.  The engine's rounds call `expire`, which takes the kernel's notifications, at most once
in `LOOK_NS`, and asks which addresses there are, at most once in `SETTLE_NS`: whoever floods the interface
with changes makes the port look a hundred times a second, no more.  An address that cannot be opened, another
program has its port 4791 perhaps, is tried again after `RETRY_NS`.
"""

from __future__ import annotations

import errno
import logging
import select
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from softhca.links.interfaces import parse_address
from softhca.links.link import NEVER
from softhca.links.several_addresses import SeveralAddresses
from softhca.wire.flows import source_port
from softhca.wire.route import gid_of

if TYPE_CHECKING:
    from softhca.links.address_watch import AddressWatch

LOOK_NS = 1_000_000
SETTLE_NS = 10_000_000
RETRY_NS = 1_000_000_000

_log = logging.getLogger("softhca.links")


class FollowedAddresses(SeveralAddresses):
    """`SeveralAddresses` that follows ``watch``.  ``open_address`` opens the link of an address (its text);
    at most ``most`` addresses have one.

    ``on_change`` is called with the GIDs of all addresses when these have changed, and gives those that are
    not wanted.  ``links`` and ``watch`` are this link's from here on, also where making it fails.
    """

    def __init__(
        self, links: Sequence[Any], watch: AddressWatch, open_address: Callable[[str], Any], most: int
    ) -> None:
        try:
            super().__init__(links)
        except BaseException:
            watch.close()
            raise
        self.on_change: Callable[[tuple[bytes, ...]], Sequence[bytes]] = lambda gids: ()
        self._watch = watch
        self._open = open_address
        self._most = most
        self._failed: frozenset[str] = frozenset()
        self._look_ns = 0
        self._settled_ns = 0
        # what has changed while the links were opened was told to nobody
        self._due_ns = 0
        try:
            self._epoll.register(watch.fileno(), select.EPOLLIN)
        except BaseException:
            self.close()
            raise

    def source_port_for(
        self, entropy: int, destination: bytes | None = None, source: bytes | None = None
    ) -> int:
        """As `SeveralAddresses`'; of an address that has gone, and is not missed yet, any: nothing leaves."""
        try:
            return super().source_port_for(entropy, destination, source)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            return source_port(entropy)

    def next_deadline(self) -> int:
        """`Link.next_deadline`."""
        return min(super().next_deadline(), self._due_ns)

    def expire(self, now: int) -> bool:
        """`Link.expire`; what has changed at the interface changes here."""
        worked = super().expire(now)
        if now >= self._look_ns:
            self._look_ns = now + LOOK_NS
            if self._watch.changed():
                self._due_ns = min(self._due_ns, max(now, self._settled_ns))
        if now < self._due_ns:
            return worked
        self._due_ns = NEVER
        self._settled_ns = now + SETTLE_NS
        try:
            present = {gid_of(parse_address(text)[0]): text for text in self._watch.addresses()}
        except OSError as error:
            _log.debug("%s: which addresses it has is not known: %s", self._watch.interface, error)
            self._due_ns = now + RETRY_NS
            return worked
        return self._follow(present, now) or worked

    def _follow(self, present: dict[bytes, str], now: int) -> bool:
        """The interface has these addresses; whether they are others than before."""
        before = self.gids
        for gid in before:
            if gid not in present:
                self.remove(gid)
        failed = set()
        for gid, text in present.items():
            if gid in self.gids or len(self.gids) >= self._most:
                continue
            try:
                self.add(self._open(text))
            except (OSError, ValueError) as error:
                failed.add(text)
                if text not in self._failed:
                    _log.warning("%s is no address of a port yet: %s", text, error)
        self._failed = frozenset(failed)
        if failed:
            self._due_ns = now + RETRY_NS
        if self.gids == before:
            return False
        for gid in self.on_change(self.gids):
            self.remove(gid)
        return True

    def close(self) -> None:
        """`Link.close`."""
        self._watch.close()
        super().close()
