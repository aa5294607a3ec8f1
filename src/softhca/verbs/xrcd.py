"""XRC domains: shared receive queues that the connections of many processes may use."""

import errno
import os

from softhca.verbs.base import PyverbsObject, Resource, creating, read_only, require
from softhca.verbs.device import Context
from softhca.verbs.device_enums import ibv_xrcd_init_attr_mask
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.structures import INT32, UINT32

_NEEDED = int(
    ibv_xrcd_init_attr_mask.IBV_XRCD_INIT_ATTR_FD | ibv_xrcd_init_attr_mask.IBV_XRCD_INIT_ATTR_OFLAGS
)


class XRCDInitAttr(PyverbsObject):
    """What an XRC domain is opened with.

    ``fd`` is an open descriptor of the file that the domain belongs to, for all processes that share the
    device, or −1 for a domain of one's own.  ``oflags``: ``os.O_CREAT`` makes the domain where the file has
    none, ``os.O_EXCL`` asks that it had none.  ``comp_mask`` must name both.
    """

    __slots__ = ("comp_mask", "fd", "oflags")

    def __init__(self, comp_mask: int, oflags: int, fd: int) -> None:
        self.comp_mask = UINT32(comp_mask)
        self.oflags = INT32(oflags)
        self.fd = INT32(fd)


def _refused(why: str) -> PyverbsRDMAError:
    return PyverbsRDMAError(f"Failed to allocate XRC domain: {why}", errno.EINVAL)


class XRCD(Resource):
    """An XRC domain.

    `PyverbsRDMAError` EINVAL: ``comp_mask`` lacks something, or `os.O_EXCL` and the file has a domain;
    EAGAIN: it has none, and ``oflags`` lacks `os.O_CREAT`; EBADF: ``fd`` is not open.
    """

    __slots__ = ("_ctx", "_number")
    ctx: Context = read_only("_ctx", "The device.")

    def __init__(self, context: Context, init_attr: XRCDInitAttr) -> None:
        require(context, Context, "context")
        require(init_attr, XRCDInitAttr, "init_attr")
        if init_attr.comp_mask != _NEEDED:
            raise _refused(f"comp_mask is {init_attr.comp_mask:#x}, FD and OFLAGS are needed, and no others")
        if extra := init_attr.oflags & ~(os.O_CREAT | os.O_EXCL):
            raise _refused(f"oflags has {extra:#x}, only O_CREAT and O_EXCL are for domains")
        self._driver = context.driver
        with creating("Failed to allocate XRC domain"):
            self._number = self._driver.open_xrcd(
                init_attr.fd, bool(init_attr.oflags & os.O_CREAT), bool(init_attr.oflags & os.O_EXCL)
            )
            self._ctx = context
            self._opened(context)

    @property
    def number(self) -> int:
        """The domain's number; raises `PyverbsUserError` when it is closed."""
        self._require_open()
        return self._number

    def _destroy(self) -> None:
        self._driver.close_xrcd(self._number)
