"""What agents of nodes and the planes of management and packets keep to: keys, tables, counters, programs."""

from __future__ import annotations

import pytest
from mad_tools import Tool, bring_up, lid_of, smp

from softhca.fabric.mad_plane import Datagram, MadPlane
from softhca.fabric.native_bursts import LEAST_BYTES, units
from softhca.fabric.node_state import LINEAR_BLOCK, NO_PORT
from softhca.fabric.port_state import ACTIVE, IS_SM, PHYS_DISABLED, PHYS_POLLING
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.management import constants as c
from softhca.management.attributes import ClassPortInfo, PortInfo
from softhca.management.mad import Mad, MadHeader
from softhca.management.performance_attributes import PortCounters
from softhca.management.subnet_attributes import TRAP_LINK_STATE, BadMKeyDetails, Notice, SwitchInfo

SECOND_NS = 1_000_000_000
WRONG_KEY = 0x99


def chain(switches: int) -> Topology:
    """A host, so many switches, a host: each switch has the host of before at port 1, what follows at 2."""
    nodes = [make_node("first", NodeKind.CHANNEL_ADAPTER, 1, 0x1000)]
    nodes += [make_node(f"s{n}", NodeKind.SWITCH, 2, 0x2000 + 16 * n) for n in range(switches)]
    nodes.append(make_node("last", NodeKind.CHANNEL_ADAPTER, 1, 0x9000))
    links = [Link(End(n, 2 if n else 1), End(n + 1, 1)) for n in range(switches + 1)]
    return Topology(tuple(nodes), tuple(links))


def fabric(switches: int = 2) -> tuple[MadPlane, Tool]:
    plane = MadPlane(chain(switches))
    tool = Tool(plane, (0, 1))
    return plane, tool


def send_key(tool: Tool, path: list[int], key: int) -> None:
    tool.set_port(path, key=key)


# keys


def test_violations_of_a_key_are_counted_up_to_what_their_field_holds() -> None:
    plane, tool = fabric()
    port = plane.nodes[1].own_port(1)
    port.change(m_key=0x77, m_key_protect_bits=1, m_key_violations=0xFFFE)
    for expected in (0xFFFF, 0xFFFF):
        send_key(tool, [1], WRONG_KEY)
        assert port.info.m_key_violations == expected


def test_a_violation_counter_begins_anew_where_a_manager_sets_0() -> None:
    plane, tool = fabric()
    port = plane.nodes[1].own_port(1)
    port.change(m_key_violations=5, p_key_violations=6)
    tool.set_port([1], p_key_violations=0)
    assert (port.info.m_key_violations, port.info.p_key_violations) == (5, 0)


@pytest.mark.parametrize("hops", [30, 31])
def test_of_a_long_way_a_trap_tells_30_ports(hops: int) -> None:
    plane, tool = fabric(hops)
    port = plane.nodes[hops].own_port(1)
    port.change(m_key=0x77, m_key_protect_bits=1, lid=5, sm_lid=1, subnet_timeout=1)
    sent: list[Notice] = []
    plane.notices._send = lambda node, port, mad, lid, now: sent.append(  # type: ignore[method-assign]
        Notice.decode(Mad.decode(bytes(mad)).data)
    )
    send_key(tool, [1] + [2] * (hops - 1), WRONG_KEY)
    plane.expire(SECOND_NS)
    details = BadMKeyDetails.decode(sent[0].data_details)
    assert (details.dr_path_truncated, details.dr_hop_count) == (int(hops > 30), 30)
    assert details.dr_return_path == bytes([1] * 30)


def test_who_has_no_key_sees_all_but_the_key() -> None:
    plane, tool = fabric()
    plane.nodes[1].own_port(1).change(m_key=0x77, m_key_protect_bits=1, lid=5)
    info = tool.port_info([1])
    assert (info.m_key, info.lid) == (0, 5)
    answer = tool.directed([1], c.ATTRIBUTE_NODE_INFO)
    assert answer is not None
    assert answer.data.startswith(plane.nodes[1].info(1))


