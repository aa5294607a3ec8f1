"""Pageable memory: registered memory that can leave and move under running adapters (softhca's own).

A `PageableMemory` belongs to the process that makes it; others attach it by its descriptor
(`PageableMemory.attach`), and each device that is to use it registers it (`PageableMR`).  The page table
stands once, in the memory itself.  Reliable connections wait for what is quiesced, swapped out or on its
way, and lose nothing; unreliable services drop what they cannot place.
"""

from __future__ import annotations

import errno
from typing import Self

from softhca.driver import paging
from softhca.verbs.base import PyverbsCM, Resource, creating, read_only, require, translated
from softhca.verbs.device import Context
from softhca.verbs.device_enums import ibv_access_flags
from softhca.verbs.memory_access import Bytes
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.utils import lines

__all__ = ["PageableMR", "PageableMemory", "set_data_access"]

EVERYTHING = int(
    ibv_access_flags.IBV_ACCESS_LOCAL_WRITE
    | ibv_access_flags.IBV_ACCESS_REMOTE_WRITE
    | ibv_access_flags.IBV_ACCESS_REMOTE_READ
    | ibv_access_flags.IBV_ACCESS_REMOTE_ATOMIC
)


class PageableMemory(PyverbsCM):
    """``length`` bytes whose pages this process can swap out, bring back and move.

    ``access`` bounds what registrations may give (default: everything but on-demand paging).  With
    ``IBV_ACCESS_ON_DEMAND`` pages are absent until a device or `read` and `write` touch them, and are brought
    by a thread of the library, or, without ``pager``, by `service`.  Steps that wait for accesses under way
    do so ``timeout_s`` seconds (``ETIMEDOUT``).  A step that raises `PyverbsRDMAError` has changed nothing.
    """

    __slots__ = ("_memory",)

    def __init__(
        self,
        length: int,
        access: int = EVERYTHING,
        *,
        swap_directory: str | None = None,
        pager: bool = True,
        timeout_s: float = paging.DEFAULT_TIMEOUT_S,
    ) -> None:
        self._memory: paging.PageableMemory | paging.AttachedMemory
        with translated(f"Failed to make pageable memory of {length} bytes"):
            self._memory = paging.PageableMemory(length, int(access), swap_directory, pager, timeout_s)

    @classmethod
    def attach(cls, fd: int) -> Self:
        """The memory behind a descriptor that another process owns and has handed over.

        It can be registered, read and written; whatever moves pages is refused with ``EPERM``.
        """
        attached = cls.__new__(cls)
        with translated("Failed to attach pageable memory"):
            attached._memory = paging.AttachedMemory(fd)
        return attached

    @property
    def fd(self) -> int:
        """The memory's descriptor, to be handed over a Unix socket; it stays this object's."""
        with translated("Failed to name the descriptor"):
            return self._memory.fd

    @property
    def owned(self) -> bool:
        """Whether this process owns the memory."""
        return self._memory.owned

    @property
    def length(self) -> int:
        """Bytes of the memory."""
        return self._memory.length

    @property
    def buf(self) -> int:
        """Address of the view, where the owner sees the pages in order; 0 where it is only attached.

        While a page is out, touching its address ends the program (SIGSEGV); `read` and `write` do not.
        """
        return self._memory.address

    @property
    def rights(self) -> int:
        """The rights that the memory allows at present."""
        with translated("Failed to read the rights"):
            return self._memory.rights

    @property
    def quiesced(self) -> bool:
        """Whether the memory is quiesced or swapped out: a consumer holds back what it would post."""
        return self._memory.quiesced

    @property
    def resident_bytes(self) -> int:
        """Memory that it takes at present, as the system counts it; the owner's to ask."""
        with translated("Failed to look"):
            return self._owner().resident_bytes

    @property
    def swapped_bytes(self) -> int:
        """Bytes that stand in the swap file; the owner's to ask."""
        return self._owner().swapped_bytes

    def _owner(self) -> paging.PageableMemory:
        if not isinstance(self._memory, paging.PageableMemory):
            raise PyverbsRDMAError("The memory is another process's", errno.EPERM)
        return self._memory

    def quiesce(self) -> None:
        """Hold every access back until `resume`.  ``EBUSY``: it is quiesced or swapped out already."""
        with translated("Failed to quiesce"):
            self._owner().quiesce()

    def resume(self) -> None:
        """Let accesses go on.  ``EINVAL``: it is not quiesced; ``EBUSY``: it is swapped out."""
        with translated("Failed to resume"):
            self._owner().resume()

    def set_rights(self, access: int) -> None:
        """Change what the memory allows; when this returns all devices, of all processes, keep it.

        What was under way under the old rights ends with an access error.  ``EBUSY``: it is quiesced.
        """
        with translated("Failed to change the rights"):
            self._owner().set_rights(int(access))

    def swap_out(self, offset: int = 0, length: int | None = None) -> None:
        """Take the pages' memory away; with on-demand paging those that the range touches, else all, and it
        stays quiesced until `swap_in`.  ``EBUSY``: it is quiesced; ``ENOSPC`` … : the swap file has no room.
        """
        with translated("Failed to swap out"):
            self._owner().swap_out(offset, length)

    def swap_in(self) -> None:
        """Bring all pages back, to other frames.  ``EINVAL``: none is out; ``ENOMEM``: no memory for them."""
        with translated("Failed to swap in"):
            self._owner().swap_in()

    def migrate(self) -> int:
        """Move every page to another frame, at unchanged addresses; how many.

        This process's devices do not touch any memory meanwhile, and nobody writes the view.
        """
        with translated("Failed to migrate"):
            return self._owner().migrate()

    def fetch(self, offset: int = 0, length: int | None = None) -> int:
        """Bring the absent pages of a range; how many."""
        with translated("Failed to fetch"):
            return self._owner().fetch(offset, length)

    def service(self) -> int:
        """Bring the pages that devices have asked for; how many.  Only needed without ``pager``."""
        with translated("Failed to fetch"):
            return self._owner().service()

    def read(self, length: int, offset: int = 0) -> bytes:
        """A copy of ``length`` bytes; the owner's brings absent pages.  ``EBUSY`` (owner), ``EAGAIN``
        (attached): they are not there now.
        """
        with translated("Failed to read"):
            return self._memory.read(offset, length)

    def write(self, data: Bytes, length: int, offset: int = 0) -> None:
        """Copy the first ``length`` bytes of ``data`` to ``offset``; text is written as UTF-8.  As `read`."""
        source = memoryview(data.encode() if isinstance(data, str) else data).cast("B")
        if length < 0 or length > source.nbytes:
            raise PyverbsUserError(f"{length} bytes asked for, the data has {source.nbytes}")
        with translated("Failed to write"):
            self._memory.write(offset, source[:length])

    def close(self) -> None:
        """End the memory (its owner), and with it what its registrations grant; or leave it (others)."""
        self._memory.close()


