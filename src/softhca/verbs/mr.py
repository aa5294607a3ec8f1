"""Memory regions and memory windows."""

import errno
import threading
from typing import TYPE_CHECKING, Any, Self

from softhca.machine import deferred_signals, primitives
from softhca.memory.on_demand import IMPLICIT_BYTES
from softhca.verbs.base import PyverbsCM, Resource, creating, read_only, require, translated
from softhca.verbs.device_enums import ibv_access_flags, ibv_mw_type, ibv_rereg_mr_flags
from softhca.verbs.libibverbs_enums import IBV_ACCESS_OPTIONAL_RANGE
from softhca.verbs.memory_access import Bytes, MappedRange
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.queue_enums import ibv_send_flags
from softhca.verbs.sharing import element_of
from softhca.verbs.structures import INT32, INT64, UINT32, UINT64
from softhca.verbs.utils import lines

if TYPE_CHECKING:
    from softhca.driver.device import HostBuffer

HUGE_PAGE_SIZE = 0x200000

HINTS = IBV_ACCESS_OPTIONAL_RANGE | int(
    ibv_access_flags.IBV_ACCESS_HUGETLB | ibv_access_flags.IBV_ACCESS_FLUSH_PERSISTENT
)
"""Rights that change nothing here."""
_WRITES = int(
    ibv_access_flags.IBV_ACCESS_LOCAL_WRITE
    | ibv_access_flags.IBV_ACCESS_REMOTE_WRITE
    | ibv_access_flags.IBV_ACCESS_REMOTE_ATOMIC
)
_ON_DEMAND = int(ibv_access_flags.IBV_ACCESS_ON_DEMAND)
_TRANSLATION = int(ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_TRANSLATION)
_PD = int(ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_PD)
_ACCESS = int(ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_ACCESS)


