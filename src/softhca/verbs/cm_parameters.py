"""What connections are asked for and groups joined with: `AddrInfo`, `ConnParam`, `JoinMCAttrEx`."""

from typing import ClassVar

from softhca.driver.rdmacm.addresses import SocketAddress, look_up
from softhca.driver.rdmacm.events import ConnectionParameters
from softhca.verbs.absent import refuse
from softhca.verbs.base import PyverbsObject, require, translated
from softhca.verbs.librdmacm_enums import RAI_NUMERICHOST, RAI_PASSIVE, rdma_port_space
from softhca.verbs.structures import INT32, UINT8, UINT32, Fields, Structure
from softhca.verbs.utils import lines

_PS_IB = int(rdma_port_space.RDMA_PS_IB)
_PS_TCP = int(rdma_port_space.RDMA_PS_TCP)


def _text(value: str | bytes | None) -> str | None:
    """A name or a number as text; TypeError as the compiled pyverbs has it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"expected bytes, {type(value).__name__} found")


class AddrInfo(PyverbsObject):
    """Addresses of a connection, found by `get_addrinfo` where the arguments name any.

    ``source`` and ``destination`` are what was found, ``port_space`` and ``flags`` as they were given.
    """

    __slots__ = ("destination", "flags", "port_space", "source")

    def __init__(
        self,
        src: str | bytes | None = None,
        dst: str | bytes | None = None,
        src_service: str | bytes | None = None,
        dst_service: str | bytes | None = None,
        port_space: int = 0,
        flags: int = 0,
    ) -> None:
        self.source: SocketAddress | None = None
        self.destination: SocketAddress | None = None
        self.port_space = _PS_TCP
        self.flags = 0
        if src or dst or src_service or dst_service:
            self.get_addrinfo(src, dst, src_service, dst_service, port_space, flags)

    def get_addrinfo(
        self,
        src: str | bytes | None = None,
        dst: str | bytes | None = None,
        src_service: str | bytes | None = None,
        dst_service: str | bytes | None = None,
        port_space: int = 0,
        flags: int = 0,
    ) -> None:
        """Find the addresses of names and services.  ``flags`` with ``RAI_PASSIVE``: only the source, to
        listen on; with ``RAI_NUMERICHOST``: they are no names.
        """
        flags = INT32(flags)
        passive, numeric = bool(flags & RAI_PASSIVE), bool(flags & RAI_NUMERICHOST)
        src, dst, src_service, dst_service = map(_text, (src, dst, src_service, dst_service))
        if int(port_space) == _PS_IB:
            refuse("Failed to get Address Info")
        source = destination = None
        with translated("Failed to get Address Info"):
            if passive or src:
                source = look_up(src, src_service, True, numeric)
            if not passive and (dst or dst_service):
                destination = look_up(dst, dst_service, False, numeric)
        self.source, self.destination = source, destination
        self.port_space, self.flags = int(port_space) or _PS_TCP, flags

    def close(self) -> None:
        """Forget the addresses."""
        self.source = self.destination = None


class ConnParam(Structure):
    """What a connection is asked for, or accepted with; ``data_len`` is the room for private data: up to 56
    bytes for a connection's request, 196 to accept one, 180 and 136 for datagrams.
    """

    _FIELDS: ClassVar[Fields] = {
        "_responder_resources": UINT8,
        "_initiator_depth": UINT8,
        "_flow_control": UINT8,
        "_retry_count": UINT8,
        "_rnr_retry_count": UINT8,
        "_srq": UINT8,
        "qpn": UINT32,
    }
    __slots__ = ("_data", "_data_bytes", *_FIELDS)

    def __init__(
        self,
        resources: int = 1,
        depth: int = 1,
        flow_control: int = 0,
        retry: int = 5,
        rnr_retry: int = 5,
        srq: int = 0,
        qp_num: int = 0,
        data_len: int = 0,
    ) -> None:
        self._responder_resources = resources
        self._initiator_depth = depth
        self._flow_control = flow_control
        self._retry_count = retry
        self._rnr_retry_count = rnr_retry
        self._srq = srq
        self.qpn = qp_num
        self._data_bytes = INT32(data_len)
        if self._data_bytes < 0:
            raise ValueError("Array length must be >= 0")
        self._data = b""

    @property
    def private_data(self) -> bytes:
        """What `set_private_data` has set."""
        return self._data

    def set_private_data(self, data: bytes) -> None:
        """Send these bytes along, as many as there is room for (``data_len``)."""
        taken = bytes(data)[: self._data_bytes]
        if taken:
            self._data = taken

    @property
    def parameters(self) -> ConnectionParameters:
        """The same for the driver."""
        return ConnectionParameters(
            self._data,
            self._responder_resources,
            self._initiator_depth,
            self._flow_control,
            self._retry_count,
            self._rnr_retry_count,
            self._srq,
            self.qpn,
        )

    def __str__(self) -> str:
        return "Connection parameters: \n" + lines(
            {
                "responder resources": self._responder_resources,
                "initiator depth": self._initiator_depth,
                "flow control": self._flow_control,
                "retry count": self._retry_count,
                "rnr retry count": self._rnr_retry_count,
                "srq": self._srq,
                "qp number": self.qpn,
            }
        )


class JoinMCAttrEx(Structure):
    """Which group is joined (the source of ``addr``), and how: one of ``rdma_cm_mc_join_flags``, where
    ``comp_mask`` says that it counts.
    """

    _FIELDS: ClassVar[Fields] = {"comp_mask": UINT32, "join_flags": UINT32}
    __slots__ = ("addr", *_FIELDS)

    def __init__(self, addr: AddrInfo, comp_mask: int = 0, join_flags: int = 0) -> None:
        require(addr, AddrInfo, "addr")
        self.addr = addr
        self.comp_mask = comp_mask
        self.join_flags = join_flags
