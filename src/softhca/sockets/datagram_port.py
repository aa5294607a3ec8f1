"""A datagram socket at one port of a device: an unreliable datagram queue pair, slots that messages land in,
and the messages that leave.

Each slot is a page of the pool, so that the page messages of a long datagram, which usually come one behind
the other, land in pages one behind the other.  The 40 bytes in front of every message go elsewhere.
Calls are made with the socket's lock held.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable
from functools import partial

from softhca.driver.rdmacm.groups import UDP_QKEY
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES
from softhca.sockets import devices
from softhca.sockets.completion_thread import completion_thread_of
from softhca.sockets.datagram_credits import SendCredit, Source
from softhca.sockets.datagram_port_path import DEPTH, FAILED, GRH_ROOM, INLINE_BYTES, DatagramPortPath
from softhca.sockets.datagram_state import Datagram
from softhca.sockets.memory_processing import PageBuffer, Pool, space_of
from softhca.sockets.resolving import Found
from softhca.sockets.settings import Settings
from softhca.sockets.staging import Staging
from softhca.verbs import cm_contexts
from softhca.verbs import enums as e
from softhca.verbs.addr import AH
from softhca.verbs.cq import CQ
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

FEWEST_SLOTS, MOST_SLOTS = 64, 1024
LEAST_STAGING_BYTES = 256 << 10
"""With less a datagram might find no room, however long it waits."""


class PeerPath:
    """How a peer is reached: what was ``found`` of it, by which port, as whom (``host``, ``own_port``), and
    how far it may be sent to (``credit``, of all ways to its queue pair).
    """

    def __init__(self, port: DatagramPort, found: Found, host: bytes, own_port: int) -> None:
        self.port = port
        self.found = found
        self.host, self.own_port = host, own_port
        self.mtu = min(found.mtu, port.place.mtu)
        self.source = found.gid, found.qp_num
        self.qp_num, self.qkey = found.qp_num, found.qkey
        self.handle = AH(port.pd, attr=found.vector)
        self.number = self.handle.number
        self.closed = False
        self.credit = port.credit_of(self.source, found.window)

    def end(self) -> None:
        """Nothing is sent that way any more; its handle is closed once what was sent has left."""
        self.closed = True
        self.port.close_behind(self)

    def close(self) -> None:
        """Nothing is sent that way any more, and nothing is under way."""
        self.closed = True
        with contextlib.suppress(*FAILED):
            self.handle.close()


class DatagramPort(DatagramPortPath):
    """``settings.pool_bytes`` of slots at ``place``; `PoolError`, PyverbsError.

    ``failed``: nothing comes or goes any more.  ``copied_bytes``, ``mapped_bytes``, ``lent_bytes`` and
    ``direct_bytes`` count as those of a stream.  ``on_event`` is called when completions come.
    """

    def __init__(self, place: LocalPort, settings: Settings, on_event: Callable[[], object]) -> None:
        self.place = place
        self.settings = settings
        self.mapped_bytes = self.lent_bytes = 0
        devices.keep_place(place)
        self.driver = place.device
        self.completion_thread = completion_thread_of(place.device)
        context = cm_contexts.join(place.device)
        self.pd = cm_contexts.domain_of(place.device)
        slots = max(min(settings.pool_bytes // PAGE_BYTES, MOST_SLOTS), FEWEST_SLOTS)
        self._begin_path(slots, settings.threshold_bytes)
        self._mapped: dict[int, Callable[[], object]] = {}
        self._left: deque[tuple[int, PeerPath]] = deque()
        self._cq: CQ | None = None
        self._qp: QP | None = None
        self._staging = None  # type: ignore[assignment]
        try:
            self._pool = Pool(self.pd, slots * PAGE_BYTES, slots * GRH_ROOM, remote=False)
        except BaseException:
            cm_contexts.leave(place.device)
            raise
        try:
            self._staging = Staging(self.pd, max(settings.staging_bytes, LEAST_STAGING_BYTES))
            self._lkey = space_of(self.pd).lkey
            base = self._pool.address
            self._begin_receiving(base, base + self._pool.length, self._pool.lkey)
            self._cq = CQ(context, DEPTH + slots + 8)
            self._handle = self._cq.handle
            self._handle.on_event = on_event
            self._poller = self._handle.poller
            caps = QPCap(
                max_send_wr=DEPTH, max_recv_wr=slots, max_send_sge=2, max_recv_sge=2,
                max_inline_data=INLINE_BYTES,
            )  # fmt: skip
            init = QPInitAttr(e.IBV_QPT_UD, scq=self._cq, rcq=self._cq, cap=caps, sq_sig_all=0)
            self._qp = QP(self.pd, init)
            attributes = QPAttr(port_num=place.port)
            attributes.qkey = UDP_QKEY
            self._qp.to_rts(attributes)
            self._queue_pair = self._qp.handle
            self.state.free = list(range(slots))
            self._post_receives()
            self._handle.arm()
            self.completion_thread.follow(self)
        except BaseException:
            self.close()
            raise

    @property
    def number(self) -> int:
        """Of the queue pair."""
        assert self._qp is not None
        return int(self._qp.qp_num)

    # receiving

    def device_ended(self) -> None:
        """The adapter is gone; called by any thread."""
        self.failed = True
        if (tell := self._handle.on_event) is not None:
            tell()

    def arm(self) -> None:
        """Have ``on_event`` called at the next completion."""
        with contextlib.suppress(*FAILED):
            self._handle.arm()

    def _one_run(self, found: Datagram, pages: int) -> bool:
        """Whether the first ``pages`` pages are whole ones, one behind the other."""
        slots = found.pages[:pages]
        return found.page_bytes == PAGE_BYTES and slots == list(range(slots[0], slots[0] + len(slots)))

    def take_into(self, found: Datagram, view: memoryview, peek: bool) -> int:
        """Copy into ``view``; above the threshold map whole pages onto the `PageBuffer` that it is of.  How
        many bytes; the slots that are done with are given back, unless ``peek``.
        """
        length = min(view.nbytes, found.total)
        target = primitives.address_of(view) if length else 0
        skipped = 0 if peek else self._map(found, view, target, length)
        at, kept = 0, skipped // PAGE_BYTES
        for address, size in self._pieces(found):
            begin = max(skipped - at, 0)
            taken = min(size, length - at) - begin
            if taken > 0:
                primitives.copy(target + at + begin, address + begin, taken)
                self.copied_bytes += taken
            at += size
        if not peek:
            self.state.give_back(found.slots[kept:])
        return length

    def _map(self, found: Datagram, view: memoryview, address: int, length: int) -> int:
        """Map as many whole pages as there are; how many bytes."""
        buffer = view.obj
        if not isinstance(buffer, PageBuffer) or address % PAGE_BYTES or not self.settings.mapping:
            return 0
        pages = min(length, found.total) // PAGE_BYTES
        size = pages * PAGE_BYTES
        if size <= self.settings.threshold_bytes or not self._one_run(found, pages):
            return 0
        slots = found.pages[:pages]
        if self._pool.map(slots[0] * PAGE_BYTES, size, address):
            return 0
        returned = partial(self._pool.returned, partial(self.release, slots))
        self._mapped[slots[0]] = buffer.mapped(buffer.offset_of(address), size, returned)
        self.mapped_bytes += size
        return size

    def view_of(self, found: Datagram, length: int) -> memoryview:
        """A view of the pool itself, where the bytes are in one run; else of a copy."""
        pieces, length = self._pieces(found), min(length, found.total)
        if not length:
            self.state.give_back(found.slots)
            return memoryview(b"")
        pages = -(-length // PAGE_BYTES) if found.pages else 0
        if pages > len(found.pages) or (pages and not self._one_run(found, pages)):
            data = self.bytes_of(found, length)
            self.state.give_back(found.slots)
            return memoryview(data)
        kept = found.pages[:pages] or [found.first]
        self.state.give_back([slot for slot in found.slots if slot not in kept])
        self.lent_bytes += length
        offset = pieces[0][0] - self._pool.address
        return self._pool.lend(offset, length, lambda: self.release(kept))

    def release(self, slots: list[int]) -> None:
        """The application has done with them.  Waits for nobody: the next call takes them."""
        self._given_back.append(slots)

    def _reclaim(self) -> None:
        while self._given_back:
            slots = self._given_back.popleft()
            self._mapped.pop(slots[0], None)
            self.state.give_back(slots)

    # sending

    def credit_of(self, source: Source, window: int) -> SendCredit:
        """How far a queue pair may be sent to; of one that nobody sends to yet, ``window`` messages."""
        found = self.state.sending.get(source)
        if found is None:
            patience_ns = int(self.settings.credit_s * 1e9)
            found = SendCredit(random.getrandbits(32), window, patience_ns)
            self.state.sending[source] = found
        return found

    @property
    def idle(self) -> bool:
        """Whether all that was sent is known to have left."""
        return not self._inflight or self.failed

    def close_behind(self, way: PeerPath) -> None:
        """Close the handle of a way once all that was sent until now has left."""
        if self.idle:
            way.close()
        else:
            self._left.append((self._number, way))

    def _gone(self, number: int) -> None:
        """All up to this datagram has left."""
        while self._left and self._left[0][0] <= number:
            self._left.popleft()[1].close()

    # the end

    def close(self) -> None:
        """Give everything back; what the application holds stays until it releases it."""
        self.failed = True
        for release in list(self._mapped.values()):
            release()
        if self._cq is not None:
            self._handle.on_event = None
        for each in (self._qp, self._cq):
            with contextlib.suppress(*FAILED):
                if each is not None:
                    each.close()
        self._pool.close()
        if self._staging is not None:
            self._staging.close()
        self._inflight.clear()
        while self._left:
            self._left.popleft()[1].close()
        with contextlib.suppress(KeyError, *FAILED):
            cm_contexts.leave(self.driver)

    def abandon(self) -> None:
        """In a forked child: it is the parent's."""
        self.failed = True
        self._pool.abandon()
