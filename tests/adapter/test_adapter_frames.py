"""Raw packet queue pairs of RoCE ports: Ethernet frames over VXLAN, who receives them, where they go."""

import errno
import shutil
import struct
import subprocess

import pytest

from machine_speed import limit_s
from softhca.adapter.segment import MOST_STATIONS, NEIGHBOURS_NS, STATION_NS
from softhca.driver.errors import DriverError
from softhca.queues import control_fields as control
from softhca.testing import SENT
from softhca.testing.addressing import gid
from softhca.testing.ends import RAW, SEND, UD, End, post
from softhca.testing.network import Network
from softhca.wire import ethernet as key
from softhca.wire.burst import Arrival
from softhca.wire.framing import ROCE_V4
from softhca.wire.pcap import PcapWriter
from softhca.wire.vxlan import VXLAN_PORT

LEFT, RIGHT, GROUP = (bytes.fromhex(mac) for mac in ("020000000001", "020000000002", "01005e000001"))
LOC_LEN_ERR = 1
ERR = 6
MTU = 1024


class Segment(Network):
    """Three ends, of which ``sent`` is what left them: (from, to, bytes); each knows the two others."""

    def __init__(self):
        super().__init__()
        self.sent = []
        self.observers.append(self._note)
        all_three = tuple(gid(number) for number in (1, 2, 3))
        self.ends = [End(self.add(number, vteps=all_three)) for number in (1, 2, 3)]

    def _note(self, datagram):
        if datagram.event == SENT:
            assert datagram.route.destination_port == VXLAN_PORT
            self.sent.append((datagram.source.number, datagram.route.destination, datagram.data))


@pytest.fixture
def world():
    with Segment() as world:
        yield world


def raw_qp(end):
    qp = end.qp(RAW)
    for attributes in ({"qp_state": 1, "port_num": 1}, {"qp_state": 2}, {"qp_state": 3}):
        qp.modify(attributes)
    return qp


def rule(end, qp, mac=None, kind=control.FLOW_NORMAL, priority=0, ethertype=None):
    value, mask = bytearray(key.KEY_BYTES), bytearray(key.KEY_BYTES)
    if mac is not None:
        value[:6], mask[:6] = mac, b"\xff" * 6
    if ethertype is not None:
        value[12:14], mask[12:14] = ethertype, b"\xff\xff"
    fields = (bytes(value), bytes(mask)) if kind == control.FLOW_NORMAL else ()
    return end.device.create_flow(qp.number, 1, kind, priority, *fields)


def frame(target=RIGHT, source=LEFT, ethertype=b"\x88\xb5", n=60):
    return target + source + ethertype + bytes(i & 0xFF for i in range(n - 14))


def send(end, qp, data):
    end.memory[: len(data)] = data
    post(qp, SEND, [end.sge(0, len(data))])
    assert [c.status for c in end.poll(1)] == [0]


def receive(end, qp, n=2000):
    qp.post_recv(7, [end.sge(3000, n)])


def test_a_frame_comes_as_it_was_sent_in_a_vxlan_datagram(world):
    left, right, _ = world.ends
    sender, receiver = raw_qp(left), raw_qp(right)
    rule(right, receiver, RIGHT)
    receive(right, receiver)
    data = frame()
    send(left, sender, data)
    (done,) = right.poll(1)
    assert (done.status, done.wr_id, done.byte_len, done.wc_flags, done.src_qp) == (0, 7, 60, 0, 0)
    assert right.memory[3000:3060] == data
    assert {(n, d) for n, _, d in world.sent} == {(1, bytes.fromhex("0800000000000100") + data)}
    # nobody knew the station, so all got it, and no end sends to itself
    assert [target for _, target, _ in world.sent] == [gid(2), gid(3)]