class MR(Resource):
    """A memory region: memory that the device may use, with a local and a remote key.

    The memory is one of three: ``length`` bytes of the device's host memory (neither ``address`` nor
    ``buffer``; freed by `close`), ``length`` bytes at ``address`` (the caller keeps them mapped), or
    ``buffer``, any object with the buffer protocol (kept alive and locked in size until `close`; ``length``
    may select its beginning). ``iova`` is the address by which work requests name the first byte; by default
    it is the real one.

    Rights that allow remote writing need ``IBV_ACCESS_LOCAL_WRITE`` too (IBTA 10.6.3.1); the device refuses
    others with ``EINVAL``.  Hints (``RELAXED_ORDERING``, ``HUGETLB``) are accepted and change nothing; so is
    the right ``FLUSH_PERSISTENT``, which is not granted: no memory here is persistent.

    With ``IBV_ACCESS_ON_DEMAND`` memory at ``address`` or in ``buffer`` is looked up at each access: it may
    be unmapped and mapped again at any time.  What accesses a byte that is not mapped ends with a protection
    error; `read` and `write` raise ``EFAULT``.  ``implicit`` (needs that right) makes the region all of the
    program's memory, under its addresses; ``length`` bytes of it are allocated, at `buf`.  ``held`` with it,
    and with no other right: the program keeps mapped what a work request names until that is done, and so
    the device, which is in this process (else ``EINVAL``), reads it as fast as registered memory.

    ``handle`` makes an import of the region of the creator's domain that has it (`sharing`); its ``length``
    and keys are the region's, `read` and `write` need the ``address`` of its bytes.
    """

    __slots__ = (
        "_access",
        "_changing",
        "_foreign_length",
        "_host",
        "_implicit",
        "_key",
        "_original",
        "_pd",
        "_stretch",
        "_view",
    )
    pd: PD = read_only("_pd", "The protection domain.")

    _original: "MR | None"
    _foreign_length: int | None  # of an import of another process's region
    _FAILED = "Failed to register a MR"
    _implicit: bool
    _access: int

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        """A region that is no import, until its constructor says so."""
        self = super().__new__(cls, *arguments, **keywords)
        self._original = self._foreign_length = None
        self._implicit, self._access = False, 0
        return self

    def __init__(
        self,
        creator: PD,
        length: int = 0,
        access: int = 0,
        address: int | None = None,
        implicit: bool = False,
        *,
        buffer: Any = None,
        iova: int | None = None,
        handle: int | None = None,
        held: bool = False,
    ) -> None:
        require(creator, PD, "creator")
        creator._require_open()
        if handle is not None:
            self._import(creator, handle, address)
            return
        if buffer is not None and address:
            raise PyverbsUserError("A region has an address or a buffer, not both")
        if held and not implicit:
            raise PyverbsUserError("A region that is held is implicit")
        length, access = UINT64(length), INT32(access)
        address = None if address is None else UINT64(address)
        iova = None if iova is None else UINT64(iova)
        self._driver = creator._driver
        self._host: HostBuffer | None = None
        self._view: memoryview | None = None
        access &= ~HINTS
        with deferred_signals.section():  # what was made is closed with the object
            try:
                base, length = self._locate(length, access, address, buffer)
                with translated(f"{self._FAILED}. length: {length}, access flags: {access}"):
                    if implicit:
                        self._key = self._driver.reg_implicit_mr(creator.number, access, held)
                    else:
                        view = self._view
                        self._key = self._driver.reg_mr(creator.number, base, length, access, iova, view)
            except BaseException:
                _let_go(self._host, self._view)
                raise
            host, view = self._host, self._view
            self._implicit = bool(implicit)
            mapped = host is not None or not access & _ON_DEMAND
            self._stretch = MappedRange(base, length, lambda: _let_go(host, view), mapped)
            self._host = None
            self._access = access
            self._changing = threading.RLock()
            self._pd = creator
            self._opened(creator)

    def _import(self, creator: PD, handle: int, address: int | None) -> None:
        """Become an import; ``address`` is where this part of the program has its bytes, if it knows."""
        self._driver = creator._driver
        self._host = self._view = None
        original = None
        if creator.source.is_foreign:
            with translated("Failed to import MR"):
                self._key, length = self._driver.import_mr(creator.number, UINT32(handle))
            self._foreign_length = length
        else:
            original = self._original = element_of(creator.source, MR, handle, "MR")
            self._key, length = original._key, original.length
        self._stretch = MappedRange(UINT64(address or 0), length if address else 0, _nothing)
        self._changing = threading.RLock()
        self._pd = creator
        self._opened(creator, original)

    def _locate(self, length: int, access: int, address: int | None, buffer: Any) -> tuple[int, int]:
        """Address and length of the memory; what this object owns of it is kept in ``_host`` or ``_view``."""
        if address:
            return address, length
        if buffer is None:
            if length == 0:
                raise PyverbsRDMAError("Failed to register a MR: length is 0", errno.EINVAL)
            with translated(f"Failed to allocate MR buffer of size {length}"):
                host = self._driver.alloc_host_memory(length, access)
            self._host = host
            return host.address, length
        try:
            view = memoryview(buffer)
        except TypeError:
            raise PyverbsUserError(f"{type(buffer).__name__} has no buffer protocol") from None
        if not view.c_contiguous:
            raise PyverbsUserError("The buffer is not contiguous")
        if view.readonly and access & _WRITES:
            raise PyverbsUserError("The buffer is read-only, the access flags allow writing")
        if length > view.nbytes:
            raise PyverbsUserError(f"length {length} is more than the buffer's {view.nbytes} bytes")
        if view.nbytes == 0:
            raise PyverbsRDMAError("Failed to register a MR: length is 0", errno.EINVAL)
        self._view = view
        return primitives.address_of(view, not view.readonly), length or view.nbytes

    def _destroy(self) -> None:
        if not self._is_import:
            self._driver.dereg_mr(self._key.handle)

    @property
    def _is_import(self) -> bool:
        return self._original is not None or self._foreign_length is not None

    def _released(self) -> None:
        self._view = None
        self._stretch.end()

    def read(self, length: int, offset: int) -> bytes:
        """A copy of ``length`` bytes from ``offset``; drives the device first, so that a loop sees remote
        writes.
        """
        length, offset = INT64(length), INT64(offset)
        self._check_range(length, offset)
        self._drive()
        found = self._stretch.read(length, offset)
        while found is None:  # ended: with the region, or a reregistration has given it another one
            self._check_range(length, offset)
            found = self._stretch.read(length, offset)
        return found

    def _drive(self) -> None:
        """Let the device bring what has come in for the region; who reads does not nap for it."""
        self._require_open()
        with translated("Failed to drive the device"):
            self._driver.look()

    def write(self, data: Bytes, length: int, offset: int = 0) -> None:
        """Copy the first ``length`` bytes of ``data`` to ``offset``; text is written as UTF-8."""
        length, offset = INT64(length), INT64(offset)
        self._check_range(length, offset)
        view = self._view
        if view is not None and view.readonly:
            raise PyverbsUserError("The region's buffer is read-only")
        while not self._stretch.write(data, length, offset):
            self._check_range(length, offset)

    def _check_range(self, length: int, offset: int) -> None:
        self._require_open()
        self._stretch.check(length, offset)

    def rereg(
        self, flags: int, pd: PD | None = None, addr: int = 0, length: int = 0, access: int = 0
    ) -> None:
        """Change domain, memory (``addr``, ``length``) or rights, as ``flags`` (``ibv_rereg_mr_flags``) says.

        Keys may change.  Memory that the region owned is freed when it is replaced.  When the device refuses,
        `PyverbsRDMAError` is raised and the region is as before.
        """
        self._require_open()
        if self._is_import:
            raise PyverbsRDMAError("Failed to rereg MR: it is an import", errno.EINVAL)
        flags, access = INT32(flags), INT32(access)
        addr, length = UINT64(addr), UINT64(length)
        if not flags or flags & ~(_TRANSLATION | _PD | _ACCESS):
            raise PyverbsRDMAError(
                f"Failed to rereg MR: flags = {int(flags):#x}: there are no such changes", errno.EINVAL
            )
        if flags & _PD:
            require(pd, PD, "pd")
        if flags & _TRANSLATION and (addr <= 0 or length <= 0):
            raise PyverbsUserError("A change of translation needs addr and length")
        target = pd if flags & _PD and pd is not None else self.pd
        if target.ctx is not self.pd.ctx:
            raise PyverbsUserError("The new domain belongs to another context")
        # the device's registration, the driver's note of it and this object change together
        with deferred_signals.section(), self._changing:
            with translated("Failed to rereg MR"):
                self._key = self._driver.rereg_mr(
                    self._key.handle, int(flags), target.number, addr, length, int(access) & ~HINTS
                )
            if flags & _TRANSLATION:
                mapped = not (access if flags & _ACCESS else self._access) & _ON_DEMAND
                former, self._stretch = self._stretch, MappedRange(addr, length, _nothing, mapped)
                self._view = None
                self._implicit = False
                former.end()
            if flags & _ACCESS:
                self._access = access & ~HINTS
            if target is not self.pd:
                self.pd._let_go(self)
                target._adopt(self)
                self._pd = target

    def unimport(self) -> None:
        """Let go of an imported region; ``EINVAL`` for one that was made here."""
        if not self._is_import:
            raise PyverbsRDMAError("Failed to unimport MR: it was made here", errno.EINVAL)
        self.close()

    @property
    def buf(self) -> int:
        """Address of the first byte in this process."""
        self._require_open()
        return self._stretch.address

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
        self._require_open()
        if self._implicit:
            return IMPLICIT_BYTES
        if self._foreign_length is not None:
            return self._foreign_length
        return self._stretch.length if self._original is None else self._original.length

    @property
    def handle(self) -> int:
        """The driver's handle of the region."""
        self._require_open()
        return self._key.handle

    def __str__(self) -> str:
        return "MR:\n" + lines(
            {
                "lkey": self.lkey,
                "rkey": self.rkey,
                "length": self.length,
                "buf": self.buf,
                "handle": self.handle,
            }
        )


