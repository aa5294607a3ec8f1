"""Regions over other memory than the program's own, and what they are made of; `mr` has them too."""

import errno
import os
import threading
from typing import TYPE_CHECKING, Any

from softhca.driver.memory import MemoryKey
from softhca.memory.null import NULL_BYTES
from softhca.verbs.absent import AbsentObject, absent_method, absent_property, refuse
from softhca.verbs.base import PyverbsObject, Resource, creating, read_only, require
from softhca.verbs.device_enums import ibv_access_flags, ibv_dmah_init_attr_mask, ibv_tph_mem_type
from softhca.verbs.device_memory import DM
from softhca.verbs.memory_access import Bytes, MappedRange
from softhca.verbs.mr import HINTS, MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.structures import INT32, INT64, UINT8, UINT32, UINT64
from softhca.verbs.utils import lines

if TYPE_CHECKING:
    from softhca.verbs.device import Context

_ZERO_BASED = int(ibv_access_flags.IBV_ACCESS_ZERO_BASED)
_ON_DEMAND = int(ibv_access_flags.IBV_ACCESS_ON_DEMAND)
_EVERY_RIGHT = int(
    ibv_access_flags.IBV_ACCESS_LOCAL_WRITE
    | ibv_access_flags.IBV_ACCESS_REMOTE_WRITE
    | ibv_access_flags.IBV_ACCESS_REMOTE_READ
    | ibv_access_flags.IBV_ACCESS_REMOTE_ATOMIC
)
_MASK_CPU = int(ibv_dmah_init_attr_mask.IBV_DMAH_INIT_ATTR_MASK_CPU_ID)
_MASK_PH = int(ibv_dmah_init_attr_mask.IBV_DMAH_INIT_ATTR_MASK_PH)
_MASK_TYPE = int(ibv_dmah_init_attr_mask.IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE)
_DMAH_MASKS = _MASK_CPU | _MASK_PH | _MASK_TYPE
_LAST_MEM_TYPE = int(ibv_tph_mem_type.IBV_TPH_MEM_TYPE_PM)
_LAST_PH = 3


class DMMR(MR):
    """A region over ``length`` bytes of device memory from ``offset``; requests name its first byte 0.

    It may have no bytes.  ``IBV_ACCESS_ZERO_BASED`` is needed, as real devices demand (``EINVAL``).  `read`
    and `write` are the memory's copies, with its rules.
    """

    __slots__ = ("_dm", "_offset")

    def __init__(self, pd: PD, length: int, access: int, dm: DM, offset: int) -> None:
        require(pd, PD, "pd")
        require(dm, DM, "dm")
        pd._require_open()
        access, length, offset = int(access) & ~HINTS, int(length), int(offset)
        if not access & _ZERO_BASED or offset < 0 or length < 0 or offset + length > dm.stretch.length:
            raise PyverbsRDMAError(
                f"Failed to register a device MR. length: {length}, access flags: {access}: {offset} … "
                f"{offset + length} of {dm.stretch.length} bytes, IBV_ACCESS_ZERO_BASED is needed",
                errno.EINVAL,
            )
        self._driver = pd._driver
        # both raise where another thread has closed it: before there is a region that nobody would end
        address, memory = dm.stretch.address + offset, dm.memory
        with creating(f"Failed to register a device MR. length: {length}, access flags: {access}"):
            if length:
                self._key = self._driver.reg_dm(pd.number, memory, offset, length, access)
            else:  # a key under which nothing has been registered
                number, key = self._driver.alloc_fast_mr(pd.number, 1)
                self._key = MemoryKey(number, key, key)
            self._host = self._view = None
            self._stretch = MappedRange(address, length, _nothing)
            self._changing = threading.RLock()
            self._pd = pd
            self._dm = dm
            self._offset = offset
            self._opened(pd, dm)

    def _destroy(self) -> None:
        if self._stretch.length:
            super()._destroy()
        else:
            self._driver.dereg_fast_mr(self._key.handle)

    def read(self, length: int, offset: int) -> bytes:
        """A copy of ``length`` bytes from ``offset``."""
        self._drive()
        return self._dm.copy_from_dm(self._offset + offset, length)

    def write(self, data: Bytes, length: int, offset: int = 0) -> None:
        """Copy ``length`` bytes of ``data`` to ``offset``."""
        self._require_open()
        self._dm.copy_to_dm(self._offset + offset, data, length)

    @property
    def buf(self) -> int:
        """0: the memory is the device's."""
        self._require_open()
        return 0