@pytest.mark.parametrize(
    ("attribute", "key", "repressed"),
    [
        (c.ATTRIBUTE_NOTICE, 0x77, True),
        (c.ATTRIBUTE_NOTICE, WRONG_KEY, False),
        (c.ATTRIBUTE_NODE_INFO, 0x77, False),
    ],
)
def test_a_trap_is_repressed_by_who_has_the_key_and_by_a_notice(
    attribute: int, key: int, repressed: bool
) -> None:
    plane, tool = fabric()
    node = plane.nodes[1]
    bring_up(tool)
    node.own_port(1).change(m_key=0x77, m_key_protect_bits=1)
    plane.notices.raise_link_state(node, 0)
    plane.expire(0)
    method = c.METHOD_TRAP_REPRESS
    number = next(iter(plane.notices._pending.values())).transaction_id
    tool.send(smp(c.CLASS_SUBN_LID, method, attribute, 0, b"", key, number, [], 0), lid_of(1))
    left = [trap for _, trap in plane.notices._pending if trap == TRAP_LINK_STATE]
    assert left == ([] if repressed else [TRAP_LINK_STATE])


def test_a_node_without_a_lid_sends_no_trap_and_one_with_a_key_sends_it() -> None:
    plane, _ = fabric()
    node = plane.nodes[1]
    port = node.own_port(1)
    sent: list[bytes] = []
    plane.notices._send = lambda node, port, mad, lid, now: sent.append(  # type: ignore[method-assign]
        bytes(mad)
    )
    for lid, count in ((0, 0), (5, 1)):
        port.change(lid=lid, sm_lid=1, m_key=0x77, subnet_timeout=1)
        plane.notices.raise_link_state(node, 0)
        plane.expire(0)
        assert len(sent) == count
    assert int.from_bytes(sent[0][24:32], "big") == 0x77


# ports


def test_a_switch_says_by_which_port_it_was_asked() -> None:
    _, tool = fabric()
    assert tool.port_info([1], 2).local_port_num == 1
    assert tool.port_info([1, 2], 2).local_port_num == 1


def test_the_last_lid_can_be_a_manager_s() -> None:
    plane, tool = fabric()
    for sm_lid, status in ((0xBFFF, 0), (0xC000, c.STATUS_BAD_VALUE)):
        answer = tool.set_port([1], sm_lid=sm_lid)
        assert answer is not None
        assert answer.header.status & 0x7FFF == status
    assert plane.nodes[1].own_port(1).info.sm_lid == 0xBFFF


def test_a_table_of_keys_has_its_first_block_though_only_the_second_was_set() -> None:
    plane, _ = fabric()
    port = plane.nodes[0].own_port(1)
    told: list[int] = []
    port.watch = lambda: told.append(len(port.key_list()))
    port.set_pkeys(1, b"\x80\x12" + bytes(62))
    assert port.key_list() == [0xFFFF, *[0] * 31, 0x8012]
    assert told == [33]
    assert port.pkey_block(2) == bytes(64)


def test_what_is_set_to_what_it_was_is_no_change() -> None:
    plane, _ = fabric()
    port = plane.nodes[0].own_port(1)
    told: list[int] = []
    port.watch = lambda: told.append(port.info.lid)
    for lid in (5, 5, 6):
        port.change(lid=lid)
    assert told == [5, 6]


def test_counters_of_a_switch_s_own_port_and_those_of_the_second_selection() -> None:
    plane, tool = fabric()
    bring_up(tool)
    port = plane.nodes[1].own_port(1)
    for name in ("xmit_wait", "link_downed"):
        port.count(name, 5)
    asked = PortCounters(port_select=0, counter_select2=1)
    answer = tool.general(c.METHOD_SET, c.ATTRIBUTE_PORT_COUNTERS, asked, lid_of(1))
    assert answer is not None
    found = tool.counters(lid_of(1), 0)
    assert (answer.header.status, found.xmit_wait, found.link_downed) == (0, 0, 5)


@pytest.mark.parametrize(
    ("select", "left"), [(0, (5, 6)), (1, (0, 6)), (2, (5, 0)), (3, (0, 0)), (0xFC, (5, 6))]
)
def test_each_bit_of_the_second_selection_clears_its_own_counter(select: int, left: tuple[int, int]) -> None:
    plane, tool = fabric()
    bring_up(tool)
    port = plane.nodes[1].own_port(1)
    port.count("xmit_wait", 5)
    port.count("qp1_dropped", 6)
    asked = PortCounters(port_select=0, counter_select2=select)
    assert tool.general(c.METHOD_SET, c.ATTRIBUTE_PORT_COUNTERS, asked, lid_of(1)) is not None
    found = tool.counters(lid_of(1), 0)
    assert (found.xmit_wait, found.qp1_dropped) == left


