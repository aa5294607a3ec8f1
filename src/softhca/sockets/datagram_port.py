"""A datagram socket at one port of a device: an unreliable datagram queue pair, slots that messages land in,
and the messages that leave.

Each slot is a page of the pool, so that the page messages of a long datagram, which usually come one behind
the other, land in pages one behind the other.  The 40 bytes in front of every message go elsewhere.
Calls are made with the socket's lock held.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from socket import htonl

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm.groups import UDP_QKEY
from softhca.driver.rdmacm.local_devices import LocalPort
from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES
from softhca.sockets import datagram_protocol, devices
from softhca.sockets.completion_thread import completion_thread_of
from softhca.sockets.datagram_credits import SendCredit, Source
from softhca.sockets.datagram_protocol import CREDIT, GONE, HEADER_BYTES, Header, mtu_bytes, page_immediate
from softhca.sockets.datagram_state import Datagram, DatagramState
from softhca.sockets.memory_processing import Page, PageBuffer, Pool, space_of
from softhca.sockets.resolving import Found
from softhca.sockets.settings import Settings
from softhca.sockets.staging import Staging
from softhca.verbs import cm_contexts
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, GRH_BYTES, source_of_grh
from softhca.verbs.cq import CQ
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

FEWEST_SLOTS, MOST_SLOTS = 64, 1024
DEPTH = 1024
"""Send work requests under way."""
INLINE_BYTES = 512
_POLLED = 32
_GRH_ROOM = 64
_RECV = int(e.IBV_WC_RECV)
_WITH_IMM, _WITH_GRH = int(e.IBV_WC_WITH_IMM), int(e.IBV_WC_GRH)
_SEND, _SEND_IMM = int(e.IBV_WR_SEND), int(e.IBV_WR_SEND_WITH_IMM)
_SIGNALED, _INLINE = int(e.IBV_SEND_SIGNALED), int(e.IBV_SEND_INLINE)
_FAILED = (PyverbsError, DriverError)


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
        self.handle = AH(port.pd, attr=found.vector)
        self.credit = port.credit_of(self.source, found.window)

    def close(self) -> None:
        """Nothing is sent that way any more."""
        with contextlib.suppress(*_FAILED):
            self.handle.close()


class DatagramPort:
    """``settings.pool_bytes`` of slots at ``place``; `PoolError`, PyverbsError.

    ``failed``: nothing comes or goes any more.  ``copied_bytes``, ``mapped_bytes``, ``lent_bytes`` and
    ``direct_bytes`` count as those of a stream.  ``on_event`` is called when completions come.
    """

    def __init__(self, place: LocalPort, settings: Settings, on_event: Callable[[], object]) -> None:
        self.place = place
        self.settings = settings
        self.failed = False
        self.copied_bytes = self.mapped_bytes = self.lent_bytes = self.direct_bytes = 0
        self.retired = 0
        devices.keep_place(place)
        self.driver = place.device
        self.completion_thread = completion_thread_of(place.device)
        context = cm_contexts.join(place.device)
        self.pd = cm_contexts.domain_of(place.device)
        slots = max(min(settings.pool_bytes // PAGE_BYTES, MOST_SLOTS), FEWEST_SLOTS)
        self.state = DatagramState(slots)
        self._number = 0
        self._inflight: deque[tuple[int, int, int, object]] = deque()
        self._posted_sends = 0
        self._given_back: deque[list[int]] = deque()
        self._mapped: dict[int, Callable[[], object]] = {}
        self._cursor = 0
        self._datagrams = 0
        self._cq: CQ | None = None
        self._qp: QP | None = None
        self._staging: Staging | None = None
        try:
            self._pool = Pool(self.pd, slots * PAGE_BYTES, slots * _GRH_ROOM, remote=False)
        except BaseException:
            cm_contexts.leave(place.device)
            raise
        try:
            self._staging = Staging(self.pd, settings.staging_bytes)
            self._space = space_of(self.pd)
            self._cq = CQ(context, DEPTH + slots + 8)
            self._handle = self._cq.handle
            self._handle.on_event = on_event
            caps = QPCap(
                max_send_wr=DEPTH, max_recv_wr=slots, max_send_sge=2, max_recv_sge=2,
                max_inline_data=INLINE_BYTES,
            )  # fmt: skip
            init = QPInitAttr(e.IBV_QPT_UD, scq=self._cq, rcq=self._cq, cap=caps, sq_sig_all=0)
            self._qp = QP(self.pd, init)
            attributes = QPAttr(port_num=place.port)
            attributes.qkey = UDP_QKEY
            self._qp.to_rts(attributes)
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

    @property
    def waiting(self) -> bool:
        """Whether there are completions to be taken."""
        return bool(self._handle.waiting())

    def device_ended(self) -> None:
        """The adapter is gone; called by any thread."""
        self.failed = True
        if (tell := self._handle.on_event) is not None:
            tell()

    def arm(self) -> None:
        """Have ``on_event`` called at the next completion."""
        with contextlib.suppress(*_FAILED):
            self._handle.arm()

    def pump(self) -> None:
        """Take all completions there are."""
        if self.failed or not (self._handle.waiting() or self._given_back or self.state.free):
            return
        try:
            while self._handle.waiting():
                for each in self._handle.poll(_POLLED):
                    if each.status:
                        self.failed = True
                        return
                    if each.opcode & _RECV:
                        self._arrived(each)
                    else:
                        self._retire(each.wr_id)
            self._reclaim()
            self._post_receives()
        except _FAILED:
            self.failed = True

    def _arrived(self, each: object) -> None:
        slot, length = each.wr_id, each.byte_len - GRH_BYTES  # type: ignore[attr-defined]
        place = self._pool.address + self._pool.length + slot * _GRH_ROOM
        gid = source_of_grh(primitives.bytes_at(place, GRH_BYTES))
        flags = each.wc_flags  # type: ignore[attr-defined]
        if not flags & _WITH_GRH:
            gid = bytes(16)
        source = gid, each.src_qp  # type: ignore[attr-defined]
        now_ns = time.monotonic_ns()
        if flags & _WITH_IMM:
            self.state.page_arrived(slot, source, length, each.imm_data, now_ns)  # type: ignore[attr-defined]
            return
        head = primitives.bytes_at(self._pool.address + slot * PAGE_BYTES, min(HEADER_BYTES, max(length, 0)))
        self.state.arrived(slot, source, length, head, now_ns)

    def _post_receives(self) -> None:
        """Post what is free, in the order of the pages from where the last one was."""
        state = self.state
        posted = state.slots - state.used - len(state.free)
        if not state.free or (len(state.free) < 8 and posted > state.slots // 4):
            return
        free = sorted(state.free, key=lambda slot: (slot - self._cursor) % state.slots)
        self._cursor = (free[-1] + 1) % state.slots
        state.free = []
        base, heads, lkey = self._pool.address, self._pool.address + self._pool.length, self._pool.lkey
        chain: RecvWR | None = None
        for slot in reversed(free):
            elements = [
                SGE(heads + slot * _GRH_ROOM, GRH_BYTES, lkey),
                SGE(base + slot * PAGE_BYTES, PAGE_BYTES, lkey),
            ]
            chain = RecvWR(slot, 2, elements, chain)
        assert self._qp is not None
        assert chain is not None
        self._qp.post_recv(chain)

    def _pieces(self, found: Datagram) -> list[tuple[int, int]]:
        """Address and length of each part."""
        base, left, parts = self._pool.address, found.total, []
        for slot in found.pages:
            size = min(found.page_bytes, left)
            parts.append((base + slot * PAGE_BYTES, size))
            left -= size
        if left:
            parts.append((base + found.first * PAGE_BYTES + HEADER_BYTES, left))
        return parts

    def _one_run(self, found: Datagram, pages: int) -> bool:
        """Whether the first ``pages`` pages are whole ones, one behind the other."""
        slots = found.pages[:pages]
        return found.page_bytes == PAGE_BYTES and slots == list(range(slots[0], slots[0] + len(slots)))

    def bytes_of(self, found: Datagram, length: int) -> bytes:
        """A copy of up to ``length`` bytes."""
        parts = []
        for address, size in self._pieces(found):
            taken = min(size, length)
            parts.append(primitives.bytes_at(address, taken))
            length -= taken
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.copied_bytes += len(data)
        return data

    def take_into(self, found: Datagram, view: memoryview, peek: bool) -> int:
        """Copy into ``view``; above the threshold map whole pages onto the `PageBuffer` that it is of.  How
        many bytes; the slots that are done with are given back, unless ``peek``.
        """
        length = min(view.nbytes, found.total)
        target = primitives.address_of(view) if length else 0
        skipped = 0 if peek else self._map(found, view, target, length)
        at, kept = 0, skipped // PAGE_BYTES
        for address, size in self._pieces(found):
            taken = min(size, length - at)
            if at >= skipped and taken > 0:
                primitives.copy(target + at, address, taken)
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

    def _retire(self, number: int) -> None:
        assert self._staging is not None
        while self._inflight and self._inflight[0][0] <= number:
            self.retired, staged, requests, _ = self._inflight.popleft()
            self._posted_sends -= requests
            self._staging.head = max(self._staging.head, staged)

    @property
    def idle(self) -> bool:
        """Whether all that was sent has left."""
        return not self._inflight or self.failed

    @property
    def has_room(self) -> bool:
        """Whether a datagram of any length can be sent."""
        assert self._staging is not None
        return self._posted_sends < DEPTH // 2 and self._staging.free > self._staging.length // 2

    def send(self, way: PeerPath, view: memoryview, blocking: bool) -> int:
        """Send one datagram; its number where the adapter takes bytes from the application's own memory,
        `retired` tells when it has; else 0.  −1: there is no room.  DriverError, PyverbsError.
        """
        assert self._staging is not None
        total = view.nbytes
        pages, rest = datagram_protocol.cut(total, way.mtu)
        self._datagrams = self._datagrams + 1 & 0xFFFF
        position = way.credit.position
        header = Header(way.host, way.own_port, self._datagrams, total, pages, way.mtu, position).encode()
        if self._posted_sends + pages + 1 > DEPTH:
            return -1
        frozen = type(view.obj) is bytes
        direct = bool(total > self.settings.threshold_bytes and self._space.lkey and (frozen or blocking))
        size = mtu_bytes(way.mtu)
        if not pages and total + HEADER_BYTES <= INLINE_BYTES:
            text = header + view
            run = SGE(primitives.address_of(memoryview(text), False), len(text), 0)
            self._post(way, [(0, [run])], _INLINE, 0, text)
            way.credit.spend(1)
            return 0
        if self._staging.free < (0 if direct else total) + HEADER_BYTES + 2 * size:
            return -1
        address = primitives.address_of(view, False) if total else 0
        parts: list[tuple[int, list[SGE]]] = [(0, self._first(header, address + total - rest, rest, direct))]
        for index in range(pages):
            start = index * size
            length = min(size, total - start)
            run = self._run(address + start, length, direct)
            parts.append((page_immediate(self._datagrams, index), [run]))
        self._post(way, parts, 0, self._staging.tail, view if direct else None)
        way.credit.spend(pages + 1)
        if direct:
            self.direct_bytes += total
        return self._number if direct and not frozen else 0

    def _first(self, header: bytes, address: int, length: int, direct: bool) -> list[SGE]:
        found = [self._run(primitives.address_of(memoryview(header), False), HEADER_BYTES, False)]
        if length:
            found.append(self._run(address, length, direct))
        return found

    def _run(self, address: int, length: int, direct: bool) -> SGE:
        if direct:
            return SGE(address, length, self._space.lkey)
        assert self._staging is not None
        self._staging.skip(length)
        page = Page(self._staging.put(address, length), length, self._staging.lkey)
        return SGE(*page)

    def send_closed(self, way: PeerPath) -> None:
        """Tell a peer that this socket is closed."""
        self._say(way, Header(way.host, way.own_port, 0, 0, GONE, way.mtu))

    def send_credit(self, way: PeerPath, limit: int, window: int) -> bool:
        """Tell a peer how far it may send; False where that cannot be said now."""
        if self.failed or self._posted_sends >= DEPTH:
            return False
        self._say(way, Header(way.host, way.own_port, 0, window, CREDIT, way.mtu, limit))
        return True

    def _say(self, way: PeerPath, header: Header) -> None:
        text = header.encode()
        run = SGE(primitives.address_of(memoryview(text), False), len(text), 0)
        self._post(way, [(0, [run])], _INLINE, 0, text)

    def _post(
        self, way: PeerPath, parts: list[tuple[int, list[SGE]]], flags: int, staged: int, holder: object
    ) -> None:
        assert self._qp is not None
        assert self._staging is not None
        self._number += 1
        chain: SendWR | None = None
        last = len(parts) - 1
        for index in range(last, -1, -1):
            immediate, elements = parts[index]
            made = SendWR(
                self._number, _SEND_IMM if index else _SEND, len(elements), htonl(immediate), elements,
                flags | (_SIGNALED if index == last else 0), chain,
            )  # fmt: skip
            made.set_wr_ud(way.handle, way.found.qp_num, way.found.qkey)
            chain = made
        assert chain is not None
        self._inflight.append((self._number, staged or self._staging.head, len(parts), holder))
        self._posted_sends += len(parts)
        try:
            self._qp.post_send(chain)
        except _FAILED:
            self.failed = True
            raise

    # the end

    def close(self) -> None:
        """Give everything back; what the application holds stays until it releases it."""
        self.failed = True
        for release in list(self._mapped.values()):
            release()
        if self._cq is not None:
            self._handle.on_event = None
        for each in (self._qp, self._cq):
            with contextlib.suppress(*_FAILED):
                if each is not None:
                    each.close()
        self._pool.close()
        if self._staging is not None:
            self._staging.close()
        self._inflight.clear()
        with contextlib.suppress(KeyError, *_FAILED):
            cm_contexts.leave(self.driver)

    def abandon(self) -> None:
        """In a forked child: it is the parent's."""
        self.failed = True
        self._pool.abandon()