def _nothing() -> None:
    """The device memory stays."""


class NullMR(MR):
    """A region without memory (``ibv_alloc_null_mr``; pyverbs has no name for it): what is read of it is
    zeros, what is written to it is thrown away, whichever address an element with its ``lkey`` names.

    Peers have no right to it: its ``rkey`` is 0.  It cannot be changed (``EINVAL``), and a bind of a window
    to it fails.  ``ENOMEM``: there are as many regions as there may be.
    """

    __slots__ = ()

    def __init__(self, pd: PD) -> None:
        require(pd, PD, "pd")
        pd._require_open()
        self._driver = pd._driver
        with creating("Failed to allocate a null MR"):
            self._key = self._driver.alloc_null_mr(pd.number)
            self._host = self._view = None
            self._stretch = MappedRange(0, NULL_BYTES, _nothing)
            self._changing = threading.RLock()
            self._pd = pd
            self._opened(pd)

    def read(self, length: int, offset: int) -> bytes:
        """``length`` zeros."""
        length = INT64(length)
        self._check_range(length, INT64(offset))
        return bytes(length)

    def write(self, data: Bytes, length: int, offset: int = 0) -> None:
        """Nothing: ``data`` is thrown away."""
        self._check_range(INT64(length), INT64(offset))

    def rereg(
        self, flags: int, pd: PD | None = None, addr: int = 0, length: int = 0, access: int = 0
    ) -> None:
        """`PyverbsRDMAError` ``EINVAL``: there is nothing to change."""
        self._require_open()
        raise PyverbsRDMAError("Failed to rereg MR: it is a null MR", errno.EINVAL)


class DmaBufMR(AbsentObject):
    """A region over a graphics device's buffer; refused with ``EOPNOTSUPP``."""

    __slots__ = ()

    read = write = unimport = rereg = absent_method
    offset = dmabuf = buf = lkey = rkey = length = handle = absent_property

    def __init__(
        self,
        pd: PD,
        length: int,
        access: int,
        dmabuf: Any = None,
        offset: int = 0,
        gpu: int = 0,
        gtt: int = 0,
    ) -> None:
        refuse("Failed to register a dma-buf MR")


class DmaHandleInitAttr(PyverbsObject):
    """Hints for whoever copies a region's bytes: the processor that will use them, the kind of memory
    (``ibv_tph_mem_type``), a processing hint 0 … 3; ``comp_mask`` (``ibv_dmah_init_attr_mask``) says which
    are given.
    """

    __slots__ = ("comp_mask", "cpu_id", "ph", "tph_mem_type")

    def __init__(self, comp_mask: int = 0, cpu_id: int = 0, ph: int = 0, tph_mem_type: int = 0) -> None:
        self.comp_mask = UINT32(comp_mask)
        self.cpu_id = UINT32(cpu_id)
        self.ph = UINT8(ph)
        self.tph_mem_type = UINT8(tph_mem_type)

    def __str__(self) -> str:
        return lines({name: getattr(self, name) for name in self.__slots__})

    def __repr__(self) -> str:
        return ", ".join(f"{name} = {getattr(self, name)}" for name in self.__slots__)


class DMAHandle(Resource):
    """Such hints for regions (`MREx`).  There is no bus here, and processors share their caches, so that they
    change nothing; what cannot be is refused as a device does: ``EOPNOTSUPP`` for a ``comp_mask`` that is not
    known, ``EINVAL`` for a processor, kind of memory or hint that there is not.
    """

    __slots__ = ("_ctx",)
    ctx: "Context" = read_only("_ctx", "The device.")

    def __init__(self, ctx: "Context", init_attr: DmaHandleInitAttr) -> None:
        require(init_attr, DmaHandleInitAttr, "init_attr")
        ctx._require_open()
        given = init_attr.comp_mask
        if given & ~_DMAH_MASKS:
            refuse("Failed to create DMA Handle")
        wrong = (
            (given & _MASK_CPU and init_attr.cpu_id >= (os.cpu_count() or 1))
            or (given & _MASK_TYPE and init_attr.tph_mem_type > _LAST_MEM_TYPE)
            or (given & _MASK_PH and init_attr.ph > _LAST_PH)
        )
        if wrong:
            raise PyverbsRDMAError(f"Failed to create DMA Handle: {init_attr!r}", errno.EINVAL)
        self._driver = ctx.driver
        self._ctx = ctx
        self._opened(ctx)

    def _destroy(self) -> None:
        """The device knows nothing of it."""