def test_words_of_each_service_level_are_counted_by_direction() -> None:
    plane, _ = fabric()
    port = plane.nodes[1].own_port(1)
    port.count_sent(2, 30, 3)
    port.count_received(5, 70, 3)
    port.count_received(1, 7, 15)
    names = ("xmit_data_sl3", "rcv_data_sl3", "xmit_data_sl15", "rcv_data_sl15", "rcv_data_sl1")
    assert [port.total(name) for name in names] == [30, 70, 0, 7, 0]
    assert [port.total(name) for name in ("xmit_pkts", "rcv_pkts", "xmit_data", "rcv_data")] == [2, 6, 30, 77]


def test_what_the_class_of_performance_management_can_do_is_read_alone() -> None:
    _, tool = fabric()
    bring_up(tool)
    statuses = []
    for method in (c.METHOD_GET, c.METHOD_SET):
        answer = tool.general(method, c.ATTRIBUTE_CLASS_PORT_INFO, ClassPortInfo(), lid_of(1))
        assert answer is not None
        statuses.append(answer.header.status)
    assert statuses == [c.STATUS_OK, c.STATUS_BAD_ATTRIBUTE]


def test_a_counter_that_is_cleared_twice_begins_anew_twice() -> None:
    plane, _ = fabric()
    port = plane.nodes[0].own_port(1)
    for _ in range(3):
        port.count("link_downed", 3)
        assert port.read("PortCounters", "link_downed") == 3
        port.clear("PortCounters", ["link_downed"])
        assert port.read("PortCounters", "link_downed") == 0


def test_only_a_link_that_was_up_has_gone_down() -> None:
    plane, tool = fabric()
    tool.set_port([1], 2, phys_state=PHYS_DISABLED)
    plane.fail(1, 0)
    ports = [plane.nodes[node].port(port) for node, port in ((1, 2), (2, 1))]
    assert [port.total("link_downed") for port in ports if port is not None] == [0, 0]
    plane.fail(2, 0)
    last = plane.nodes[3].own_port(1)
    assert last.total("link_downed") == 1


def test_a_port_that_was_disabled_and_is_enabled_stays_so() -> None:
    plane, tool = fabric()
    for phys_state, disabled in ((PHYS_DISABLED, True), (PHYS_POLLING, False), (0, False)):
        tool.set_port([1], 2, phys_state=phys_state)
        port = plane.nodes[1].port(2)
        assert port is not None
        assert (port.disabled, port.up) == (disabled, not disabled)


def test_a_link_that_is_trained_and_is_as_it_was_is_no_news() -> None:
    plane, tool = fabric()
    for state in (0, 1):  # INIT before and after; then ACTIVE before
        node = plane.nodes[1]
        node.set_switch_info(port_state_change=0)
        port = node.port(2)
        assert port is not None
        if state:
            port.change(state=ACTIVE)
        tool.set_port([1], 2, phys_state=PHYS_POLLING)
        assert node.switch_info.port_state_change == state


def test_the_epoch_changes_with_links_and_with_what_is_set() -> None:
    plane, tool = fabric()
    changes = (
        lambda: plane.fail(1, 0),
        lambda: plane.restore(1, 0),
        lambda: tool.set_port([1], lid=5),
        lambda: tool.directed(
            [1], c.ATTRIBUTE_SWITCH_INFO, SwitchInfo(linear_fdb_top=63).encode(), method=c.METHOD_SET
        ),
    )
    for change in changes:
        before = plane.epoch
        tool.port_info([1])
        assert plane.epoch == before
        change()
        assert plane.epoch != before


# tables


def test_a_switch_s_table_reaches_to_its_top_and_begins_empty() -> None:
    plane, _ = fabric()
    node = plane.nodes[1]
    node.set_linear(1, bytes([2] * LINEAR_BLOCK))
    assert node.linear_block(0) == bytes([NO_PORT]) * LINEAR_BLOCK
    node.set_switch_info(linear_fdb_top=70)
    assert [node.forward(lid) for lid in (0, 63, 64, 70, 71)] == [NO_PORT, NO_PORT, 2, 2, NO_PORT]
    node.own_port(0).change(lid=66, lmc=1)
    assert [node.forward(lid) for lid in (65, 66, 67, 68)] == [2, 0, 0, 2]
    node.set_switch_info(linear_fdb_top=64)
    assert [node.forward(lid) for lid in (64, 65, 66, 68)] == [2, NO_PORT, 0, NO_PORT]


