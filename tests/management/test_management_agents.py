"""Agents: what each attribute and method is answered with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from management_node import PEER, Node, request

from softhca.management import constants as c
from softhca.management.agents import CONFIGURED, ServiceAgent, SubnetManagementAgent
from softhca.management.attributes import ClassPortInfo, NodeInfo, PortInfo
from softhca.management.mad import Mad


def ask(agent: ServiceAgent | SubnetManagementAgent, mad: Mad) -> Mad:
    answer = agent.answer(mad, PEER)
    assert answer is not None
    assert answer.header.method == c.RESPONSE_METHODS.get(mad.header.method, mad.header.method | c.RESPONSE)
    assert answer.header.transaction_id == mad.header.transaction_id
    return answer


@pytest.mark.parametrize(
    ("attribute", "method", "modifier", "status"),
    [
        (c.ATTRIBUTE_NODE_DESCRIPTION, c.METHOD_GET, 0, c.STATUS_OK),
        (c.ATTRIBUTE_NODE_INFO, c.METHOD_GET, 0, c.STATUS_OK),
        (c.ATTRIBUTE_PORT_INFO, c.METHOD_GET, 0, c.STATUS_OK),
        (c.ATTRIBUTE_PORT_INFO, c.METHOD_GET, 1, c.STATUS_OK),
        (c.ATTRIBUTE_PORT_INFO, c.METHOD_GET, 2, c.STATUS_OK),
        (c.ATTRIBUTE_PORT_INFO, c.METHOD_GET, 3, c.STATUS_BAD_VALUE),
        (c.ATTRIBUTE_PORT_INFO, c.METHOD_GET, 0xFFFFFFFF, c.STATUS_BAD_VALUE),
        (c.ATTRIBUTE_PORT_INFO, c.METHOD_GET, c.EXTENDED_SPEEDS_BIT | 1, c.STATUS_OK),
        (c.ATTRIBUTE_PORT_INFO, c.METHOD_SET, 3, c.STATUS_BAD_VALUE),
        (c.ATTRIBUTE_NODE_DESCRIPTION, c.METHOD_SET, 0, c.STATUS_BAD_ATTRIBUTE),
        (c.ATTRIBUTE_NODE_INFO, c.METHOD_SET, 0, c.STATUS_BAD_ATTRIBUTE),
        (0x0016, c.METHOD_GET, 0, c.STATUS_BAD_ATTRIBUTE),
        (0x0000, c.METHOD_GET, 0, c.STATUS_BAD_ATTRIBUTE),
        (0xFFFF, c.METHOD_SET, 0, c.STATUS_BAD_ATTRIBUTE),
    ],
)
def test_a_subnet_management_agent_answers_each_attribute(
    attribute: int, method: int, modifier: int, status: int
) -> None:
    agent = SubnetManagementAgent(c.CLASS_SUBN_LID, Node())
    assert ask(agent, request(attribute, method, modifier=modifier)).header.status == status


def test_a_set_is_answered_as_a_get_is() -> None:
    node = Node()
    agent = SubnetManagementAgent(c.CLASS_SUBN_LID, node)
    data = node.ports[1].encode()
    for method in (c.METHOD_GET, c.METHOD_SET):
        assert ask(agent, request(c.ATTRIBUTE_PORT_INFO, method, data=data)).header.method == 0x81


def test_what_a_subnet_management_agent_tells() -> None:
    node = Node()
    agent = SubnetManagementAgent(c.CLASS_SUBN_LID, node)
    assert ask(agent, request(c.ATTRIBUTE_NODE_DESCRIPTION)).data[:7] == b"a node\0"
    assert NodeInfo.decode(ask(agent, request(c.ATTRIBUTE_NODE_INFO)).data) == node.node_info()
    for number, port in ((0, 1), (1, 1), (2, 2)):
        told = ask(agent, request(c.ATTRIBUTE_PORT_INFO, modifier=number))
        assert PortInfo.decode(told.data) == node.ports[port]


def test_the_last_port_that_a_node_can_have_is_told_as_the_others_are() -> None:
    node = Node()
    node.ports[255] = PortInfo(lid=99, local_port_num=255)
    agent = SubnetManagementAgent(c.CLASS_SUBN_LID, node)
    told = ask(agent, request(c.ATTRIBUTE_PORT_INFO, modifier=255))
    assert (told.header.status, PortInfo.decode(told.data).lid) == (c.STATUS_OK, 99)


def test_a_set_changes_what_a_manager_configures_and_tells_the_new_values() -> None:
    node = Node()
    agent = SubnetManagementAgent(c.CLASS_SUBN_LID, node)
    wanted = {"gid_prefix": 0xFE80 << 48, "lid": 32, "lmc": 2, "sm_lid": 9, "sm_sl": 3, "subnet_timeout": 17}
    assert set(wanted) == set(CONFIGURED)
    asked = replace(node.ports[2], **wanted, state=4, vl_cap=7)
    told = ask(agent, request(c.ATTRIBUTE_PORT_INFO, c.METHOD_SET, modifier=2, data=asked.encode()))
    assert told.header.status == c.STATUS_OK
    expected = replace(asked, vl_cap=0)  # read only
    assert PortInfo.decode(told.data) == node.ports[2] == expected


def test_a_set_with_state_zero_leaves_the_state() -> None:
    node = Node()
    agent = SubnetManagementAgent(c.CLASS_SUBN_LID, node)
    asked = replace(node.ports[1], lid=18, state=0)
    told = ask(agent, request(c.ATTRIBUTE_PORT_INFO, c.METHOD_SET, modifier=1, data=asked.encode()))
    assert PortInfo.decode(told.data).state == 4
    assert node.ports[1].lid == 18


def test_a_set_of_what_cannot_be_changes_nothing() -> None:
    node = Node()
    before = node.ports[1]
    agent = SubnetManagementAgent(c.CLASS_SUBN_LID, node)
    asked = replace(before, lid=0, state=4)
    told = ask(agent, request(c.ATTRIBUTE_PORT_INFO, c.METHOD_SET, data=asked.encode()))
    assert told.header.status == c.STATUS_BAD_VALUE
    assert PortInfo.decode(told.data) == node.ports[1] == before


def test_a_service_agent_has_class_port_info_and_nothing_else() -> None:
    agent = ServiceAgent(c.CLASS_PERF)
    told = ask(agent, request(c.ATTRIBUTE_CLASS_PORT_INFO, management_class=c.CLASS_PERF))
    assert ClassPortInfo.decode(told.data) == ClassPortInfo()
    assert told.header.status == c.STATUS_OK
    for attribute, method in ((0x12, c.METHOD_GET), (c.ATTRIBUTE_CLASS_PORT_INFO, c.METHOD_SET)):
        refused = ask(agent, request(attribute, method, management_class=c.CLASS_PERF))
        assert refused.header.status == c.STATUS_BAD_ATTRIBUTE
