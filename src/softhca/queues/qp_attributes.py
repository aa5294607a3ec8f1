"""``ibv_qp_attr`` on its way through the command ring: names, mask bits and fields.

Both sides use it: the driver packs the attributes that its caller set, the adapter unpacks them.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

MASK: Mapping[str, int] = {
    "qp_state": 1 << 0,
    "cur_qp_state": 1 << 1,
    "en_sqd_async_notify": 1 << 2,
    "qp_access_flags": 1 << 3,
    "pkey_index": 1 << 4,
    "port_num": 1 << 5,
    "qkey": 1 << 6,
    "ah_attr": 1 << 7,
    "path_mtu": 1 << 8,
    "timeout": 1 << 9,
    "retry_cnt": 1 << 10,
    "rnr_retry": 1 << 11,
    "rq_psn": 1 << 12,
    "max_rd_atomic": 1 << 13,
    "alt_ah_attr": 1 << 14,
    "min_rnr_timer": 1 << 15,
    "sq_psn": 1 << 16,
    "max_dest_rd_atomic": 1 << 17,
    "path_mig_state": 1 << 18,
    "dest_qp_num": 1 << 20,
    "rate_limit": 1 << 25,
}
"""Attribute → bit of ``ibv_qp_attr_mask``."""

KNOWN_MASK = sum(MASK.values())
VECTOR_FIELDS = (
    "dgid",
    "flow_label",
    "dlid",
    "sgid_index",
    "hop_limit",
    "traffic_class",
    "sl",
    "src_path_bits",
    "static_rate",
    "is_global",
    "port_num",
)
_VECTORS = {"ah_attr": "ah_", "alt_ah_attr": "alt_ah_"}
_COMPANIONS = {
    "alt_ah_attr": ("alt_pkey_index", "alt_port_num", "alt_timeout"),
    "rate_limit": ("max_burst_sz", "typical_pkt_sz"),
}
"""What has no bit of its own and goes with another one's."""
_ACCOMPANYING = frozenset(name for names in _COMPANIONS.values() for name in names)


def pack(attributes: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """``(mask, fields)`` of the attributes that are set; EINVAL for a name that ``ibv_modify_qp`` does not
    take.
    """
    mask = 0
    fields: dict[str, Any] = {}
    for name, value in attributes.items():
        if name in _ACCOMPANYING:
            fields[name] = value
            continue
        if name not in MASK:
            raise OSError(errno.EINVAL, f"{name}: it is no attribute that can be modified")
        mask |= MASK[name]
        if name in _VECTORS:
            unknown = value.keys() - set(VECTOR_FIELDS)
            if unknown:
                raise OSError(errno.EINVAL, f"{sorted(unknown)[0]}: it is no field of an address vector")
            fields.update({_VECTORS[name] + field: item for field, item in value.items()})
        else:
            fields[name] = value
    return mask, fields


def unpack(mask: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that ``mask`` names; EINVAL for bits that mean nothing here."""
    if mask & ~KNOWN_MASK:
        raise OSError(errno.EINVAL, f"attr_mask = {mask:#x}: it has bits that are not known")
    attributes: dict[str, Any] = {}
    for name, bit in MASK.items():
        if not mask & bit:
            continue
        if name in _VECTORS:
            attributes[name] = {field: fields[_VECTORS[name] + field] for field in VECTOR_FIELDS}
        else:
            attributes[name] = fields[name]
        if name == "alt_ah_attr":
            attributes.update({each: fields[each] for each in _COMPANIONS[name]})
        elif name == "rate_limit":  # 0: not given
            attributes.update({each: fields[each] for each in _COMPANIONS[name] if fields.get(each)})
    return attributes


def flatten(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """All attributes of a queue pair as fields, for the reply to a query."""
    fields = dict(attributes)
    for name, prefix in _VECTORS.items():
        vector = fields.pop(name, None) or {}
        fields.update({prefix + field: vector[field] for field in VECTOR_FIELDS if field in vector})
    return fields


def unflatten(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `flatten`: ``ibv_qp_attr`` names, address vectors as dicts."""
    attributes = dict(fields)
    for name, prefix in _VECTORS.items():
        attributes[name] = {field: attributes.pop(prefix + field) for field in VECTOR_FIELDS}
    return attributes
