"""Parts of the harnesses alone: addresses, what observers are shown, arrivals, ends, forged packets."""

from types import SimpleNamespace

import pytest

from softhca.fabric.ethernet.network import Cabling
from softhca.fabric.switching.events import EventQueue
from softhca.queues import wqe
from softhca.testing import LOST, RECEIVED, SENT, Network, addressing, completions, connect, make_end
from softhca.testing import network as network_module
from softhca.testing.datagram import Datagram
from softhca.testing.ethernet import Ethernet, frame_of
from softhca.testing.event_pump import EventPump
from softhca.testing.timeline import Timeline
from softhca.testing.transport_pair import Pair
from softhca.transport.states import INIT, RAW, RD
from softhca.verbs import enums as e
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from softhca.wire import opcodes
from softhca.wire.framing import NATIVE, ROCE_V4, ROCE_V6
from softhca.wire.route import Route

MAPPED = bytes(10) + b"\xff\xff"


@pytest.mark.parametrize(
    ("gid", "group"),
    [
        (MAPPED + bytes((192, 0, 2, 1)), False), (MAPPED + bytes((223, 255, 255, 255)), False),
        (MAPPED + bytes((224, 0, 0, 1)), True), (MAPPED + bytes((240, 0, 0, 1)), False),
        (bytes(12) + bytes((224, 0, 0, 1)), False), (b"\xff" + bytes(15), True), (b"\xfe" + bytes(15), False),
    ],
)  # fmt: skip
def test_a_group_is_one_by_its_address_of_either_version(gid, group):
    assert addressing.is_group(gid) is group


@pytest.mark.parametrize(
    ("framing", "port", "text"),
    [
        (ROCE_V4, 1, "00000000000000000000ffffc0000207"), (ROCE_V4, 2, "00000000000000000000ffffc0000307"),
        (ROCE_V6, 1, "20010db8000000000000000000000007"), (ROCE_V6, 2, "20010db8000000000000000000020007"),
    ],
)  # fmt: skip
def test_ports_behind_the_first_have_networks_of_their_own(framing, port, text):
    assert addressing.gid(7, framing, port).hex() == text


def test_lids_of_ports_and_of_more_than_one_bit():
    native = addressing.addressing_of("native")
    assert native.port(3, 1)["lid"] == 0x13
    assert native.port(3, 2)["lid"] == 0x113
    assert native.port(3, 2)["sm_lid"] == 1
    assert native.lid(3, 2) == 0x13 << 2


@pytest.mark.parametrize("link", ["ipv4", "native"])
def test_what_an_adapter_sends_to_a_group_comes_to_its_other_port(link):
    group = MAPPED + bytes((224, 0, 0, 5))
    data = b"\0\2\xc0\5" + bytes(60)
    with Network(link=link) as network:
        node, other = network.add(ports=2), network.add()
        route = SimpleNamespace(destination=group, port_number=1)
        first, second = node.adapter.ports
        found = [
            network.addressing.reaches(node, first, node, route, data),
            network.addressing.reaches(node, second, node, route, data),
            network.addressing.reaches(other, other.adapter.port, node, route, data),
        ]
    assert found == [False, True, True]


def test_a_native_path_has_a_gid_where_packets_are_to_have_a_grh():
    with Network(link="native") as network:
        node = network.add()
        assert network.addressing.path(node).dgid is None
        assert network.addressing.path(node, grh=True).dgid == node.gid
        assert network.addressing.path(node).dlid == node.lid


@pytest.mark.parametrize(("route", "bytes_long"), [(None, 0), (Route(NATIVE, bytes(16), bytes(16)), 0)])
def test_a_datagram_that_cannot_be_read_has_no_payload(route, bytes_long):
    datagram = Datagram(SENT, 0, None, None, route, b"\xff" * 3)
    assert datagram.payload_bytes == bytes_long
    with pytest.raises(ValueError, match="without transport headers"):
        _ = datagram.bth


class Spied:
    """A network with what its adapters are given."""

    def __init__(self, link):
        self.network = Network(link=link)
        self.node, self.peer = self.network.add(), self.network.add()
        self.given = []
        self.node.adapter = SimpleNamespace(receive=self.receive, port=self.node.adapter.port)

    def receive(self, port_number, arrival, now):
        self.given.append(
            (port_number, arrival.source, arrival.destination, arrival.source_port, arrival.traffic_class,
             arrival.stride, bytes(arrival.buffer[: arrival.length]))
        )  # fmt: skip


@pytest.mark.parametrize("link", ["ipv4", "native"])
def test_an_arrival_says_of_a_packet_what_its_link_would(link):
    spied = Spied(link)
    spied.network.inject(spied.node, b"12345678abcd", b"s" * 16, source_port=5, traffic_class=7, stride=8)
    spied.network.inject(spied.node, b"z", b"s" * 16, destination=b"d" * 16, port_number=3)
    if link == "native":
        ends = [(None, None, 0, 0), (None, None, 0, 0)]
    else:
        ends = [(b"s" * 16, spied.node.gid, 5, 7), (b"s" * 16, b"d" * 16, 0xC000, 0)]
    assert spied.given == [(1, *ends[0], 8, b"12345678abcd"), (3, *ends[1], 1, b"z")]


