"""Packets of adapters across Ethernet switches that follow the clock: runs, queues, marks, pauses, faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from softhca.fabric.ethernet.frames import IPV4_BYTES, Run, read_run, traffic_class_of, with_facts
from softhca.fabric.ethernet.layout import EthernetTopology
from softhca.fabric.ethernet.plane import (
    HOST_QUEUE_BYTES,
    RECEIVE_BYTES,
    SLACK_NS,
    EthernetPlane,
    EthernetPort,
)
from softhca.fabric.ethernet.settings import Marking, Pausing, SwitchSettings
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.links.faulty import NO_FAULTS
from softhca.links.impairment import Impairment
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.ip import internet_checksum
from softhca.wire.route import Route

ECT0, CE = 2, 3
MS = 1_000_000


def layout(hosts: int = 3, mbps: int = 25_000, **more: object) -> EthernetTopology:
    """One switch."""
    nodes = [make_node("s", NodeKind.SWITCH, hosts, 0x100)]
    nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(hosts)]
    links = tuple(Link(End(0, n + 1), End(n + 1, 1)) for n in range(hosts))
    return EthernetTopology(Topology(tuple(nodes), links), (mbps,) * hosts, 500, **more)  # type: ignore[arg-type]


class Host:
    """An adapter that takes what comes while it has room."""

    def __init__(self, lab: Lab, node: int) -> None:
        self.got: list[Run] = []
        self.room = True
        self.woken = 0
        self.told: list[int] = []
        self.port: EthernetPort = lab.plane.join(End(node, 1), self._deliver, self._wake, self._changed)

    def _deliver(self, data: bytes, stride: int) -> bool:
        if self.room:
            run = read_run(memoryview(data), stride)
            assert run is not None
            self.got.append(run)
        return self.room

    def _wake(self) -> None:
        self.woken += 1

    def _changed(self) -> None:
        self.told.append(self.port.info()["state"])  # type: ignore[arg-type]

    @property
    def payloads(self) -> list[bytes]:
        return [payload for run in self.got for payload in run.payloads]


class Lab:
    """An Ethernet, its adapters, and its clock."""

    def __init__(self, ethernet: EthernetTopology | None = None) -> None:
        self.plane = EthernetPlane(ethernet or layout(), seed=1)
        self.now = 0
        self.hosts = [Host(self, end.node) for end in self.plane.ethernet.hosts]

    def run_of(self, source: int, to: int, payloads: list[bytes], **more: int) -> bytearray:
        gids = self.plane.addresses
        route = Route(ROCE_V4, gids[source], gids[to], **more)
        return bytearray(route.headers(len(payloads[0])) + b"".join(payloads))

    def send(self, source: int, to: int, *payloads: bytes, **more: int) -> None:
        data = self.run_of(source, to, list(payloads), **more)
        self.plane.send(self.hosts[source].port, memoryview(data), len(payloads[0]), self.now)

    def rest(self) -> None:
        """Until nothing is under way."""
        for _ in range(100_000):
            due = self.plane.network.events.next_ps()
            if due is None:
                return
            self.now = max(self.now, self.plane.next_deadline_ns)
            self.plane.expire(self.now)
        raise AssertionError("it never came to rest")

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self.plane.counters.items() if count}


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.rest()
    assert made.plane.network.stuck() == []


def many(count: int, length: int = 1_024) -> list[bytes]:
    return [bytes([n]) * length for n in range(count)]


def test_a_run_arrives_as_one_with_its_headers_and_the_last_packet_may_be_shorter(lab: Lab) -> None:
    packets = [*many(5), b"e" * 64]
    lab.send(0, 1, *packets, source_port=0xC123, traffic_class=0x60 | ECT0)
    (first, last) = lab.hosts[1].got
    assert (first.payloads, last.payloads) == (packets[:5], packets[5:])
    assert (first.source, first.destination) == lab.plane.addresses[:2]
    assert (first.source_port, traffic_class_of(first.headers)) == (0xC123, 0x62)
    assert lab.counts() == {"packets_delivered": 6}
    assert lab.hosts[2].got == []


def test_an_idle_ethernet_does_not_let_packets_wait_for_the_clock(lab: Lab) -> None:
    lab.send(0, 1, b"a" * 64)
    assert lab.hosts[1].payloads == [b"a" * 64]
    assert lab.now == 0


@pytest.mark.parametrize("idle_ns", [0, 10_000_000])
def test_a_slow_link_takes_the_time_that_it_takes(idle_ns: int) -> None:
    lab = Lab(layout(mbps=100))  # 80 ns a byte, stored and forwarded: two links
    lab.now = idle_ns
    lab.send(0, 1, bytes(4096))
    assert lab.hosts[1].got == []
    least = idle_ns + 2 * (4096 + IPV4_BYTES) * 80 - SLACK_NS
    assert lab.plane.next_deadline_ns < least
    lab.plane.expire(least)
    assert lab.hosts[1].got == []
    lab.rest()
    assert lab.hosts[1].payloads == [bytes(4096)]
    assert lab.plane.next_deadline_ns > 1 << 60  # nothing to do


def test_a_port_sends_no_faster_than_its_link_and_goes_on_when_half_has_gone() -> None:
    lab = Lab(layout(mbps=100))
    count = 0
    while not lab.hosts[0].port.is_blocked:
        lab.send(0, 1, *many(15, 4096))
        count += 15
    assert HOST_QUEUE_BYTES < count * 4200 < 2 * HOST_QUEUE_BYTES
    assert lab.hosts[0].woken == 0
    while not lab.hosts[0].woken:
        assert lab.plane.network.events.next_ps() is not None, "nobody is woken"
        lab.now = lab.plane.next_deadline_ns
        lab.plane.expire(lab.now)
    assert not lab.hosts[0].port.is_blocked
    waiting = sum(lab.plane.network.hosts[1].port.queued)
    assert HOST_QUEUE_BYTES // 2 - 5_000 < waiting <= HOST_QUEUE_BYTES // 2
    lab.rest()
    assert lab.hosts[0].woken == 1
    assert lab.counts() == {"packets_delivered": count}


def test_long_queues_mark_what_reacts_to_marks_and_drop_at_their_tail() -> None:
    settings = SwitchSettings(queue_bytes=40_000, marking=Marking(10_000, 20_000, 1.0))
    lab = Lab(layout(mbps=1_000, settings=settings))
    for _ in range(4):
        lab.send(0, 2, *many(15), traffic_class=ECT0)
        lab.send(1, 2, *many(15), traffic_class=0)
    lab.rest()
    counts = lab.counts()
    assert counts["packets_delivered"] + counts["drops_queue"] == 120
    ecn = [traffic_class_of(run.headers) & 3 for run in lab.hosts[2].got for _ in run.payloads]
    assert set(ecn) == {0, ECT0, CE}
    marked = lab.plane.traffic(End(0, 3))["marked_pkts"]
    assert marked == ecn.count(CE) > 0
    assert all(internet_checksum(run.headers[:20]) == 0 for run in lab.hosts[2].got)
    assert lab.plane.traffic(End(0, 3))["discarded_pkts"] == counts["drops_queue"] > 0


def test_pauses_lose_nothing_and_block_the_sender_s_port() -> None:
    pausing = Pausing(20_000, 10_000)
    settings = SwitchSettings(1 << 20, 1 << 20, None, pausing)
    lab = Lab(EthernetTopology(layout().topology, (10_000, 10_000, 1_000), 500, settings))
    sent = 0
    for _ in range(40):
        for source in (0, 1):
            if not lab.hosts[source].port.is_blocked:
                lab.send(source, 2, *many(15, 4096))
                sent += 15
    assert lab.hosts[0].port.is_blocked
    lab.rest()
    assert lab.counts() == {"packets_delivered": sent}
    assert lab.plane.traffic(End(1, 1))["rcv_pauses"] > 0
    assert lab.hosts[0].woken > 0


def test_an_adapter_that_takes_nothing_gets_what_waits_when_it_does(lab: Lab) -> None:
    lab.hosts[1].room = False
    lab.send(0, 1, *many(15, 4096))
    lab.rest()
    assert lab.counts() == {}
    lab.hosts[1].room = True
    lab.plane.has_room(lab.hosts[1].port, lab.now)
    assert lab.hosts[1].payloads == many(15, 4096)


def test_what_waits_for_an_adapter_is_bounded(lab: Lab) -> None:
    lab.hosts[1].room = False
    runs = RECEIVE_BYTES // (15 * 4096) + 2
    for _ in range(runs):
        lab.send(0, 1, *many(15, 4096))
        lab.rest()
    dropped = lab.counts()["drops_receiver"]
    assert (runs * 15 - dropped) * 4096 <= RECEIVE_BYTES < (runs * 15 - dropped + 1) * 4096
    lab.plane.leave(lab.hosts[1].port, lab.now)
    assert lab.counts()["drops_nobody"] == runs * 15 - dropped


def test_a_host_without_adapter_and_an_address_of_nobody_get_nothing(lab: Lab) -> None:
    lab.plane.leave(lab.hosts[1].port, 0)
    lab.send(0, 1, *many(2))
    data = lab.run_of(0, 2, many(1))
    data[19] ^= 0x40
    data[10:12] = bytes(2)
    data[10:12] = internet_checksum(bytes(data[:20])).to_bytes(2, "big")
    lab.plane.send(lab.hosts[0].port, memoryview(data), 1_024, 0)
    assert lab.counts() == {"drops_nobody": 2, "drops_unknown": 1}


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 0x46), (0, 0x55), (2, 9), (6, 0), (9, 6), (10, 0xFF), (22, 0), (24, 9),
    ],
)  # fmt: skip
def test_what_is_no_rocev2_packet_is_dropped(lab: Lab, at: int, value: int) -> None:
    data = lab.run_of(0, 1, many(2))
    data[at] = value
    lab.plane.send(lab.hosts[0].port, memoryview(data), 1_024, 0)
    assert lab.counts() == {"drops_malformed": 1}


@pytest.mark.parametrize(("length", "stride"), [(0, 4), (20, 4), (28, 4), (28 + 64, 0), (28 + 62, 31),
                                                (28 + 8192, 8192), (28 + 24, 16), (28 + 8, 8)])  # fmt: skip
def test_lengths_that_cannot_be_are_dropped(lab: Lab, length: int, stride: int) -> None:
    data = lab.run_of(0, 1, [bytes(max(min(length - 28, stride), 4))])
    data = (data + bytes(9_000))[:length]
    lab.plane.send(lab.hosts[0].port, memoryview(data), stride, 0)
    assert lab.counts() == {"drops_malformed": 1}


def test_nobody_sends_in_another_s_name(lab: Lab) -> None:
    data = lab.run_of(2, 1, many(3))
    lab.plane.send(lab.hosts[0].port, memoryview(data), 1_024, 0)
    assert lab.counts() == {"drops_source": 3}


def test_a_port_has_one_adapter_and_a_switch_none(lab: Lab) -> None:
    for end, why in ((End(1, 1), "has an adapter already"), (End(0, 1), "no port of a host")):
        with pytest.raises(ValueError, match=why):
            lab.plane.join(end, lambda data, stride: True, lambda: None, lambda: None)


def test_adapters_hear_that_their_link_fails_and_is_back(lab: Lab) -> None:
    link = lab.plane.topology.link_at(1, 1)
    assert link is not None
    assert lab.plane.fail(link, 0)
    assert not lab.plane.fail(link, 0)
    lab.send(0, 1, b"x" * 64)
    assert lab.plane.restore(link, 0)
    lab.send(0, 1, b"y" * 64)
    assert (lab.hosts[0].told, lab.hosts[1].told) == ([1, 4], [])
    assert lab.hosts[1].payloads == [b"y" * 64]
    assert lab.counts() == {"drops_link_down": 1, "packets_delivered": 1}


def impair(lab: Lab, end: End, **faults: object) -> None:
    made = replace(NO_FAULTS, **faults)  # type: ignore[arg-type]
    lab.plane.side(end).faults = Impairment(made, "test", 1, 2)
    lab.plane.changed()


def test_faults_of_a_link_lose_damage_and_delay(lab: Lab) -> None:
    impair(lab, End(0, 2), corruption=1.0)
    lab.send(0, 1, *many(3))
    assert lab.counts() == {"drops_faults": 3}
    impair(lab, End(0, 2), delay_ns=5 * MS)
    lab.send(0, 1, *many(3))
    lab.plane.expire(4 * MS)
    assert lab.hosts[1].got == []
    lab.now = 4 * MS
    lab.rest()
    assert lab.hosts[1].payloads == many(3)
    impair(lab, End(0, 2), duplication=1.0)
    lab.send(0, 1, *many(1))
    lab.rest()
    assert lab.hosts[1].payloads[3:] == many(1) * 2


def test_a_tap_sees_whole_packets_of_one_direction_and_marks(lab: Lab) -> None:
    seen: list[bytes] = []
    side = lab.plane.side(End(1, 1))
    side.taps.append(lambda data, now: seen.append(data))
    lab.plane.changed()
    lab.send(0, 1, *many(2))
    lab.send(1, 0, *many(1))
    assert [packet[28:] for packet in seen] == many(2)
    assert all(read_run(memoryview(bytearray(packet)), 1_024) is not None for packet in seen)
    side.taps.clear()
    lab.plane.changed()
    lab.send(0, 1, *many(1))
    assert len(seen) == 2
    assert lab.plane.network.links[0][1].carrier is None


def test_headers_of_both_ip_versions_are_marked_and_made_for_a_length() -> None:
    for framing, source in ((ROCE_V4, bytes(10) + b"\xff\xff\x7f\0\0\1"), (ROCE_V6, bytes(15) + b"\1")):
        headers = Route(framing, source, source, traffic_class=0xA0 | ECT0).headers(64)
        made = with_facts(headers, 32, True)
        run = read_run(memoryview(bytearray(made + bytes(32))), 32)
        assert run is not None
        assert (run.source, run.destination) == (source, source)
        assert traffic_class_of(made) == 0xA0 | CE
        assert with_facts(headers, 64, False) == headers


GROUP = bytes(10) + b"\xff\xff" + bytes((239, 1, 2, 3))


def two_switches() -> EthernetTopology:
    """Hosts 0 … 2 at one switch, 3 … 5 at the other, and two links between the switches."""
    nodes = [make_node(f"s{n}", NodeKind.SWITCH, 5, 0x100 + 16 * n) for n in range(2)]
    nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(6)]
    links = [Link(End(n // 3, n % 3 + 1), End(n + 2, 1)) for n in range(6)]
    links += [Link(End(0, port), End(1, port)) for port in (4, 5)]
    return EthernetTopology(Topology(tuple(nodes), tuple(links)), (25_000,) * 8, 500)


def send_to_group(lab: Lab, source: int, *payloads: bytes, **more: int) -> None:
    route = Route(ROCE_V4, lab.plane.addresses[source], GROUP, **more)
    data = bytearray(route.headers(len(payloads[0])) + b"".join(payloads))
    lab.plane.send(lab.hosts[source].port, memoryview(data), len(payloads[0]), lab.now)


def test_a_group_s_packets_pass_each_link_once_and_reach_its_members() -> None:
    lab = Lab(two_switches())
    for member in (0, 1, 3, 4):
        lab.plane.set_member(lab.hosts[member].port, GROUP, True)
    send_to_group(lab, 0, b"a" * 64, b"b" * 64, source_port=0xC001)
    lab.rest()
    got = [host.payloads for host in lab.hosts]
    assert got == [[], [b"a" * 64, b"b" * 64], [], *[[b"a" * 64, b"b" * 64]] * 2, []]
    assert lab.hosts[3].got[0].destination == GROUP
    assert lab.counts() == {"packets_delivered": 6}
    between = [lab.plane.traffic(End(0, port))["xmit_pkts"] for port in (4, 5)]
    assert sorted(between) == [0, 2]
    assert [lab.plane.traffic(End(1, port))["xmit_pkts"] for port in (1, 2, 3)] == [2, 2, 0]
    assert lab.plane.network.stuck() == []


def test_members_come_and_go_and_those_behind_failed_links_get_nothing() -> None:
    lab = Lab(two_switches())
    send_to_group(lab, 0, b"a" * 64)
    assert lab.counts() == {"drops_unknown": 1}
    for member in (1, 3, 4):
        lab.plane.set_member(lab.hosts[member].port, GROUP, True)
    for link in (6, 7):
        lab.plane.fail(link, lab.now)
    send_to_group(lab, 0, b"b" * 64)
    lab.rest()
    assert lab.hosts[1].payloads == [b"b" * 64]
    assert lab.counts() == {"drops_unknown": 1, "packets_delivered": 1, "drops_no_route": 1}
    lab.plane.set_member(lab.hosts[1].port, GROUP, False)
    lab.plane.leave(lab.hosts[3].port, lab.now)
    lab.plane.restore(6, lab.now)
    send_to_group(lab, 0, b"c" * 64)
    lab.rest()
    assert [host.payloads for host in lab.hosts] == [[], [b"b" * 64], [], [], [b"c" * 64], []]
    lab.plane.set_member(lab.hosts[4].port, GROUP, False)
    send_to_group(lab, 0, b"d" * 64)
    assert lab.counts()["drops_unknown"] == 2
    assert lab.plane.network.stuck() == []


def test_what_a_port_is_told_of_itself() -> None:
    lab = Lab(layout(mbps=100_000))
    facts = lab.hosts[0].port.facts()
    assert (facts["kind"], facts["node"], facts["mbps"]) == ("ethernet", "h0", 100_000)
    assert (facts["width"], facts["speed"], facts["mtu"]) == (2, 32, 5)  # 4x EDR, 4096 bytes
    assert bytes.fromhex(facts["address"]) == lab.plane.addresses[0]
