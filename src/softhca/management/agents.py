"""Agents: what answers requests of one management class at a port.

An agent sees requests of its class, version and methods alone; who asks for anything else is answered by the
dispatcher.  A request that an agent has not got the attribute of, or whose values cannot be, is answered
with the standard's status (IBTA vol. 1, 13.4.7), never with an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from softhca.management.attributes import ClassPortInfo, NodeInfo, PortInfo, node_description
from softhca.management.constants import (
    ATTRIBUTE_CLASS_PORT_INFO,
    ATTRIBUTE_NODE_DESCRIPTION,
    ATTRIBUTE_NODE_INFO,
    ATTRIBUTE_PORT_INFO,
    EXTENDED_SPEEDS_BIT,
    METHOD_GET,
    METHOD_SET,
    STATUS_BAD_ATTRIBUTE,
    STATUS_BAD_VALUE,
    STATUS_OK,
)
from softhca.management.mad import Address, Mad


class Agent:
    """What answers requests of a class.  ``methods`` are those that it takes, without the R bit."""

    def __init__(self, management_class: int, methods: frozenset[int], class_version: int = 1) -> None:
        self.management_class = management_class
        self.class_version = class_version
        self.methods = methods

    def answer(self, request: Mad, source: Address) -> Mad | None:
        """The response to a request, or None: none is due."""
        raise NotImplementedError


class ServiceAgent(Agent):
    """What a class has at every port: its ClassPortInfo (13.4.8.1).  Subclasses have more attributes."""

    def __init__(self, management_class: int, class_version: int = 1) -> None:
        super().__init__(management_class, frozenset({METHOD_GET, METHOD_SET}), class_version)

    def answer(self, request: Mad, source: Address) -> Mad | None:
        """ClassPortInfo; for anything else the status says that there is no such attribute."""
        header = request.header
        if header.method != METHOD_GET or header.attribute_id != ATTRIBUTE_CLASS_PORT_INFO:
            return request.response(STATUS_BAD_ATTRIBUTE)
        return request.response(STATUS_OK, ClassPortInfo(class_version=self.class_version))


class ManagedNode(Protocol):
    """The node that a subnet management agent speaks for."""

    @property
    def description(self) -> str:
        """Its name, for people."""

    def node_info(self) -> NodeInfo:
        """What it is, asked by the agent's port."""

    def port_info(self, port_number: int) -> PortInfo | None:
        """A port as it is now; 0 is the agent's own.  None: there is none of this number."""

    def set_port_info(self, port_number: int, values: Mapping[str, int]) -> None:
        """Configure a port: ``lid lmc sm_lid sm_sl subnet_timeout gid_prefix state``, those that are given.
        ValueError, and no change, for what cannot be.
        """


NO_STATE_CHANGE = 0
"""The port state with which a Set leaves it as it is (14.2.5.6)."""

CONFIGURED = ("gid_prefix", "lid", "lmc", "sm_lid", "sm_sl", "subnet_timeout")
"""The fields of PortInfo that a Set changes, besides the state.  The others are read only here."""


class SubnetManagementAgent(Agent):
    """Queue pair 0's agent: NodeDescription, NodeInfo and PortInfo of a channel adapter (14.2.5).

    It keeps no M_Key: every subnet manager may configure the port.
    """

    def __init__(self, management_class: int, node: ManagedNode) -> None:
        super().__init__(management_class, frozenset({METHOD_GET, METHOD_SET}))
        self._node = node

    def answer(self, request: Mad, source: Address) -> Mad | None:
        """The attribute as it is now, after a Set too."""
        header = request.header
        if header.attribute_id == ATTRIBUTE_PORT_INFO:
            return self._port_info(request)
        if header.method != METHOD_GET:
            return request.response(STATUS_BAD_ATTRIBUTE)
        if header.attribute_id == ATTRIBUTE_NODE_DESCRIPTION:
            return request.response(STATUS_OK, node_description(self._node.description))
        if header.attribute_id == ATTRIBUTE_NODE_INFO:
            return request.response(STATUS_OK, self._node.node_info())
        return request.response(STATUS_BAD_ATTRIBUTE)

    def _port_info(self, request: Mad) -> Mad:
        number = request.header.attribute_modifier & ~EXTENDED_SPEEDS_BIT
        before = self._node.port_info(number) if number <= 0xFF else None
        if before is None:
            return request.response(STATUS_BAD_VALUE)
        status = STATUS_OK
        if request.header.method == METHOD_SET:
            asked = PortInfo.decode(request.data)
            values = {name: getattr(asked, name) for name in CONFIGURED}
            if asked.state != NO_STATE_CHANGE:
                values["state"] = asked.state
            try:
                self._node.set_port_info(number, values)
            except ValueError:
                status = STATUS_BAD_VALUE
        return request.response(status, self._node.port_info(number) or before)