def test_who_carries_packets_himself_says_what_becomes_of_them():
    spied = Spied("ipv4")
    seen = spied.network.record()
    source, destination = MAPPED + b"\xc0\0\2\1", MAPPED + b"\xc0\0\2\2"
    route = Route(ROCE_V4, source, destination, source_port=9, traffic_class=4)
    sent = Datagram(SENT, 0, spied.peer, None, route, b"1234", burst=6)
    spied.network.deliver(sent, spied.node, 1, b"5678", 3)
    spied.network.lose(sent, spied.node, b"1234", "the queue is full")
    assert [(each.event, each.target, each.data, each.what, each.burst) for each in seen] == [
        (RECEIVED, spied.node, b"5678", "passed", 6), (LOST, spied.node, b"1234", "the queue is full", 6),
    ]  # fmt: skip
    assert spied.given == [(1, source, destination, 9, 3, 4, b"5678")]


@pytest.mark.parametrize(("framing", "headers"), [(ROCE_V4, 46), (ROCE_V6, 66)])
def test_a_frame_is_as_long_as_on_ethernet_and_has_the_priority_of_its_class(framing, headers):
    gid = MAPPED + bytes(4)
    route = Route(framing, gid, gid, source_port=0xC123, traffic_class=0b101_000_10)
    frame = frame_of(1, 2, route, b"x" * 100, "content")
    assert (frame.source, frame.destination, frame.length_bytes) == (1, 2, 100 + headers)
    assert (frame.priority, frame.ecn) == (5, 2)


def test_receives_go_to_the_shared_queue_where_there_is_one():
    with Network() as network:
        client = make_end(network.add().context())
        server = make_end(
            network.add().context(), srq=lambda pd: SRQ(pd, SrqInitAttr(SrqAttr(max_wr=4, max_sge=1)))
        )
        connect(client, server)
        server.receive(8, wr_id=77)
        client.send(length=8)
        assert [wc.wr_id for wc in completions(network, server.recv_cq)] == [77]


def test_no_more_completions_are_taken_than_were_asked_for():
    with Network() as network:
        client, server = (make_end(network.add().context()) for _ in range(2))
        connect(client, server)
        for number in range(5):
            client.send(e.IBV_WR_RDMA_WRITE, 8, to=(server.mr.rkey, server.mr.buf), wr_id=number)
            network.run()
        assert [wc.wr_id for wc in completions(network, client.send_cq, 2)] == [0, 1]
        polls = []
        poll = client.send_cq.poll
        late = SimpleNamespace(poll=lambda count: (polls.append(count), poll(min(count, 1)))[1])
        assert [wc.wr_id for wc in completions(network, late, 2)] == [2, 3]
        assert polls == [2, 1]


@pytest.fixture
def pairs():
    made = []
    yield made
    for pair in made:
        pair.close()


def test_a_forged_packets_padding_is_behind_its_payload(pairs):
    pairs.append(pair := Pair(left_psn=0))
    target = pair.right.region(16)
    pair.forge(opcodes.RC_RDMA_WRITE_ONLY, 0, b"123456789", va=target.va,
               rkey=target.key, length=9)
    assert bytes(target.data) == b"123456789" + bytes(7)


def test_a_request_may_go_to_a_place_within_a_region(pairs):
    pairs.append(pair := Pair())
    source, target = pair.left.region(4, fill=b"abcd"), pair.right.region(16)
    pair.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target, offset=5)
    pair.run()
    assert bytes(target.data) == bytes(5) + b"abcd" + bytes(7)


def test_rows_have_a_field_where_the_packet_has_its_header(pairs):
    pairs.append(pair := Pair(pmtu=256))
    source, target = pair.left.region(512), pair.right.region(512)
    pair.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    pair.run()
    assert [(row["va"], row["length"]) for row in pair.decoded("ab")] == [(target.va, 512), (None, None)]


def test_attributes_are_those_that_a_service_takes(pairs):
    for service in (RAW, RD):
        pairs.append(pair := Pair(service=service, connect=False))
        for state in (INIT, 2, 3):
            given = pair.attributes(state, pair.left, pair.right, 0, 0)
            assert ("port_num" in given) is (service == RAW and state == INIT)


# time


def test_an_adapter_has_the_seed_that_it_is_given_also_0(monkeypatch):
    seeds = []
    monkeypatch.setattr(network_module, "Node", lambda network, number, name, seed, ports: seeds.append(seed))
    network = Network()
    for number, seed in ((3, None), (4, 0), (5, 9)):
        network.add(number, seed=seed)
    assert seeds == [3, 0, 9]


def test_nothing_happens_within_a_step_but_what_it_does():
    with Network() as network:
        seen = []
        network.tasks.append(lambda: bool(seen.append(network.step())))
        network.step()
        assert seen == [False]


