"""Regions over other memory than the program's own, and what they are made of; `mr` has them too."""

import errno
import threading
from typing import TYPE_CHECKING, Any

from softhca.driver.memory import MemoryKey
from softhca.verbs.absent import AbsentObject, absent_method, absent_property, refuse
from softhca.verbs.base import PyverbsObject, require, translated
from softhca.verbs.device_enums import ibv_access_flags
from softhca.verbs.device_memory import DM
from softhca.verbs.memory_access import Bytes, Stretch
from softhca.verbs.mr import HINTS, MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.utils import lines

if TYPE_CHECKING:
    from softhca.verbs.device import Context

_ZERO_BASED = int(ibv_access_flags.IBV_ACCESS_ZERO_BASED)


class DMMR(MR):
    """A region over ``length`` bytes of device memory from ``offset``; requests name its first byte 0.

    It may have no bytes.  ``IBV_ACCESS_ZERO_BASED`` is needed, as real devices demand (``EINVAL``).  `read`
    and `write` are the memory's copies, with its rules.
    """

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
        address = dm.stretch.address + offset
        with translated(f"Failed to register a device MR. length: {length}, access flags: {access}"):
            if length:
                self._key = self._driver.reg_mr(pd.number, address, length, access, 0)
            else:  # a key under which nothing has been registered
                number, key = self._driver.alloc_fast_mr(pd.number, 1)
                self._key = MemoryKey(number, key, key)
        self._host = self._view = None
        self._stretch = Stretch(address, length, _nothing)
        self._changing = threading.RLock()
        self.pd = pd
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


class DmaBufMR(AbsentObject):
    """A region over a graphics device's buffer; refused with ``EOPNOTSUPP``."""

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
    """Hints for the host bus: processor, kind of memory, steering; ``comp_mask`` says which are given."""

    def __init__(self, comp_mask: int = 0, cpu_id: int = 0, tph_mem_type: int = 0, ph: int = 0) -> None:
        self.comp_mask = int(comp_mask)
        self.cpu_id = cpu_id
        self.tph_mem_type = int(tph_mem_type)
        self.ph = ph

    def __str__(self) -> str:
        return lines(vars(self))


class DMAHandle(AbsentObject):
    """Such hints for regions; there is no bus: refused with ``EOPNOTSUPP``."""

    def __init__(self, context: "Context", attr: DmaHandleInitAttr | None = None) -> None:
        refuse("Failed to allocate a DMA handle")


class MREx(MR):
    """A region by the extended call: ``length`` bytes at ``address``, or of its own.

    What the device has not is refused with ``EOPNOTSUPP``: memory of a descriptor, buffers, DMA handles,
    implicit on-demand paging.
    """

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
        buf: Any = None,
    ) -> None:
        if fd is not None or buf is not None or dmah is not None:
            refuse("Failed to register a MR over a descriptor, a buffer or with a DMA handle")
        super().__init__(creator, length, access, address, implicit, iova=iova)


class Buf(AbsentObject):
    """A buffer that the device allocates; refused with ``EOPNOTSUPP``."""

    export_dmabuf_fd = absent_method
    addr = size = absent_property


class BufMR(AbsentObject):
    """A region over such a buffer; refused with ``EOPNOTSUPP``."""

    read = write = rereg = absent_method
    buf = lkey = rkey = length = handle = absent_property
