"""Addresses: GIDs, global routes, address vectors and address handles."""

import errno
from typing import Any, ClassVar

from softhca.verbs.base import Resource, creating, read_only, require, translated
from softhca.verbs.gid import GID
from softhca.verbs.memory_access import read_bytes
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.queue_enums import ibv_wc_flags
from softhca.verbs.structures import UINT8, UINT16, UINT32, Fields, Structure
from softhca.verbs.utils import GID_BYTES, gid_from_bytes, gid_to_bytes, lines
from softhca.verbs.wc import WC

__all__ = ["AH", "GID", "GRH", "GRH_BYTES", "AHAttr", "GlobalRoute"]

GRH_BYTES = 40
_IPV4_OFFSET = 20  # a RoCEv2/IPv4 header fills the second half of the 40 bytes
_V4_MAPPED = bytes(10) + b"\xff\xff"
_WC_GRH = int(ibv_wc_flags.IBV_WC_GRH)


def _raw_of(gid: GID | None, what: str) -> bytes:
    """The sixteen bytes of a GID, zeros for none."""
    if gid is None:
        return bytes(GID_BYTES)
    require(gid, GID, what)
    return gid.raw


class GRH(Structure):
    """A global route header; ``version_tclass_flow`` and ``paylen`` are in network byte order."""

    _FIELDS: ClassVar[Fields] = {
        "version_tclass_flow": UINT32,
        "paylen": UINT16,
        "next_hdr": UINT8,
        "hop_limit": UINT8,
    }
    __slots__ = ("_dgid", "_sgid", *_FIELDS)

    def __init__(
        self,
        sgid: GID | None = None,
        dgid: GID | None = None,
        version_tclass_flow: int = 0,
        paylen: int = 0,
        next_hdr: int = 0,
        hop_limit: int = 1,
    ) -> None:
        self._sgid, self._dgid = _raw_of(sgid, "sgid"), _raw_of(dgid, "dgid")
        self.version_tclass_flow = version_tclass_flow
        self.paylen = paylen
        self.next_hdr = next_hdr
        self.hop_limit = hop_limit

    @property
    def dgid(self) -> str:
        """Destination GID in eight words."""
        return gid_from_bytes(self._dgid)

    @dgid.setter
    def dgid(self, val: str) -> None:
        self._dgid = gid_to_bytes(val)

    @property
    def sgid(self) -> str:
        """Source GID in eight words."""
        return gid_from_bytes(self._sgid)

    @sgid.setter
    def sgid(self, val: str) -> None:
        self._sgid = gid_to_bytes(val)

    def __str__(self) -> str:
        return lines(
            {
                "DGID": self.dgid,
                "SGID": self.sgid,
                "version tclass flow": self.version_tclass_flow,
                "paylen": self.paylen,
                "next header": self.next_hdr,
                "hop limit": self.hop_limit,
            }
        )


_ROUTE = {"flow_label": UINT32, "sgid_index": UINT8, "hop_limit": UINT8, "traffic_class": UINT8}


class GlobalRoute(Structure):
    """What goes into the global route header of packets."""

    _FIELDS: ClassVar[Fields] = _ROUTE
    __slots__ = ("_dgid", *_FIELDS)

    def __init__(
        self,
        dgid: GID | None = None,
        flow_label: int = 0,
        sgid_index: int = 0,
        hop_limit: int = 1,
        traffic_class: int = 0,
    ) -> None:
        self._dgid = _raw_of(dgid, "dgid")
        self.flow_label = flow_label
        self.sgid_index = sgid_index
        self.hop_limit = hop_limit
        self.traffic_class = traffic_class

    @property
    def dgid(self) -> str:
        """Destination GID in eight words."""
        return gid_from_bytes(self._dgid)

    @dgid.setter
    def dgid(self, val: str) -> None:
        self._dgid = gid_to_bytes(val)

    def __str__(self) -> str:
        return lines(
            {
                "DGID": self.dgid,
                "flow label": self.flow_label,
                "sgid index": self.sgid_index,
                "hop limit": self.hop_limit,
                "traffic class": self.traffic_class,
            }
        )


