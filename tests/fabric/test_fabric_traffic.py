"""Traffic over routed fabrics: what arrives and when, what links carry, what failures do."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from softhca.fabric.generators import fat_tree, torus
from softhca.fabric.graph import Graph
from softhca.fabric.routing import Routes, route
from softhca.fabric.switching.congestion import TableControl
from softhca.fabric.switching.packet import Packet
from softhca.fabric.switching.port import PortSettings
from softhca.fabric.topology import End, Link, LinkSpeed, LinkWidth, NodeKind, Topology, make_node
from softhca.fabric.traffic import (
    HEADERS_BYTES,
    MOST_WAITING_BYTES,
    LinkEvent,
    Traffic,
    TrafficError,
    TrafficRun,
)
from softhca.wire import bth, icrc, lrh, vcrc

US = 1_000_000


def star(hosts: int) -> Topology:
    """One switch."""
    nodes = [make_node("s", NodeKind.SWITCH, hosts, 0x100)]
    nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(hosts)]
    return Topology(tuple(nodes), tuple(Link(End(0, n + 1), End(n + 1, 1)) for n in range(hosts)))


def ended(topology: Topology, traffic: Traffic, engine: str = "up-down", **options: Any) -> TrafficRun:
    """A run that has come to rest, or to four times its time."""
    made = TrafficRun(topology, route(topology, engine), traffic, **options)
    made.run(5 * traffic.duration_ps)
    return made


def test_all_messages_arrive_and_links_carry_what_was_sent() -> None:
    traffic = Traffic(load=0.3, message_bytes=10_000, duration_ps=30 * US)
    made = ended(fat_tree(4), traffic, "fat-tree")
    figures = made.figures
    assert figures.offered == figures.delivered > 100
    assert (figures.lost, made.unfinished, figures.held_back) == (0, 0, 0)
    assert figures.packets_sent == figures.packets_delivered == 3 * figures.offered
    sent = figures.offered * (10_000 + 3 * HEADERS_BYTES)
    rate = made.topology.links[0].data_mbps
    hosts = [load for end, load in made.loads().items() if not made.topology.nodes[end.node].is_switch]
    carried = sum(hosts) * made.events.now_ps * rate / 8_000_000
    assert carried == pytest.approx(sent, rel=0.002)  # counters are of whole words
    share = figures.offered * 10_000 * 8_000_000 / (traffic.duration_ps * 16 * rate)
    assert share == pytest.approx(0.3, abs=0.05)
    assert made.fabric.stuck() == []


def test_the_shortest_latency_is_that_of_an_empty_way() -> None:
    made = ended(star(2), Traffic(load=0.01, message_bytes=4096 + 100, duration_ps=400 * US))
    settings, rate = made.fabric.ends[1].port.settings, made.topology.links[0].data_mbps
    first, second = ((n + HEADERS_BYTES) * 8_000_000 // rate for n in (4096, 100))
    head = 8 * 8_000_000 // rate
    expected = first + second + head + 2 * settings.propagation_ps + settings.latency_ps
    shares = [made.figures.percentile_ps(share) for share in (0, 0.5, 0.99, 1)]
    assert shares[0] == expected
    assert shares == sorted(shares)
    assert shares[3] == max(made.figures.latencies_ps)


def test_the_same_seed_is_the_same_run_and_another_is_another() -> None:
    runs = [ended(star(4), Traffic(duration_ps=20 * US, seed=seed)) for seed in (5, 5, 6)]
    one, same, other = ((each.events.executed, list(each.figures.latencies_ps)) for each in runs)
    assert one == same
    assert one != other


def test_an_incast_fills_the_link_of_its_target_and_holds_senders_back() -> None:
    traffic = Traffic("incast", 1.0, 65_536, duration_ps=200 * US)
    made = TrafficRun(star(4), route(star(4), "up-down"), traffic)
    made.run(traffic.duration_ps)
    assert made.loads()[End(0, 1)] > 0.95
    assert made.loads()[End(0, 2)] == 0
    rate = made.topology.links[0].data_mbps / 8_000_000  # bytes a picosecond
    assert 0.9 < made.figures.bytes_in_time / (traffic.duration_ps * rate) <= 1
    assert made.figures.held_back > 0
    assert {sender.host for sender in made.senders} == {2, 3, 4}
    for sender in made.senders:
        assert sender.waiting_bytes <= MOST_WAITING_BYTES + 65_536
    in_time, delivered = made.figures.bytes_in_time, made.figures.packets_delivered
    made.run(2 * traffic.duration_ps)
    assert made.figures.packets_delivered > delivered
    assert made.figures.bytes_in_time == in_time


def test_in_a_permutation_each_host_sends_to_one_and_hears_of_one() -> None:
    for seed in range(5):
        made = ended(star(7), Traffic("permutation", duration_ps=10 * US, seed=seed))
        partners = made._partners
        assert sorted(partners) == sorted(each[0] for each in partners.values()) == list(range(1, 8))
        assert all(host != each[0] for host, each in partners.items())


def test_uniform_traffic_goes_to_all_others() -> None:
    made = ended(star(4), Traffic(duration_ps=1 * US))
    assert made._partners[2] == [1, 3, 4]


def rerouting(topology: Topology, first: Routes, seen: list[frozenset[int]]) -> Any:
    def reroute(gone: frozenset[int]) -> Routes:
        seen.append(gone)
        return route(Graph(topology.without(gone)), "up-down", first.lids)

    return reroute


def test_what_a_failed_link_carries_is_lost_until_routes_are_new() -> None:
    topology = fat_tree(4)
    first = route(topology, "fat-tree")
    link = topology.link_at(topology.index("s1-0"), 3)
    assert link is not None
    seen: list[frozenset[int]] = []
    traffic = Traffic(load=0.5, duration_ps=60 * US)
    made = TrafficRun(
        topology, first, traffic, reroute=rerouting(topology, first, seen), reroute_ps=5 * US,
        events_at=[LinkEvent(10 * US, link), LinkEvent(40 * US, link, fails=False)],
    )  # fmt: skip
    made.run(15 * US - 1)
    assert seen == []
    made.run(16 * US)
    assert seen == [frozenset({link})]
    lost = made.figures.lost
    assert lost > 0
    assert set(made.figures.drops) <= {"link down", "no route"}
    made.run(300 * US)
    assert made.figures.lost == lost  # none after the new routes
    assert made.unfinished == 0
    assert made.figures.delivered == made.figures.offered - lost
    assert seen == [frozenset({link}), frozenset()]
    assert (made.figures.reroutes, made.figures.unroutable) == (2, 0)


def test_without_new_routes_the_old_ones_stay() -> None:
    topology = star(3)
    traffic = Traffic(duration_ps=20 * US)
    made = ended(topology, traffic, events_at=[LinkEvent(5 * US, 0)], reroute_ps=US)
    assert (made.figures.reroutes, made.figures.unroutable) == (0, 1)
    assert made.figures.drops["link down"] > 0
    assert made.unfinished == 0


def test_a_message_that_loses_two_packets_is_lost_once() -> None:
    topology = star(2)
    traffic = Traffic("incast", 1.0, 40_960, duration_ps=40 * US)
    made = ended(topology, traffic, events_at=[LinkEvent(20 * US, 1)])
    figures = made.figures
    assert figures.drops["link down"] > figures.lost > 0
    assert figures.delivered + figures.lost == figures.offered
    assert made.senders[0].waiting_bytes == 0


@pytest.mark.parametrize(("engine", "stuck"), [("min-hop", True), ("dimension-order", False)])
def test_a_ring_stops_where_lanes_wait_for_each_other(engine: str, stuck: bool) -> None:
    topology = torus((8,), hosts=2)
    routes = route(topology, engine)
    settings = PortSettings(lanes=routes.routing.lanes, buffer_blocks=66)
    made = TrafficRun(topology, routes, Traffic(load=1.0, duration_ps=40 * US), settings=settings)
    made.run(400 * US)
    assert (made.unfinished > 0) == stuck
    assert (made.figures.last_delivery_ps < 40 * US) == stuck


def test_senders_slow_down_where_packets_are_marked() -> None:
    traffic = Traffic("incast", 0.5, 4096, duration_ps=100 * US)
    waits = []
    for control in (None, lambda mbps: TableControl()):
        settings = PortSettings(mark_blocks=64)
        made = TrafficRun(star(5), route(star(5), "up-down"), traffic, settings=settings, congestion=control)
        made.run(traffic.duration_ps)
        port = made.port(End(0, 1))
        assert port is not None
        assert port.counters.marked > 0
        senders = [made.port(End(host, 1)) for host in range(2, 6)]
        waits.append(sum(each.counters.waited_ps for each in senders if each is not None))
    assert waits[1] < waits[0] / 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"pattern": "circle"}, "circle"), ({"load": 0}, "load"), ({"load": 1.01}, "load"),
        ({"message_bytes": 0}, "messages"), ({"message_bytes": 1 << 25}, "messages"),
        ({"mtu_bytes": 1500}, "MTU"), ({"duration_ps": 0}, "time"),
    ],
)  # fmt: skip
def test_traffic_that_cannot_be_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(TrafficError, match=why):
        Traffic(**options)


def test_who_has_as_much_under_way_as_is_allowed_makes_no_message() -> None:
    made = TrafficRun(star(2), route(star(2), "up-down"), Traffic())
    sender = made.senders[0]
    for waiting, told in ((MOST_WAITING_BYTES - 1, (1, 0)), (MOST_WAITING_BYTES, (1, 1))):
        sender.waiting_bytes = waiting
        made.offer(sender, 0)
        assert (made.figures.offered, made.figures.held_back) == told


def test_a_packet_s_headers_are_lrh_and_bth_and_crcs_and_its_place_in_the_message_is_told() -> None:
    assert sum(each.LENGTH_BYTES for each in (lrh, bth, icrc, vcrc)) == HEADERS_BYTES
    made = TrafficRun(star(2), route(star(2), "up-down"), Traffic(message_bytes=3 * 4096 + 1))
    sent: list[Packet] = []
    made.fabric.send = lambda node, packet: sent.append(packet)  # type: ignore[assignment,method-assign]
    made.offer(made.senders[0], 0)
    assert [(each.begins, each.ends) for each in sent] == [
        (True, False), (False, False), (False, False), (False, True),
    ]  # fmt: skip
    assert [each.length_bytes - HEADERS_BYTES for each in sent] == [4096, 4096, 4096, 1]


def test_routes_that_need_more_lanes_than_there_are_are_none() -> None:
    topology = torus((5,))
    made = ended(
        topology, Traffic(load=0.1, duration_ps=20 * US), "min-hop", reroute_ps=US,
        events_at=[LinkEvent(US, 0)], reroute=lambda gone: route(topology, "dimension-order"),
    )  # fmt: skip
    assert (made.figures.reroutes, made.figures.unroutable) == (0, 1)


def two_speeds() -> Topology:
    """A switch, a host with two linked ports, and one whose link is slower."""
    nodes = (make_node("s", NodeKind.SWITCH, 3, 0x100),
             make_node("a", NodeKind.CHANNEL_ADAPTER, 2, 0x200),
             make_node("b", NodeKind.CHANNEL_ADAPTER, 1, 0x300))  # fmt: skip
    links = (Link(End(0, 1), End(1, 1)), Link(End(0, 2), End(1, 2)),
             Link(End(0, 3), End(2, 1), LinkWidth.X1, LinkSpeed.HDR))  # fmt: skip
    return Topology(nodes, links)


def test_a_host_s_second_port_is_not_used() -> None:
    topology = two_speeds()
    made = ended(topology, Traffic(load=0.1, duration_ps=20 * US))
    assert made.port(End(1, 1)) is not None
    assert made.port(End(1, 2)) is None
    assert set(made.loads()) == {End(0, 1), End(1, 1), End(0, 2), End(0, 3), End(2, 1)}


def test_congestion_is_controlled_for_the_slowest_sender() -> None:
    topology = two_speeds()
    rates: list[int] = []

    def control(mbps: int) -> TableControl:
        rates.append(mbps)
        return TableControl()

    ended(topology, Traffic(load=0.1, duration_ps=20 * US), congestion=control)
    assert set(rates) == {topology.links[2].data_mbps}
    assert topology.links[2].data_mbps < topology.links[0].data_mbps


def test_there_must_be_two_hosts() -> None:
    with pytest.raises(TrafficError, match="two hosts"):
        TrafficRun(star(1), route(star(1), "up-down"), Traffic())