def _let_go(host: "HostBuffer | None", view: memoryview | None) -> None:
    """Give a region's memory back, or let the buffer that it lies in go."""
    if host is not None:
        host.free()
    if view is not None:
        view.release()


def _nothing() -> None:
    """The memory is the caller's."""


class MWBindInfo(PyverbsCM):
    """What a memory window is to be bound to: ``length`` bytes at ``addr`` of ``mr``, with the rights
    ``mw_access_flags`` (``ibv_access_flags``: remote ones, and ``ZERO_BASED`` for a window of type 2).

    A length of 0 unbinds a window of type 1.
    """

    __slots__ = ("_addr", "_length", "_mr", "_mw_access_flags")
    mr: MR = read_only("_mr", "The region.")
    addr: int = read_only("_addr", "The first byte.")
    length: int = read_only("_length", "Bytes.")
    mw_access_flags: int = read_only("_mw_access_flags", "Rights.")

    def __init__(self, mr: MR, addr: int, length: int, mw_access_flags: int) -> None:
        require(mr, MR, "mr")
        self._mr = mr
        self._addr = UINT64(addr)
        self._length = UINT64(length)
        self._mw_access_flags = UINT32(mw_access_flags)

    @property
    def rights_and_lkey(self) -> int:
        """The work request's last field: rights (bits 32 …) and the region's L_Key."""
        return self.mw_access_flags << 32 | self.mr.lkey

    def __str__(self) -> str:
        return "MWBindInfo:\n" + lines(
            {"Addr": self.addr, "Length": self.length, "MW access flags": self.mw_access_flags}
        )


