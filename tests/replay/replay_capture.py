"""Captured traffic as conversations: who asks, who answers, which messages the requests make up."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from softhca.queues import wqe
from softhca.wire import opcodes
from softhca.wire.captures import read_capture
from softhca.wire.packet import Transport, decode
from softhca.wire.psn import add, distance

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
PMTU_BYTES = 1024  # of every capture
FATAL_NAK = 0x61  # this syndrome and those above end the request
Record = dict[str, Any]

# wire operation → work request opcode, without and with immediate data
WORK_OPCODES = {
    opcodes.SEND: (wqe.SEND, wqe.SEND_WITH_IMM),
    opcodes.WRITE: (wqe.RDMA_WRITE, wqe.RDMA_WRITE_WITH_IMM),
    opcodes.READ_REQUEST: (wqe.RDMA_READ, None),
    opcodes.COMPARE_SWAP: (wqe.ATOMIC_CMP_AND_SWP, None),
    opcodes.FETCH_ADD: (wqe.ATOMIC_FETCH_AND_ADD, None),
}


@dataclass(frozen=True)
class Captured:
    """One packet of a capture; ``number`` from 1, ``time_ns`` since the first."""

    number: int
    time_ns: int
    sender: str
    framing: int
    transport: Transport

    @property
    def is_reply(self) -> bool:
        return self.transport.opcode.is_response

    @property
    def psn(self) -> int:
        return self.transport.bth.psn

    @property
    def syndrome(self) -> int | None:
        """Syndrome of an ACK or NAK without data; None for every other packet."""
        if self.transport.opcode.operation != opcodes.ACKNOWLEDGE:
            return None
        return record_of(self.transport)["syndrome"]


def record_of(transport: Transport) -> Record:
    """Every field of a transport packet but its ICRC by name: what the replays compare."""
    record: Record = dict(transport.bth.as_dict())
    record.update(opcode=transport.opcode.name, payload=transport.payload)
    for header in transport.extensions:
        record.update(header.as_dict())
    return record


@dataclass
class Message:
    """One work request, put together from its packets: PSNs ``psn`` … ``psn`` + ``packets`` − 1.

    ``numbers`` are the captured packets that carry it; ``data`` what was sent, or what an RDMA READ brought;
    ``original`` an atomic's; ``refused`` the syndrome of the NAK that ended it; ``unready`` the number of the
    last RNR NAK.
    """

    opcode: int
    psn: int
    packets: int
    first: Record
    last: Record
    data: bytes
    numbers: list[int] = field(default_factory=list)
    original: int = 0
    refused: int = 0
    unready: int = 0

    @property
    def consumes_receive(self) -> bool:
        return self.opcode in (wqe.SEND, wqe.SEND_WITH_IMM, wqe.SEND_WITH_INV, wqe.RDMA_WRITE_WITH_IMM)

    def holds(self, psn: int) -> bool:
        return 0 <= distance(self.psn, psn) < self.packets


@dataclass(frozen=True)
class Conversation:
    """One direction of a capture: ``requests`` of one side and ``replies`` of the other."""

    packets: tuple[Captured, ...]
    requests: tuple[Captured, ...]
    replies: tuple[Captured, ...]
    messages: tuple[Message, ...]
    requester_qp: int
    responder_qp: int


@cache
def load(name: str) -> tuple[Captured, ...]:
    """All packets of the capture ``name``."""
    found = []
    with (CAPTURES / f"{name}.pcap").open("rb") as stream:
        for frame in read_capture(stream):
            packet = decode(frame.data, frame.link_type)
            assert packet is not None, f"{name} {frame.number} is no RDMA packet"
            assert packet.icrc_ok
            found.append((frame, packet))
    start = found[0][0].time_ns
    return tuple(
        Captured(frame.number, frame.time_ns - start, packet.source, packet.framing, packet.transport)
        for frame, packet in found
    )


def requesters(name: str) -> list[str]:
    """Addresses that send requests in a capture, in the order of their first one."""
    return list(dict.fromkeys(packet.sender for packet in load(name) if not packet.is_reply))


def conversation(name: str, direction: int) -> Conversation:
    """Direction 0 is that of the capture's first request, 1 the other one."""
    packets = load(name)
    sender = requesters(name)[direction]
    requests = tuple(p for p in packets if p.sender == sender and not p.is_reply)
    replies = tuple(p for p in packets if p.sender != sender and p.is_reply)
    back = [p for p in packets if p.sender != sender]
    messages = _messages(requests)
    for message in messages:
        _take_outcome(message, replies)
    return Conversation(
        packets, requests, replies, messages, back[0].transport.bth.dest_qp, requests[0].transport.bth.dest_qp
    )


def _messages(requests: tuple[Captured, ...]) -> tuple[Message, ...]:
    """The messages in PSN order; a packet that was sent again counts once."""
    by_psn: dict[int, list[Captured]] = {}
    for request in requests:
        by_psn.setdefault(request.psn, []).append(request)
    messages = []
    psn = requests[0].psn
    while psn in by_psn:
        run = [by_psn[psn]]
        assert run[0][0].transport.opcode.position in (opcodes.FIRST, opcodes.ONLY)
        while run[-1][0].transport.opcode.position not in (opcodes.LAST, opcodes.ONLY):
            run.append(by_psn[add(psn, len(run))])
        messages.append(_message(run))
        psn = add(psn, messages[-1].packets)
    seen = {number for message in messages for number in message.numbers}
    assert seen == {request.number for request in requests}, "the PSNs have a hole"
    return tuple(messages)


def _message(run: list[list[Captured]]) -> Message:
    first, last = record_of(run[0][0].transport), record_of(run[-1][0].transport)
    operation = run[0][0].transport.opcode.operation
    plain, immediate = WORK_OPCODES[operation]
    if last["opcode"].endswith("_WITH_INVALIDATE"):
        plain = wqe.SEND_WITH_INV
    packets = len(run)
    if operation == opcodes.READ_REQUEST:
        packets = max(1, -(-first["dma_length_bytes"] // PMTU_BYTES))
    return Message(
        opcode=immediate if "immediate" in last else plain,
        psn=first["psn"],
        packets=packets,
        first=first,
        last=last,
        data=b"".join(occurrences[0].transport.payload for occurrences in run),
        numbers=sorted(packet.number for occurrences in run for packet in occurrences),
    )


def _take_outcome(message: Message, replies: tuple[Captured, ...]) -> None:
    """What the captured replies tell of ``message``."""
    payloads: dict[int, bytes] = {}
    for reply in replies:
        if not message.holds(reply.psn):
            continue
        operation = reply.transport.opcode.operation
        if operation == opcodes.READ_RESPONSE:
            payloads.setdefault(distance(message.psn, reply.psn), reply.transport.payload)
        elif operation == opcodes.ATOMIC_ACK:
            message.original = record_of(reply.transport)["original"]
        elif reply.syndrome >= FATAL_NAK:
            message.refused = reply.syndrome
        elif reply.syndrome >> 5 == 1:
            message.unready = reply.number
    if message.opcode == wqe.RDMA_READ:
        message.data = b"".join(payloads[index] for index in range(message.packets))
