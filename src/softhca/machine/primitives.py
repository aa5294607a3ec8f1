"""Memory by address, atomics, CRC-32 and the system calls of a burst: the one package with two bodies.

This is the interpreted body, over ctypes; ``compiled_primitives.py`` is the compiled one and gives the same
results.  Everything above this package handles raw addresses as integers and dereferences them only here.

All addresses are trusted: the caller has checked key, range and right, and keeps the memory alive. A call
made here never blocks, and a system call never gives the interpreter lock away: another thread that spins
in Python would keep it for a whole switch interval.  ``wait_word`` and ``populate_pages`` alone do both.

Atomics between processes need the processor's instructions, which come from ``libatomic`` (part of every GCC
run time).  Where that library is missing, a lock makes them atomic between the threads of this process only.
"""

import ctypes
import mmap
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal

from isal import isal_zlib

BODY = "interpreted"

_MASK64 = 0xFFFF_FFFF_FFFF_FFFF
_ORDER: Literal["little", "big"] = sys.byteorder
_SEQ_CST, _ACQUIRE, _RELEASE = 5, 2, 3  # __ATOMIC_* of the GCC ABI
_PYBUF_SIMPLE, _PYBUF_WRITABLE = 0, 1
# Linux's numbers; the socket module of older interpreters does not name them all.
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO, _IP_TOS, _IPV6_TCLASS = 17, 103, 104, 1, 67
_IP_TTL, _IPV6_HOPLIMIT = 2, 52
_SO_TIMESTAMPING, _TX_SOFTWARE = 37, 2
_SEND_FLAGS = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
# Numbers of mmap that its module does not name in every version.
_PROT_NONE, _MAP_FIXED, _MAP_NORESERVE = 0, 0x10, 0x4000
_MAP_FAILED = (1 << 64) - 1
_SHARE = mmap.MAP_SHARED | _MAP_FIXED
_COPY = mmap.MAP_PRIVATE | _MAP_FIXED
_RESERVE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED | _MAP_NORESERVE
_CONTROL_BYTES, _NAME_BYTES, _HEADER_BYTES = 128, 32, 16  # a cmsghdr is 16 bytes where size_t is 8


class _PyBuffer(ctypes.Structure):
    """CPython's ``Py_buffer``."""

    _fields_ = (
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    )


