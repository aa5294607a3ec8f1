"""Adapters' links to an Ethernet that is served: runs both ways, room, failures, and what cannot be."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from softhca.fabric.ethernet.layout import EthernetTopology
from softhca.fabric.ethernet.plane import EthernetPlane
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.links import fabric_messages as messages
from softhca.links.fabric import FabricLink
from softhca.links.fabric_ethernet import EthernetLink, open_fabric_link
from softhca.links.link import AGAIN, SENT
from softhca.runtime.assembly import assemble
from softhca.runtime.fabric_commands import ControlError, perform
from softhca.runtime.fabric_loop import FabricLoop
from softhca.runtime.fabric_server import FabricServer
from softhca.runtime.specification import DeviceSpecificationError, parse_one
from softhca.wire.bth import Bth
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.opcodes import RC_SEND_ONLY
from softhca.wire.packet import assemble as packet_of
from softhca.wire.packet import decode
from softhca.wire.pcapng import read_pcapng
from softhca.wire.route import Route

MOST_TURNS = 100_000
V6 = bytes.fromhex("fd000000000000000000000000000001")


class Served:
    """An Ethernet of two hosts at one switch, served by turns of a test."""

    def __init__(self, mbps: int = 100_000, given: tuple[bytes, ...] = ()) -> None:
        self.name = f"softhca-test-ethernet-{os.getpid()}"
        nodes = [make_node("s", NodeKind.SWITCH, 3, 0x100)]
        nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(2)]
        links = tuple(Link(End(0, n + 1), End(n + 1, 1)) for n in range(2))
        self.plane = EthernetPlane(EthernetTopology(Topology(tuple(nodes), links), (mbps, mbps)), given)
        self.now_ns = 0
        self.loop = FabricLoop(self.plane, lambda: self.now_ns)
        self.server = FabricServer(self.loop, self.name)
        self.server.open()
        self.closing: list[Any] = []

    def call(self, what: Callable[[], Any]) -> Any:
        """What a call in another thread gives, or raises, while the fabric has its turns."""
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(what())
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            self.loop.turn(0.01)
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def join(self, node: str) -> EthernetLink:
        made = self.call(lambda: open_fabric_link(self.name, node))
        assert isinstance(made, EthernetLink)
        self.closing.append(made)
        return made

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(MOST_TURNS):
            if done():
                return
            self.loop.turn(0.001)
        raise AssertionError("it never came to that")

    def close(self) -> None:
        for each in self.closing:
            each.close()
        self.server.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


def burst_to(link: EthernetLink, peer: EthernetLink, count: int, length: int = 1_024) -> Burst:
    route = Route(link.framing, link.gid, peer.gid, source_port=0xC00A, traffic_class=0x62)
    bth = Bth(RC_SEND_ONLY, dest_qp=77)
    packets = [packet_of(route, bth, (), bytes([n]) * length).transport.encode() for n in range(count)]
    made = Burst()
    data = b"".join(packets)
    made.buffer[: len(data)] = data
    made.length, made.stride, made.packets, made.route = len(data), len(packets[0]), count, route
    return made


def test_a_run_goes_from_host_to_host_and_says_whence(served: Served) -> None:
    one, two = served.join("h0"), served.join("h1")
    assert (one.framing, one.mbps, one.active_mtu, one.node) == (ROCE_V4, 100_000, 4_096, "h0")
    burst = burst_to(one, two, 10)
    assert one.send(burst) == SENT
    arrival = Arrival()
    served.until(lambda: two.receive(arrival))
    assert (arrival.length, arrival.stride) == (burst.length, burst.stride)
    assert bytes(arrival.buffer[: arrival.length]) == bytes(burst.buffer[: burst.length])
    assert (arrival.source, arrival.destination) == (one.gid, two.gid)
    assert (arrival.source_port, arrival.traffic_class, arrival.framing) == (0xC00A, 0x62, ROCE_V4)
    assert two.counters()["bursts_received"] == 1
    assert served.server.counters()["packets_delivered"] == 10


def test_hosts_may_have_addresses_of_ip_version_6() -> None:
    served = Served(given=(V6, V6[:-1] + b"\2"))
    one, two = served.join("h0"), served.join("h1")
    assert one.framing == ROCE_V6
    one.send(burst_to(one, two, 2))
    arrival = Arrival()
    served.until(lambda: two.receive(arrival))
    assert (arrival.source, arrival.source_port, arrival.traffic_class) == (V6, 0xC00A, 0x62)
    served.close()


def test_a_port_that_has_too_much_to_send_takes_no_more_until_it_has_room(served: Served) -> None:
    served.close()
    served = Served(mbps=1)
    one, two = served.join("h0"), served.join("h1")
    burst = burst_to(one, two, 15, 4_096)
    sent = 0
    while one.send(burst) == SENT:
        sent += 1
        for _ in range(3):
            served.loop.turn(0)
    assert one.send_blocked > 0
    arrival = Arrival()
    got = 0
    while got < sent * burst.length:
        served.now_ns += 1_000_000_000
        served.loop.turn(0)
        while two.receive(arrival):
            got += arrival.length
    assert one.send(burst) != AGAIN
    served.close()


def test_an_adapter_hears_of_its_link_and_of_the_end(served: Served) -> None:
    one = served.join("h0")
    told: list[int] = []
    one.on_info = lambda info: told.append(info["state"])
    arrival = Arrival()

    def heard(state: int) -> Callable[[], bool]:
        return lambda: not one.receive(arrival) and told[-1:] == [state]

    perform(served.plane, {"do": "fail", "link": "h0[1]"}, 0, served.plane)
    served.until(heard(1))
    perform(served.plane, {"do": "restore", "link": "s[1]"}, 0, served.plane)
    served.until(heard(4))
    served.server.close()
    while told[-1] != 1:
        one.receive(arrival)
    assert one.fileno() == -1
    assert one.send(burst_to(one, one, 1)) == -errno.ENETDOWN


def test_faults_traffic_and_counters_by_command(served: Served) -> None:
    one, two = served.join("h0"), served.join("h1")
    plane = served.plane
    perform(plane, {"do": "faults", "link": "h1[1]", "faults": "loss=100%"}, 0, plane)
    one.send(burst_to(one, two, 3))
    served.until(lambda: plane.counters["drops_faults"] == 3)
    traffic = perform(plane, {"do": "traffic", "link": "h1[1]"}, 0, plane)["traffic"]
    assert (traffic["s[2]"]["xmit_pkts"], traffic["h1[1]"]["rcv_pkts"]) == (3, 0)
    assert perform(plane, {"do": "counters"}, 0, plane)["counters"] == plane.counters
    with pytest.raises(ControlError, match="no counters to add to"):
        perform(plane, {"do": "count", "link": "h1[1]", "errors": {"symbol_error": 1}}, 0, plane)


def test_what_adapters_send_is_captured_as_ip_packets(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "a.pcapng"
    served.server.capture(file)
    one, two = served.join("h0"), served.join("h1")
    one.send(burst_to(one, two, 3))
    served.until(lambda: served.plane.counters["packets_delivered"] == 3)
    served.server.close()
    with file.open("rb") as stream:
        packets = [decode(each.data, each.link_type) for each in read_pcapng(stream)]
    assert [each.icrc_ok for each in packets if each is not None] == [True] * 3


@pytest.mark.parametrize("data", [
    b"\1", messages.HEADER.pack(messages.BURST, 0) + bytes(60),
    messages.HEADER.pack(messages.BURST, 99) + bytes(60),
    messages.HEADER.pack(messages.BURST, 16) + bytes(20), messages.HEADER.pack(9, 16) + b"{}" + bytes(60),
    messages.encode(messages.INFO, {"state": 9}),
])  # fmt: skip
def test_messages_that_cannot_be_are_counted_on_both_sides(served: Served, data: bytes) -> None:
    one = served.join("h0")
    assert one.socket is not None
    member = next(iter(served.server.adapters.members.values()))  # type: ignore[union-attr]
    member.socket.send(data)
    while not one.messages_bad:
        assert not one.receive(Arrival())
    one.socket.send(data)
    bad = served.server.adapters.counters  # type: ignore[union-attr]
    served.until(lambda: bad["messages_bad"] + served.plane.counters["drops_malformed"] == 1)


def test_a_host_that_is_taken_or_a_switch_is_refused(served: Served) -> None:
    served.join("h0")
    for node, code in (("h0", errno.EBUSY), ("s", errno.ENODEV), ("x", errno.ENODEV), ("s[2]", errno.ENODEV)):
        with pytest.raises(OSError, match="fabric") as told:
            served.call(lambda node=node: open_fabric_link(served.name, node))
        assert told.value.errno == code


GROUP, GROUP_V6 = bytes(10) + b"\xff\xff" + bytes((239, 1, 2, 3)), bytes.fromhex("ff05") + bytes(14)


@pytest.mark.parametrize("group", [GROUP, GROUP_V6], ids=["ipv4", "ipv6"])
def test_what_is_sent_to_a_group_reaches_the_ports_that_are_in_it(group: bytes) -> None:
    served = Served(given=() if group == GROUP else (V6, V6[:-1] + b"\7"))
    one, two = served.join("h0"), served.join("h1")
    arrival = Arrival()
    try:
        for each in (one, two, two):  # again does nothing
            each.join(group)
        served.until(lambda: len(served.plane._groups.get(group, ())) == 2)
        burst = burst_to(one, two, 2)
        burst.route = Route(one.framing, one.gid, group, source_port=0xC00A)
        assert one.send(burst) == SENT
        served.until(lambda: two.receive(arrival))
        assert bytes(arrival.buffer[: arrival.length]) == bytes(burst.buffer[: burst.length])
        assert (arrival.source, arrival.destination) == (one.gid, group)
        two.leave(group)
        two.leave(group)
        served.until(lambda: len(served.plane._groups[group]) == 1)
        assert one.send(burst) == SENT
        served.until(lambda: served.plane.counters["drops_unknown"] == 2)
        assert not one.receive(arrival)
        assert not two.receive(arrival)
        assert two.send(burst_to(two, one, 1)) == SENT
        served.until(lambda: one.receive(arrival))
        assert arrival.destination == one.gid
        one.close()
        served.until(lambda: not served.plane._groups)
    finally:
        served.close()


def test_groups_that_cannot_be_joined(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    link = served.join("h0")
    for gid in (GROUP_V6, link.gid):
        with pytest.raises(OSError, match="IP version") as told:
            link.join(gid)
        assert told.value.errno == errno.EINVAL
    monkeypatch.setattr(messages, "MOST_GROUPS", 1)
    link.join(GROUP)
    other = GROUP[:-1] + b"\4"
    with pytest.raises(OSError, match="1 groups at most") as told:
        link.join(other)
    assert told.value.errno == errno.ENOBUFS
    monkeypatch.setattr(messages, "MOST_GROUPS", 2)
    link.close()
    with pytest.raises(OSError, match="gone") as told:
        link.join(other)
    assert told.value.errno == errno.ENETDOWN
    link.leave(GROUP)


@pytest.mark.parametrize(
    "content",
    [
        {}, {"group": GROUP.hex()}, {"group": GROUP.hex(), "member": 1}, {"group": "7f", "member": True},
        {"group": V6.hex(), "member": True}, {"group": [1], "member": False},
    ],
)  # fmt: skip
def test_words_on_groups_that_say_nothing_are_counted(served: Served, content: dict[str, Any]) -> None:
    link = served.join("h0")
    assert link.socket is not None
    link.socket.send(messages.encode(messages.GROUP, content))
    served.until(lambda: served.server.adapters.counters["messages_bad"] == 1)
    assert served.plane._groups == {}


def test_an_adapter_s_groups_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    link = served.join("h0")
    groups = [GROUP[:-1] + bytes([n]) for n in range(4)]
    monkeypatch.setattr(messages, "MOST_GROUPS", 2)
    for number, member in ((0, True), (1, True), (0, True), (2, True), (2, False), (0, False), (3, True)):
        link._tell(groups[number], member)
    served.until(lambda: groups[3] in served.plane._groups)
    assert served.plane._groups.keys() == {groups[1], groups[3]}
    assert served.server.adapters.counters["messages_bad"] == 1


def test_a_device_has_dcqcn_at_the_speed_of_its_link(served: Served) -> None:
    spec = parse_one(f"softhca0=fabric:{served.name}/h0?congestion=dcqcn")
    adapter, link = served.call(lambda: assemble(spec))
    served.closing.append(link)
    assert adapter.config.congestion.line_mbps == 100_000
    assert not adapter.ports[0].native
    assert adapter.config.node_guid == 0x1000
    link.on_info({**link.info, "state": 1})
    assert adapter.ports[0].state == 1


def test_native_fabrics_have_no_dcqcn(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    link = served.join("h0")
    monkeypatch.setattr(EthernetLink, "is_native", True)
    monkeypatch.setattr("softhca.links.fabric_ethernet.open_fabric_link", lambda name, node: link)
    with pytest.raises(DeviceSpecificationError, match="native links, which have no DCQCN"):
        assemble(parse_one(f"softhca0=fabric:{served.name}/h0?congestion=dcqcn"))
    assert FabricLink.is_native
    assert link.fileno() == -1
