"""Rules of congestion notification on RoCEv2 (IBTA vol. 1, A17.9.3), by section and a word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from softhca.conformance.registry import ensure, expect, holds
from softhca.conformance.rig import LEFT_PSN, ON_ROCE, Pair, Setting
from softhca.testing import Datagram
from softhca.testing.ends import RC, SEND, UC
from softhca.transport.congestion import DcqcnSettings
from softhca.wire import opcodes as op
from softhca.wire.bth import Bth
from softhca.wire.framing import ROCE_V6
from softhca.wire.packet import assemble
from softhca.wire.route import Route

CNP = op.CNP_PACKET
MARKED, CAPABLE = 3, 2
INTERVAL_NS = 50_000


def _pair(setting: Setting, kind: int = RC, **details: Any) -> Pair:
    """A pair whose adapters have congestion control."""
    return replace(setting, options={**setting.options, "congestion": DcqcnSettings()}).pair(kind, **details)


def _mark(pair: Pair, traffic_class: int) -> None:
    """From now on what comes to the right end has this traffic class, if it left as ECN-capable."""
    network = pair.rig

    def carry(sent: Datagram, target: Any, port_number: int, data: bytes) -> None:
        found = sent.route.traffic_class
        marks = found & 3 and target is pair.right.node
        network.deliver(sent, target, port_number, data, traffic_class if marks else found)

    network.carrier = carry


def _told(pair: Pair) -> list[Datagram]:
    """The notifications that the right end has sent."""
    pair.rig.settle()
    return _of_right(pair)


def _of_right(pair: Pair) -> list[Datagram]:
    return [sent for sent in pair.rig.log if sent.data[0] == CNP and sent.source is pair.right.node]


@holds("A17.9.3-format", settings=(ON_ROCE,))
def a_notification_has_a_bth_of_its_own_and_sixteen_reserved_bytes(setting: Setting) -> None:
    """A marked packet is answered by opcode 0x81 with BECN, to the queue pair that sent it, with PSN 0, no
    MigReq, no AckReq, and 16 bytes of 0."""
    with _pair(setting) as pair:
        _mark(pair, MARKED)
        pair.receive(0, 100)
        pair.post(SEND, b"x")
        for sent in _told(pair):
            packet = sent.packet
            ensure(packet is not None, "a notification that cannot be decoded")
            expected = Bth(CNP, migreq=0, becn=1, dest_qp=pair.left_qp.number)
            expect("BTH", sent.bth.as_dict(), expected.as_dict())
            expect("what follows", sent.data[12:-4], bytes(16))
        expect("notifications", len(_told(pair)), 1)


@holds("A17.9.3-marked", settings=(ON_ROCE,))
def marked_packets_and_no_others_are_told_of(setting: Setting) -> None:
    """Packets that came with CE are told of, those with other ECN bits not; again only after an interval."""
    for kind in (RC, UC):
        for bits in (0, 1, CAPABLE, MARKED):
            with _pair(setting, kind) as pair:
                _mark(pair, 0xA0 | bits)
                for count in (1, 1, 2):
                    if count == 2:
                        pair.rig.elapse(INTERVAL_NS)
                    pair.receive(0, 100)
                    pair.post(SEND, b"x")
                    pair.rig.settle(lambda: pair.right.cq.poll(1))
                    expect(f"notifications of {bits}", len(_of_right(pair)), count if bits == MARKED else 0)


@holds("A17.9.3-rate", settings=(ON_ROCE,))
def a_notification_slows_its_queue_pair_down_and_no_other(setting: Setting) -> None:
    """A CNP from the peer lowers the rate of the queue pair that it names, one from elsewhere none."""
    with _pair(setting) as pair:
        _mark(pair, MARKED)
        flow = pair.left.adapter.queue_pairs[pair.left_qp.number].flow
        before = flow.control.machine.rate_mbps
        pair.receive(0, 100)
        pair.post(SEND, b"x")
        packets = _told(pair)
        expect("the peer's", flow.control.machine.rate_mbps, before / 2)
        back = pair.right.adapter.queue_pairs[pair.right_qp.number].flow
        expect("the other way", back.control.machine.rate_mbps, before)
        pair.rig.elapse(INTERVAL_NS)
        rate = flow.control.machine.rate_mbps
        stranger = Route(ROCE_V6, pair.left.gid[:-1] + b"\x77", pair.left.gid)
        forged = assemble(stranger, packets[0].bth, (), bytes(16))
        pair.rig.give(pair.left, forged.transport.encode(), stranger)
        ensure(flow.control.machine.rate_mbps >= rate, "a stranger has slowed the queue pair down")


@holds("A17.9.3-unordered", settings=(ON_ROCE,))
def a_notification_is_outside_of_the_connections_order(setting: Setting) -> None:
    """A CNP takes no PSN and gets no answer: what follows is the packet that was expected before."""
    with _pair(setting) as pair:
        for _ in range(2):
            pair.receive(0, 100)
        pair.give(pair.packet(op.RC_SEND_ONLY, LEFT_PSN, b"one", ack_request=1))
        pair.rig.log.clear()
        pair.give(pair.packet(CNP, 0, bytes(16), migreq=0, becn=1))
        expect("answers", len(pair.rig.log), 0)
        expect("taken", pair.right.counter("transport_cnps_received"), 1)
        pair.give(pair.packet(op.RC_SEND_ONLY, LEFT_PSN + 1, b"it", ack_request=1))
        expect("completions", [done.byte_len for done in pair.right.completions()], [3, 2])