class AHAttr(Structure):
    """An address vector (``ibv_ah_attr``).  The global route counts only when ``is_global`` is set."""

    _PLAIN: ClassVar[Fields] = {
        "dlid": UINT16,
        "sl": UINT8,
        "src_path_bits": UINT8,
        "static_rate": UINT8,
        "is_global": UINT8,
        "port_num": UINT8,
    }
    _FIELDS: ClassVar[Fields] = {**_PLAIN, **_ROUTE}
    __slots__ = ("_dgid", "_flow_label", "_hop_limit", "_sgid_index", "_traffic_class", *_PLAIN)

    def __init__(
        self,
        dlid: int = 0,
        sl: int = 0,
        src_path_bits: int = 0,
        static_rate: int = 0,
        is_global: int = 0,
        port_num: int = 1,
        gr: GlobalRoute | None = None,
    ) -> None:
        if is_global and gr is None:
            raise PyverbsUserError("Global AH Attr is created but gr parameter is None")
        if gr is not None:
            require(gr, GlobalRoute, "gr")
        self.dlid = dlid
        self.sl = sl
        self.src_path_bits = src_path_bits
        self.static_rate = static_rate
        self.is_global = is_global
        self.port_num = port_num
        self._dgid = bytes(GID_BYTES)
        self._flow_label = self._sgid_index = self._hop_limit = self._traffic_class = 0
        if is_global and gr is not None:
            self._dgid = gid_to_bytes(gr.dgid)
            self._flow_label, self._sgid_index = gr.flow_label, gr.sgid_index
            self._hop_limit, self._traffic_class = gr.hop_limit, gr.traffic_class

    def as_dict(self) -> dict[str, Any]:
        """The vector as the driver takes it; ``dgid`` as bytes."""
        return {
            "dlid": self.dlid,
            "sl": self.sl,
            "src_path_bits": self.src_path_bits,
            "static_rate": self.static_rate,
            "is_global": self.is_global,
            "port_num": self.port_num,
            "dgid": self._dgid,
            "flow_label": self._flow_label,
            "sgid_index": self._sgid_index,
            "hop_limit": self._hop_limit,
            "traffic_class": self._traffic_class,
        }

    def copy(self) -> "AHAttr":
        """An independent copy."""
        return AHAttr.from_dict(self.as_dict())

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AHAttr":
        """The reverse of `as_dict`; fields that are absent are 0, `port_num` 1."""
        attr = cls(port_num=int(values.get("port_num", 1)))
        for name in ("dlid", "sl", "src_path_bits", "static_rate"):
            setattr(attr, name, int(values.get(name, 0)))
        attr.is_global = int(values.get("is_global", 0))
        attr._dgid = bytes(values.get("dgid") or bytes(GID_BYTES))
        attr._flow_label, attr._sgid_index = (
            int(values.get("flow_label", 0)),
            int(values.get("sgid_index", 0)),
        )
        attr._hop_limit, attr._traffic_class = (
            int(values.get("hop_limit", 0)),
            int(values.get("traffic_class", 0)),
        )
        return attr

    @property
    def dgid(self) -> str | None:
        """Destination GID, None when the vector is not global."""
        return gid_from_bytes(self._dgid) if self.is_global else None

    @dgid.setter
    def dgid(self, val: str) -> None:
        if self.is_global:
            self._dgid = gid_to_bytes(val)

    @property
    def flow_label(self) -> int | None:
        """Flow label (20 bits), None when the vector is not global."""
        return self._flow_label if self.is_global else None

    @flow_label.setter
    def flow_label(self, val: int) -> None:
        self._flow_label = val

    @property
    def sgid_index(self) -> int | None:
        """Index of the own GID, None when the vector is not global."""
        return self._sgid_index if self.is_global else None

    @sgid_index.setter
    def sgid_index(self, val: int) -> None:
        self._sgid_index = val

    @property
    def hop_limit(self) -> int | None:
        """Hops that a packet may take, None when the vector is not global."""
        return self._hop_limit if self.is_global else None

    @hop_limit.setter
    def hop_limit(self, val: int) -> None:
        self._hop_limit = val

    @property
    def traffic_class(self) -> int | None:
        """Traffic class, None when the vector is not global."""
        return self._traffic_class if self.is_global else None

    @traffic_class.setter
    def traffic_class(self, val: int) -> None:
        self._traffic_class = val

    def __str__(self) -> str:
        route: dict[str, object] = (
            {
                "dgid": self.dgid,
                "flow label": self.flow_label,
                "sgid index": self.sgid_index,
                "hop limit": self.hop_limit,
                "traffic_class": self.traffic_class,
            }
            if self.is_global
            else {}
        )
        plain: dict[str, object] = {
            "port num": self.port_num,
            "sl": self.sl,
            "source path bits": self.src_path_bits,
            "dlid": self.dlid,
            "static rate": self.static_rate,
            "is global": self.is_global,
        }
        return lines(plain | route, indent="  ")


