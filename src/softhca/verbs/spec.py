"""Specifications of header fields, for rules of `flow`.

Each field has a mask beside it: the bits that count.  A field that is given without one counts whole, one
that is not given not at all.
"""

import ipaddress
from typing import Any, ClassVar

from softhca.verbs.base import PyverbsObject
from softhca.verbs.extension_enums import ibv_flow_spec_type
from softhca.verbs.utils import lines

_INNER = int(ibv_flow_spec_type.IBV_FLOW_SPEC_INNER)
_ANY = {"mac": "", "ipv4": "0.0.0.0", "ipv6": "::"}
_WHOLE = {
    "mac": "ff:ff:ff:ff:ff:ff",
    "ipv4": "255.255.255.255",
    "ipv6": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
}


def _with_masks(*names: str) -> tuple[str, ...]:
    """Fields, each with its mask."""
    return tuple(each for name in names for each in (name, f"{name}_mask"))


class Spec(PyverbsObject):
    """One header: its type (``ibv_flow_spec_type``, with the inner bit where a tunnel's inside is meant), and
    the bytes that its specification has in C.
    """

    __slots__ = ("spec_type",)
    _bytes = 0
    _NAMES: tuple[str, ...] = ()

    def __init__(self, spec_type: int, is_inner: int = 0) -> None:
        self.spec_type = int(spec_type) | (_INNER if is_inner else 0)

    @property
    def size(self) -> int:
        """Bytes of the C structure."""
        return self._bytes

    def type_to_str(self) -> str:
        """The names of the type's bits."""
        names = [str(ibv_flow_spec_type(self.spec_type & ~_INNER).name)]
        if self.spec_type & _INNER:
            names.append("IBV_FLOW_SPEC_INNER")
        return " ".join(names)

    def _set(self, kind: str | int, name: str, value: Any, mask: Any) -> None:
        """Field ``name`` and its mask; ``kind`` is a format of `_ANY`, or the whole mask of a number."""
        given = value is not None
        none, whole = (_ANY[kind], _WHOLE[kind]) if isinstance(kind, str) else (0, kind)
        if given and kind in ("ipv4", "ipv6"):
            value = str(ipaddress.ip_address(value))
        setattr(self, name, value if given else none)
        setattr(self, f"{name}_mask", mask if mask is not None else whole if given else none)

    def __str__(self) -> str:
        fields = {name: getattr(self, name) for name in self._NAMES}
        return lines({"Spec type": self.type_to_str(), "Size": self.size, **fields})


class EthSpec(Spec):
    """Ethernet: addresses in hexadecimal with colons, EtherType and VLAN tag in host order."""

    MAC_LEN = 6
    MAC_MASK = _WHOLE["mac"]
    ZERO_MAC: ClassVar[list[int]] = [0] * MAC_LEN

    __slots__ = _NAMES = _with_masks("dst_mac", "src_mac", "ether_type", "vlan_tag")
    _bytes = 40

    def __init__(
        self,
        dst_mac: str | None = None,
        dst_mac_mask: str | None = None,
        src_mac: str | None = None,
        src_mac_mask: str | None = None,
        ether_type: int | None = None,
        ether_type_mask: int | None = None,
        vlan_tag: int | None = None,
        vlan_tag_mask: int | None = None,
        is_inner: int = 0,
    ) -> None:
        super().__init__(ibv_flow_spec_type.IBV_FLOW_SPEC_ETH, is_inner)
        self._set("mac", "dst_mac", dst_mac, dst_mac_mask)
        self._set("mac", "src_mac", src_mac, src_mac_mask)
        self._set(0xFFFF, "ether_type", ether_type, ether_type_mask)
        self._set(0xFFFF, "vlan_tag", vlan_tag, vlan_tag_mask)


class Ipv4ExtSpec(Spec):
    """IPv4: addresses as dotted numbers."""

    __slots__ = _NAMES = _with_masks("dst_ip", "src_ip", "proto", "tos", "ttl", "flags")
    _bytes = 32

    def __init__(
        self,
        dst_ip: str | None = None,
        dst_ip_mask: str | None = None,
        src_ip: str | None = None,
        src_ip_mask: str | None = None,
        proto: int | None = None,
        proto_mask: int | None = None,
        tos: int | None = None,
        tos_mask: int | None = None,
        ttl: int | None = None,
        ttl_mask: int | None = None,
        flags: int | None = None,
        flags_mask: int | None = None,
        is_inner: int = 0,
    ) -> None:
        super().__init__(ibv_flow_spec_type.IBV_FLOW_SPEC_IPV4_EXT, is_inner)
        self._set("ipv4", "dst_ip", dst_ip, dst_ip_mask)
        self._set("ipv4", "src_ip", src_ip, src_ip_mask)
        self._set(0xFF, "proto", proto, proto_mask)
        self._set(0xFF, "tos", tos, tos_mask)
        self._set(0xFF, "ttl", ttl, ttl_mask)
        self._set(0xFF, "flags", flags, flags_mask)


class Ipv6Spec(Spec):
    """IPv6: addresses in hexadecimal words."""

    EMPTY_IPV6: ClassVar[list[int]] = [0] * 16
    FLOW_LABEL_MASK = 0xFFFFF
    IPV6_MASK = _WHOLE["ipv6"]

    __slots__ = _NAMES = _with_masks(
        "dst_ip", "src_ip", "flow_label", "next_hdr", "traffic_class", "hop_limit"
    )
    _bytes = 88

    def __init__(
        self,
        dst_ip: str | None = None,
        dst_ip_mask: str | None = None,
        src_ip: str | None = None,
        src_ip_mask: str | None = None,
        flow_label: int | None = None,
        flow_label_mask: int | None = None,
        next_hdr: int | None = None,
        next_hdr_mask: int | None = None,
        traffic_class: int | None = None,
        traffic_class_mask: int | None = None,
        hop_limit: int | None = None,
        hop_limit_mask: int | None = None,
        is_inner: int = 0,
    ) -> None:
        super().__init__(ibv_flow_spec_type.IBV_FLOW_SPEC_IPV6, is_inner)
        self._set("ipv6", "dst_ip", dst_ip, dst_ip_mask)
        self._set("ipv6", "src_ip", src_ip, src_ip_mask)
        self._set(self.FLOW_LABEL_MASK, "flow_label", flow_label, flow_label_mask)
        self._set(0xFF, "next_hdr", next_hdr, next_hdr_mask)
        self._set(0xFF, "traffic_class", traffic_class, traffic_class_mask)
        self._set(0xFF, "hop_limit", hop_limit, hop_limit_mask)


class TcpUdpSpec(Spec):
    """TCP or UDP (``spec_type``): ports in host order."""

    __slots__ = _NAMES = _with_masks("dst_port", "src_port")
    _bytes = 16

    def __init__(
        self,
        spec_type: int,
        dst_port: int | None = None,
        dst_port_mask: int | None = None,
        src_port: int | None = None,
        src_port_mask: int | None = None,
        is_inner: int = 0,
    ) -> None:
        super().__init__(spec_type, is_inner)
        self._set(0xFFFF, "dst_port", dst_port, dst_port_mask)
        self._set(0xFFFF, "src_port", src_port, src_port_mask)
