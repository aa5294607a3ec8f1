"""A software adapter at the other end of a native link whose near end is somebody else's, in virtual time.

Whoever has the near end (an adapter in gates, say) gives it the packets that come, LRH … VCRC, takes those
that it sends, and says how much time goes by.
"""

from __future__ import annotations

from collections.abc import Callable

from softhca.driver import services
from softhca.driver.device import QpHandle
from softhca.driver.services import Path
from softhca.testing.datagram import Datagram
from softhca.testing.ends import ALL_RIGHTS, End
from softhca.testing.network import Network

MTU_CODES = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
LARGEST_MTU = 4096


class NativePeer:
    """``end`` has its registered memory and completions, ``lid`` is its address; ``send`` is called with each
    packet that it sends."""

    def __init__(self, send: Callable[[bytes], object], memory_bytes: int = 1 << 16) -> None:
        self.network = Network(link="native")
        self.end = End(self.network.add(active_mtu=MTU_CODES[LARGEST_MTU]), memory_bytes)
        self._send = send
        self.network.tamper = self._sent

    @property
    def lid(self) -> int:
        """The LID that packets to it have."""
        return self.end.node.lid

    def _sent(self, datagram: Datagram) -> None:
        self._send(bytes(datagram.data))

    def connect(
        self, lid: int, qpn: int, psns: tuple[int, int], mtu: int = 256, **reliability: int
    ) -> QpHandle:
        """A queue pair that talks to ``qpn`` at ``lid``; ``psns`` are the other end's and its own first one,
        ``mtu`` is in bytes."""
        qp = self.end.qp()
        how = services.Reliability(**reliability)
        services.connect(qp, Path(None, mtu=MTU_CODES[mtu], dlid=lid), qpn, *psns, ALL_RIGHTS, how)
        self.network.run(limit_ns=0)
        return qp

    def receive(self, data: bytes) -> None:
        """A packet arrives."""
        self.network.inject(self.end.node, data)

    def elapse(self, time_ns: int) -> None:
        """So much time goes by, with all that is due in it."""
        self.network.elapse(time_ns)
