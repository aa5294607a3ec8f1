"""Management datagrams of adapters: packets on one side, a `MadPlane`'s datagrams on the other."""

from __future__ import annotations

from softhca.fabric.mad_plane import Datagram
from softhca.management.constants import (
    GENERAL_QKEY,
    MAD_BYTES,
    SUBNET_QPN,
)
from softhca.wire.bth import Bth
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.deth import Deth
from softhca.wire.errors import WireError
from softhca.wire.framing import NATIVE
from softhca.wire.lrh import Lrh
from softhca.wire.opcodes import UD_SEND_ONLY
from softhca.wire.packet import assemble, decode
from softhca.wire.route import Route

MANAGEMENT_LANE = 15
DEFAULT_PKEY = 0xFFFF
_NO_GID = bytes(16)


def as_datagram(packet: bytes) -> Datagram | None:
    """The management datagram that a packet is; None: it is none, or damaged."""
    try:
        found = decode(packet, LINKTYPE_INFINIBAND)
    except WireError:
        return None
    if found is None or not (found.icrc_ok and found.vcrc_ok):
        return None
    link, transport = found.network[0], found.transport
    if transport.bth.opcode != UD_SEND_ONLY or len(transport.payload) != MAD_BYTES:
        return None
    assert isinstance(link, Lrh)
    deth = transport.extensions[0]
    assert isinstance(deth, Deth)
    if transport.bth.dest_qp != SUBNET_QPN and deth.qkey != GENERAL_QKEY:
        return None
    return Datagram(link.dlid, link.slid, transport.bth.dest_qp, deth.source_qp, transport.payload)


def as_packet(datagram: Datagram) -> bytes:
    """LRH … VCRC of the packet in which a datagram comes to an adapter."""
    subnet = datagram.dqpn == SUBNET_QPN
    route = Route(NATIVE, _NO_GID, _NO_GID, slid=datagram.slid, dlid=datagram.dlid)
    bth = Bth(opcode=UD_SEND_ONLY, pkey=DEFAULT_PKEY, dest_qp=datagram.dqpn)
    deth = Deth(qkey=0 if subnet else GENERAL_QKEY, source_qp=datagram.sqpn)
    lane = MANAGEMENT_LANE if subnet else 0
    return assemble(route, bth, (deth,), datagram.data, lane).encode()
