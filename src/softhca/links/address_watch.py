"""Whether the addresses of a network interface have changed: rtnetlink's notifications, and a look.

Theory of operation.  The kernel tells of every address that comes or goes.  What it tells is only a reason to
look: which addresses there are is asked of it anew each time.  So nothing is believed that somebody else has
sent, notifications that were lost (ENOBUFS) are no harm, and an address that went and came back in between is
still there.  An IPv6 address that the kernel still probes for duplicates cannot be used yet; when it can, the
kernel tells of it once more.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from softhca.links import interfaces, netlink

MESSAGES_A_LOOK = 64
"""More notifications than these are taken at the next look."""

_RTMGRP_IPV4_IFADDR, _RTMGRP_IPV6_IFADDR = 0x10, 0x100
_MESSAGE_BYTES = 1 << 16
_KERNEL = 0


class AddressWatch:
    """Watches the interface that bears the address ``text`` of a port.  OSError where none does, and where
    there is no descriptor for it."""

    def __init__(self, text: str) -> None:
        packed, _ = interfaces.parse_address(text)
        self._own = ipaddress.ip_address(packed)
        self.interface = interfaces.interface_of_address(text)
        self._index = interfaces.index_of_interface(self.interface)
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._channel = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        try:
            self._channel.bind((0, _RTMGRP_IPV4_IFADDR | _RTMGRP_IPV6_IFADDR))
        except OSError:
            self._channel.close()
            raise

    def fileno(self) -> int:
        """Readable when `changed` is to be asked."""
        return self._channel.fileno()

    def changed(self) -> bool:
        """Whether addresses of the interface may have changed since this was last asked."""
        found = False
        for _ in range(MESSAGES_A_LOOK):
            try:
                data, sender = self._channel.recvfrom(_MESSAGE_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                found = True
                if error.errno != errno.ENOBUFS:  # some are lost; others follow
                    break
                continue
            if sender[0] == _KERNEL and netlink.may_change_addresses(data, self._index):
                found = True
        return found

    def addresses(self) -> list[str]:
        """The present addresses of the interface that a port can have, in the kernel's order: all that can be
        used but for IPv6's link-local ones, the port's own excepted.  OSError where the kernel does not say.
        """
        listed = interfaces.addresses_of_index(self._index)
        found = [each for each in listed if each == self._own or each.version == 4 or not each.is_link_local]
        if self._own.is_loopback and self._own not in found and any(
            each.version == self._own.version == 4 and each.is_loopback for each in listed
        ):
            found.insert(0, self._own)  # all of 127/8 is the loopback's, whichever is listed
        return [self._text_of(each) for each in found]

    def _text_of(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
        return f"{address}%{self._index}" if address.version == 6 and address.is_link_local else str(address)

    def close(self) -> None:
        """Watch no more; may be called again."""
        self._channel.close()
