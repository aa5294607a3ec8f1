"""Two stations with an EE context and a queue pair of reliable datagrams each: what checks of RD stand on."""

from __future__ import annotations

from typing import Any

from softhca.conformance.registry import expect
from softhca.conformance.rig import LEFT_PSN, MTU, RIGHT_PSN, UNTOUCHED, Setting, Station, on_link
from softhca.driver.device import EeHandle, QpHandle
from softhca.queues.states import RTS, SQE
from softhca.testing import Datagram
from softhca.testing.ends import QKEY
from softhca.testing.reliable_datagrams import DatagramEnd, join, send
from softhca.wire.aeth import Aeth
from softhca.wire.bth import Bth
from softhca.wire.deth import Deth
from softhca.wire.layout import Header
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import EXTENSIONS, Packet, Transport, assemble
from softhca.wire.rdeth import Rdeth
from softhca.wire.reth import Reth

ACK, NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS, NAK_INVALID_RD = 0x00, 0x60, 0x61, 0x62, 0x64
QUICK = {"timeout": 8, "retry_cnt": 1}
"""A peer that does not answer is given up after 2 ms."""


class RdStation(Station, DatagramEnd):
    """A station with a reliable datagram domain."""


class RdPair:
    """``left`` sends and is whom packets made by hand come from; ``right`` receives, its queue pair
    ``right_qp`` behind its EE context ``right_ee``."""

    def __init__(self, setting: Setting, **reliability: int) -> None:
        self.rig = setting.rig()
        self.left, self.right = (
            RdStation(self.rig, self.rig.add(active_mtu=MTU, **setting.options)) for _ in range(2)
        )
        self.left_qp, self.right_qp = self.left.queue_pair(), self.right.queue_pair()
        self.left_ee, self.right_ee = self.join(self.right, **reliability)
        self.route = self.rig.route(self.left, self.right)
        self.received = 0

    def join(self, target: RdStation, **reliability: int) -> tuple[EeHandle, EeHandle]:
        """One more channel from the left station."""
        how = QUICK | reliability
        return join(self.left, target, psns=(LEFT_PSN, RIGHT_PSN), mtu=MTU, rdds=(0, 0), **how)

    def __enter__(self) -> RdPair:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.rig.__exit__(*failure)

    def post(self, opcode: int, length: int = 0, **fields: Any) -> None:
        """Post one work request of the left queue pair, by ``ee`` (the left EE context), and ring."""
        ee, qp = fields.pop("ee", self.left_ee), fields.pop("qp", self.left_qp)
        fields = {"va": self.right.va, "rkey": self.right.key.rkey, **fields}
        send(qp, opcode, [self.left.sge(0, length)] if length else [], ee, self.right_qp, **fields)

    def receive(self, length: int = 600, qp: QpHandle | None = None) -> None:
        """Post a receive at the begin of the right memory; their numbers are 1, 2, 3 …"""
        self.received += 1
        (qp or self.right_qp).post_recv(self.received, [self.right.sge(0, length)])

    def packet(self, opcode: int, step: int = 0, payload: bytes = b"", **fields: Any) -> Packet:
        """The packet that is ``step`` behind the first PSN, from left to right, sound unless ``fields`` make
        it otherwise: ``ee``, ``qkey``, ``source_qp``, ``va rkey length``, and those of `Bth`.
        """
        own = {name: fields.pop(name) for name in list(fields) if name not in _BTH_FIELDS}
        extensions = tuple(self._extension(name, payload, own) for name in OPCODES[opcode].headers)
        psn = (LEFT_PSN + step) & 0xFFFFFF
        values = {"pkey": 0xFFFF, "migreq": 1, "dest_qp": self.right_qp.number, "ack_request": 1, **fields}
        return assemble(self.route, Bth(opcode=opcode, psn=psn, **values), extensions, payload)

    def _extension(self, name: str, payload: bytes, own: dict[str, Any]) -> Header:
        if name == "rdeth":
            return Rdeth(ee_context=own.get("ee", self.right_ee.number))
        if name == "deth":
            return Deth(own.get("qkey", QKEY), source_qp=own.get("source_qp", self.left_qp.number))
        if name == "reth":
            length = own.get("length", len(payload))
            return Reth(own.get("va", self.right.va), own.get("rkey", self.right.key.rkey), length)
        return EXTENSIONS[name].decode(bytes(28))

    def give(self, *packets: Packet) -> None:
        """Hand packets to the right station, one after another, each with all that follows from it."""
        for packet in packets:
            self.rig.give(self.right, on_link(packet), self.route)

    def answered(self) -> list[tuple[int, int]]:
        """How far behind the first PSN, and with what syndrome, each answer of the right station since the
        last call is; an ACK's credits are left out."""
        found = []
        for sent in self.sent(self.right):
            aeth = next(each for each in headers(sent) if isinstance(each, Aeth))
            syndrome = aeth.syndrome if aeth.syndrome & 0x60 else ACK
            found.append(((sent.bth.psn - LEFT_PSN) & 0xFFFFFF, syndrome))
        self.rig.log.clear()
        return found

    def sent(self, station: RdStation) -> list[Datagram]:
        """What a station has sent by the time nothing more happens."""
        self.rig.settle()
        return [sent for sent in self.rig.log if sent.source is station.node]

    def statuses(self, station: RdStation) -> list[tuple[int, int]]:
        """Number and status of all that completes by the time nothing more happens."""
        return [(done.wr_id, done.status) for done in station.completions()]

    def written(self) -> int:
        """Bytes of the right memory that are no longer as they were."""
        return len(self.right.memory) - self.right.memory.count(UNTOUCHED)

    def whole(self, what: str) -> None:
        """ConformanceError unless both EE contexts and the right queue pair are in RTS."""
        states = [each.query()["qp_state"] for each in (self.left_ee, self.right_ee, self.right_qp)]
        expect(f"states after {what}", states, [RTS] * 3)

    def go_on(self) -> None:
        """Take the left queue pair out of SQE."""
        expect("state of the sender", self.left_qp.query()["qp_state"], SQE)
        self.left_qp.modify({"qp_state": RTS})


def headers(sent: Datagram) -> tuple[Header, ...]:
    """The extension headers of a packet that was sent."""
    return transport_of(sent).extensions


def transport_of(sent: Datagram) -> Transport:
    """The packet from its BTH on."""
    if sent.packet is None:
        raise ValueError("not a packet")
    return sent.packet.transport


_BTH_FIELDS = frozenset(part.name for part in Bth.LAYOUT)
