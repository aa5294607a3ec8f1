"""Smaller attributes of queue pairs, of features that the device has not."""

from softhca.verbs.base import PyverbsCM, PyverbsObject
from softhca.verbs.utils import lines


class ECE(PyverbsCM):
    """Enhanced connection establishment: whose options, which, and which count; a device without has 0."""

    __slots__ = ("comp_mask", "options", "vendor_id")

    def __init__(self, vendor_id: int = 0, options: int = 0, comp_mask: int = 0) -> None:
        self.vendor_id = int(vendor_id)
        self.options = int(options)
        self.comp_mask = int(comp_mask)

    def __str__(self) -> str:
        return "ECE:\n" + lines(
            {"Vendor ID": hex(self.vendor_id), "Options": hex(self.options), "Comp Mask": hex(self.comp_mask)}
        )


class QPRateLimitAttr(PyverbsObject):
    """A limit of what a queue pair sends: kbit/s, largest burst and usual packet in bytes."""

    __slots__ = ("comp_mask", "max_burst_sz", "rate_limit", "typical_pkt_sz")

    def __init__(
        self, rate_limit: int = 0, max_burst_sz: int = 0, typical_pkt_sz: int = 0, comp_mask: int = 0
    ) -> None:
        self.rate_limit = rate_limit
        self.max_burst_sz = max_burst_sz
        self.typical_pkt_sz = typical_pkt_sz
        self.comp_mask = int(comp_mask)

    def __str__(self) -> str:
        return lines({name: getattr(self, name) for name in self.__slots__})


class QPAttachCompCntrAttr(PyverbsObject):
    """Which completions of a queue pair a counter counts (``ibv_qp_attach_comp_cntr_op``)."""

    __slots__ = ("op_mask",)

    def __init__(self, op_mask: int = 0) -> None:
        self.op_mask = int(op_mask)
