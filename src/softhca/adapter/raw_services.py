"""Raw services: which queue pair receives the raw datagrams of an EtherType, of IPv6, or all others.

A raw packet names no queue pair; the programs of an adapter say among themselves who receives what (IBTA
vol. 1, o9-146).  One queue pair at most has a service, and it may have several (o9-147).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca.transport.states import RAW
from softhca.wire.ip import ETHERTYPE_IPV6
from softhca.wire.raw import ALL_RAW, RAW_IPV6

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair


class RawServices:
    """The raw services of one adapter.  `RAW_IPV6` and IPv6's EtherType are one: both encodings of IPv6."""

    def __init__(self) -> None:
        self._receivers: dict[int, QueuePair] = {}

    def attach(self, service: int, queue_pair: QueuePair) -> None:
        """Let ``queue_pair`` receive; attaching twice is once.  EINVAL for one that is not raw or a service
        that cannot be, EBUSY when another one receives it.
        """
        if queue_pair.service != RAW:
            raise OSError(errno.EINVAL, "qp_num: only raw queue pairs receive raw datagrams")
        if not 0 <= service <= RAW_IPV6 and service != ALL_RAW:
            raise OSError(errno.EINVAL, f"service = {service:#x}: no EtherType and no other raw service")
        service = _one(service)
        if self._receivers.setdefault(service, queue_pair) is not queue_pair:
            raise OSError(errno.EBUSY, f"service = {service:#x}: another queue pair receives it")

    def detach(self, service: int, queue_pair: QueuePair) -> None:
        """Let it receive no more.  EINVAL when it did not."""
        service = _one(service)
        if self._receivers.get(service) is not queue_pair:
            raise OSError(
                errno.EINVAL, f"service = {service:#x}: queue pair {queue_pair.number} does not receive it"
            )
        del self._receivers[service]

    def forget(self, queue_pair: QueuePair) -> None:
        """The queue pair goes, and all its services with it."""
        if queue_pair.service == RAW:
            for service in [each for each, owner in self._receivers.items() if owner is queue_pair]:
                del self._receivers[service]

    def receiver(self, service: int) -> QueuePair | None:
        """Who receives a datagram of ``service``: its own queue pair, else the one for all others."""
        return self._receivers.get(_one(service)) or self._receivers.get(ALL_RAW)


def _one(service: int) -> int:
    return ETHERTYPE_IPV6 if service == RAW_IPV6 else service
