"""Messages cut into packets, written straight into a burst (IBTA vol. 1, 9.7.2, C9-177 to C9-179 for
lengths).

A burst is a run of packets of one length for one destination, the last of which may be shorter: so it can
leave in one system call.  Whatever does not fit this shape goes into the next burst.  Which headers stand
between BTH and those of the operation (RDETH, DETH, XRCETH) follows from the opcode table.  Payload is copied
once, from registered memory to its place in the burst; the ICRC follows at once, while the bytes are in
the cache, and for a native packet its LRH, GRH and VCRC around it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import address_of, copy
from softhca.memory.on_demand import OnDemandRegion
from softhca.queues.layout import SOLICITED
from softhca.queues.operations import MOST_OPCODES, OPERATIONS, WRITE, mask
from softhca.transport.migration import MIGRATED
from softhca.wire import bth, opcodes
from softhca.wire.build import (
    put_aeth,
    put_atomicacketh,
    put_atomiceth,
    put_bth,
    put_deth,
    put_feth,
    put_icrc,
    put_ieth,
    put_immdt,
    put_pad,
    put_rdeth,
    put_reth,
    put_vcrc,
    put_xrceth,
)
from softhca.wire.icrc import compute
from softhca.wire.vcrc import compute as variant_crc

if TYPE_CHECKING:
    from softhca.transport.connection import Connection
    from softhca.transport.request import Request
    from softhca.wire.burst import Burst
    from softhca.wire.route import Route

MAX_BURST_BYTES = 65_000
MAX_BURST_PACKETS = 64
UNLIMITED = 1 << 62

_AHEAD_BYTES = 1 << 16
_ahead_buffers: list[bytearray] = []
"""As many as threads have read ahead at once."""

_MAX_BYTES = cython.declare(cython.uint, MAX_BURST_BYTES)
_MAX_PACKETS = cython.declare(cython.uint, MAX_BURST_PACKETS)
_ICRC_BYTES = cython.declare(cython.uint, 4)
_MIGRATED = cython.declare(cython.int, MIGRATED)
_ACK_REQUEST = cython.declare(cython.uint, bth.ACK_REQUEST)
_ACK_REQUEST_BIT = cython.declare(cython.uint, bth.ACK_REQUEST_BIT)
_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_EAGAIN = cython.declare(cython.int, errno.EAGAIN)
_SOLICITED = cython.declare(cython.uint, SOLICITED)
_WRITE = cython.declare(cython.int, WRITE)
# Bit n stands for work request opcode n.
_IMMEDIATE = cython.declare(cython.uint, mask(lambda row: row.immediate))
_INVALIDATES = cython.declare(cython.uint, mask(lambda row: row.invalidates))


def _packet_table() -> bytes:
    """Four bytes for each work request opcode: the low five bits of BTH's opcode, which are the same for all
    services, of its first, middle, last and only packet."""
    found = bytearray(4 * MOST_OPCODES)
    for row in OPERATIONS.values():
        names = row.packets * 4 if len(row.packets) == 1 else row.packets
        for position, name in enumerate(names):
            found[4 * row.opcode + position] = opcodes.BY_NAME[f"RC_{name}"].code & 0x1F
    return bytes(found)


def _header_table() -> bytes:
    """BTH and extension headers in bytes by opcode; 0 for reserved ones."""
    rows = opcodes.OPCODES
    return bytes([12 + rows[code].extension_bytes if code in rows else 0 for code in range(256)])


def _front_table() -> bytes:
    """By opcode, which headers stand between BTH and those of the operation: a bit for each of `_FRONTS`."""
    rows = opcodes.OPCODES
    return bytes([
        sum([1 << bit for bit, name in enumerate(_FRONTS) if code in rows and name in rows[code].headers])
        for code in range(256)
    ])


_FRONTS = ("rdeth", "deth", "xrceth")
_POSITIONS = cython.declare(bytes, _packet_table())
_HEADERS = cython.declare(bytes, _header_table())
_FRONTS_OF = cython.declare(bytes, _front_table())
_RDETH = cython.declare(cython.uint, 1 << _FRONTS.index("rdeth"))
_DETH = cython.declare(cython.uint, 1 << _FRONTS.index("deth"))
_XRCETH = cython.declare(cython.uint, 1 << _FRONTS.index("xrceth"))
_ACK = cython.declare(cython.uint, opcodes.RC_ACKNOWLEDGE)
_ATOMIC_ACK = cython.declare(cython.uint, opcodes.RC_ATOMIC_ACKNOWLEDGE)
_READ_REQUEST = cython.declare(cython.uint, opcodes.RC_RDMA_READ_REQUEST)
_RESYNC = cython.declare(cython.uint, opcodes.RD_RESYNC & 0x1F)
_SWAP_REQUEST = cython.declare(cython.uint, opcodes.RC_COMPARE_SWAP)


class PacketWriter:
    """Writes the packets of one half of a queue pair.  ``budget_bytes`` bounds what the present burst may
    cost.  ``held``: the burst ends because the memory that the next packet comes from is held.

    ``ahead_from`` … ``ahead_end`` of the message are at ``ahead_address``, read for the present burst.

    What the headers between BTH and those of the operation say, where the service has them: ``ee_context``
    (RDETH), ``qkey`` and ``source_qp`` (DETH), ``xrc_srq`` (XRCETH).
    """

    burst: Burst
    route: Route

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.acknowledged = connection.row.acknowledged
        self.service_code = (connection.service & 7) << 5
        self.ee_context = 0
        self.qkey = 0
        self.source_qp = 0
        self.xrc_srq = 0
        self.burst = None
        self.route = None
        self.budget_bytes = 0
        self.packet_overhead_bytes = 0
        self.most_bytes = _MAX_BYTES
        self.start = 0
        self.prefix_bytes = 0
        self.frame_bytes = 0
        self.held = False
        self.ahead_from = self.ahead_end = self.ahead_address = 0

    def begin(self, burst: Burst, route: Route, budget_bytes: int, packet_overhead_bytes: int = 0) -> None:
        """Start an empty ``burst`` along ``route``, or go on with one that others have begun along it.  Its
        cost may be ``budget_bytes``, each packet costing its bytes and ``packet_overhead_bytes``."""
        self.burst = burst
        self.budget_bytes = budget_bytes
        self.packet_overhead_bytes = packet_overhead_bytes
        self.held = False
        self.most_bytes = min(_MAX_BYTES, self.connection.flow.burst_limit_bytes)
        if burst.packets == 0:
            burst.reset()
        self.aim(route)

    def aim(self, route: Route) -> None:
        """Let the packets of the present burst go along ``route``: those that it has do so already."""
        self.route = route
        if self.burst.packets == 0:
            self.burst.route = route
            self.burst.counted = route is not None and self.route.counted
            self.burst.has_icrc = route is None or self.route.needs_icrc
        if self.route is not None:
            self.prefix_bytes = self.route.prefix_bytes
            self.frame_bytes = self.route.prefix_bytes + self.route.suffix_bytes

    def fits(self, size: int) -> bool:
        """Whether a packet of ``size`` bytes, BTH … ICRC, may follow in this burst."""
        size += self.frame_bytes
        if (
            self.burst.length + size + (self.burst.packets + 1) * self.packet_overhead_bytes
            > self.budget_bytes
        ):
            return False
        if self.burst.packets == 0:
            return True
        return (
            not self.burst.closed
            and self.burst.packets < _MAX_PACKETS
            and size <= self.burst.stride
            and self.burst.length + size <= self.most_bytes
        )

    def fits_after(self, size: int, following: int) -> bool:
        """Whether, after a packet of ``size`` bytes that fits, one of ``following`` bytes would fit as
        well."""
        size += self.frame_bytes
        following += self.frame_bytes
        stride: cython.uint = self.burst.stride if self.burst.packets else size
        if size < stride or following > stride or self.burst.packets + 2 > _MAX_PACKETS:
            return False
        if self.burst.length + size + following > self.most_bytes:
            return False
        return (
            self.burst.length + size + following + (self.burst.packets + 2) * self.packet_overhead_bytes
            <= self.budget_bytes
        )

    def open(self, opcode: int, solicited: bool, pad: int, ack_request: bool, psn: int, dest_qp: int) -> int:
        """Write a BTH at the end of the burst, and what the service has in front of the operation's headers;
        the offset behind it."""
        o: cython.Py_ssize_t
        front: cython.uint = _FRONTS_OF[self.service_code | opcode]
        self.start = self.burst.length + self.prefix_bytes
        o = put_bth(
            self.burst.data,
            self.start,
            self.service_code | opcode,
            solicited,
            pad,
            self.connection.pkey,
            dest_qp,
            ack_request,
            psn,
            0,
            self.connection.instance,
            self.connection.migration == _MIGRATED,
        )
        if front & _RDETH:
            o = put_rdeth(self.burst.data, o, self.ee_context)
        if front & _DETH:
            o = put_deth(self.burst.data, o, self.qkey, self.source_qp)
        if front & _XRCETH:
            o = put_xrceth(self.burst.data, o, self.xrc_srq)
        return o

    def close(self, o: int) -> int:
        """The packet ends at ``o``: append its ICRC, or its place, and count it; its length in bytes, as a
        segment."""
        n: cython.uint = o - self.start
        if not self.burst.has_icrc:
            put_icrc(self.burst.data, o, 0)
        else:
            if self.burst.counted:
                self.route.identification = self.burst.packets
            put_icrc(self.burst.data, o, compute(self.route, self.burst.address + self.start, n))
        n += _ICRC_BYTES
        if self.frame_bytes:
            self.frame(n)
            n += self.frame_bytes
        if self.burst.packets == 0:
            self.burst.stride = n
        elif n < self.burst.stride:
            self.burst.closed = True
        self.burst.packets += 1
        self.burst.length += n
        return n

    def frame(self, n: int) -> None:
        """Put LRH, GRH and VCRC around the ``n`` bytes BTH … ICRC of the packet that is being closed."""
        begin: cython.uint = self.burst.length
        n += self.prefix_bytes
        self.route.put_front(self.burst.address + begin, n - self.prefix_bytes)
        put_vcrc(self.burst.data, begin + n, variant_crc(self.burst.data, begin, n))

    def packet_bytes(self, opcode: int, payload_bytes: int) -> int:
        """Length in bytes, BTH … ICRC, of a packet with an opcode (its low five bits) and so much payload."""
        return _HEADERS[self.service_code | opcode] + ((payload_bytes + 3) & ~3) + _ICRC_BYTES

    def opcode_of(self, request: Request, index: int) -> int:
        """Low five bits of the opcode of the packet ``index`` of a SEND or RDMA WRITE."""
        position: cython.uint
        if request.packets == 1 or request.separate:
            position = 3
        elif index == 0:
            position = 0
        else:
            position = 2 if index + 1 == request.packets else 1
        return _POSITIONS[4 * request.work.opcode + position]

    def size_of(self, request: Request, index: int, code: int) -> int:
        """Length of that packet, which has the opcode ``code``, BTH … ICRC, in bytes."""
        pmtu: cython.ulonglong = self.connection.path_mtu_bytes
        n: cython.ulonglong = request.length_bytes - index * pmtu
        if n > pmtu:
            n = pmtu
        return self.packet_bytes(code, n)

    def message(self, request: Request, index: int, limit: int, ack_at_end: bool) -> int:
        """Write packets of a SEND or RDMA WRITE from ``index`` on, at most ``limit``; how many, −errno when
        local memory could not be read for the first one.

        The last packet of a message asks for an acknowledgement, with ``ack_at_end`` also the last one
        written, and in any case one behind which the memory is held.
        """
        written: cython.int
        buffer: bytearray
        if (
            limit < 2
            or index + 1 >= request.packets
            or not isinstance(request.region, OnDemandRegion)
            or cython.cast(OnDemandRegion, request.region).held
        ):
            return self.packets(request, index, limit, ack_at_end)
        try:
            buffer = _ahead_buffers.pop()
        except IndexError:
            buffer = bytearray(_AHEAD_BYTES)
        try:
            self.read_ahead(request, index, limit, buffer)
            written = self.packets(request, index, limit, ack_at_end)
        finally:
            self.ahead_end = self.ahead_from
            _ahead_buffers.append(buffer)
        return written

    def read_ahead(self, request: Request, index: int, limit: int, buffer: bytearray) -> None:
        """Read what packets from ``index`` on are going to carry in this burst in one go: where each access
        is a call of the operating system, those of single packets cost more than the rest of them.  What
        cannot be read is read again packet by packet, of which the first ones may have what they need.
        """
        pmtu: cython.ulonglong = self.connection.path_mtu_bytes
        offset: cython.ulonglong = index * pmtu
        count: cython.ulonglong = request.packets - index
        room: cython.ulonglong = min(self.most_bytes, self.budget_bytes)
        n: cython.ulonglong = request.length_bytes - offset
        if index == 0 and request.kind == _WRITE and not request.separate:
            count = 2  # the first one, which is longer than the others, ends the burst with the second
        count = min(count, cython.cast(cython.ulonglong, limit))
        room -= min(room, self.burst.length)
        count = min(count, room // pmtu)
        if count >= 2:
            n = min(n, count * pmtu, cython.cast(cython.ulonglong, _AHEAD_BYTES))
            address: cython.ulonglong = address_of(buffer)
            if request.payload(offset, n, address) == 0:
                self.ahead_from, self.ahead_end, self.ahead_address = offset, offset + n, address

    def packets(self, request: Request, index: int, limit: int, ack_at_end: bool) -> int:
        """`message`, with what was read ahead."""
        written: cython.int = 0
        result: cython.int
        code: cython.uint
        size: cython.uint
        last: cython.bint
        ends: cython.bint
        while index < request.packets and written < limit:
            code = self.opcode_of(request, index)
            size = self.size_of(request, index, code)
            if not self.fits(size):
                break
            last = index + 1 == request.packets
            ends = (
                last
                or written + 1 == limit
                or not self.fits_after(
                    size, self.size_of(request, index + 1, self.opcode_of(request, index + 1))
                )
            )
            result = self.data_packet(
                request, index, code, self.acknowledged and (last or (ends and ack_at_end))
            )
            if result:
                self.held = result == -_EAGAIN
                if written and self.held and self.acknowledged:
                    self.ask_last()
                return written if written else result
            index += 1
            written += 1
        return written

    def data_packet(self, request: Request, index: int, code: int, ack_request: bool) -> int:
        """Write packet ``index`` of a SEND or RDMA WRITE; 0, or −errno when memory could not be read."""
        o: cython.Py_ssize_t
        result: cython.int
        pmtu: cython.ulonglong = self.connection.path_mtu_bytes
        offset: cython.ulonglong = index * pmtu
        n: cython.ulonglong = request.length_bytes - offset
        opcode: cython.uint = request.work.opcode
        last: cython.bint = index + 1 == request.packets
        if n > pmtu:
            n = pmtu
        pad: cython.uint = (4 - (n & 3)) & 3
        solicited: cython.bint = last and request.work.flags & _SOLICITED != 0 and request.limited
        o = self.open(
            code, solicited, pad, ack_request, (request.first_psn + index) & 0xFFFFFF, self.connection.dest_qp
        )
        if request.separate:
            o = put_reth(
                self.burst.data, o, (request.work.remote_va + offset) & _MASK64, request.work.rkey, n
            )
        elif index == 0 and request.kind == _WRITE:
            o = put_reth(self.burst.data, o, request.work.remote_va, request.work.rkey, request.length_bytes)
        if last:
            if (_IMMEDIATE >> opcode) & 1:
                o = put_immdt(self.burst.data, o, request.work.imm_or_key)
            elif (_INVALIDATES >> opcode) & 1:
                o = put_ieth(self.burst.data, o, request.work.imm_or_key)
        if n:
            if self.ahead_from <= offset and offset + n <= self.ahead_end:
                copy(self.burst.address + o, self.ahead_address + offset - self.ahead_from, n)
            else:
                result = request.payload(offset, n, self.burst.address + o)
                if result:
                    return result
        self.close(put_pad(self.burst.data, o + n, pad))
        return 0

    def ask_last(self) -> None:
        """Let the last packet of the burst, which is closed already, ask for an acknowledgement."""
        begin: cython.uint = (self.burst.packets - 1) * self.burst.stride
        n: cython.uint = self.burst.length - begin - self.frame_bytes - _ICRC_BYTES
        start: cython.uint = begin + self.prefix_bytes
        self.burst.data[start + _ACK_REQUEST] |= _ACK_REQUEST_BIT
        if not self.burst.has_icrc:
            return
        if self.burst.counted:
            self.route.identification = self.burst.packets - 1
        put_icrc(self.burst.data, start + n, compute(self.route, self.burst.address + start, n))
        if self.frame_bytes:
            n += self.prefix_bytes + _ICRC_BYTES
            put_vcrc(self.burst.data, begin + n, variant_crc(self.burst.data, begin, n))

    def read_request(self, request: Request, index: int, end: int) -> bool:
        """Write a request for the response packets ``index`` … ``end`` − 1 of an RDMA READ; False: it does
        not fit."""
        o: cython.Py_ssize_t
        offset: cython.ulonglong = index * cython.cast(cython.ulonglong, self.connection.path_mtu_bytes)
        n: cython.ulonglong = request.length_bytes - offset
        most: cython.ulonglong = (end - index) * cython.cast(cython.ulonglong, self.connection.path_mtu_bytes)
        if not self.fits(self.packet_bytes(_READ_REQUEST, 0)):
            return False
        psn: cython.uint = (request.first_psn + index) & 0xFFFFFF
        o = self.open(_READ_REQUEST, False, 0, True, psn, self.connection.dest_qp)
        o = put_reth(
            self.burst.data,
            o,
            (request.work.remote_va + offset) & _MASK64,
            request.work.rkey,
            n if n < most else most,
        )
        self.close(o)
        return True

    def atomic_request(self, request: Request) -> bool:
        """Write the request of a compare-and-swap or fetch-and-add; False: it does not fit."""
        o: cython.Py_ssize_t
        code: cython.uint = self.opcode_of(request, 0)
        if not self.fits(self.packet_bytes(code, 0)):
            return False
        o = self.open(code, False, 0, True, request.first_psn, self.connection.dest_qp)
        if code == _SWAP_REQUEST:
            o = put_atomiceth(
                self.burst.data,
                o,
                request.work.remote_va,
                request.work.rkey,
                request.work.swap,
                request.work.compare_add,
            )
        else:
            o = put_atomiceth(
                self.burst.data, o, request.work.remote_va, request.work.rkey, request.work.compare_add, 0
            )
        self.close(o)
        return True

    def atomic_write_request(self, request: Request) -> int:
        """Write the request of an ATOMIC WRITE; 1, 0 where it does not fit, or −errno when its data could not
        be read."""
        o: cython.Py_ssize_t
        result: cython.int
        code: cython.uint = self.opcode_of(request, 0)
        if not self.fits(self.packet_bytes(code, 8)):
            return 0
        o = self.open(code, False, 0, True, request.first_psn, self.connection.dest_qp)
        o = put_reth(self.burst.data, o, request.work.remote_va, request.work.rkey, 8)
        result = request.payload(0, 8, self.burst.address + o)
        if result:
            return result
        self.close(o + 8)
        return 1

    def flush_request(self, request: Request) -> bool:
        """Write the request of a FLUSH; False: it does not fit."""
        o: cython.Py_ssize_t
        swap: cython.ulonglong = request.work.swap
        code: cython.uint = self.opcode_of(request, 0)
        if not self.fits(self.packet_bytes(code, 0)):
            return False
        o = self.open(code, False, 0, True, request.first_psn, self.connection.dest_qp)
        o = put_feth(self.burst.data, o, swap >> 4, swap & 0xF)
        self.close(
            put_reth(
                self.burst.data, o, request.work.remote_va, request.work.rkey, request.work.compare_add
            )
        )
        return True

    def acknowledge(self, psn: int, syndrome: int, msn: int) -> bool:
        """Write an ACK or NAK; False: it does not fit."""
        if not self.fits(self.packet_bytes(_ACK, 0)):
            return False
        o: cython.Py_ssize_t = self.open(_ACK, False, 0, False, psn, self.connection.dest_qp)
        self.close(put_aeth(self.burst.data, o, syndrome, msn))
        return True

    def resync(self, psn: int) -> bool:
        """Write a RESYNC; False: it does not fit."""
        if not self.fits(self.packet_bytes(_RESYNC, 0)):
            return False
        self.close(self.open(_RESYNC, False, 0, True, psn, self.connection.dest_qp))
        return True

    def atomic_response(self, psn: int, syndrome: int, msn: int, original: int) -> bool:
        """Write an atomic acknowledgement; False: it does not fit."""
        o: cython.Py_ssize_t
        if not self.fits(self.packet_bytes(_ATOMIC_ACK, 0)):
            return False
        o = self.open(_ATOMIC_ACK, False, 0, False, psn, self.connection.dest_qp)
        o = put_aeth(self.burst.data, o, syndrome, msn)
        self.close(put_atomicacketh(self.burst.data, o, original))
        return True