def test_programs_that_have_found_something_are_asked_again():
    with Network() as network:
        left = [True, True, True, False]
        network.tasks.append(lambda: left.pop(0))
        assert not network.run()
        assert not left


def test_time_goes_nowhere_for_what_was_due_before():
    with Network() as network:
        start = network.now
        network.at(start - 50, lambda _: None)
        assert network.advance()
        assert network.now == start


@pytest.mark.parametrize(("timeout_s", "passes"), [(0, False), (0.5, False), (1.5, True), (None, True)])
def test_a_wait_takes_as_long_as_it_is_told(timeout_s, passes):
    with Network() as network:
        seen = []
        network.after(1_000_000_000, lambda: seen.append(1))
        assert network.wait(lambda: seen, timeout_s) is passes


def test_playing_up_to_a_moment_ends_there():
    timeline = Timeline(5)
    seen = []
    timeline.at(7, seen.append, "seven")
    timeline.at(21, seen.append, "later")
    timeline.play_to(20, lambda now: seen.append(now))
    assert (timeline.now, seen) == (20, [7, "seven", 20])


@pytest.mark.parametrize(("at_ps", "at_ns"), [(1, 1), (1000, 1), (1001, 2), (1999, 2), (2000, 2)])
def test_an_event_is_planned_for_the_nanosecond_behind_it(at_ps, at_ns):
    timeline, events = Timeline(0), EventQueue()
    events.plan(at_ps, SimpleNamespace(fire=lambda *_: None), 1)
    EventPump(timeline, events).plan()
    assert timeline.planned_ns() == at_ns


# the way of packets


def sends(network, count=1):
    """Datagrams from one adapter to another, all in a burst where that can be."""
    client, server = (make_end(network.add().context(), e.IBV_QPT_UC) for _ in range(2))
    connect(client, server)
    runs = []
    adapter = network.nodes[2].adapter
    receive = adapter.receive
    network.nodes[2].adapter = Spy(adapter, lambda *given: (runs.append(given[1].length), receive(*given)))
    client.send(e.IBV_WR_RDMA_WRITE, 1024 * count, to=(server.mr.rkey, server.mr.buf))
    network.run()
    return runs


class Spy:
    """An adapter of which one call is another one."""

    def __init__(self, adapter, receive):
        self._adapter = adapter
        self.receive = receive

    def __getattr__(self, name):
        return getattr(self._adapter, name)


def test_what_is_swallowed_does_not_arrive():
    with Network() as network:
        network.tamper = lambda sent: None
        assert sends(network, 3) == []


@pytest.mark.parametrize(("faults", "runs"), [("", 2), ("bandwidth=1GB/s", 3)])
def test_packets_are_joined_where_they_arrive_at_one_moment(faults, runs):
    """The first one is longer, and one behind it may be shorter: the third one begins another run."""
    with Network(faults, join_bursts=True) as network:
        assert len(sends(network, 3)) == runs


def test_a_packet_of_which_nothing_is_left_reaches_no_adapter():
    spied = Spied("ipv4")
    gid = MAPPED + bytes(4)
    sent = Datagram(SENT, 0, spied.peer, None, Route(ROCE_V4, gid, gid), b"1234")
    spied.network._arrive(network_module._Flight(sent, spied.node, 1, [b""], "truncated"))
    assert spied.given == []


def test_an_atomics_operands_are_in_their_order():
    with Network() as network:
        client, server = (make_end(network.add().context()) for _ in range(2))
        connect(client, server)
        server.mr.write((5).to_bytes(8, "little"), 8)
        client.send(e.IBV_WR_ATOMIC_CMP_AND_SWP, 8, to=(server.mr.rkey, server.mr.buf), operands=(5, 9))
        assert [wc.status for wc in completions(network, client.send_cq)] == [0]
        assert server.mr.read(8, 0) == (9).to_bytes(8, "little")


def test_ethernet_tells_what_becomes_of_a_frame_and_does_first_what_is_due():
    spied = Spied("ipv4")
    ethernet = Ethernet(spied.network, Cabling((0, 0, 0), host_mbps=8000))
    seen = spied.network.record(LOST)
    gid = MAPPED + bytes(4)
    route = Route(ROCE_V4, gid, gid, source_port=9, traffic_class=0b101_100_10)
    sent = Datagram(SENT, 0, spied.peer, None, route, b"1234")
    frame = SimpleNamespace(content=(sent, spied.node, 1, b"1234"), ecn=3)
    ethernet._arrived(1, frame, 0)
    spied.network.do_due()
    assert spied.given == [(1, gid, gid, 9, 0b101_100_11, 4, b"1234")]
    ethernet._lost(frame, "the queue is full")
    (lost,) = seen
    assert (lost.target, lost.data, lost.what) == (spied.node, b"1234", "the queue is full")
    calls = []
    ethernet._pump = SimpleNamespace(keep_up=lambda: calls.append("now"), plan=lambda: calls.append("later"))
    ethernet.fabric.send = lambda frame: calls.append(frame.length_bytes)
    spied.network.carrier(sent, spied.node, 1, b"1234")
    assert calls == ["now", 4 + 46, "later"]
