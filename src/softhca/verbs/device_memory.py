"""Memory of the device, outside the program's own: reached by copies, and by regions over it (`mr.DMMR`)."""

import errno
import mmap
import threading
import weakref

from softhca.driver.device_memory import DeviceMemory
from softhca.machine import deferred_signals, primitives
from softhca.queues.control_fields import MAX_DM_BYTES
from softhca.verbs.absent import refuse
from softhca.verbs.base import PyverbsObject, Resource, read_only, require, translated
from softhca.verbs.device import Context
from softhca.verbs.memory_access import Bytes, MappedRange
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.sharing import element_of
from softhca.verbs.structures import UINT32, UINT64

_UNIT_BYTES = 4  # of copies, as the devices have that offer such memory
_lock = threading.Lock()
_taken: "weakref.WeakKeyDictionary[Context, int]" = weakref.WeakKeyDictionary()  # bytes


class AllocDmAttr(PyverbsObject):
    """What device memory is made of: bytes, the logarithm of its alignment, and no extension."""

    __slots__ = ("comp_mask", "length", "log_align_req")

    def __init__(self, length: int, log_align_req: int = 0, comp_mask: int = 0) -> None:
        self.length = UINT64(length)
        self.log_align_req = UINT32(log_align_req)
        self.comp_mask = UINT32(comp_mask)


class DM(Resource):
    """``dm_attr.length`` bytes of device memory, zero at first.

    A context has `DeviceAttrEx.max_dm_size` bytes in all; more is ``ENOMEM``.  Alignments up to a page are
    kept.  ``handle`` makes an import of the memory of the context's device that has it (`sharing`), also of
    another process's: both see the same bytes, and each may register them; what was imported stays when its
    maker closes it, or ends.  A forked child, which has lost its parent's devices, may still make such memory
    and copy; it cannot register it.
    """

    __slots__ = ("_context", "_foreign", "_length", "_memory", "_original", "_stretch")
    context: Context = read_only("_context", "The device.")

    _original: "DM | None"  # of an import

    def __init__(
        self, context: Context, dm_attr: AllocDmAttr | None = None, *, handle: int | None = None
    ) -> None:
        require(context, Context, "context")
        self._original, self._foreign = None, False
        self._memory: DeviceMemory | None = None
        if handle is not None:
            self._import(context, handle)
            return
        require(dm_attr, AllocDmAttr, "dm_attr")
        assert dm_attr is not None
        self._driver = context.driver
        length = dm_attr.length
        if dm_attr.comp_mask or length <= 0 or not 0 <= dm_attr.log_align_req <= 12:
            raise self._refusal(length, errno.EINVAL)
        with _lock:
            if _taken.get(context, 0) + length > MAX_DM_BYTES:
                raise self._refusal(length, errno.ENOMEM)
            _taken[context] = _taken.get(context, 0) + length
        self._context = context
        self._length = length
        with deferred_signals.section():  # what was made is closed with the object
            try:
                self._stretch = self._make(length)
            except BaseException:
                self._give_back()
                raise
            self._opened(context)

    def _import(self, context: Context, handle: int) -> None:
        self._context = context
        if context.source.is_foreign:
            self._driver, self._foreign = context.driver, True
            with translated("Failed to import DM"):
                self._memory = self._driver.import_dm(UINT32(handle))
            self._length = self._memory.length
            self._stretch = MappedRange(self._memory.address, self._length, self._memory.free)
            self._opened(context)
            return
        original = element_of(context.source, DM, handle, "DM")
        self._driver = original._driver
        self._original, self._memory = original, original._memory
        self._length = original._length
        self._stretch = MappedRange(original.stretch.address, original._length, _nothing)
        self._opened(context, original)

    @staticmethod
    def _refusal(length: int, code: int) -> PyverbsRDMAError:
        return PyverbsRDMAError(
            f"Failed to allocate device memory of size {length}. Max available size {MAX_DM_BYTES}", code
        )

    def _make(self, length: int) -> MappedRange:
        if not self._driver.alive:
            return _mapping(length)
        with translated(f"Failed to allocate device memory of size {length}"):
            self._memory = self._driver.alloc_dm(length)
        return MappedRange(self._memory.address, length, self._memory.free)  # nothing of this: no cycle

    def _give_back(self) -> None:
        with _lock:
            _taken[self.context] -= self._length

    def _destroy(self) -> None:
        """The device keeps nothing for it beyond its regions, which are closed before."""

    def _released(self) -> None:
        self._stretch.end()
        if self._original is None and not self._foreign:
            self._give_back()

    @property
    def handle(self) -> int:
        """The number by which the memory is imported."""
        self._require_open()
        return self._order if self._memory is None else self._memory.number

    @property
    def memory(self) -> DeviceMemory:
        """What the device knows of it; `PyverbsRDMAError`, ``EIO``, in a forked child."""
        self._require_open()
        if self._memory is None:
            raise PyverbsRDMAError("This DM is no device's: it was made in a forked child", errno.EIO)
        return self._memory

    @property
    def stretch(self) -> MappedRange:
        """The bytes."""
        self._require_open()
        return self._stretch

    def copy_to_dm(self, dm_offset: int, data: Bytes, length: int) -> None:
        """Copy ``length`` bytes of ``data`` to ``dm_offset``; both are multiples of 4, else ``EINVAL``."""
        self._check("to", dm_offset, length)
        self._stretch.write(data, length, dm_offset)

    def copy_from_dm(self, dm_offset: int, length: int) -> bytes:
        """A copy of ``length`` bytes at ``dm_offset``; both are multiples of 4, else ``EINVAL``."""
        self._check("from", dm_offset, length)
        found = self._stretch.read(length, dm_offset)
        if found is None:
            raise PyverbsUserError("This DM is closed")
        return found

    def _check(self, way: str, offset: int, length: int) -> None:
        self._require_open()
        if min(offset, length) < 0 or offset % _UNIT_BYTES or length % _UNIT_BYTES \
                or offset + length > self._length:
            raise PyverbsRDMAError(
                f"Failed to copy {way} dm: offset = {offset}, length = {length}: of {self._length} bytes, "
                f"and both must be multiples of {_UNIT_BYTES}",
                errno.EINVAL,
            )

    def unimport(self) -> None:
        """Let go of imported memory; ``EINVAL`` for what was made here."""
        if self._original is None and not self._foreign:
            raise PyverbsRDMAError("Failed to unimport DM: it was made here", errno.EINVAL)
        self.close()

    def export_dmabuf_fd(self) -> int:
        """A descriptor of the memory for other devices: ``EOPNOTSUPP``."""
        refuse("Failed to export DM")


def _nothing() -> None:
    """The memory is the original's."""


def _mapping(length: int) -> MappedRange:
    """Memory of this process alone."""
    memory = mmap.mmap(-1, length)
    return MappedRange(primitives.address_of(memory), length, memory.close)
