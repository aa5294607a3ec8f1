"""Extended reliable connected domains: the attributes are there, the device has no such service."""

from softhca.verbs.absent import AbsentObject
from softhca.verbs.base import PyverbsObject


class XRCDInitAttr(PyverbsObject):
    """What a domain is made of: valid fields (``ibv_xrcd_init_attr_mask``), flags of ``open``, the file."""

    def __init__(self, comp_mask: int, oflags: int, fd: int) -> None:
        self.comp_mask = int(comp_mask)
        self.oflags = int(oflags)
        self.fd = int(fd)


class XRCD(AbsentObject):
    """A domain of shared receive queues of several processes; refused with ``EOPNOTSUPP``."""
