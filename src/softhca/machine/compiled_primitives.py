"""The compiled body of ``softhca.machine.primitives``: memory by address, atomics, CRC-32, burst calls.

``primitives.pxd`` types every name here and ``primitives.py`` states what each of them promises; this file
is compiled under that module's name and gives the same results. It dereferences without a Python object,
uses the processor's atomic instructions, and makes the system calls of a burst without giving the
interpreter lock away (a thread that spins in Python would keep it for a whole switch interval).

All addresses are trusted here: who calls has checked key, range and right.
"""

# ruff: noqa: F403, F405, F821 - the C names come from primitives.pxd

from __future__ import annotations

import ctypes
import mmap
import socket
from typing import TYPE_CHECKING, Any

import cython
from isal import isal_zlib

if TYPE_CHECKING:
    from c_names import *

BODY = "compiled"
ATOMIC_BETWEEN_PROCESSES = True

# Linux's numbers; the socket module of older interpreters does not name them all.
_IPPROTO_IP = cython.declare(cython.int, socket.IPPROTO_IP)
_IPPROTO_IPV6 = cython.declare(cython.int, socket.IPPROTO_IPV6)
_SOL_UDP = cython.declare(cython.int, 17)
_UDP_SEGMENT = cython.declare(cython.int, 103)
_UDP_GRO = cython.declare(cython.int, 104)
_IP_TOS = cython.declare(cython.int, 1)
_IPV6_TCLASS = cython.declare(cython.int, 67)
_IP_TTL = cython.declare(cython.int, 2)
_IPV6_HOPLIMIT = cython.declare(cython.int, 52)
_AF_INET = cython.declare(cython.uint, socket.AF_INET)
_AF_INET6 = cython.declare(cython.uint, socket.AF_INET6)
_MSG_TRUNC = cython.declare(cython.int, socket.MSG_TRUNC)
_SOL_SOCKET = cython.declare(cython.int, socket.SOL_SOCKET)
_SO_TIMESTAMPING = cython.declare(cython.int, 37)
_TX_SOFTWARE = cython.declare(cython.uint, 2)
_DROP_FLAGS = cython.declare(cython.int, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
_SEND_FLAGS = cython.declare(cython.int, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_RECEIVE_FLAGS = cython.declare(cython.int, socket.MSG_DONTWAIT)
_DONT_DUMP = cython.declare(cython.int, mmap.MADV_DONTDUMP)
_POPULATE_READ = cython.declare(cython.int, 22)
_POPULATE_WRITE = cython.declare(cython.int, 23)
_V4_MAPPED_PREFIX = cython.declare(cython.ulonglong, 0xFFFF_0000_0000)


def _crc_address() -> int:
    """Address of ISA-L's reflected CRC-32 in the loaded extension; 0 when it does not export it."""
    try:
        function = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_crc = cython.cast(crc_function, cython.cast(cython.ulonglong, _crc_address()))
_avx = has_avx()


class ReceiveMeta:
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
        return self.source_high.to_bytes(8, "big") + self.source_low.to_bytes(8, "big")


def address_of(buffer: Any, writable: bool = True) -> int:
    view: Py_buffer
    flags: cython.int = PyBUF_WRITABLE if writable else PyBUF_SIMPLE
    PyObject_GetBuffer(buffer, cython.address(view), flags)
    address: cython.ulonglong = cython.cast(cython.ulonglong, view.buf)
    PyBuffer_Release(cython.address(view))
    return address


def length_of(buffer: Any) -> int:
    view: Py_buffer
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    length: cython.Py_ssize_t = view.len
    PyBuffer_Release(cython.address(view))
    return length


def copy(dst: int, src: int, n: int) -> None:
    release()
    memmove(cython.cast(cython.p_void, dst), cython.cast(cython.p_void, src), n)


def fill(dst: int, byte: int, n: int) -> None:
    memset(cython.cast(cython.p_void, dst), byte & 0xFF, n)


def bytes_at(a: int, n: int) -> bytes:
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, a), n)


