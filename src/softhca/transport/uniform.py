"""Which RDMA WRITEs and READs a reliable connection sends as messages whose packets all have one length.

A burst leaves in one system call if its packets have one length.  The FIRST of a WRITE has a RETH more than
what follows, FIRST and LAST of a READ's answer have an AETH, so that messages of a few packets leave in many
short bursts.  But a WRITE without immediate has no boundary that the responder tells anybody: it may go as
Only packets, each with a RETH of its own; and a READ may go as several of two packets, whose answers are a
FIRST and a LAST.  These are standard packets, the same bytes in the same order under the same key, and the
responder answers, counts (MSN) and refuses as it does for so many messages of a consumer.

The responder judges the range of each message before it moves a byte.  So that a request which reaches beyond
its region still changes nothing, only ranges go so that are *proven*: of each key and right the connection
remembers from where to where its requests of many packets have ended well.  A key stands for one range of
addresses, so what lies between two proven places is proven, too; and a key that has died refuses the first
packet as it refuses the first message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import cython

from softhca.queues.operations import READ, WRITE
from softhca.transport.states import RC
from softhca.wire.framing import NATIVE

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.transport.request import Request

READ_PACKETS = 2
"""Response packets that one request of such a READ asks for."""

MOST_PROVEN = 16
"""So many keys a connection remembers, those of WRITEs and of READs counted apart; then it begins anew."""

_WRITE = cython.declare(cython.int, WRITE)
_READ = cython.declare(cython.int, READ)
_MOST = cython.declare(cython.Py_ssize_t, MOST_PROVEN)


@dataclass(frozen=True)
class UniformBursts:
    """Which messages go so, where their range is proven.

    ``write_bytes`` and ``read_bytes``: RDMA WRITEs and READs up to this long; ``reads_under_way_bytes``:
    READs only where a connection may ask for so much at once, as with less its path rests between answers
    and requests.  The defaults are what gains by it where it was measured (docs/performance.md).
    """

    write_bytes: int = 131_072
    read_bytes: int = 32_768
    reads_under_way_bytes: int = 65_536


class UniformMessages:
    """What a connection sends so, and which ranges of its peer's memory are proven.

    ``write_packets``: the longest RDMA WRITE without immediate that goes as Only packets; ``read_packets``:
    the longest RDMA READ that goes as requests of `READ_PACKETS` packets; 0: none.
    """

    def __init__(self) -> None:
        self.write_packets = 0
        self.read_packets = 0
        self._proven: dict[int, tuple[int, int]] = {}

    def choose(self, connection: Connection) -> None:
        """Find out what ``connection`` sends so, along its route of now."""
        self.write_packets, self.read_packets = uniform_packets(connection)

    def forget(self) -> None:
        """Nothing is proven: a connection begins."""
        self._proven.clear()

    def takes(self, request: Request) -> bool:
        """Whether a WRITE or READ that has its packets goes so."""
        most: cython.uint = self.read_packets
        if request.kind == _WRITE:
            most = 0 if request.limited else self.write_packets
        return 1 < request.packets <= most and self.proven(request)

    def proven(self, request: Request) -> bool:
        """Whether requests of this right have ended well on both sides of this one's range, or there."""
        first: cython.ulonglong
        last: cython.ulonglong
        found = self._proven.get(_right(request))
        if found is None:
            return False
        first, last = found
        return (
            first <= request.work.remote_va <= last
            and request.length_bytes - 1 <= last - request.work.remote_va
        )

    def succeeded(self, request: Request) -> None:
        """A request of more than one packet has ended well: if it is one of those that may go so, its range
        is proven.
        """
        first: cython.ulonglong
        last: cython.ulonglong
        most: cython.uint = 0
        if request.kind == _WRITE:
            most = self.write_packets
        elif request.kind == _READ:
            most = self.read_packets
        if not most or self.proven(request):
            return
        first = request.work.remote_va
        last = first + (request.length_bytes - 1)
        right = _right(request)
        found = self._proven.get(right)
        if found is not None:
            first, last = min(first, found[0]), max(last, found[1])
        elif len(self._proven) >= _MOST:
            self._proven.clear()
        self._proven[right] = (first, last)


def uniform_packets(connection: Connection) -> tuple[int, int]:
    """The longest RDMA WRITE without immediate that ``connection`` may send as Only packets, and the longest
    RDMA READ that it may send as requests of `READ_PACKETS` packets, both in packets; 0: none.

    Only RC along RoCE routes: a burst of native packets may hold any lengths.
    """
    rules: UniformBursts | None = connection.environment.uniform_bursts
    route = connection.flow.route
    if rules is None or connection.service != RC or route is None or route.framing == NATIVE:
        return 0, 0
    pmtu = connection.path_mtu_bytes
    reads = connection.max_rd_atomic * READ_PACKETS * pmtu >= rules.reads_under_way_bytes
    return rules.write_bytes // pmtu, rules.read_bytes // pmtu if reads else 0


def _right(request: Request) -> int:
    """What ranges are remembered by: the key, and whether it is for reading."""
    key: cython.ulonglong = request.work.rkey
    return key << 1 | (request.kind == _READ)
