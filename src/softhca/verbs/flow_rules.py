"""What specifications of header fields (`spec`) mean as value and mask over a frame's key (`wire.ethernet`).
"""

import errno
import ipaddress
from collections.abc import Iterable
from typing import Any

from softhca.verbs.extension_enums import ibv_flow_spec_type
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.spec import EthSpec, Ipv4ExtSpec, Ipv6Spec, TcpUdpSpec
from softhca.wire import ethernet as key

_MAC, _IP, _NUMBER = range(3)
# class of a specification → fields: (name, kind, offset in the key, bytes)
_FIELDS: dict[type, tuple[tuple[str, int, int, int], ...]] = {
    EthSpec: (
        ("dst_mac", _MAC, key.DST_MAC, 6), ("src_mac", _MAC, key.SRC_MAC, 6),
        ("ether_type", _NUMBER, key.ETHER_TYPE, 2), ("vlan_tag", _NUMBER, key.VLAN_TAG, 2),
    ),
    Ipv4ExtSpec: (
        ("dst_ip", _IP, key.DST_IP, 4), ("src_ip", _IP, key.SRC_IP, 4),
        ("proto", _NUMBER, key.PROTOCOL, 1), ("tos", _NUMBER, key.TRAFFIC_CLASS, 1),
        ("ttl", _NUMBER, key.HOP_LIMIT, 1), ("flags", _NUMBER, key.FLAGS, 1),
    ),
    Ipv6Spec: (
        ("dst_ip", _IP, key.DST_IP, 16), ("src_ip", _IP, key.SRC_IP, 16),
        ("flow_label", _NUMBER, key.FLOW_LABEL, 3), ("next_hdr", _NUMBER, key.PROTOCOL, 1),
        ("traffic_class", _NUMBER, key.TRAFFIC_CLASS, 1), ("hop_limit", _NUMBER, key.HOP_LIMIT, 1),
    ),
    TcpUdpSpec: (("dst_port", _NUMBER, key.DST_PORT, 2), ("src_port", _NUMBER, key.SRC_PORT, 2)),
}  # fmt: skip
_HEADERS = {
    int(ibv_flow_spec_type.IBV_FLOW_SPEC_ETH): None,
    int(ibv_flow_spec_type.IBV_FLOW_SPEC_IPV4_EXT): (key.L3, key.IPV4),
    int(ibv_flow_spec_type.IBV_FLOW_SPEC_IPV6): (key.L3, key.IPV6),
    int(ibv_flow_spec_type.IBV_FLOW_SPEC_TCP): (key.L4, key.TCP),
    int(ibv_flow_spec_type.IBV_FLOW_SPEC_UDP): (key.L4, key.UDP),
}
"""Which header a frame must have: where its key says so, and how."""


def value_and_mask(specs: Iterable[Any]) -> tuple[bytes, bytes]:
    """The rule that all of ``specs`` make together.

    `PyverbsRDMAError`: ``EOPNOTSUPP`` for headers and actions that are not steered by (inside of tunnels,
    too), ``EINVAL`` for two specifications that cannot both hold or a field that does not fit.
    """
    value, mask = bytearray(key.KEY_BYTES), bytearray(key.KEY_BYTES)
    for spec in specs:
        kind = getattr(spec, "spec_type", None)
        if kind not in _HEADERS or type(spec) not in _FIELDS:
            raise PyverbsRDMAError(f"Failed to create Flow: no steering by {spec!r}", errno.EOPNOTSUPP)
        name = "spec_type"
        try:
            header = _HEADERS[kind]
            if header is not None:
                _put(value, mask, header[0], bytes([header[1]]), b"\xff")
            for name, form, place, length in _FIELDS[type(spec)]:
                _put(value, mask, place, _packed(form, getattr(spec, name), length),
                     _packed(form, getattr(spec, f"{name}_mask"), length))  # fmt: skip
        except (OverflowError, TypeError, ValueError) as error:
            raise PyverbsRDMAError(f"Failed to create Flow: {name}: {error}", errno.EINVAL) from None
    return bytes(value), bytes(mask)


def _packed(form: int, field: Any, length: int) -> bytes:
    if form == _MAC:
        packed = bytes.fromhex(field.replace(":", "")) or bytes(length)
    elif form == _IP:
        packed = ipaddress.ip_address(field).packed
    else:
        packed = int(field).to_bytes(length, "big")
    if len(packed) != length:
        raise ValueError(f"{field!r} has not {length} bytes")
    return packed


def _put(value: bytearray, mask: bytearray, place: int, bits: bytes, counted: bytes) -> None:
    """Have the rule ask for these bits too; ValueError where it asks for others already."""
    for i, (bit, count) in enumerate(zip(bits, counted, strict=True), place):
        if (value[i] ^ bit) & mask[i] & count:
            raise ValueError("two specifications that no frame fits")
        value[i] |= bit & count
        mask[i] |= count
