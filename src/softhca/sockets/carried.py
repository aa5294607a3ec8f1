"""What sockets know of a connection whose descriptor a `Relay` serves: that descriptor is no socket of the
connection's family, and knows neither its names nor its options.

So a socket of TLS, made of the descriptor that its plain one gave up, has the names of its connection.
"""

from __future__ import annotations

import errno
import os
import weakref
from functools import partial
from typing import Any

from softhca.sockets.relay import Relay
from softhca.sockets.upgrade import Upgrade


class Carried:
    """The names and, by ``tcp``, the options of the connection that ``upgrade`` is."""

    def __init__(self, upgrade: Upgrade) -> None:
        self.tcp = upgrade.tcp
        self.kind = self.tcp.family, self.tcp.type, self.tcp.proto
        self.own_name = upgrade.own_name
        self._peer_name: Any = None
        try:
            self._peer_name = upgrade.peer_name
        except OSError as error:  # it has gone
            if error.errno != errno.ENOTCONN:
                raise

    @property
    def peer_name(self) -> Any:
        """The peer's address.  OSError ENOTCONN."""
        if self._peer_name is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._peer_name


_carried: weakref.WeakValueDictionary[int, Carried] = weakref.WeakValueDictionary()
"""By the descriptor's inode; kept by the relay, and by the sockets that are made of the descriptor."""


def carry(upgrade: Upgrade, number: int) -> Carried:
    """Have the descriptor ``number`` stand for the connection, by a `Relay`.  OSError EMFILE, EAGAIN."""
    found = Carried(upgrade)
    relay = Relay(upgrade.stream, number, partial(upgrade.leave, abruptly=False), found)
    upgrade.carried = True
    _carried[relay.inode] = found
    return found


def carried_of(number: int) -> Carried | None:
    """What is known of a descriptor; None where it is no relay's."""
    if not _carried or number < 0:
        return None
    try:
        return _carried.get(os.fstat(number).st_ino)
    except OSError:
        return None