class PageableMR(Resource):
    """A registration of a whole pageable memory with one device: keys of its own, on the shared table.

    ``iova`` is the address by which work requests name the first byte; by default that of the view for the
    memory's owner, else 0.  ``access`` is what it gives as far as the memory's rights allow.
    """

    __slots__ = ("_address", "_key", "_memory", "_pd")
    memory: PageableMemory = read_only("_memory", "The memory.")
    pd: PD = read_only("_pd", "The protection domain.")

    def __init__(self, creator: PD, memory: PageableMemory, access: int, iova: int | None = None) -> None:
        require(creator, PD, "creator")
        require(memory, PageableMemory, "memory")
        creator._require_open()
        self._driver = creator._driver
        with creating("Failed to register pageable memory"):
            self._key = self._driver.reg_paged(creator.number, memory._memory, int(access), iova)
            self._memory = memory
            self._pd = creator
            self._address = memory.buf if iova is None else iova
            self._opened(creator)

    def _destroy(self) -> None:
        self._driver.dereg_mr(self._key.handle)

    def read(self, length: int, offset: int) -> bytes:
        """As `PageableMemory.read`; drives the device first, so that a loop sees remote writes."""
        self._require_open()
        with translated("Failed to drive the device"):
            self._driver.look()
        return self.memory.read(length, offset)

    def write(self, data: Bytes, length: int, offset: int = 0) -> None:
        """As `PageableMemory.write`."""
        self._require_open()
        self.memory.write(data, length, offset)

    @property
    def buf(self) -> int:
        """The address of the first byte in work requests."""
        self._require_open()
        return self._address

    @property
    def lkey(self) -> int:
        """The key for scatter/gather elements of this side."""
        self._require_open()
        return self._key.lkey

    @property
    def rkey(self) -> int:
        """The key to give to peers."""
        self._require_open()
        return self._key.rkey

    @property
    def length(self) -> int:
        """Bytes of the region."""
        return self.memory.length

    @property
    def handle(self) -> int:
        """The driver's handle of the region."""
        self._require_open()
        return self._key.handle

    def __str__(self) -> str:
        return "PageableMR:\n" + lines(
            {"lkey": self.lkey, "rkey": self.rkey, "length": self.length, "buf": self.buf}
        )


def set_data_access(context: Context, allowed: bool) -> bool:
    """Allow a context's adapter to touch registered memory, or not; whether this context allowed it before.

    While it is not allowed everything that needs memory waits, as if it were quiesced; queues, completions,
    events and all that controls the device go on.
    """
    require(context, Context, "context")
    with translated("Failed to set data access"):
        return context.driver.set_data_access(allowed)
