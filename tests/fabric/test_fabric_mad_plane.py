"""Management datagrams across a fabric: directed routes, LID routes, links that fail, programs at ports."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from mad_tools import Tool, bring_up, lid_of, node_info, paths, smp

from softhca.fabric.generators import fat_tree, random_fabric
from softhca.fabric.mad_plane import Datagram, MadPlane
from softhca.fabric.port_state import ARMED, IS_SM, PHYS_DISABLED, PHYS_POLLING
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.management import constants as c
from softhca.management.attributes import PortInfo
from softhca.management.mad import Mad, MadHeader
from softhca.management.subnet_attributes import (
    TRAP_BAD_M_KEY,
    TRAP_CAPABILITY,
    TRAP_LINK_STATE,
    BadMKeyDetails,
    LinkStateDetails,
    Notice,
    SwitchInfo,
)

SECOND_NS = 1_000_000_000
TIMEOUT_NS = 4_096 << 18


def line() -> Topology:
    """host 0 – switch 1 – switch 2 – host 3; host 4 at switch 1."""
    nodes = [make_node(f"n{index}", kind, ports, 0x1000 * (index + 1)) for index, (kind, ports) in enumerate([
        (NodeKind.CHANNEL_ADAPTER, 2), (NodeKind.SWITCH, 4), (NodeKind.SWITCH, 4),
        (NodeKind.CHANNEL_ADAPTER, 1), (NodeKind.CHANNEL_ADAPTER, 1),
    ])]  # fmt: skip
    ends = [((0, 1), (1, 1)), ((1, 2), (2, 1)), ((2, 2), (3, 1)), ((1, 3), (4, 1))]
    return Topology(tuple(nodes), tuple(Link(End(*one), End(*other)) for one, other in ends))


def fabric() -> tuple[MadPlane, Tool]:
    plane = MadPlane(line())
    tool = Tool(plane, (0, 1))
    return plane, tool


@pytest.mark.parametrize(
    "topology",
    [line(), fat_tree(4), random_fabric(9, 2, 4, Random(3))],
    ids=("line", "fat tree", "random"),
)
def test_directed_routes_reach_every_node_and_tell_what_the_topology_says(topology: Topology) -> None:
    start = topology.end_nodes[0]
    tool = Tool(MadPlane(topology), (start, 1))
    for index, path in paths(topology, start).items():
        node = topology.nodes[index]
        info = node_info(tool.directed(path, c.ATTRIBUTE_NODE_INFO))
        assert (info.node_type, info.num_ports, info.node_guid) == (node.kind, node.port_count, node.guid)
        assert info.port_guid == node.port_guid(0 if node.is_switch else info.local_port_num)
        at = index, start
        for port in path:
            at = at[0], topology.peer(at[1], port).node  # type: ignore[union-attr]
        assert at[0] == at[1]
        said = tool.directed(path, c.ATTRIBUTE_NODE_DESCRIPTION)
        assert said is not None
        assert said.data.rstrip(b"\0").decode() == node.description
        for port in range(1, node.port_count + 1):
            linked = topology.link_at(index, port)
            port_info = tool.port_info(path, port)
            assert (port_info.state, port_info.phys_state) == ((1, 2) if linked is None else (2, 5))
            assert port_info.local_port_num == info.local_port_num
    assert tool.plane.counters["drops_route"] == 0


def test_the_return_path_is_what_each_node_has_noted() -> None:
    _, tool = fabric()
    answer = tool.directed([1, 2, 2], c.ATTRIBUTE_NODE_INFO, transaction_id=0xAAAA_BBBB_CCCC_DDDD)
    assert answer is not None
    assert answer.header.status == c.DIRECTION
    assert answer.header.transaction_id == 0xAAAA_BBBB_CCCC_DDDD
    assert answer.header.class_specific == 3  # pointer 0, three hops
    assert answer.body[168:173] == bytes([0, 1, 1, 1, 0])


@pytest.mark.parametrize(
    ("path", "fate"),
    [
        ([2], "drops_route"),  # not the port that it is asked by
        ([1, 0], "drops_route"),
        ([1, 5], "drops_route"),  # a port that the switch has not got
        ([1, 4], "drops_link_down"),  # nothing at it
        ([1, 2, 2, 1], "drops_route"),  # through a host
        ([1] * 64, "drops_route"),  # more hops than there may be
    ],
)
def test_directed_routes_that_lead_nowhere_have_a_name(path: list[int], fate: str) -> None:
    plane, tool = fabric()
    mad = smp(c.CLASS_SUBN_DIRECTED, c.METHOD_GET, c.ATTRIBUTE_NODE_INFO, 0, b"", 0, 1, path[:63], 0xFFFF)
    raw = bytearray(mad.encode())
    raw[7] = len(path)
    before = plane.counters[fate]
    assert plane.send(tool.endpoint, Datagram(0xFFFF, 0xFFFF, 0, 0, bytes(raw)), 0) == fate
    assert plane.counters[fate] == before + 1


def test_every_lid_is_reached_when_the_fabric_is_up() -> None:
    topology = random_fabric(7, 2, 4, Random(5))
    start = topology.end_nodes[3]
    tool = Tool(MadPlane(topology), (start, 1))
    assert tool.by_lid(2, c.ATTRIBUTE_NODE_INFO) is None
    bring_up(tool)
    for index, node in enumerate(topology.nodes):
        assert node_info(tool.by_lid(lid_of(index), c.ATTRIBUTE_NODE_INFO)).node_guid == node.guid
        port = 0 if node.is_switch else 1
        assert tool.counters(lid_of(index), port).port_select == port
    assert tool.by_lid(60, c.ATTRIBUTE_NODE_INFO) is None
    assert tool.fate == "drops_no_route"
    for lid in (0, 0xC000, 0xFFFE):
        tool.by_lid(lid, c.ATTRIBUTE_NODE_INFO)
        assert tool.fate == "drops_no_route", lid


def test_a_route_by_lid_and_then_by_ports() -> None:
    _, tool = fabric()
    bring_up(tool)
    own = tool.endpoint.port.info.lid
    answer = tool.directed([2], c.ATTRIBUTE_NODE_INFO, lid=lid_of(2), slid=own)
    assert node_info(answer).node_guid == 0x4000
    assert tool.directed([1], c.ATTRIBUTE_NODE_INFO, lid=lid_of(3), slid=own) is None
    assert tool.fate == "drops_route"


def test_a_packet_that_goes_in_circles_ends() -> None:
    plane, tool = fabric()
    bring_up(tool)
    for node, port in ((1, 2), (2, 1)):
        plane.nodes[node].linear[40] = port
    assert tool.by_lid(40, c.ATTRIBUTE_NODE_INFO) is None
    assert tool.fate == "drops_loop"


def test_only_active_links_carry_more_than_subnet_management() -> None:
    _, tool = fabric()
    bring_up(tool)
    tool.set_port([1], 2, state=1)  # trains anew: INIT
    assert node_info(tool.by_lid(lid_of(3), c.ATTRIBUTE_NODE_INFO)).node_guid == 0x4000
    assert tool.general(c.METHOD_GET, c.ATTRIBUTE_CLASS_PORT_INFO, b"", lid_of(3)) is None
    assert tool.fate == "drops_link_down"
    for path, port in (([1], 2), ([1, 2], 1)):
        state = PortInfo(state=ARMED).encode()
        tool.directed(path, c.ATTRIBUTE_PORT_INFO, state, method=c.METHOD_SET, modifier=port)
        assert tool.port_info(path, port).state == ARMED
    assert tool.general(c.METHOD_GET, c.ATTRIBUTE_CLASS_PORT_INFO, b"", lid_of(3)) is None
    assert tool.fate == "drops_link_down"


def test_a_link_that_fails_and_comes_back() -> None:
    plane, tool = fabric()
    bring_up(tool)
    assert plane.fail(1, 0)
    assert not plane.fail(1, 0)
    assert plane.is_failed(1)
    assert (tool.port_info([1], 2).state, tool.port_info([1], 2).phys_state) == (1, 2)
    assert tool.directed([1, 2], c.ATTRIBUTE_NODE_INFO) is None
    assert tool.fate == "drops_link_down"
    assert tool.counters(lid_of(1), 2).link_downed == 1
    assert tool.counters(lid_of(1), 2).xmit_discards == 1
    assert plane.restore(1, 0)
    assert not plane.restore(1, 0)
    assert tool.port_info([1], 2).state == tool.port_info([1, 2], 1).state == 2
    assert tool.counters(lid_of(1), 2, clear=1 << 2).link_downed == 0
    assert tool.counters(lid_of(1), 2).xmit_discards == 1
    assert tool.counters(lid_of(1), 0xFF).xmit_discards == 1


def test_a_disabled_port_stays_down_until_it_is_enabled() -> None:
    _, tool = fabric()
    tool.set_port([1], 2, state=1, phys_state=3)
    assert (tool.port_info([1], 2).state, tool.port_info([1], 2).phys_state) == (1, 3)
    assert tool.directed([1, 2], c.ATTRIBUTE_NODE_INFO) is None
    tool.set_port([1], 2, state=1)
    assert tool.port_info([1], 2).phys_state == 3
    tool.set_port([1], 2, phys_state=2)
    assert (tool.port_info([1], 2).state, tool.port_info([1], 2).phys_state) == (2, 5)


# traps


def traps(tool: Tool, now: int) -> list[Notice]:
    tool.plane.expire(now)
    found = [Mad.decode(each.data) for each in tool.answers]
    tool.answers.clear()
    assert all(mad.header.method == c.METHOD_TRAP for mad in found)
    return [Notice.decode(mad.data) for mad in found]


def repress(tool: Tool, lid: int, transaction_id: int) -> None:
    method, attribute = c.METHOD_TRAP_REPRESS, c.ATTRIBUTE_NOTICE
    tool.send(smp(c.CLASS_SUBN_LID, method, attribute, 0, b"", 0, transaction_id, [], 0), lid)


def manage(tool: Tool) -> None:
    """The tool is the manager, and has heard that it is."""
    tool.plane.set_manager(tool.endpoint, True, 0)
    tool.plane.expire(0)
    for each in list(tool.answers):
        repress(tool, each.slid, Mad.decode(each.data).header.transaction_id)
    tool.answers.clear()


def test_a_link_that_fails_is_told_to_the_manager_until_it_represses() -> None:
    plane, tool = fabric()
    bring_up(tool)
    manage(tool)
    plane.fail(2, 10 * SECOND_NS)
    plane.expire(10 * SECOND_NS)
    first = Mad.decode(tool.answers.pop().data)
    notice = Notice.decode(first.data)
    assert (notice.trap_number, notice.issuer_lid) == (TRAP_LINK_STATE, lid_of(2))
    assert LinkStateDetails.decode(notice.data_details).lid == lid_of(2)
    assert traps(tool, 10 * SECOND_NS + TIMEOUT_NS - 1) == []
    again = traps(tool, 10 * SECOND_NS + TIMEOUT_NS)
    assert [each.trap_number for each in again] == [TRAP_LINK_STATE]
    repress(tool, lid_of(2), first.header.transaction_id + 1)
    assert len(traps(tool, 20 * SECOND_NS)) == 1
    repress(tool, lid_of(2), first.header.transaction_id)
    assert traps(tool, 30 * SECOND_NS) == []
    info = tool.directed([1, 2], c.ATTRIBUTE_SWITCH_INFO)
    assert info is not None
    assert SwitchInfo.decode(info.data).port_state_change == 1
    clear = SwitchInfo.decode(info.data).encode()
    tool.directed([1, 2], c.ATTRIBUTE_SWITCH_INFO, clear, method=c.METHOD_SET)
    info = tool.directed([1, 2], c.ATTRIBUTE_SWITCH_INFO)
    assert info is not None
    assert SwitchInfo.decode(info.data).port_state_change == 0


def test_a_link_that_flaps_sends_no_more_than_one_trap_in_each_timeout() -> None:
    plane, tool = fabric()
    bring_up(tool)
    manage(tool)
    sent = 0
    for step in range(100):
        now = 10 * SECOND_NS + step * TIMEOUT_NS // 20
        (plane.restore if step % 2 else plane.fail)(2, now)
        plane.expire(now)
        for each in tool.answers:
            sent += 1
            repress(tool, lid_of(2), Mad.decode(each.data).header.transaction_id)
        tool.answers.clear()
    assert 4 <= sent <= 6


def test_a_trap_that_nobody_represses_ends_at_last() -> None:
    plane, tool = fabric()
    bring_up(tool)
    manage(tool)
    plane.fail(2, 0)
    for _ in range(100):
        plane.expire(plane.next_deadline_ns)
    assert len(tool.answers) == 16
    assert plane.next_deadline_ns == (1 << 64) - 1


def test_a_trap_is_sent_while_there_is_a_manager() -> None:
    plane, tool = fabric()
    bring_up(tool)
    manage(tool)
    plane.fail(2, 10 * SECOND_NS)
    assert len(traps(tool, 10 * SECOND_NS)) == 1
    plane.nodes[2].own_port(0).change(sm_lid=0)
    before = dict(plane.counters)
    plane.expire(plane.next_deadline_ns)
    assert plane.counters == before  # it went nowhere, and is forgotten
    assert plane.next_deadline_ns == (1 << 64) - 1


def test_a_trap_tells_how_often_up_to_what_its_field_holds() -> None:
    plane, tool = fabric()
    bring_up(tool)
    manage(tool)
    plane.fail(2, 10 * SECOND_NS)
    (waiting,) = plane.notices._pending.values()
    waiting.notice = replace(waiting.notice, notice_count=0x7FFE)
    for count in (0x7FFF, 0x7FFF):
        plane.notices.raise_link_state(plane.nodes[2], 10 * SECOND_NS)
        assert waiting.notice.notice_count == count
    assert [each.notice_count for each in traps(tool, 10 * SECOND_NS)] == [0x7FFF]


def test_a_notice_that_nobody_has_heard_is_not_repressed_and_each_node_has_its_own() -> None:
    plane, tool = fabric()
    bring_up(tool)
    manage(tool)
    plane.fail(2, 10 * SECOND_NS)
    (waiting,) = plane.notices._pending.values()
    repress(tool, lid_of(2), waiting.transaction_id)  # before it was sent
    assert len(traps(tool, 10 * SECOND_NS)) == 1
    repress(tool, lid_of(1), waiting.transaction_id)  # at another node
    assert len(traps(tool, 10 * SECOND_NS + TIMEOUT_NS)) == 1
    repress(tool, lid_of(2), waiting.transaction_id)
    assert traps(tool, 20 * SECOND_NS) == []


def test_a_manager_that_comes_is_told_by_its_port() -> None:
    plane, tool = fabric()
    bring_up(tool)
    other = Tool(plane, (3, 1))
    manage(tool)
    plane.set_manager(other.endpoint, True, SECOND_NS)
    assert tool.port_info([1, 2, 2]).capability_mask & 2
    assert [each.trap_number for each in traps(tool, 3 * SECOND_NS)] == [TRAP_CAPABILITY]
    plane.detach(other.endpoint, 4 * SECOND_NS)
    assert not tool.port_info([1, 2, 2]).capability_mask & 2


# M_Keys


@pytest.mark.parametrize(
    ("bits", "get", "shown"), [(0, True, 0x77), (1, True, 0), (2, False, 0), (3, False, 0)]
)
def test_an_m_key_protects_a_node(bits: int, get: bool, shown: int) -> None:
    plane, tool = fabric()
    bring_up(tool)
    facts = {"lid": lid_of(1), "sm_lid": lid_of(0), "m_key": 0x77, "m_key_protect_bits": bits}
    tool.set_port([1], **facts)
    answer = tool.directed([1], c.ATTRIBUTE_PORT_INFO)
    assert (answer is not None) == get
    if answer is not None:
        assert PortInfo.decode(answer.data).m_key == shown
    assert tool.set_port([1], key=0x78, **facts) is None
    assert tool.fate == "taken"
    with_key = tool.directed([1], c.ATTRIBUTE_PORT_INFO, m_key=0x77)
    assert with_key is not None
    info = PortInfo.decode(with_key.data)
    assert (info.m_key, info.m_key_violations) == (0x77, 1 if get else 2)
    assert plane.counters["drops_m_key"] == info.m_key_violations


def test_who_comes_with_a_wrong_m_key_is_told_to_the_manager() -> None:
    plane, tool = fabric()
    bring_up(tool)
    manage(tool)
    facts = {"lid": lid_of(1), "sm_lid": lid_of(0), "subnet_timeout": 18, "m_key_protect_bits": 1}
    tool.directed([1], c.ATTRIBUTE_PORT_INFO, PortInfo(m_key=0x77, **facts).encode(), method=c.METHOD_SET)
    stranger = Tool(plane, (4, 1))
    stranger.now = 5 * SECOND_NS
    for _ in range(3):
        stranger.set_port([1], key=0x99)
    (notice,) = traps(tool, 5 * SECOND_NS)
    assert notice.trap_number == TRAP_BAD_M_KEY
    details = BadMKeyDetails.decode(notice.data_details)
    assert (details.lid, details.m_key, details.attribute_id) == (lid_of(1), 0x99, c.ATTRIBUTE_PORT_INFO)
    assert (details.dr_notice, details.dr_hop_count, details.dr_return_path[0]) == (1, 1, 3)
    assert notice.notice_count == 2


def test_the_protection_ends_with_the_lease() -> None:
    _, tool = fabric()
    facts = {"m_key_protect_bits": 2, "m_key_lease_period": 3, "subnet_timeout": 18}
    tool.directed([1], c.ATTRIBUTE_PORT_INFO, PortInfo(m_key=0x77, **facts).encode(), method=c.METHOD_SET)
    assert tool.directed([1], c.ATTRIBUTE_NODE_INFO) is None
    tool.now = 3 * SECOND_NS - 1
    assert tool.directed([1], c.ATTRIBUTE_NODE_INFO) is None
    tool.now = 3 * SECOND_NS
    assert tool.directed([1], c.ATTRIBUTE_NODE_INFO) is not None
    assert tool.port_info([1]).m_key_protect_bits == 0


def test_a_manager_that_has_its_key_begins_the_lease_anew() -> None:
    _, tool = fabric()
    facts = {"m_key_protect_bits": 2, "m_key_lease_period": 3, "subnet_timeout": 18}
    tool.directed([1], c.ATTRIBUTE_PORT_INFO, PortInfo(m_key=0x77, **facts).encode(), method=c.METHOD_SET)
    for second, key, answered in ((0, 0, False), (2, 0x77, True), (4, 0, False), (6, 0, False), (7, 0, True)):
        tool.now = second * SECOND_NS
        answer = tool.directed([1], c.ATTRIBUTE_NODE_INFO, m_key=key)
        assert (answer is not None) == answered, second


# programs


def test_a_manager_gets_what_is_for_managers_and_its_answer_comes_back() -> None:
    plane, tool = fabric()
    bring_up(tool)
    manager, first, second = Tool(plane, (3, 1)), Tool(plane, (0, 1)), Tool(plane, (0, 1))
    assert first.general(c.METHOD_GET, 0x11, b"", lid_of(3), c.CLASS_SUBN_ADM) is None
    assert first.fate == "drops_unclaimed"
    plane.set_manager(manager.endpoint, True, 0)
    for asking in (first, second):
        asking.general(c.METHOD_GET, 0x11, b"", lid_of(3), c.CLASS_SUBN_ADM)
        assert asking.fate == "delivered"
    asked = [manager.answers.popleft(), manager.answers.popleft()]
    assert {each.slid for each in asked} == {lid_of(0)}
    for each, asking in zip(reversed(asked), (second, first), strict=True):
        request = Mad.decode(each.data)
        manager.send(request.response(0, bytes([asking.endpoint.number])), each.slid, 1)
        answer = Mad.decode(asking.answers.pop().data)
        assert answer.data[0] == asking.endpoint.number
        assert answer.header.transaction_id == 9
    assert not first.answers
    assert not second.answers


def test_a_response_that_nobody_asked_for_is_dropped() -> None:
    plane, tool = fabric()
    bring_up(tool)
    victim, forger = Tool(plane, (3, 1)), Tool(plane, (4, 1))
    header = MadHeader(management_class=c.CLASS_SUBN_ADM, method=0x81, transaction_id=1)
    forger.send(Mad.make(header), lid_of(3), 1)
    assert forger.fate == "drops_unclaimed"
    high = victim.endpoint.number << 48
    forger.send(Mad.make(MadHeader(management_class=3, method=0x81, transaction_id=high)), lid_of(0), 1)
    assert forger.fate == "drops_unclaimed"
    assert not victim.answers


def test_a_server_is_a_program_that_has_asked_nothing() -> None:
    plane, tool = fabric()
    bring_up(tool)
    busy, server = Tool(plane, (3, 1)), Tool(plane, (3, 1))
    busy.directed([], c.ATTRIBUTE_NODE_INFO)
    tool.general(c.METHOD_GET, 0, b"", lid_of(3), 0x32)
    assert (len(busy.answers), len(server.answers)) == (0, 1)
    server.room = False
    tool.general(c.METHOD_GET, 0, b"", lid_of(3), 0x32)
    assert tool.fate == "drops_full"


def test_where_programs_can_be() -> None:
    plane, _ = fabric()
    for end in ((0, 0), (0, 3), (1, 1), (9, 1), (-1, 1)):
        with pytest.raises(ValueError, match="no program"):
            Tool(plane, end)
    assert node_info(Tool(plane, (1, 0)).directed([2], c.ATTRIBUTE_NODE_INFO)).node_guid == 0x3000


def test_an_adapter_gets_what_no_other_program_at_its_port_takes() -> None:
    plane, tool = fabric()
    bring_up(tool)
    adapter, server = Tool(plane, (3, 1)), Tool(plane, (3, 1))
    adapter.endpoint.is_adapter = True
    for heard in ((0, 1), (1, 1)):
        tool.general(c.METHOD_GET, 0, b"", lid_of(3), 0x32)
        assert (len(adapter.answers), len(server.answers)) == heard
        server.directed([], c.ATTRIBUTE_NODE_INFO)  # it is no server from now on


def test_numbers_of_programs_are_given_once() -> None:
    plane, tool = fabric()
    assert tool.endpoint.number == 1
    plane._next_number = 0xFFFF
    assert [Tool(plane, (3, 1)).endpoint.number for _ in range(3)] == [0xFFFF, 2, 3]


def test_a_port_is_a_manager_s_until_the_last_one_there_has_gone() -> None:
    plane = MadPlane(line())
    managers = [plane.attach(End(0, 1), lambda datagram: True) for _ in range(2)]
    port = managers[0].port
    for each in managers:
        plane.set_manager(each, True, 0)
    plane.detach(managers[0], 0)
    assert port.info.capability_mask & IS_SM
    plane.set_manager(managers[1], False, 0)
    assert not port.info.capability_mask & IS_SM


def test_whoever_keeps_ways_hears_of_links_and_of_sets() -> None:
    plane, tool = fabric()
    before = plane.epoch
    assert plane.fail(2, 0)
    assert plane.epoch > before
    before = plane.epoch
    assert plane.restore(2, 0)
    assert plane.epoch > before
    before = plane.epoch
    assert tool.port_info([1]) is not None
    assert plane.epoch == before
    tool.set_port([], 1, lid=9)
    assert plane.epoch > before


def test_a_link_that_is_down_is_not_lost_once_more() -> None:
    plane = MadPlane(line())
    here, there = plane.nodes[1].ports[2], plane.nodes[2].ports[1]
    assert here is not None
    assert there is not None
    there.disabled = True
    plane._retrain(plane.nodes[1], here)
    assert (here.info.phys_state, there.info.phys_state) == (PHYS_POLLING, PHYS_DISABLED)
    assert plane.fail(1, 0)
    assert [each.counts.get("link_downed", 0) for each in (here, there)] == [0, 0]
    there.disabled = False
    assert plane.restore(1, 0)
    assert plane.fail(1, 0)
    assert [each.counts.get("link_downed", 0) for each in (here, there)] == [1, 1]