class _Vector(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_uint64), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """``struct msghdr``."""

    _fields_ = (
        ("name", ctypes.c_uint64), ("name_length", ctypes.c_uint32), ("vectors", ctypes.c_uint64),
        ("vector_count", ctypes.c_size_t), ("control", ctypes.c_uint64), ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Scratch(threading.local):
    """The structures of one thread's system calls, made once."""

    def __init__(self) -> None:
        self.vector = _Vector()
        self.remote = _Vector()
        self.message = _Message()
        self.control = (ctypes.c_uint64 * (_CONTROL_BYTES // 8))()
        self.limit = (ctypes.c_int64 * 2)()  # struct timespec
        self.name = (ctypes.c_uint64 * (_NAME_BYTES // 8))()
        self.vector_address = ctypes.addressof(self.vector)
        self.control_address = ctypes.addressof(self.control)
        self.name_address = ctypes.addressof(self.name)
        self.control_view = memoryview(self.control).cast("B")
        self.name_view = memoryview(self.name).cast("B")


_scratch = _Scratch()
_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: the interpreter lock is kept
_libc.sendmsg.restype = _libc.recvmsg.restype = ctypes.c_ssize_t
_libc.sendmsg.argtypes = _libc.recvmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_libc.process_vm_readv.restype = _libc.process_vm_writev.restype = ctypes.c_ssize_t
_libc.process_vm_readv.argtypes = _libc.process_vm_writev.argtypes = (
    ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong)
# From a library object of our own: the functions of `ctypes.pythonapi` and their types are everybody's.
_get_buffer = _libc.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release_buffer = _libc.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None
_waiting_libc = ctypes.CDLL(None, use_errno=True)  # gives the interpreter lock away
_libc.syscall.restype = _waiting_libc.syscall.restype = ctypes.c_long
_FUTEX = ctypes.c_long(202 if os.uname().machine in ("x86_64", "AMD64") else 98)  # 98: the generic table
_MEMBARRIER = ctypes.c_long(324 if os.uname().machine in ("x86_64", "AMD64") else 283)
_libc.mmap.argtypes = (
    ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_libc.mmap.restype = ctypes.c_uint64
_libc.munmap.argtypes = (ctypes.c_uint64, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int)
_waiting_libc.madvise.argtypes = (ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int)
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # of madvise, Linux 5.14
_move = _libc.memmove
_move.argtypes, _move.restype = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64), None
_set = _libc.memset
_set.argtypes, _set.restype = (ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64), None


class ReceiveMeta:
    """What ``receive_burst`` learned about one burst.

    ``segment`` is the bytes of one datagram (the whole length when the kernel merged nothing),
    ``traffic_class`` the IPv4 ToS or IPv6 traffic class byte, ``port`` and ``family`` the sender's,
    ``truncated`` says that the datagram was longer than the capacity. The sender's address is a GID in two
    big-endian halves; an IPv4 address is IPv4-mapped (RFC 4291, 2.5.5.2).
    """

    __slots__ = ("family", "port", "segment", "source_high", "source_low", "traffic_class", "truncated")

    def __init__(self) -> None:
        self.segment = 0
        self.traffic_class = 0
        self.port = 0
        self.family = 0
        self.truncated = False
        self.source_high = 0
        self.source_low = 0

    @property
    def source(self) -> bytes:
        """The sender's address, 16 bytes in network order."""
        return self.source_high.to_bytes(8, "big") + self.source_low.to_bytes(8, "big")


def _export(buffer: Any, flags: int) -> tuple[int, int]:
    view = _PyBuffer()
    _get_buffer(buffer, ctypes.byref(view), flags)
    try:
        return view.buf or 0, view.len
    finally:
        _release_buffer(ctypes.byref(view))


def address_of(buffer: Any, writable: bool = True) -> int:
    """Address of the first byte of a contiguous buffer-protocol object, kept alive by the caller.

    Raises what the object raises: TypeError without the protocol, BufferError or ValueError when it is not
    contiguous, or read-only where ``writable`` is asked for.
    """
    return _export(buffer, _PYBUF_WRITABLE if writable else _PYBUF_SIMPLE)[0]


def length_of(buffer: Any) -> int:
    """Length in bytes of a contiguous buffer-protocol object; raises as ``address_of``."""
    return _export(buffer, _PYBUF_SIMPLE)[1]


def copy(dst: int, src: int, n: int) -> None:
    """Copy ``n`` bytes between addresses; the ranges may overlap.  They are written after all earlier
    stores."""
    if _fence is not None:
        _fence(_RELEASE)
    _move(dst, src, n)


def fill(dst: int, byte: int, n: int) -> None:
    """Set ``n`` bytes to ``byte``."""
    _set(dst, byte & 0xFF, n)


def bytes_at(a: int, n: int) -> bytes:
    """``n`` bytes at an address, copied once into an object of their own."""
    return ctypes.string_at(a, n)


def map_file(fd: int, n: int) -> int:
    """Map the first ``n`` bytes of a file, shared and writable, where there is room: the address, or −errno.
    The mapping needs no descriptor; it is the caller's until ``unmap_pages``.  Core files leave it out: a
    kernel that writes one brings each page of a sparse file.
    """
    address: int = _libc.mmap(0, n, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        return -ctypes.get_errno()
    _libc.madvise(address, n, mmap.MADV_DONTDUMP)
    return address


def unmap_pages(a: int, n: int) -> int:
    """Unmap ``n`` bytes from ``a`` on, whole pages of the caller's own mapping; 0 or −errno.  The addresses
    may be anybody's afterwards.
    """
    return -ctypes.get_errno() if _libc.munmap(a, n) else 0


def remove_pages(a: int, n: int) -> int:
    """Give the memory behind whole pages of a shared mapping back: every process finds zeros there
    afterwards.  0 or −errno.
    """
    return -ctypes.get_errno() if _libc.madvise(a, n, mmap.MADV_REMOVE) else 0


def populate_pages(a: int, n: int, writing: bool) -> int:
    """Have the system bring the pages of ``n`` bytes from ``a`` on, whole pages, as a read or (``writing``) a
    write of each would; 0 or −errno (−ENOMEM: one is not mapped; −EINVAL: not in that way, or the system
    knows no such request, which ``n`` = 0 tells).  Other threads run meanwhile.
    """
    advice = _POPULATE_WRITE if writing else _POPULATE_READ
    return -ctypes.get_errno() if _waiting_libc.madvise(a, n, advice) else 0


def map_pages(a: int, n: int, fd: int, offset: int) -> int:
    """Put ``n`` bytes of a file from ``offset`` on at address ``a``, shared and writable, in place of what
    is mapped there; 0 or −errno, and then what was there is still there.

    Everything in whole pages, inside a range that the caller has reserved by a mapping of its own.
    """
    return _map(a, n, mmap.PROT_READ | mmap.PROT_WRITE, _SHARE, fd, offset)


def map_private(a: int, n: int, fd: int, offset: int) -> int:
    """As ``map_pages``, but what this process writes from then on becomes its own page by page: the first
    write to a page has the kernel copy it.  Until then it is the file's."""
    return _map(a, n, mmap.PROT_READ | mmap.PROT_WRITE, _COPY, fd, offset)


def hide_pages(a: int, n: int) -> int:
    """Let nothing be at ``n`` bytes from ``a`` on, but keep the range reserved; 0 or −errno, otherwise as
    ``map_pages``.  Who touches it afterwards is ended by the system (SIGSEGV).
    """
    return _map(a, n, _PROT_NONE, _RESERVE, -1, 0)


def _map(a: int, n: int, protection: int, flags: int, fd: int, offset: int) -> int:
    return 0 if _libc.mmap(a, n, protection, flags, fd, offset) == a else -ctypes.get_errno()


def wait_word(a: int, expected: int, timeout_ns: int) -> int:
    """Sleep while the 32-bit word at ``a``, in memory that processes share, is ``expected``, until
    ``wake_word`` or for ``timeout_ns``; 0 or −errno (−EAGAIN: it is another value, −ETIMEDOUT, −EINTR).  May
    wake early.
    """
    _scratch.limit[0], _scratch.limit[1] = divmod(timeout_ns, 1_000_000_000)
    limit = ctypes.c_uint64(ctypes.addressof(_scratch.limit))
    result: int = _waiting_libc.syscall(
        _FUTEX, ctypes.c_uint64(a), ctypes.c_int(0), ctypes.c_uint32(expected), limit, None, 0)
    return 0 if result == 0 else -ctypes.get_errno()


def wake_word(a: int) -> None:
    """Wake whoever sleeps in ``wait_word`` at ``a``, in any process."""
    _libc.syscall(_FUTEX, ctypes.c_uint64(a), ctypes.c_int(1), ctypes.c_uint32(0x7FFFFFFF), None, None, 0)


def _atomic(name: str, width: int, *types: Any) -> Callable[..., int] | None:
    """A function of libatomic's fixed-size family, or None where the library is missing."""
    if _libatomic is None:
        return None
    function = getattr(_libatomic, f"__atomic_{name}_{width}")
    function.argtypes = (ctypes.c_uint64, *types)
    function.restype = None if name == "store" else _UNSIGNED[width]
    return function  # type: ignore[no-any-return]


_UNSIGNED: dict[int, Any] = {4: ctypes.c_uint32, 8: ctypes.c_uint64}
try:
    _libatomic: ctypes.PyDLL | None = ctypes.PyDLL("libatomic.so.1")
except OSError:
    _libatomic = None
_lock = threading.Lock()
ATOMIC_BETWEEN_PROCESSES = _libatomic is not None
"""Whether the atomics below are the processor's, for every process alike."""

_fetch_add = _atomic("fetch_add", 8, ctypes.c_uint64, ctypes.c_int)
_compare_exchange = _atomic(
    "compare_exchange", 8, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_int)
# An x86 processor keeps loads in order and stores in order, so a plain access of ctypes (one move) already is
# an acquire or a release there; elsewhere libatomic's costs a call and gives the order.
_ORDERED = os.uname().machine in ("x86_64", "AMD64", "i686")
_load8 = None if _ORDERED else _atomic("load", 8, ctypes.c_int)
_load4 = None if _ORDERED else _atomic("load", 4, ctypes.c_int)
_store8 = None if _ORDERED else _atomic("store", 8, ctypes.c_uint64, ctypes.c_int)
_store4 = None if _ORDERED else _atomic("store", 4, ctypes.c_uint32, ctypes.c_int)
# So are its atomics full barriers; elsewhere one may let later loads, and one that exchanges nothing earlier
# stores, go past it.
_fence = None if _ORDERED or _libatomic is None else _libatomic.atomic_thread_fence


def join_barriers() -> int:
    """Have other processes' ``barrier_everywhere`` reach this one too, from now on; 0 or −errno."""
    return _membarrier(4)


def barrier_everywhere() -> int:
    """A full barrier on every processor that runs a process which has joined; 0 or −errno.

    What a thread of such a process has stored before is seen after it, or the thread sees afterwards what was
    stored here before (membarrier(2), MEMBARRIER_CMD_GLOBAL_EXPEDITED).
    """
    return _membarrier(2)


def _membarrier(command: int) -> int:
    result: int = _libc.syscall(_MEMBARRIER, ctypes.c_int(command), ctypes.c_uint(0), ctypes.c_int(0))
    return 0 if result == 0 else -ctypes.get_errno()


def load64(a: int) -> int:
    """The 64-bit word at an 8-byte aligned address, native order, read before all later loads (acquire)."""
    if _load8 is not None:
        return _load8(a, _ACQUIRE)
    return ctypes.c_uint64.from_address(a).value


def store64(a: int, v: int) -> None:
    """Write a 64-bit word to an 8-byte aligned address after all earlier stores (release)."""
    if _store8 is not None:
        _store8(a, v, _RELEASE)
    else:
        ctypes.c_uint64.from_address(a).value = v


def load32(a: int) -> int:
    """The 32-bit word at a 4-byte aligned address, native byte order (acquire)."""
    if _load4 is not None:
        return _load4(a, _ACQUIRE)
    return ctypes.c_uint32.from_address(a).value


def store32(a: int, v: int) -> None:
    """Write a 32-bit word to a 4-byte aligned address (release)."""
    if _store4 is not None:
        _store4(a, v, _RELEASE)
    else:
        ctypes.c_uint32.from_address(a).value = v


def atomic_add64(a: int, v: int) -> int:
    """Add ``v`` modulo 2^64 to the aligned word at ``a``; the old value.  A full barrier."""
    if _fetch_add is not None:
        if _fence is None:
            return _fetch_add(a, v & _MASK64, _SEQ_CST)
        _fence(_SEQ_CST)
        old = _fetch_add(a, v & _MASK64, _SEQ_CST)
        _fence(_SEQ_CST)
        return old
    with _lock:
        place = ctypes.c_uint64.from_address(a)
        old = place.value
        place.value = (old + v) & _MASK64
        return old


def atomic_cas64(a: int, expected: int, new: int) -> int:
    """Write ``new`` to the aligned word at ``a`` if it holds ``expected``; the old value.  A full barrier
    either way."""
    if _compare_exchange is not None:
        found = ctypes.c_uint64(expected)
        if _fence is not None:
            _fence(_SEQ_CST)
        _compare_exchange(a, ctypes.addressof(found), new, _SEQ_CST, _SEQ_CST)
        if _fence is not None:
            _fence(_SEQ_CST)
        return found.value
    with _lock:
        place = ctypes.c_uint64.from_address(a)
        old = place.value
        if old == expected & _MASK64:
            place.value = new
        return old


def _isal_function() -> Any:
    """ISA-L's reflected CRC-32 ``(crc, address, n)``, or None where the extension does not export it."""
    try:
        function = ctypes.PyDLL(isal_zlib.__file__).crc32_gzip_refl
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)
    function.restype = ctypes.c_uint32
    return function


_crc = _isal_function()


def crc32(crc: int, a: int, n: int) -> int:
    """zlib's CRC-32 (polynomial 0x04C11DB7, reflected) of ``n`` bytes, continued from ``crc``."""
    if _crc is not None:
        return _crc(crc, a, n)  # type: ignore[no-any-return]
    return isal_zlib.crc32((ctypes.c_ubyte * n).from_address(a), crc)


def _between(call: Any, pid: int, here: int, there: int, n: int) -> int:
    local, remote = _scratch.vector, _scratch.remote
    local.base, remote.base = here, there
    local.length = remote.length = n
    moved: int = call(pid, _scratch.vector_address, 1, ctypes.addressof(remote), 1, 0)
    return moved if moved >= 0 else -ctypes.get_errno()


def read_process(pid: int, dst: int, src: int, n: int) -> int:
    """Copy ``n`` bytes at ``src`` of process ``pid`` to ``dst`` here; bytes moved (maybe fewer) or −errno."""
    return _between(_libc.process_vm_readv, pid, dst, src, n)


def write_process(pid: int, dst: int, src: int, n: int) -> int:
    """Copy ``n`` bytes at ``src`` here to ``dst`` of process ``pid``; bytes moved (maybe fewer) or −errno."""
    return _between(_libc.process_vm_writev, pid, src, dst, n)


def write_process_at(pid: int, target: int, src: int, n: int) -> int:
    """As ``write_process``, to where the ``struct iovec`` (address and length, 16 bytes) at ``target`` says
    when the call begins; no bytes where that length is 0."""
    local = _scratch.vector
    local.base, local.length = src, n
    moved: int = _libc.process_vm_writev(pid, _scratch.vector_address, 1, target, 1, 0)
    return moved if moved >= 0 else -ctypes.get_errno()


def _put_control(offset: int, level: int, kind: int, data: bytes) -> int:
    """Append one control message; the offset after it (padded to 8 bytes)."""
    view = _scratch.control_view
    length = _HEADER_BYTES + len(data)
    header = length.to_bytes(8, _ORDER) + level.to_bytes(4, _ORDER) + kind.to_bytes(4, _ORDER)
    view[offset : offset + length] = header + data
    return offset + (length + 7) // 8 * 8


def send_burst(
    fd: int, a: int, n: int, segment: int, sockaddr: int, sockaddr_n: int, traffic_class: int, hop_limit: int,
    held: bool,
) -> int:
    """Send ``n`` bytes at ``a`` with one non-blocking sendmsg; bytes sent or −errno.

    ``segment`` bytes a datagram, the last one may be shorter; 0 or at least ``n``: one plain datagram.
    ``sockaddr`` is the address of a packed socket address of ``sockaddr_n`` bytes, 0 on a connected socket
    (``traffic_class`` and ``hop_limit`` are not sent then: its family is unknown).  ``hop_limit`` 0: the
    socket's own.  ``held``: a time stamp is asked for, for whose sake the kernel keeps the packets' memory in
    the socket's error queue, as far as its receive buffer has room, until `drop_held`.
    """
    message = _scratch.message
    _scratch.vector.base, _scratch.vector.length = a, n
    message.name, message.name_length = sockaddr, sockaddr_n
    message.vectors, message.vector_count = _scratch.vector_address, 1
    used = 0
    if 0 < segment < n:
        used = _put_control(0, _SOL_UDP, _UDP_SEGMENT, (segment & 0xFFFF).to_bytes(2, _ORDER))
    if (traffic_class or hop_limit) and sockaddr:
        six = ctypes.c_uint16.from_address(sockaddr).value == socket.AF_INET6
        level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
        if traffic_class:
            data = (traffic_class & 0xFF).to_bytes(4, _ORDER)
            used = _put_control(used, level, _IPV6_TCLASS if six else _IP_TOS, data)
        if hop_limit:
            data = (hop_limit & 0xFF).to_bytes(4, _ORDER)
            used = _put_control(used, level, _IPV6_HOPLIMIT if six else _IP_TTL, data)
    if held:
        used = _put_control(used, socket.SOL_SOCKET, _SO_TIMESTAMPING, _TX_SOFTWARE.to_bytes(4, _ORDER))
    message.control, message.control_length = _scratch.control_address if used else 0, used
    sent: int = _libc.sendmsg(fd, ctypes.addressof(message), _SEND_FLAGS)
    return sent if sent >= 0 else -ctypes.get_errno()


def drop_held(fd: int, n: int) -> int:
    """Take up to ``n`` bursts (16 at the most) out of a socket's error queue, the oldest first, unread; how
    many, or −errno (−EAGAIN: none is there).
    """
    message = _scratch.message
    dropped = 0
    while dropped < min(n, 16):
        message.name = message.name_length = message.vectors = message.vector_count = 0
        message.control = message.control_length = message.flags = 0
        if _libc.recvmsg(fd, ctypes.addressof(message), socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT) < 0:
            return dropped or -ctypes.get_errno()
        dropped += 1
    return dropped


def receive_burst(fd: int, a: int, capacity: int, meta: ReceiveMeta) -> int:
    """Receive one datagram, or one run of equal ones merged by the kernel, with one non-blocking recvmsg.

    Bytes received into ``a`` (``meta`` is filled then) or −errno (−EAGAIN: nothing there).
    """
    message = _scratch.message
    _scratch.vector.base, _scratch.vector.length = a, capacity
    _scratch.name[0] = 0
    message.name, message.name_length = _scratch.name_address, _NAME_BYTES
    message.vectors, message.vector_count = _scratch.vector_address, 1
    message.control, message.control_length, message.flags = _scratch.control_address, _CONTROL_BYTES, 0
    received: int = _libc.recvmsg(fd, ctypes.addressof(message), socket.MSG_DONTWAIT)
    if received < 0:
        return -ctypes.get_errno()
    meta.segment = received
    meta.traffic_class = 0
    meta.truncated = bool(message.flags & socket.MSG_TRUNC)
    _take_control(_scratch.control_view[: message.control_length], meta)
    _take_source(_scratch.name_view[: message.name_length], meta)
    return received


def _take_control(control: memoryview, meta: ReceiveMeta) -> None:
    """Segment size and traffic class from the control messages."""
    offset = 0
    while offset + _HEADER_BYTES <= len(control):
        length = int.from_bytes(control[offset : offset + 8], _ORDER)
        kind = (int.from_bytes(control[offset + 8 : offset + 12], _ORDER),
                int.from_bytes(control[offset + 12 : offset + 16], _ORDER))
        data = control[offset + _HEADER_BYTES : offset + length]
        if kind == (_SOL_UDP, _UDP_GRO):
            meta.segment = int.from_bytes(data[:4], _ORDER)
        elif kind == (socket.IPPROTO_IP, _IP_TOS):
            meta.traffic_class = data[0]
        elif kind == (socket.IPPROTO_IPV6, _IPV6_TCLASS):
            meta.traffic_class = int.from_bytes(data[:4], _ORDER) & 0xFF
        if length < _HEADER_BYTES:
            return
        offset += (length + 7) // 8 * 8


def _take_source(name: memoryview, meta: ReceiveMeta) -> None:
    """Sender of a datagram from its socket address: sockaddr_in (16 bytes) or sockaddr_in6 (28 bytes)."""
    meta.family = int.from_bytes(name[:2], _ORDER)
    meta.port = meta.source_high = meta.source_low = 0
    if meta.family == socket.AF_INET6 and len(name) >= 24:
        meta.port = int.from_bytes(name[2:4], "big")
        meta.source_high = int.from_bytes(name[8:16], "big")
        meta.source_low = int.from_bytes(name[16:24], "big")
    elif meta.family == socket.AF_INET and len(name) >= 8:
        meta.port = int.from_bytes(name[2:4], "big")
        meta.source_low = 0xFFFF_0000_0000 | int.from_bytes(name[4:8], "big")
