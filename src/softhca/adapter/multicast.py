"""Multicast groups: which queue pairs get a copy of a datagram to a multicast GID (IBTA vol. 1, 10.5)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.adapter.config import AdapterConfig

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair


Membership = Callable[[int, bytes], object]
"""A port's number and a group's GID."""


def _no_link(port_number: int, gid: bytes) -> None:
    """No link has to be told."""


class MulticastGroups:
    """Groups of one adapter, within its limits.

    ``join`` is called before the first queue pair of a port is attached to a group, and may refuse with
    OSError; ``leave`` when the last one is attached no more.  A queue pair's port is the one that it has when
    it is attached.
    """

    def __init__(self, config: AdapterConfig) -> None:
        self._config = config
        self._groups: dict[bytes, dict[int, QueuePair]] = {}
        self._ports: dict[bytes, dict[int, int]] = {}
        self.join: Membership = _no_link
        self.leave: Membership = _no_link

    def attach(self, gid: bytes, queue_pair: QueuePair) -> None:
        """Let ``queue_pair`` receive; attaching twice is once.  EINVAL for one that is not UD, ENOMEM when
        full, or why its port's link cannot join.
        """
        if not queue_pair.flow.multicasts:
            raise OSError(errno.EINVAL, "qp_num: only UD queue pairs receive multicast")
        group = self._groups.get(gid, {})
        if queue_pair.number in group:
            return
        if not group and len(self._groups) >= self._config.max_mcast_grp:
            raise OSError(
                errno.ENOMEM, f"max_mcast_grp = {self._config.max_mcast_grp}: there are so many groups"
            )
        if len(group) >= self._config.max_mcast_qp_attach:
            raise OSError(
                errno.ENOMEM, f"max_mcast_qp_attach = {self._config.max_mcast_qp_attach}: the group has them"
            )
        ports, port = self._ports.get(gid, {}), queue_pair.flow.port_number
        if port not in ports.values():
            self._join(port, gid)
        self._groups[gid], self._ports[gid] = group, ports
        group[queue_pair.number], ports[queue_pair.number] = queue_pair, port

    def _join(self, port: int, gid: bytes) -> None:
        try:
            self.join(port, gid)
        except OSError as error:
            raise OSError(error.errno, f"gid: its port cannot join: {error.strerror or error}") from None

    def detach(self, gid: bytes, queue_pair: QueuePair) -> None:
        """Let it receive no more.  EINVAL when it did not."""
        group = self._groups.get(gid, {})
        if queue_pair.number not in group:
            raise OSError(errno.EINVAL, f"gid: queue pair {queue_pair.number} is not attached to this group")
        ports = self._ports[gid]
        port = ports.pop(queue_pair.number)
        del group[queue_pair.number]
        if not group:
            del self._groups[gid], self._ports[gid]
        if port not in ports.values():
            self.leave(port, gid)

    def forget(self, queue_pair: QueuePair) -> None:
        """The queue pair goes: out of every group."""
        for gid in [gid for gid, group in self._groups.items() if queue_pair.number in group]:
            self.detach(gid, queue_pair)

    def heard(self, gid: bytes) -> bool:
        """Whether any queue pair here receives what is sent to ``gid``."""
        return gid in self._groups

    def members(self, gid: bytes) -> list[QueuePair]:
        """Who receives what is sent to ``gid``."""
        return list(self._groups.get(gid, {}).values())