def udp_over_ipv4(data, port=VXLAN_PORT):
    """A datagram as a kernel's socket would send it; tshark is not asked about its checksums."""
    udp = struct.pack(">4H", 50_000, port, 8 + len(data), 0) + data
    addresses = b"\x7f\0\0\1" b"\x7f\0\0\2"
    return struct.pack(">BBHHHBBH8s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, addresses) + udp


def test_tshark_reads_a_frame_that_a_rule_takes(world, tmp_path):
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed (Debian package tshark)")
    left, right, _ = world.ends
    sender, receiver = raw_qp(left), raw_qp(right)
    rule(right, receiver, RIGHT)
    receive(right, receiver)
    data = frame(ethertype=b"\x08\x00")[:14] + udp_over_ipv4(b"inside", 9)
    send(left, sender, data)
    right.poll(1)
    path = tmp_path / "frames.pcap"
    with path.open("wb") as stream:
        writer = PcapWriter(stream, 101)  # raw IP
        for _, _, datagram in world.sent:
            writer.write(0, udp_over_ipv4(datagram))
    fields = ["vxlan.vni", "vxlan.flags", "eth.dst", "eth.src", "ip.proto", "udp.length"]
    command = [program, "-r", str(path), "-T", "fields", *(word for each in fields for word in ("-e", each))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(60), check=True)
    said = ["1", "0x0800", "02:00:00:00:00:02", "02:00:00:00:00:01", "17,17", f"{8 + 8 + len(data)},14"]
    assert [line.split("\t") for line in done.stdout.splitlines()] == [said, said]


def test_a_station_that_was_heard_gets_its_frames_alone_until_it_is_forgotten(world):
    left, right, _ = world.ends
    sender, receiver = raw_qp(left), raw_qp(right)
    rule(left, sender, LEFT)
    receive(left, sender)
    send(right, receiver, frame(LEFT, RIGHT))
    left.poll(1)
    world.sent.clear()
    send(left, sender, frame())
    assert [target for _, target, _ in world.sent] == [gid(2)]
    world.sent.clear()
    world.elapse(STATION_NS + 1)
    send(left, sender, frame())
    assert [target for _, target, _ in world.sent] == [gid(2), gid(3)]


def test_a_group_is_never_learned_and_goes_to_all(world):
    left, right, third = world.ends
    sender, pairs = raw_qp(left), [raw_qp(right), raw_qp(third)]
    for end, qp in zip((right, third), pairs, strict=True):
        rule(end, qp, kind=control.FLOW_MC_DEFAULT)
        receive(end, qp)
    world.inject(left.node, bytes.fromhex("0800000000000100") + frame(LEFT, GROUP), gid(2), frames=True)
    send(left, sender, frame(GROUP))
    assert [len(end.poll(1)) for end in (right, third)] == [1, 1]


def test_two_queue_pairs_of_one_adapter_exchange_frames_without_a_link(world):
    left = world.ends[0]
    one, other = raw_qp(left), raw_qp(left)
    rule(left, other, RIGHT)
    receive(left, other)
    left.memory[:60] = frame()
    post(one, SEND, [left.sge(0, 60)])
    assert sorted((c.qp_num, c.status) for c in left.poll(2)) == sorted([(one.number, 0), (other.number, 0)])
    assert world.sent == []


def test_without_a_rule_nothing_comes_and_the_rule_that_ends_takes_nothing_more(world):
    left, right, _ = world.ends
    sender, receiver = raw_qp(left), raw_qp(right)
    for _ in range(2):
        receive(right, receiver)
    send(left, sender, frame())
    world.elapse(1_000_000)
    flow = rule(right, receiver, RIGHT)
    send(left, sender, frame())
    assert len(right.poll(1)) == 1
    right.device.destroy_flow(flow)
    send(left, sender, frame())
    world.elapse(1_000_000)
    assert right.cq.poll(1) == []
    assert right.device.query_counters(qp=0)["drops_no_rule"] == 2


def test_the_least_priority_number_wins_rules_alike_get_copies_and_a_sniffer_sees_all(world):
    left, right, _ = world.ends
    sender = raw_qp(left)
    first, second, last, sniffer, default = (raw_qp(right) for _ in range(5))
    rule(right, last, RIGHT, priority=5)
    rule(right, first, RIGHT, priority=1, ethertype=b"\x88\xb5")
    rule(right, second, RIGHT, priority=1, ethertype=b"\x88\xb5")
    rule(right, sniffer, kind=control.FLOW_SNIFFER)
    rule(right, default, kind=control.FLOW_ALL_DEFAULT)
    for qp in (first, second, last, sniffer, default):
        for _ in range(3):
            receive(right, qp)
    send(left, sender, frame())
    assert {c.qp_num for c in right.poll(3)} == {first.number, second.number, sniffer.number}
    send(left, sender, frame(ethertype=b"\x88\xb6"))
    assert {c.qp_num for c in right.poll(2)} == {last.number, sniffer.number}
    send(left, sender, frame(target=b"\x02" + bytes(5)))
    assert {c.qp_num for c in right.poll(2)} == {default.number, sniffer.number}


def test_a_frame_longer_than_the_receive_ends_it_and_one_without_a_receive_is_dropped(world):
    left, right, _ = world.ends
    sender, receiver = raw_qp(left), raw_qp(right)
    rule(right, receiver, RIGHT)
    send(left, sender, frame())
    receive(right, receiver, 59)
    send(left, sender, frame())
    assert [c.status for c in right.poll(1)] == [LOC_LEN_ERR]
    assert receiver.query()["qp_state"] == ERR


@pytest.mark.parametrize(("n", "status"), [(13, 1), (14, 0), (MTU + 18, 0), (MTU + 19, 1)])
def test_a_frame_has_its_header_and_the_mtu_at_most(world, n, status):
    left = world.ends[0]
    qp = raw_qp(left)
    post(qp, SEND, [left.sge(0, n)])
    assert [c.status for c in left.poll(1)] == [status]


def test_only_queue_pairs_of_frames_have_rules_and_a_rule_keeps_its_queue_pair(world):
    left = world.ends[0]
    with pytest.raises(DriverError) as refused:
        rule(left, left.qp(UD), RIGHT)
    assert refused.value.errno == errno.EINVAL
    qp = raw_qp(left)
    flow = rule(left, qp, RIGHT)
    with pytest.raises(DriverError) as refused:
        qp.destroy()
    assert refused.value.errno == errno.EBUSY
    left.device.destroy_flow(flow)
    qp.destroy()


def test_a_host_that_leaves_takes_its_rules_along(world):
    left = world.ends[0]
    rule(left, raw_qp(left), RIGHT)
    steering = left.node.adapter.port.segment.steering
    assert (len(steering), steering.stations) == (1, {RIGHT: 1})
    left.device.close()
    assert (len(steering), steering.stations) == (0, {})


def test_what_arrives_is_bounded_and_gets_nothing_but_its_own(world):
    left, _, _ = world.ends
    qp = raw_qp(left)
    segment = left.node.adapter.port.segment
    for number in range(MOST_STATIONS + 10):
        segment.learn(b"\x02\0" + number.to_bytes(4, "big"), gid(9), left.node.adapter.now)
    assert len(segment._stations) == MOST_STATIONS
    send(left, qp, frame())
    assert gid(9) not in [target for _, target, _ in world.sent]  # it was only heard
    world.sent.clear()
    send(left, qp, frame(target=b"\x02\0" + (MOST_STATIONS).to_bytes(4, "big")))
    assert [target for _, target, _ in world.sent] == [gid(9)]


@pytest.mark.parametrize("head", ["", "08", "0000000000000100", "0800000000000200"])
def test_what_is_no_frame_of_the_segment_is_dropped(world, head):
    left = world.ends[0]
    qp = raw_qp(left)
    rule(left, qp, kind=control.FLOW_ALL_DEFAULT)
    receive(left, qp)
    data = bytes.fromhex(head) + (frame(LEFT, RIGHT) if len(head) == 16 else b"\0")
    world.inject(left.node, data, gid(2), frames=True)
    counters = left.device.query_counters(qp=0)
    assert counters["drops_frame"] + counters["drops_truncated"] == 1
    assert left.node.adapter.port.segment._stations == {}


VXLAN = bytes.fromhex("0800000000000100")


def figures(end):
    names = [f"{name}_received" for name in ("packets", "bytes", "bursts")]
    names += [f"drops_{name}" for name in ("frame", "state", "no_rule")]
    found = end.device.query_counters()
    return {name: found[name] for name in names if found[name]}


def test_frames_of_a_run_count_each_with_its_bytes(world):
    left = world.ends[0]
    qp = raw_qp(left)
    rule(left, qp, LEFT)
    for _ in range(3):
        receive(left, qp)
    whole = VXLAN + frame(LEFT, RIGHT)
    world.inject(left.node, 2 * whole + (VXLAN + frame(GROUP, RIGHT)), gid(2), frames=True, stride=len(whole))
    assert figures(left) == {
        "packets_received": 2, "bytes_received": 2 * len(whole), "bursts_received": 1, "drops_no_rule": 1
    }  # fmt: skip


def test_frames_beyond_the_buffer_are_cut_to_it(world):
    left = world.ends[0]
    qp = raw_qp(left)
    rule(left, qp, LEFT)
    arrival = Arrival()
    whole = VXLAN + frame(LEFT, RIGHT)
    arrival.buffer[: len(whole)] = whole
    arrival.length, arrival.stride, arrival.frames = arrival.capacity + 200, len(whole), True
    arrival.framing, arrival.source, arrival.destination = ROCE_V4, gid(2), gid(1)
    left.node.adapter.receive(1, arrival, world.now)
    found = left.device.query_counters()
    seen = found["packets_received"] + sum(n for name, n in found.items() if name.startswith("drops_"))
    assert seen == -(-arrival.capacity // len(whole))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_frame_that_somebody_took_was_received_though_another_one_was_not_ready(world, order):
    left = world.ends[0]
    pairs = [raw_qp(left), left.qp(RAW)]
    pairs[1].modify({"qp_state": 1, "port_num": 1})
    for each in order:
        rule(left, pairs[each], LEFT)
        receive(left, pairs[each])
    world.inject(left.node, VXLAN + frame(LEFT, RIGHT), gid(2), frames=True)
    assert [done.qp_num for done in left.poll(2)] == [pairs[0].number]
    assert figures(left) == {"packets_received": 1, "bytes_received": 68, "bursts_received": 1}


@pytest.mark.parametrize("port", [1, 2])
def test_a_rule_leads_to_nobody_once_its_queue_pair_lives_on_another_port(port):
    with Network() as world:
        end = End(world.add(1, ports=2))
        qp = end.qp(RAW)
        rule(end, qp, LEFT)
        for attributes in ({"qp_state": 1, "port_num": port}, {"qp_state": 2}, {"qp_state": 3}):
            qp.modify(attributes)
        receive(end, qp)
        world.inject(end.node, VXLAN + frame(LEFT, RIGHT), gid(2), frames=True)
        assert [done.wr_id for done in end.poll(1)] == ([7] if port == 1 else [])
        assert figures(end).get("drops_state", 0) == (port == 2)


def test_a_native_port_has_no_frames():
    with Network(link="native") as world:
        end = End(world.add(1))
        world.inject(end.node, VXLAN + frame(LEFT, RIGHT), frames=True)
        assert figures(end) == {"bursts_received": 1, "drops_frame": 1}


def test_neighbours_are_asked_for_at_most_so_often():
    with Network() as world:
        left = End(world.add(1))
        segment, asked = left.node.adapter.port.segment, []
        segment.neighbours = lambda: asked.append(1) or (gid(1), gid(4))
        for now in (0, NEIGHBOURS_NS - 1, NEIGHBOURS_NS):
            found = [route.destination for route, _ in segment.destinations(RIGHT, now)]
            assert found == [gid(4)]
        assert len(asked) == 2


def test_the_link_is_opened_with_the_first_queue_pair_that_needs_it():
    with Network() as world:
        left = End(world.add(1))
        opened = []
        left.node.adapter.port.segment.listen = lambda: opened.append(1)
        qp = left.qp(RAW)
        assert opened == []
        qp.modify({"qp_state": 1, "port_num": 1})
        assert opened == [1]
