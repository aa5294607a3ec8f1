"""Native ends with raw queue pairs, and packets of raw services to give them."""

from __future__ import annotations

from native_network import lid

from softhca.driver.device import QpHandle
from softhca.testing import SENT, Datagram, Network
from softhca.testing.ends import RAW, SEND, End, post
from softhca.wire import vcrc
from softhca.wire.raw import RAW_IPV6
from softhca.wire.raw_packet import RawPacket, decode_raw

ETHERTYPE = 0x88B5
IPV6_TYPE = 0x86DD
MTU = 1024
LONGEST_IPV6 = MTU + 116  # MTU + 124 with the LRH
LONGEST_ETHERTYPE = MTU + 112
UNTOUCHED = b"\xa5"
STATES = (1, 2, 3)


def ipv6(length: int = 0, next_header: int = 59, version: int = 6) -> bytes:
    """An IPv6 packet with ``length`` bytes behind its header."""
    front = bytes([version << 4, 0, 0, 0]) + length.to_bytes(2, "big") + bytes([next_header, 64])
    addresses = bytes.fromhex("fd000000000000000000000000000001" + "fd000000000000000000000000000002")
    return front + addresses + bytes(7 * n & 0xFF for n in range(length))


class RawNetwork(Network):
    """``packets`` are those that were sent, ``raws`` the same, each checked; others may not appear."""

    def __init__(self) -> None:
        super().__init__(link="native")
        self.packets: list[bytes] = []
        self.raws: list[RawPacket] = []
        self.observers.append(self._check)

    def _check(self, datagram: Datagram) -> None:
        if datagram.event != SENT:
            return
        packet = decode_raw(datagram.data)
        assert packet is not None
        assert packet.vcrc_ok
        assert packet.encode() == datagram.data
        self.packets.append(datagram.data)
        self.raws.append(packet)


def raw_qp(end: End, *services: int, **options: int) -> QpHandle:
    """A raw queue pair in RTS that receives ``services``."""
    qp = end.qp(RAW, **options)
    for state in STATES:
        qp.modify({"qp_state": state, **({"port_num": 1} if state == 1 else {})})
    for service in services:
        end.device.attach_raw(qp.number, service)
    return qp


def raw_end(network: Network, number: int, *services: int, **config: object) -> tuple[End, QpHandle]:
    """A node with a raw queue pair; its memory is filled with `UNTOUCHED`."""
    end = End(network.add(number, **config))
    end.memory[:] = UNTOUCHED * len(end.memory)
    return end, raw_qp(end, *services)


def handle(end: End, number: int = 2, **vector: object) -> int:
    """An address handle to node ``number``."""
    return end.device.create_ah(end.pd, {"dlid": lid(number), "is_global": 0, "port_num": 1, **vector})


def send_raw(
    end: End, qp: QpHandle, ah: int, data: bytes, service: int = RAW_IPV6, offset: int = 0, **options: object
) -> None:
    """Post ``data`` as a datagram of ``service``."""
    end.memory[offset : offset + len(data)] = data
    post(qp, SEND, [end.sge(offset, len(data))], ah=ah, qpn=service, **options)


def sealed(data: bytes) -> bytes:
    """Bytes without a VCRC, with a right one behind them."""
    return data + vcrc.compute(data).to_bytes(2, "little")
