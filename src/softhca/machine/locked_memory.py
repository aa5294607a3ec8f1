"""Whether this process has all that it maps brought and locked at once (mlockall(2) with MCL_FUTURE)."""

from __future__ import annotations

import ctypes
import mmap

from softhca.machine.primitives import address_of

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def maps_locked() -> bool:
    """Whether a page that was just mapped is there before anybody touches it, and pages are locked.  With
    MCL_ONFAULT it is not; and some kernels in user space say of every page that it is there.
    """
    found = ctypes.c_ubyte(0)
    with mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        asked = _libc.mincore(address_of(page), mmap.PAGESIZE, ctypes.byref(found))
        return asked == 0 and bool(found.value & 1) and _locks_memory()


def _locks_memory() -> bool:
    """Whether this process has locked pages; True where nothing says so."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return not any(line.split()[1] == "0" for line in status if line.startswith("VmLck:"))
    except OSError:
        return True
