"""DCQCN at an adapter's connections: marks lead to notifications, and notifications to a lower rate."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from softhca.driver import services
from softhca.fabric.ethernet.network import Cabling
from softhca.fabric.ethernet.settings import Marking, SwitchSettings
from softhca.testing.datagram import Datagram
from softhca.testing.ends import READ, SEND, UC, UD, WRITE, End, connect, pair, post
from softhca.testing.ethernet import Ethernet
from softhca.testing.network import Network
from softhca.transport.congestion import SLACK_NS, DcqcnSettings
from softhca.wire.burst import Burst
from softhca.wire.drops import NAMES
from softhca.wire.icrc import of_packet
from softhca.wire.ip import ECT0, MARKED

CNP = 0x81
LINE = 8_000
STEADY = DcqcnSettings(line_mbps=LINE, alpha_ns=10**9, increase_ns=10**9, increase_bytes=1 << 30)
"""A rate stays as a notification has made it."""


def mark(network: Network) -> None:
    """Mark all packets on their way that may be, and carry them as fast as they come."""

    def carry(sent: Datagram, target: Any, port_number: int, data: bytes) -> None:
        bits = sent.route.traffic_class & 3
        marked = sent.route.traffic_class | (MARKED if bits else 0)
        network.after(1_000, lambda: network.deliver(sent, target, port_number, data, marked))

    network.carrier = carry


def connected(kind: int = 2, **settings: Any) -> tuple[Network, End, Any, End, Any]:
    config = {"congestion": settings.pop("congestion", STEADY), "active_mtu": 5, **settings}
    return pair(kind, Network(), 1 << 16, config)


def write(left: End, qp: Any, right: End, length: int = 16_384, **more: Any) -> None:
    post(qp, WRITE, [left.sge(0, length)], va=right.va, rkey=right.key.rkey, **more)


def flow_of(end: End, qp: Any) -> Any:
    return end.node.adapter.queue_pairs[qp.number].flow


def counters(end: End) -> dict[str, int]:
    found: dict[str, int] = end.node.adapter.counters.as_dict()
    return found


def notification(source: End, target: End, qp: Any, **changes: Any) -> bytes:
    """A CNP for a queue pair of ``target``, made by hand."""
    pkey, becn, body = changes.get("pkey", 0xFFFF), changes.get("becn", 0x40), changes.get("body", bytes(16))
    number = changes.get("number", qp.number)
    data = bytes([CNP, 0]) + pkey.to_bytes(2, "big") + bytes([becn]) + number.to_bytes(3, "big")
    data += bytes(4) + body
    route = next(iter(target.node.adapter.queue_pairs.values())).flow.route
    back = type(route)(route.framing, source.node.gid, target.node.gid, source_port=0xC000)
    icrc = of_packet(route.framing, back.headers(len(data) + 4), data)
    return data + icrc.to_bytes(4, "little")


# what is sent


@pytest.mark.parametrize("kind", [2, UC])
def test_what_connections_send_is_capable_of_marks(kind: int) -> None:
    network, left, qp, right, _ = connected(kind)
    sent = network.record("sent")
    write(left, qp, right)
    left.poll(1)
    assert sent
    assert {each.route.traffic_class for each in sent} == {ECT0}
    network.close()


def test_the_consumers_class_stays_but_for_its_two_bits() -> None:
    network, left, qp, right, _ = pair(
        2, None, 1 << 12, {"congestion": STEADY}, there={"traffic_class": 0xA9}, back={"traffic_class": 0x01}
    )
    sent = network.record("sent")
    write(left, qp, right, 64)
    left.poll(1)
    assert {(each.source.number, each.route.traffic_class) for each in sent} == {(1, 0xAA), (2, 0x02)}  # type: ignore[union-attr]
    network.close()


def test_a_packet_of_any_class_is_marked_by_its_two_bits_alone() -> None:
    network, left, qp, right, _ = pair(
        2, None, 1 << 12, {"congestion": STEADY}, there={"traffic_class": 0xA8}, back={"traffic_class": 0}
    )
    mark(network)
    write(left, qp, right, 64)
    left.poll(1)
    assert counters(right)["packets_marked"] == 1
    network.close()


def test_without_congestion_control_nothing_changes() -> None:
    network, left, qp, right, _ = connected(congestion=None)
    mark(network)
    sent = network.record("sent")
    write(left, qp, right)
    left.poll(1)
    assert {each.route.traffic_class for each in sent} == {0}
    assert flow_of(left, qp).control is None
    # marks that somebody else has made are not answered, and notifications dropped
    network.carrier = None
    network.inject(left.node, notification(right, left, qp), right.node.gid)
    network.run()
    assert counters(left)["cnps_received"] == 0
    assert left.node.adapter.port_counters()["drops_service"] == 1
    assert not [each for each in sent if each.data[0] == CNP]
    network.close()


def test_datagrams_are_not_slowed_down_so_they_are_not_marked_either() -> None:
    network = Network()
    left, right = (End(network.add(congestion=STEADY), 1 << 12) for _ in range(2))
    qp, right_qp = left.qp(UD), right.qp(UD)
    for each in (qp, right_qp):
        services.start_datagrams(each, 0x1234567)
    mark(network)
    sent = network.record("sent")
    right_qp.post_recv(0, [right.sge(0, 1024)])
    right_qp.ring()
    handle = left.device.create_ah(left.pd, {"dgid": right.node.gid, "is_global": 1, "port_num": 1})
    post(qp, SEND, [left.sge(0, 64)], ah=handle, qpn=right_qp.number, qkey=0x1234567)
    left.poll(1)
    assert [done.status for done in right.poll(1)] == [0]
    assert {each.route.traffic_class for each in sent} == {0}
    assert flow_of(left, qp).control is None
    network.close()


# the notification point


@pytest.mark.parametrize("kind", [2, UC])
def test_marked_packets_are_told_of_once_in_an_interval(kind: int) -> None:
    network, left, qp, right, _ = connected(kind)
    mark(network)
    sent = network.record("sent")
    for _ in range(3):
        write(left, qp, right, 4_096)
        left.poll(1)
    network.run()
    told = [each for each in sent if each.data[0] == CNP]
    assert {each.bth.dest_qp for each in told if each.source is right.node} == {qp.number}
    first = [each for each in told if each.source is right.node]
    assert len(first) == 1
    assert first[0].route.traffic_class == 0xC0
    assert counters(right)["cnps_sent"] == 1
    assert counters(right)["packets_marked"] == 3
    assert counters(left)["cnps_received"] == 1
    network.elapse(60_000)
    write(left, qp, right, 4_096)
    left.poll(1)
    network.run()
    assert counters(right)["cnps_sent"] == 2
    network.close()


def test_a_run_of_marked_packets_counts_once() -> None:
    network, left, qp, right, right_qp = connected()
    held: list[Datagram] = []
    network.carrier = lambda sent, target, port_number, data: held.append(sent)
    right_qp.post_recv(0, [right.sge(0, 12_288)])
    right_qp.ring()
    post(qp, SEND, [left.sge(0, 12_288)])
    network.run(lambda: len(held) == 3, 1_000)
    stride = len(held[0].data)
    assert [len(each.data) for each in held] == [stride] * 3
    network.inject(right.node, b"".join(each.data for each in held), left.node.gid, stride=stride,
                   source_port=held[0].route.source_port, traffic_class=MARKED)  # fmt: skip
    assert counters(right)["packets_marked"] == 1
    network.close()


def test_nobody_tells_of_a_marked_notification() -> None:
    network, left, qp, right, _ = connected()
    network.inject(left.node, notification(right, left, qp), right.node.gid, traffic_class=MARKED)
    network.run()
    assert counters(left)["cnps_received"] == 1
    assert counters(left)["packets_marked"] == counters(left)["cnps_sent"] == 0
    network.close()


@pytest.mark.parametrize("bits", [0, 1, 2])
def test_only_marks_count(bits: int) -> None:
    network, left, qp, right, _ = connected()

    def carry(sent: Datagram, target: Any, port_number: int, data: bytes) -> None:
        network.deliver(sent, target, port_number, data, 0xFC | bits)

    network.carrier = carry
    write(left, qp, right)
    left.poll(1)
    assert counters(right)["packets_marked"] == 0
    network.close()


def test_marks_of_packets_that_are_not_sound_or_not_the_peers_do_not_count() -> None:
    network, left, qp, right, _ = connected()
    sent = network.record("sent")
    write(left, qp, right, 64)
    left.poll(1)
    packet = sent[0].data
    stranger = right.node.gid[:15] + b"\x77"
    network.inject(right.node, packet, stranger, source_port=sent[0].route.source_port, traffic_class=MARKED)
    broken = packet[:-1] + bytes([packet[-1] ^ 1])
    network.inject(right.node, broken, left.node.gid, source_port=sent[0].route.source_port,
                   traffic_class=MARKED)  # fmt: skip
    network.run()
    assert counters(right)["packets_marked"] == counters(right)["cnps_sent"] == 0
    network.close()


# the reaction point


def told(network: Network, source: End, target: End, qp: Any, times: int = 1) -> None:
    for _ in range(times):
        network.inject(target.node, notification(source, target, qp), source.node.gid)
        network.elapse(50_000)


def test_a_notification_halves_the_rate_and_packets_leave_at_it() -> None:
    network, left, qp, right, _ = connected()
    told(network, right, left, qp, 3)
    assert flow_of(left, qp).control.machine.rate_mbps == pytest.approx(1_000, rel=0.01)
    sent = network.record("sent")
    for _ in range(4):
        write(left, qp, right, 65_536)
    assert [done.status for done in left.poll(4)] == [0] * 4
    data = [each for each in sent if each.source is left.node]
    time_ns = data[-1].time_ns - data[0].time_ns
    mbps = sum(len(each.data) + 46 for each in data[:-1]) * 8_000 / (time_ns + SLACK_NS)
    assert 950 < mbps < 1_010
    bursts = [each.burst for each in data]
    assert len(set(bursts)) == len(bursts)  # 16 µs are half a packet, so one goes at once
    network.close()


def test_a_faster_rate_lets_bursts_be_longer() -> None:
    network, left, qp, right, _ = connected(congestion=dataclasses.replace(STEADY, line_mbps=80_000))
    told(network, right, left, qp)
    sent = network.record("sent")
    write(left, qp, right, 65_536)
    left.poll(1)
    bursts = [each.burst for each in sent if each.source is left.node]
    sizes = [bursts.count(burst) for burst in sorted(set(bursts))]
    assert max(sizes[1:]) == 40_000 * 16_384 // 8_000 // 4_112 or max(sizes) <= 16
    assert sum(sizes) == 16
    network.close()


def test_answers_to_reads_keep_the_rate_too() -> None:
    network, left, qp, right, right_qp = connected()
    told(network, left, right, right_qp, 3)
    sent = network.record("sent")
    post(qp, READ, [left.sge(0, 65_536)], va=right.va, rkey=right.key.rkey)
    assert [done.status for done in left.poll(1)] == [0]
    data = [each for each in sent if each.source is right.node]
    time_ns = data[-1].time_ns - data[0].time_ns
    assert len(data) >= 16
    assert 800 < sum(len(each.data) + 46 for each in data[:-1]) * 8_000 / (time_ns + SLACK_NS) < 1_010
    network.close()


def test_acknowledgements_do_not_wait() -> None:
    network, left, qp, right, right_qp = connected()
    told(network, left, right, right_qp, 20)
    write(right, right_qp, left, 65_536)  # the right end has much to send, slowly: 60 Mb/s or less
    network.run(limit_ns=1_000)
    before = network.now
    write(left, qp, right, 4_096)
    assert [done.status for done in left.poll(1)] == [0]
    assert network.now - before < 50_000
    assert right.poll(1)[0].status == 0
    network.close()


def test_who_waits_for_his_moment_does_not_keep_the_window_from_others() -> None:
    network = Network()
    config = {"congestion": STEADY, "active_mtu": 5}
    left, right = (End(network.add(**config), 1 << 16) for _ in range(2))
    pairs = [(left.qp(), right.qp()) for _ in range(2)]
    for one, other in pairs:
        connect((left, one), (right, other))
    slow, fast = pairs[0][0], pairs[1][0]
    told(network, right, left, slow, 20)
    begin = network.now
    for _ in range(8):
        write(left, slow, right, 65_536, wr_id=1)
    for _ in range(8):
        write(left, fast, right, 65_536, wr_id=2)
    done = left.poll(8)
    assert [each.wr_id for each in done] == [2] * 8
    assert network.now - begin < 10_000_000
    assert flow_of(left, slow).window is flow_of(left, fast).window
    assert {each.status for each in left.poll(8)} == {0}
    network.close()


def test_who_waits_passes_its_turn_in_the_window_on() -> None:
    network, left, qp, right, _ = connected()
    flow = flow_of(left, qp)
    told(network, right, left, qp, 5)
    flow.control.free_ns = network.now + 100_000
    flow.window.turn = flow
    assert flow.produce(Burst(), network.now) == 0
    assert flow.window.turn is None
    network.close()


def test_a_path_that_changes_and_a_reset_forget_the_rate() -> None:
    network, left, qp, right, _ = connected()
    told(network, right, left, qp, 3)
    flow = flow_of(left, qp)
    assert flow.control.machine.limited
    write(left, qp, right, 65_536)
    network.run(limit_ns=1_000)
    qp.modify({"qp_state": 0})
    assert flow.control is None
    assert (flow.not_before_ns, flow.burst_limit_bytes) == (0, 65_536)
    network.run()
    network.close()


# hostile notifications


@pytest.mark.parametrize(("changes", "reason"), [
    ({"pkey": 0x1234}, "pkey"),
    ({"body": bytes(12)}, "length"),
    ({"body": bytes(20)}, "length"),
    ({"body": b""}, "length"),
    ({"number": 0x777777}, "unknown_qp"),
])  # fmt: skip
def test_a_notification_that_is_none_is_dropped_by_reason(changes: dict[str, Any], reason: str) -> None:
    assert reason in NAMES
    network, left, qp, right, _ = connected()
    network.inject(left.node, notification(right, left, qp, **changes), right.node.gid)
    assert left.node.adapter.port_counters()[f"drops_{reason}"] == 1
    assert not flow_of(left, qp).control.machine.limited
    assert counters(left)["cnps_received"] == counters(left)["cnps_ignored"] == 0
    network.close()


def test_a_notification_of_somebody_else_or_with_a_wrong_icrc_is_dropped() -> None:
    network, left, qp, right, _ = connected()
    data = notification(right, left, qp)
    network.inject(left.node, data, right.node.gid[:15] + b"\x77")
    network.inject(left.node, data[:-1] + bytes([data[-1] ^ 0x40]), right.node.gid)
    network.inject(left.node, data, right.node.gid, destination=right.node.gid)
    assert not flow_of(left, qp).control.machine.limited
    assert sum(counters(left)[name] for name in ("cnps_received", "cnps_ignored")) == 0
    figures = left.node.adapter.port_counters()
    assert figures["drops_service"] == 1  # it is none of that connection's packets
    assert figures["drops_icrc"] == 1
    assert figures["drops_destination"] == 1
    network.close()


def test_a_notification_for_a_queue_pair_that_is_not_connected_is_dropped() -> None:
    network, left, qp, right, _ = connected()
    data = notification(right, left, qp)
    qp.modify({"qp_state": 6})
    network.inject(left.node, data, right.node.gid)
    assert left.node.adapter.port_counters()["drops_service"] == 1
    assert counters(left)["cnps_received"] == 0
    network.close()


def test_a_flood_of_notifications_has_a_bounded_effect_and_is_counted() -> None:
    network, left, qp, right, _ = connected()
    data = notification(right, left, qp)
    for _ in range(1_000):
        network.inject(left.node, data * 1, right.node.gid)
    assert counters(left)["cnps_received"] == 1
    assert counters(left)["cnps_ignored"] == 999
    assert flow_of(left, qp).control.machine.rate_mbps == LINE / 2
    for _ in range(50):
        told(network, right, left, qp)
    assert flow_of(left, qp).control.machine.rate_mbps == STEADY.least_mbps
    write(left, qp, right, 8_192)
    assert [done.status for done in left.poll(1)] == [0]  # slowly
    network.close()


# with a switch between


def test_a_switch_marks_and_its_senders_slow_down() -> None:
    network = Network()
    settings = SwitchSettings(marking=Marking(10_000, 40_000, 0.5), queue_bytes=1 << 20)
    ethernet = Ethernet(network, Cabling((0, 0, 0), host_mbps=LINE), settings)
    config = {"congestion": DcqcnSettings(line_mbps=LINE), "active_mtu": 5}
    ends = [End(network.add(**config), 1 << 16) for _ in range(3)]
    qps = []
    for end in ends[:2]:
        qp, peer = end.qp(), ends[2].qp()
        connect((end, qp), (ends[2], peer))
        qps.append(qp)
    for end, qp in zip(ends, qps, strict=False):
        for _ in range(4):
            write(end, qp, ends[2], 65_536)
    for end in ends[:2]:
        assert [done.status for done in end.poll(4)] == [0] * 4
    network.run()
    assert ethernet.fabric.stuck() == []
    assert not ethernet.fabric.drops
    marked = ethernet.fabric.toward(3).counters.frames_marked
    assert marked > 10
    assert 0 < counters(ends[2])["cnps_sent"] < marked
    assert sum(counters(end)["cnps_received"] for end in ends[:2]) > 1
    network.close()


def test_a_burst_that_others_have_begun_takes_no_notification() -> None:
    network, _, _, right, right_qp = connected()
    flow = flow_of(right, right_qp)
    flow.marked(network.now)
    begun = Burst()
    begun.packets, begun.length, begun.stride, begun.route = 1, 64, 64, flow.route
    assert flow.produce(begun, network.now) == 0
    assert flow.has_work()
    empty = Burst()
    assert flow.produce(empty, network.now) == 1
    assert empty.data[0] == CNP
    network.close()
