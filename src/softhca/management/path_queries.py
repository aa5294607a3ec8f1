"""The question for one path between two GIDs, and its answer, as bytes: SubnAdmGet(PathRecord) (IBTA vol. 1,
15.2.5.16), for hosts, which know no more of management than this and other such questions.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

CLASS_SUBN_ADM, CLASS_VERSION = 0x03, 2
METHOD_GET, METHOD_SET = 0x01, 0x02
_ATTRIBUTE_PATH_RECORD = 0x0035
_COMPONENTS = 1 << 2 | 1 << 3 | 1 << 11 | 1 << 12  # DGID, SGID, Reversible, NumbPath
_FRONT = struct.Struct(">4BHHQHHI 24x Q")
_RECORD = struct.Struct(">8x 16s 16s 9x B")
_ANSWER = struct.Struct(">4xH 50x 40x H 8x HHB")
_MAD_BYTES = 256
_ONE_REVERSIBLE = 0x80 | 1


class PathAnswer(NamedTuple):
    """``status`` is the datagram's, 0 where there is a path: its LID, service level, MTU (``ibv_mtu``) and
    P_Key."""

    status: int
    dlid: int
    sl: int
    mtu: int
    pkey: int


def request(method: int, attribute: int, components: int, transaction_id: int, record: bytes) -> bytes:
    """A question to subnet administration, of one datagram: those ``components`` of a record count."""
    front = _FRONT.pack(
        1, CLASS_SUBN_ADM, CLASS_VERSION, method, 0, 0, transaction_id, attribute, 0, 0, components
    )
    return (front + record).ljust(_MAD_BYTES, b"\0")


def question(own_gid: bytes, gid: bytes, transaction_id: int) -> bytes:
    """Ask for one reversible path from a GID to another one."""
    record = _RECORD.pack(gid, own_gid, _ONE_REVERSIBLE)
    return request(METHOD_GET, _ATTRIBUTE_PATH_RECORD, _COMPONENTS, transaction_id, record)


def answer(data: bytes) -> PathAnswer:
    """What a response of 256 bytes says."""
    status, dlid, pkey, level, mtu = _ANSWER.unpack_from(data)
    return PathAnswer(status, dlid, level & 0xF, mtu & 0x3F, pkey)