def map_file(fd: int, n: int) -> int:
    place: cython.p_void = map_memory(cython.NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
    a: cython.longlong = cython.cast(cython.longlong, place)
    if a == -1:
        return -errno
    madvise(place, n, _DONT_DUMP)
    return a


def unmap_pages(a: int, n: int) -> int:
    return -errno if munmap(cython.cast(cython.p_void, a), n) else 0


def remove_pages(a: int, n: int) -> int:
    return -errno if madvise(cython.cast(cython.p_void, a), n, MADV_REMOVE) else 0


def populate_pages(a: int, n: int, writing: bool) -> int:
    result: cython.int
    with cython.nogil:
        result = madvise(cython.cast(cython.p_void, a), n, _POPULATE_WRITE if writing else _POPULATE_READ)
    return -errno if result else 0


def map_pages(a: int, n: int, fd: int, offset: int) -> int:
    place: cython.p_void = map_memory(cython.cast(cython.p_void, a), n, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_FIXED, fd, offset)
    return 0 if place == cython.cast(cython.p_void, a) else -errno


def map_private(a: int, n: int, fd: int, offset: int) -> int:
    place: cython.p_void = map_memory(cython.cast(cython.p_void, a), n, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_FIXED, fd, offset)
    return 0 if place == cython.cast(cython.p_void, a) else -errno


def hide_pages(a: int, n: int) -> int:
    place: cython.p_void = map_memory(cython.cast(cython.p_void, a), n, PROT_NONE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0)
    return 0 if place == cython.cast(cython.p_void, a) else -errno


def wait_word(a: int, expected: int, timeout_ns: int) -> int:
    limit: timespec
    result: cython.long
    limit.tv_sec = timeout_ns // 1_000_000_000
    limit.tv_nsec = timeout_ns % 1_000_000_000
    with cython.nogil:
        result = syscall(SYS_futex, a, 0, expected, cython.address(limit), cython.NULL, 0)
    return 0 if result == 0 else -errno


def wake_word(a: int) -> None:
    syscall(SYS_futex, a, 1, 0x7FFFFFFF, cython.NULL, cython.NULL, 0)


def join_barriers() -> int:
    return 0 if syscall(SYS_membarrier, 4, 0, 0) == 0 else -errno


def barrier_everywhere() -> int:
    return 0 if syscall(SYS_membarrier, 2, 0, 0) == 0 else -errno


def crc32(crc: int, a: int, n: int) -> int:
    if _crc != cython.NULL:
        crc = _crc(crc, cython.cast(cython.p_uchar, a), n)
        if _avx:
            leave_avx()
        return crc
    return isal_zlib.crc32(PyMemoryView_FromMemory(cython.cast(cython.p_char, a), n, 0x100), crc)


def read_process(pid: int, dst: int, src: int, n: int) -> int:
    local: iovec
    remote: iovec
    local.iov_base = cython.cast(cython.p_void, dst)
    remote.iov_base = cython.cast(cython.p_void, src)
    local.iov_len = remote.iov_len = n
    moved: cython.Py_ssize_t = process_vm_readv(pid, cython.address(local), 1, cython.address(remote), 1, 0)
    return moved if moved >= 0 else -errno


def write_process(pid: int, dst: int, src: int, n: int) -> int:
    local: iovec
    remote: iovec
    local.iov_base = cython.cast(cython.p_void, src)
    remote.iov_base = cython.cast(cython.p_void, dst)
    local.iov_len = remote.iov_len = n
    moved: cython.Py_ssize_t = process_vm_writev(pid, cython.address(local), 1, cython.address(remote), 1, 0)
    return moved if moved >= 0 else -errno


def write_process_at(pid: int, target: int, src: int, n: int) -> int:
    local: iovec
    local.iov_base = cython.cast(cython.p_void, src)
    local.iov_len = n
    moved: cython.Py_ssize_t = process_vm_writev(pid, cython.address(local), 1,
                                                 cython.cast(cython.pointer[iovec], target), 1, 0)
    return moved if moved >= 0 else -errno


def send_burst(
    fd: int, a: int, n: int, segment: int, sockaddr: int, sockaddr_n: int, traffic_class: int, hop_limit: int,
    held: bool,
) -> int:
    message: msghdr
    vector: iovec
    control: control_words  # four elements of 24 bytes
    element: cython.pointer[cmsghdr] = cython.cast(cython.pointer[cmsghdr], cython.address(control[0]))
    used: cython.size_t = 0
    family: cython.uint = 0
    vector.iov_base = cython.cast(cython.p_void, a)
    vector.iov_len = n
    message.msg_name = cython.cast(cython.p_void, sockaddr)
    message.msg_namelen = sockaddr_n
    message.msg_iov = cython.address(vector)
    message.msg_iovlen = 1
    message.msg_flags = 0
    if segment != 0 and segment < n:
        element.cmsg_level = _SOL_UDP
        element.cmsg_type = _UDP_SEGMENT
        element.cmsg_len = CMSG_LEN(2)
        cython.cast(cython.p_ushort, CMSG_DATA(element))[0] = segment
        used = CMSG_SPACE(2)
    if sockaddr != 0:
        family = cython.cast(cython.p_ushort, sockaddr)[0]
        # `used` is a whole number of these 8-byte words: CMSG_SPACE pads.
        if traffic_class != 0:
            element = cython.cast(cython.pointer[cmsghdr], cython.address(control[used // 8]))
            element.cmsg_level = _IPPROTO_IPV6 if family == _AF_INET6 else _IPPROTO_IP
            element.cmsg_type = _IPV6_TCLASS if family == _AF_INET6 else _IP_TOS
            element.cmsg_len = CMSG_LEN(4)
            cython.cast(cython.p_int, CMSG_DATA(element))[0] = traffic_class & 0xFF
            used += CMSG_SPACE(4)
        if hop_limit != 0:
            element = cython.cast(cython.pointer[cmsghdr], cython.address(control[used // 8]))
            element.cmsg_level = _IPPROTO_IPV6 if family == _AF_INET6 else _IPPROTO_IP
            element.cmsg_type = _IPV6_HOPLIMIT if family == _AF_INET6 else _IP_TTL
            element.cmsg_len = CMSG_LEN(4)
            cython.cast(cython.p_int, CMSG_DATA(element))[0] = hop_limit & 0xFF
            used += CMSG_SPACE(4)
    if held:
        element = cython.cast(cython.pointer[cmsghdr], cython.address(control[used // 8]))
        element.cmsg_level = _SOL_SOCKET
        element.cmsg_type = _SO_TIMESTAMPING
        element.cmsg_len = CMSG_LEN(4)
        cython.cast(cython.p_uint, CMSG_DATA(element))[0] = _TX_SOFTWARE
        used += CMSG_SPACE(4)
    message.msg_control = cython.address(control[0]) if used else cython.NULL
    message.msg_controllen = used
    sent: cython.Py_ssize_t = sendmsg(fd, cython.address(message), _SEND_FLAGS)
    return sent if sent >= 0 else -errno


def drop_held(fd: int, n: int) -> int:
    messages: dropped_messages
    i: cython.uint
    dropped: cython.int
    if n > 16:
        n = 16
    for i in range(n):
        messages[i].msg_hdr.msg_name = cython.NULL
        messages[i].msg_hdr.msg_namelen = 0
        messages[i].msg_hdr.msg_iov = cython.NULL
        messages[i].msg_hdr.msg_iovlen = 0
        messages[i].msg_hdr.msg_control = cython.NULL
        messages[i].msg_hdr.msg_controllen = 0
        messages[i].msg_hdr.msg_flags = 0
    dropped = recvmmsg(fd, cython.address(messages[0]), n, _DROP_FLAGS, cython.NULL)
    return dropped if dropped >= 0 else -errno


def receive_burst(fd: int, a: int, capacity: int, meta: ReceiveMeta) -> int:
    message: msghdr
    vector: iovec
    control: receive_control_words
    name: name_words
    element: cython.pointer[cmsghdr]
    vector.iov_base = cython.cast(cython.p_void, a)
    vector.iov_len = capacity
    name[0] = 0
    message.msg_name = cython.address(name[0])
    message.msg_namelen = 32
    message.msg_iov = cython.address(vector)
    message.msg_iovlen = 1
    message.msg_control = cython.address(control[0])
    message.msg_controllen = 128
    message.msg_flags = 0
    received: cython.Py_ssize_t = recvmsg(fd, cython.address(message), _RECEIVE_FLAGS)
    if received < 0:
        return -errno
    meta.segment = received
    meta.traffic_class = 0
    meta.truncated = (message.msg_flags & _MSG_TRUNC) != 0
    element = CMSG_FIRSTHDR(cython.address(message))
    while element != cython.NULL:
        if element.cmsg_level == _SOL_UDP and element.cmsg_type == _UDP_GRO:
            meta.segment = cython.cast(cython.p_int, CMSG_DATA(element))[0]
        elif element.cmsg_level == _IPPROTO_IP and element.cmsg_type == _IP_TOS:
            meta.traffic_class = CMSG_DATA(element)[0]
        elif element.cmsg_level == _IPPROTO_IPV6 and element.cmsg_type == _IPV6_TCLASS:
            meta.traffic_class = cython.cast(cython.p_int, CMSG_DATA(element))[0] & 0xFF
        element = CMSG_NXTHDR(cython.address(message), element)
    _put_source(meta, cython.cast(cython.p_uchar, cython.address(name[0])), message.msg_namelen)
    return received


def _put_source(meta: ReceiveMeta, name: Any, n: int) -> None:
    """Sender of a datagram from its socket address: sockaddr_in (16 bytes) or sockaddr_in6 (28 bytes)."""
    family: cython.uint = cython.cast(cython.p_ushort, name)[0] if n >= 2 else 0
    meta.family = family
    if family == _AF_INET6 and n >= 24:
        meta.port = be16toh(cython.cast(cython.p_ushort, name + 2)[0])
        meta.source_high = be64toh(cython.cast(cython.p_ulonglong, name + 8)[0])
        meta.source_low = be64toh(cython.cast(cython.p_ulonglong, name + 16)[0])
    elif family == _AF_INET and n >= 8:
        meta.port = be16toh(cython.cast(cython.p_ushort, name + 2)[0])
        meta.source_high = 0
        meta.source_low = _V4_MAPPED_PREFIX | be32toh(cython.cast(cython.p_uint, name + 4)[0])
    else:
        meta.port = 0
        meta.source_high = 0
        meta.source_low = 0