def test_groups_reach_the_last_ports_of_a_large_switch() -> None:
    nodes = (make_node("s", NodeKind.SWITCH, 36, 0x100),)
    node = MadPlane(Topology(nodes, ())).nodes[0]
    node.multicast[2 << 28] = b"\0\x12" + bytes(62)
    node.multicast[0] = b"\x80\0" + bytes(62)
    assert node.multicast_ports(0xC000) == [15, 33, 36]


# programs and their datagrams


def test_a_port_has_a_manager_as_long_as_one_program_there_is_one() -> None:
    plane, one = fabric()
    other = Tool(plane, (0, 1))
    port = one.endpoint.port
    for tool in (one, other):
        plane.set_manager(tool.endpoint, True, 0)
    for tool, is_manager in ((one, IS_SM), (other, 0)):
        plane.detach(tool.endpoint, 0)
        assert port.info.capability_mask & IS_SM == is_manager


def test_who_has_only_answered_is_a_server_yet() -> None:
    plane, tool = fabric()
    bring_up(tool)
    server = Tool(plane, (3, 1))
    server.send(Mad.make(MadHeader(management_class=9, method=0x81)), lid_of(0), 1)
    tool.general(c.METHOD_GET, 1, b"", lid_of(3), 9)
    assert (tool.fate, len(server.answers)) == ("delivered", 1)


def test_a_report_is_for_who_has_subscribed() -> None:
    plane, tool = fabric()
    bring_up(tool)
    server = Tool(plane, (3, 1))
    tool.general(c.METHOD_REPORT, c.ATTRIBUTE_NOTICE, b"", lid_of(3), c.CLASS_SUBN_ADM)
    assert (tool.fate, len(server.answers)) == ("drops_unclaimed", 0)


def test_a_datagram_that_comes_to_another_one_s_port_is_dropped() -> None:
    plane, tool = fabric()
    bring_up(tool)
    plane.nodes[3].own_port(1).change(lid=40)
    assert tool.by_lid(lid_of(3), c.ATTRIBUTE_NODE_INFO) is None
    assert tool.fate == "drops_wrong_lid"


def test_a_switch_counts_what_it_has_no_port_for() -> None:
    plane, tool = fabric()
    bring_up(tool)
    assert tool.by_lid(60, c.ATTRIBUTE_NODE_INFO) is None
    assert tool.fate == "drops_no_route"
    entrance = plane.nodes[1].port(1)
    assert entrance is not None
    assert entrance.total("rcv_switch_relay_errors") == 1


def test_an_answer_that_its_program_has_no_room_for_is_counted() -> None:
    plane, tool = fabric()
    tool.room = False
    before = plane.counters["drops_full"]
    assert tool.directed([1], c.ATTRIBUTE_NODE_INFO) is None
    assert tool.fate == "drops_full"
    assert plane.counters["drops_full"] == before + 1


def test_an_answer_goes_from_queue_pair_to_queue_pair() -> None:
    plane, tool = fabric()
    bring_up(tool)
    header = MadHeader(
        management_class=c.CLASS_PERF, method=c.METHOD_GET, attribute_id=c.ATTRIBUTE_PORT_COUNTERS
    )
    mad = Mad.make(header, PortCounters(port_select=1).encode()).encode()
    plane.send(tool.endpoint, Datagram(lid_of(3), lid_of(0), 1, 77, mad), 0)
    answer = tool.answers.pop()
    assert (answer.dlid, answer.slid, answer.dqpn, answer.sqpn) == (lid_of(0), lid_of(3), 77, 1)


@pytest.mark.parametrize(("switches", "fate"), [(63, "answered"), (64, "drops_loop")])
def test_a_way_by_lid_has_64_hops_at_most(switches: int, fate: str) -> None:
    plane, tool = fabric(switches)
    for node in plane.nodes[1:-1]:
        node.set_linear(0, bytes([2] * 10 + [1] * (LINEAR_BLOCK - 10)))
        node.set_switch_info(linear_fdb_top=63)
    plane.nodes[-1].own_port(1).change(lid=5)
    tool.endpoint.port.change(lid=20)
    tool.by_lid(5, c.ATTRIBUTE_PORT_INFO, PortInfo().encode())
    assert tool.fate == fate


def test_the_shortest_packet_is_one() -> None:
    packet = bytearray(LEAST_BYTES)
    packet[5] = (LEAST_BYTES - 2) >> 2
    (unit,) = units(memoryview(packet), LEAST_BYTES)
    assert unit is not None
    assert (unit.total, unit.transport) == (1, 0)
    assert list(units(memoryview(packet), LEAST_BYTES - 1)) == [None]
