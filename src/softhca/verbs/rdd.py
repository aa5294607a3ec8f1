"""Reliable datagram domains: which queue pairs and end-to-end contexts are for each other."""

from softhca.verbs.base import Resource, creating, read_only, require
from softhca.verbs.device import Context


class RDDomain(Resource):
    """A reliable datagram domain (IBTA vol. 1, 10.2.7).

    RD queue pairs (`QPInitAttr.rdd`) and EE contexts (`eec.EEC`) are made in one, and work with each other
    only where they are in the same.  `PyverbsRDMAError` ``EOPNOTSUPP``: the device has no reliable datagrams.
    """

    __slots__ = ("_ctx", "_number")
    ctx: Context = read_only("_ctx", "The device.")

    def __init__(self, context: Context) -> None:
        require(context, Context, "context")
        self._driver = context.driver
        with creating("Failed to allocate RD domain"):
            self._number = self._driver.alloc_rdd()
            self._ctx = context
            self._opened(context)

    @property
    def number(self) -> int:
        """The domain's number; raises `PyverbsUserError` when it is closed."""
        self._require_open()
        return self._number

    def _destroy(self) -> None:
        self._driver.dealloc_rdd(self._number)
