"""The work request module: RDMA WRITEs of what an address record names, and notifications.

Contiguous memory takes one work request, scattered memory one for each run; each that crosses the end of the
peer's pool is cut there.  The resources of a socket are asked for once, when the module is made.
"""

from __future__ import annotations

from socket import htonl

from softhca.machine import primitives
from softhca.sockets.memory_management import Piece
from softhca.sockets.memory_processing import Page
from softhca.sockets.protocol import RECORD
from softhca.verbs import enums as e
from softhca.verbs.qp import QP
from softhca.verbs.wr import SGE, RecvWR, SendWR

INLINE_BYTES = 512
"""Up to so many bytes the work request itself carries the data."""
WHOLE_BYTES = 64 << 10
"""Up to so many bytes the WRITE that carries the data is the notification, too.  More is written without
one, since the initiator may do that in shared memory, and then told."""
WORK_REQUESTS = 4
"""At most so many for one notification, runs of scattered memory apart."""

TAKEN = 1 << 62
"""In the number of a completion: the data have been taken, which is before they are told."""

_WRITE, _WRITE_IMM = int(e.IBV_WR_RDMA_WRITE), int(e.IBV_WR_RDMA_WRITE_WITH_IMM)
_SIGNALED, _INLINE = int(e.IBV_SEND_SIGNALED), int(e.IBV_SEND_INLINE)


class WorkRequests:
    """Builds and posts for one queue pair; ``address`` and ``rkey`` are the peer's pool, ``record`` the
    address of the peer's record B.
    """

    def __init__(self, qp: QP, address: int, rkey: int, record: int) -> None:
        self._qp = qp
        self._address, self._rkey, self._record = address, rkey, record
        self._receive = RecvWR()

    def write(
        self,
        number: int,
        runs: list[Page],
        places: list[Piece],
        immediate: int,
        inline: bool = False,
        early: bool = False,
    ) -> None:
        """WRITE ``runs`` to ``places``, whose lengths add up to the same, and tell; the completion is
        ``number``.  ``inline``: the work requests carry the data, so that ``runs`` need no key.  ``early``:
        where the data are written before they are told there is one more completion, ``number`` with `TAKEN`.
        """
        total = sum(run.length for run in runs)
        parts = _cut(runs, places)
        carried = _INLINE if inline else 0
        head: SendWR | None = None
        last: SendWR | None = None
        if len(parts) > 1 or total > WHOLE_BYTES:
            for run, offset in parts:
                request = self._request(number, _WRITE, run, offset, 0, carried)
                head, last = self._append(head, last, request)
            if early and last is not None:
                last.wr_id, last.send_flags = number | TAKEN, carried | _SIGNALED
            run, offset = Page(0, 0, 0), 0
        else:
            run, offset = parts[0]
        flags = _SIGNALED | (carried if run.length else 0)
        final = self._request(number, _WRITE_IMM, run, offset, immediate, flags)
        head, last = self._append(head, last, final)
        self._qp.post_send(head)

    def notify(self, number: int, immediate: int) -> None:
        """Tell, without data."""
        self._qp.post_send(self._request(number, _WRITE_IMM, Page(0, 0, 0), 0, immediate, _SIGNALED))

    def probe(self, number: int) -> None:
        """A WRITE of nothing, of which the peer's program learns nothing, and its adapter says that it has
        come.
        """
        self._qp.post_send(self._request(number, _WRITE, Page(0, 0, 0), 0, 0, _SIGNALED))

    def credit(self, number: int, head: int, count: int, immediate: int) -> None:
        """Write record B at the peer, and tell."""
        words = RECORD.pack(head, count)
        run = Page(primitives.address_of(memoryview(words), False), len(words), 0)
        place = self._record - self._address
        flags = _SIGNALED | _INLINE
        self._qp.post_send(self._request(number, _WRITE_IMM, run, place, immediate, flags))

    def receive(self, count: int) -> None:
        """Have ``count`` notifications more received."""
        chain: RecvWR | None = None
        for _ in range(count):
            chain = RecvWR(next_wr=chain)
        if chain is not None:
            self._qp.post_recv(chain)

    def _request(
        self, number: int, opcode: int, run: Page, offset: int, immediate: int, flags: int
    ) -> SendWR:
        made = SendWR(number, opcode, 1, htonl(immediate), [SGE(*run)], flags)
        made.set_wr_rdma(self._rkey, self._address + offset)
        return made

    @staticmethod
    def _append(head: SendWR | None, last: SendWR | None, request: SendWR) -> tuple[SendWR, SendWR]:
        if last is None:
            return request, request
        last.next_wr = request
        assert head is not None
        return head, request


def _cut(runs: list[Page], places: list[Piece]) -> list[tuple[Page, int]]:
    """``runs`` cut where a place ends: parts, and the offset in the pool of each."""
    if len(runs) == 1 and len(places) == 1:
        return [(runs[0], places[0][0])]
    found = []
    targets = iter(places)
    offset, left = next(targets)
    for address, length, lkey in runs:
        while length:
            if not left:
                offset, left = next(targets)
            taken = min(length, left)
            found.append((Page(address, taken, lkey), offset))
            address, length = address + taken, length - taken
            offset, left = offset + taken, left - taken
    return found
