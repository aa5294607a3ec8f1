"""The C library's allocators and access to raw addresses, as pyverbs offers them.

As in C, nothing here knows whether an address is mapped: a wrong one ends the process.
"""

import ctypes
import mmap as _mman
import os
import sys

from softhca.machine import primitives
from softhca.verbs.base import PyverbsRDMAErrno
from softhca.verbs.memory_access import Bytes, read_bytes, write_bytes

PROT_NONE_ = 0
PROT_READ_ = _mman.PROT_READ
PROT_WRITE_ = _mman.PROT_WRITE
PROT_EXEC_ = _mman.PROT_EXEC

MAP_SHARED_ = _mman.MAP_SHARED
MAP_PRIVATE_ = _mman.MAP_PRIVATE
MAP_FIXED_ = 0x10
MAP_ANONYMOUS_ = _mman.MAP_ANONYMOUS
MAP_GROWSDOWN_ = 0x100
MAP_LOCKED_ = 0x2000
MAP_NORESERVE_ = 0x4000
MAP_POPULATE_ = _mman.MAP_POPULATE
MAP_STACK_ = _mman.MAP_STACK
MAP_HUGETLB_ = 0x40000

_MADV_DONTNEED = 4
_MAP_FAILED = (1 << (8 * ctypes.sizeof(ctypes.c_void_p))) - 1

_libc = ctypes.CDLL(None, use_errno=True)
_size, _pointer, _int = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
_libc.mmap.argtypes, _libc.mmap.restype = (_pointer, _size, _int, _int, _int, ctypes.c_long), _pointer
_libc.munmap.argtypes = (_pointer, _size)
_libc.madvise.argtypes = (_pointer, _size, _int)
_libc.malloc.argtypes, _libc.malloc.restype = (_size,), _pointer
_libc.posix_memalign.argtypes = (ctypes.POINTER(_pointer), _size, _size)
_libc.free.argtypes, _libc.free.restype = (_pointer,), None


def mmap(
    addr: int = 0,
    length: int = 100,
    prot: int = PROT_READ_ | PROT_WRITE_,
    flags: int = MAP_PRIVATE_ | MAP_ANONYMOUS_,
    fd: int = 0,
    offset: int = 0,
) -> int:
    """Map ``length`` bytes; the address, or `MemoryError`."""
    address = _libc.mmap(addr, length, prot, flags, -1 if flags & MAP_ANONYMOUS_ else fd, offset)
    if address is None or address == _MAP_FAILED:
        raise MemoryError(f"Failed to mmap memory: {os.strerror(ctypes.get_errno())}")
    return int(address)


def madvise(addr: int, length: int, flags: int = _MADV_DONTNEED) -> None:
    """Advise the kernel about a range; raises `PyverbsRDMAError` with the errno."""
    if _libc.madvise(addr, length, flags):
        raise PyverbsRDMAErrno("Failed to madvise memory")


def munmap(addr: int, length: int) -> None:
    """Unmap a range that `mmap` returned."""
    if _libc.munmap(addr, length):
        raise MemoryError("Failed to munmap requested memory")


def malloc(size: int) -> int:
    """Address of ``size`` bytes from the C heap, or `MemoryError`."""
    address = _libc.malloc(size)
    if not address:
        raise MemoryError("Failed to allocate memory")
    return int(address)


def posix_memalign(size: int, alignment: int = 8) -> int:
    """Address of ``size`` zero bytes, a multiple of ``alignment`` (a power of two), or `MemoryError`."""
    out = _pointer()
    error = _libc.posix_memalign(ctypes.byref(out), alignment, size)
    if error or not out.value:
        raise MemoryError(f"Failed to allocate memory ({os.strerror(error)})")
    primitives.fill(out.value, 0, size)
    return out.value


def free(ptr: int) -> None:
    """Give memory of `malloc` or `posix_memalign` back."""
    _libc.free(ptr)


def writebe32(addr: int, val: int, offset: int = 0) -> None:
    """Write ``val`` big-endian; ``offset`` counts units of 4 bytes."""
    write_bytes(addr + 4 * offset, (val & 0xFFFFFFFF).to_bytes(4, "big"), 4)


def writebe64(addr: int, val: int, offset: int = 0) -> None:
    """Write ``val`` big-endian; ``offset`` counts units of 8 bytes."""
    write_bytes(addr + 8 * offset, (val & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big"), 8)


def write(addr: int, data: Bytes, length: int, offset: int = 0) -> None:
    """Copy ``length`` bytes of ``data`` to ``addr + offset``."""
    write_bytes(addr + offset, data, length)


def read32(addr: int, offset: int = 0) -> int:
    """The native 32-bit number at ``addr``; ``offset`` counts units of 4 bytes."""
    return int.from_bytes(read_bytes(addr + 4 * offset, 4), sys.byteorder)


def read64(addr: int, offset: int = 0) -> int:
    """The native 64-bit number at ``addr``; ``offset`` counts units of 8 bytes."""
    return int.from_bytes(read_bytes(addr + 8 * offset, 8), sys.byteorder)


def read(addr: int, length: int, offset: int = 0) -> bytes:
    """A copy of ``length`` bytes at ``addr + offset``."""
    return read_bytes(addr + offset, length)
