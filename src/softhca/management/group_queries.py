"""Joining a multicast group on native links: SubnAdmSet(MCMemberRecord) (IBTA vol. 1, 15.2.5.17), as bytes,
for hosts, and the MGID of an IP group (RFC 4391, 4; with RDMA CM's signature, as Linux's has it).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from softhca.management.ip_service import V4_MAPPED_PREFIX
from softhca.management.path_queries import METHOD_SET, request

FULL_MEMBER, SEND_ONLY = 1, 4
"""JoinStates: of who receives, and of who only sends."""
_ATTRIBUTE_MC_MEMBER_RECORD = 0x0038
_COMPONENTS = sum(1 << bit for bit in (0, 1, 2, 6, 7, 12, 13, 16))
"""MGID, PortGID, Q_Key, TClass, P_Key, SL, FlowLabel, JoinState."""
_RECORD = struct.Struct(">16s 16s I 2x 2x H 2x I B")
_ANSWER = struct.Struct(">4xH 50x 16s 16x I H 2x 4x I")
_PREFIX = b"\xff\x12"
"""Of a group that is not well known, on this link alone."""
_V4_SIGNATURE, _V6_SIGNATURE = b"\x40\x01", b"\x60\x01"
_ASSIGNED = 0xFFF0_FFFF, 0xFF10_A01B
"""MGIDs that subnet administration gives: a mask, and what is in it."""


class GroupAnswer(NamedTuple):
    """``status`` is the datagram's, 0 where the port is in the group: its Q_Key, its LID, and what packets to
    it have."""

    status: int
    mgid: bytes
    qkey: int
    mlid: int
    sl: int
    flow_label: int
    hop_limit: int


def mgid_of(group: bytes, pkey: int) -> bytes:
    """The MGID, in a partition, of an IP group in the form of a GID."""
    full = struct.pack(">H", pkey | 0x8000)
    if group.startswith(V4_MAPPED_PREFIX):
        return _PREFIX + _V4_SIGNATURE + full + bytes(6) + bytes([group[12] & 0x0F]) + group[13:]
    mask, assigned = _ASSIGNED
    if int.from_bytes(group[:4], "big") & mask == assigned:
        return group
    return _PREFIX + _V6_SIGNATURE + full + group[6:]


def question(
    mgid: bytes, port_gid: bytes, qkey: int, pkey: int, join_state: int, transaction_id: int
) -> bytes:
    """Let a port join a group, which comes about where it is not there."""
    record = _RECORD.pack(mgid, port_gid, qkey, pkey | 0x8000, 0, join_state)
    return request(METHOD_SET, _ATTRIBUTE_MC_MEMBER_RECORD, _COMPONENTS, transaction_id, record)


def answer(response: bytes) -> GroupAnswer:
    """What a response of 256 bytes says."""
    status, mgid, qkey, mlid, way = _ANSWER.unpack_from(response)
    return GroupAnswer(status, mgid, qkey, mlid, way >> 28, way >> 8 & 0xFFFFF, way & 0xFF)