class Buf(Resource):
    """``size`` bytes of the device's host memory, for regions of the protection domain ``pd`` (`BufMR`,
    `MREx`); zeros at first.  It is closed after its regions.

    ``ENOMEM``: there is no such memory; ``EINVAL`` for no bytes.
    """

    __slots__ = ("_host", "_pd")
    pd: PD = read_only("_pd", "The protection domain.")

    def __init__(self, pd: PD, size: int) -> None:
        require(pd, PD, "pd")
        pd._require_open()
        size = UINT64(size)
        if not size:
            raise PyverbsRDMAError("Failed to allocate ibv_buf: size is 0", errno.EINVAL)
        self._driver = pd._driver
        with creating(f"Failed to allocate ibv_buf of size {size}"):
            self._host = self._driver.alloc_host_memory(size, _EVERY_RIGHT)
            self._pd = pd
            self._opened(pd)

    def _destroy(self) -> None:
        """The device knows its regions alone."""

    def _released(self) -> None:
        self._host.free()

    def export_dmabuf_fd(self) -> int:
        """Ordinary memory has no dma-buf: `PyverbsRDMAError` ``ENODATA``."""
        raise PyverbsRDMAError("Failed to export dmabuf FD for Buf", errno.ENODATA)

    @property
    def addr(self) -> int:
        """The address of the first byte."""
        self._require_open()
        return self._host.address

    @property
    def size(self) -> int:
        """Its bytes."""
        return self._host.length

    def place(self, pd: PD, length: int, address: int, what: str) -> None:
        """Check that so many bytes at ``address`` are its own, and that it is ``pd``'s: else ``EINVAL``."""
        self._require_open()
        first = address - self.addr
        if pd is not self.pd or first < 0 or not 0 < length <= self.size - first:
            raise PyverbsRDMAError(
                f"{what}. length: {length}: {first} … {first + length} of {self.size} bytes of this domain",
                errno.EINVAL,
            )

    def __str__(self) -> str:
        return lines({"addr": self.addr, "size": self.size})


class BufMR(MR):
    """A region over ``length`` bytes from ``offset`` of a buffer that was allocated with the same ``pd``
    (else ``EINVAL``).
    """

    __slots__ = ("backing_buf",)

    _FAILED = "Failed to register a buf MR"

    def __init__(self, pd: PD, buf: Buf, length: int = 0, access: int = 0, offset: int = 0) -> None:
        require(pd, PD, "pd")
        require(buf, Buf, "buf")
        address = buf.addr + UINT64(offset)
        buf.place(pd, UINT64(length), address, self._FAILED)
        super().__init__(pd, length, access, address)
        self.backing_buf = buf
        buf._adopt(self)


class MREx(MR):
    """A region by the extended call: ``length`` bytes at ``address``, of its own, or of a buffer (``buf``,
    from its beginning where no ``address`` is given).

    ``dmah`` are hints, which go with no on-demand paging (``EOPNOTSUPP``).  Memory of a descriptor is refused
    with ``EOPNOTSUPP``.
    """

    __slots__ = ("backing_buf", "dmah")

    _FAILED = "Failed to register MR using extended API"

    def __init__(
        self,
        creator: PD,
        length: int = 0,
        access: int = 0,
        address: int | None = None,
        iova: int | None = None,
        fd: int | None = None,
        fd_offset: int = 0,
        dmah: DMAHandle | None = None,
        implicit: bool = False,
        buf: Buf | None = None,
    ) -> None:
        if fd is not None:
            refuse("Failed to register a MR over a descriptor")
        if dmah is not None:
            require(dmah, DMAHandle, "dmah")
            dmah._require_open()
            if implicit or INT32(access) & _ON_DEMAND:
                refuse("Failed to register a MR on demand with a DMA handle")
        if buf is not None:
            require(buf, Buf, "buf")
            address = buf.addr if address is None else UINT64(address)
            buf.place(creator, UINT64(length), address, self._FAILED)
        super().__init__(creator, length, access, address, implicit, iova=iova)
        self.dmah = dmah
        self.backing_buf = buf
        for each in (dmah, buf):
            if each is not None:
                each._adopt(self)