class MWBind(PyverbsCM):
    """A bind work request of a window of type 1, for `QP.bind_mw`."""

    __slots__ = ("_info", "_send_flags", "_wr_id")
    info: MWBindInfo = read_only("_info", "What the window is bound to.")
    wr_id: int = read_only("_wr_id", "The request's identifier.")
    send_flags: int = read_only("_send_flags", "``ibv_send_flags``.")

    def __init__(
        self, info: MWBindInfo, wr_id: int = 0, send_flags: int = int(ibv_send_flags.IBV_SEND_SIGNALED)
    ) -> None:
        require(info, MWBindInfo, "info")
        self._info = info
        self._wr_id = UINT64(wr_id)
        self._send_flags = UINT32(send_flags)

    def __str__(self) -> str:
        return "MWBind:\n" + lines({"WR ID": self.wr_id, "Send flags": self.send_flags}) + str(self.info)


class MW(Resource):
    """A memory window of ``mw_type`` (``ibv_mw_type``), bound to nothing.

    ``rkey`` of type 1 is the one that the last `QP.bind_mw` gave, of type 2 that of the last request to bind
    it that was posted (`SendWR.set_bind_wr`); after `QPEx.wr_bind_mw` it stays what it was.
    A region that it was bound to lives as long as it does: the device refuses to end it while it is bound.
    """

    __slots__ = ("_mr", "_number", "_pd", "_rkey", "_type")
    pd: PD = read_only("_pd", "The protection domain.")

    _goes_first = True

    def __init__(self, creator: PD, mw_type: int) -> None:
        require(creator, PD, "creator")
        creator._require_open()
        self._driver = creator._driver
        mw_type = UINT32(mw_type)
        with creating("Failed to allocate MW"):
            self._number, self._rkey = self._driver.alloc_mw(creator.number, mw_type)
            self._type = mw_type
            self._mr: MR | None = None
            self._pd = creator
            self._opened(creator)

    def _destroy(self) -> None:
        self._driver.dealloc_mw(self._number)

    def _released(self) -> None:
        self._mr = None

    def _bound(self, info: MWBindInfo, rkey: int | None = None) -> None:
        """A bind has been posted; ``rkey`` is what it gives a window of type 1."""
        self._mr = info.mr
        if rkey is not None:
            self._rkey = rkey

    @property
    def handle(self) -> int:
        """The number by which work requests name the window."""
        self._require_open()
        return self._number

    @property
    def rkey(self) -> int:
        """The key to give to peers, or (type 2) to make the next one of."""
        self._require_open()
        return self._rkey

    @property
    def type(self) -> int:
        """``ibv_mw_type``."""
        return self._type

    def __str__(self) -> str:
        return "MW:\n" + lines(
            {"Rkey": self.rkey, "Handle": self.handle, "MW Type": mwtype2str(self.type)}
        )


def mwtype2str(mw_type: int) -> str:
    """The name of an ``ibv_mw_type``."""
    try:
        return str(ibv_mw_type(mw_type).name)
    except ValueError:
        return f"Unknown MW type ({mw_type})"


_KINDS = frozenset(
    ("DMMR", "DmaBufMR", "MREx", "Buf", "BufMR", "DMAHandle", "DmaHandleInitAttr", "NullMR")
)  # of regions, in `mr_kinds`, which stands on this module


def __getattr__(name: str) -> Any:
    if name not in _KINDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from softhca.verbs import mr_kinds

    return getattr(mr_kinds, name)