class AH(Resource):
    """An address handle: where a datagram goes.

    Made from an `AHAttr` (``attr``), or from a received datagram: its completion ``wc``, the address ``grh``
    of the 40 bytes that came before the payload, and ``port_num``; the handle then leads back to the sender.
    """

    __slots__ = ("_number", "_pd")
    pd: PD = read_only("_pd", "The protection domain.")

    def __init__(
        self,
        pd: PD,
        *,
        attr: AHAttr | None = None,
        wc: WC | None = None,
        grh: int | None = None,
        port_num: int | None = None,
    ) -> None:
        require(pd, PD, "pd")
        pd._require_open()
        if attr is not None:
            if wc is not None or grh is not None:
                raise PyverbsUserError("An AH is made from attr, or from wc, grh and port_num, not from both")
            require(attr, AHAttr, "attr")
        elif wc is None or grh is None or port_num is None:
            raise PyverbsUserError("An AH needs attr, or all of wc, grh and port_num")
        else:
            attr = _reply_vector(pd, wc, grh, port_num)
        with creating("Failed to create AH"):
            self._number = pd._driver.create_ah(pd.number, attr.as_dict())
            self._driver = pd._driver
            self._pd = pd
            self._opened(pd)

    @property
    def number(self) -> int:
        """What work requests carry; raises `PyverbsUserError` when the handle is closed."""
        self._require_open()
        return self._number

    def _destroy(self) -> None:
        self._driver.destroy_ah(self._number)


def _reply_vector(pd: PD, wc: WC, grh: int, port_num: int) -> AHAttr:
    """The vector back to the sender of a datagram (as ``ibv_init_ah_from_wc``)."""
    plain = AHAttr(dlid=wc.slid, sl=wc.sl, src_path_bits=wc.dlid_path_bits, port_num=port_num)
    if not wc.wc_flags & _WC_GRH:
        return plain
    sender, own, flow_label, traffic_class, hop_limit = _parse_grh(read_bytes(grh, GRH_BYTES))
    route = GlobalRoute(
        dgid=GID.from_bytes(sender),
        flow_label=flow_label,
        hop_limit=hop_limit,
        sgid_index=_gid_index(pd, port_num, own),
        traffic_class=traffic_class,
    )
    return AHAttr(
        dlid=wc.slid, sl=wc.sl, src_path_bits=wc.dlid_path_bits, is_global=1, port_num=port_num, gr=route
    )


def _parse_grh(header: bytes) -> tuple[bytes, bytes, int, int, int]:
    """Source, destination, flow label, traffic class and hop limit of the 40 bytes before a datagram."""
    if header[0] >> 4 == 6:
        word = int.from_bytes(header[:4], "big")
        return header[8:24], header[24:40], word & 0xFFFFF, (word >> 20) & 0xFF, header[7]
    ipv4 = header[_IPV4_OFFSET:]
    if ipv4[0] == 0x45:
        return _V4_MAPPED + ipv4[12:16], _V4_MAPPED + ipv4[16:20], 0, ipv4[1], ipv4[8]
    raise PyverbsRDMAError(
        "grh: there is neither a GRH nor an IPv4 header at that address", errno.EPROTONOSUPPORT
    )


def source_of_grh(header: bytes) -> bytes:
    """The GID that a datagram came from, by the 40 bytes before it; zeros where there is no address."""
    try:
        return bytes(_parse_grh(header)[0])
    except PyverbsRDMAError:
        return bytes(GID_BYTES)


def _gid_index(pd: PD, port_num: int, gid: bytes) -> int:
    with translated("Failed to find the GID that the datagram was sent to"):
        for index in range(int(pd._driver.query_port(port_num)["gid_tbl_len"])):
            if bytes(pd._driver.query_gid(port_num, index)) == gid:
                return index
    raise PyverbsRDMAError(
        "grh, port_num: the datagram was sent to a GID that is not this port's", errno.ENOENT
    )
