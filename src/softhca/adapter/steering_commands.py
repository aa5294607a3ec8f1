"""The control commands of flow steering (see ``commands.py``): rules by which raw packet queue pairs receive.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.resources import Kind, Resource
from softhca.adapter.steering import Rule
from softhca.transport.states import FRAMES

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host


def create_flow(adapter: Adapter, host: Host, fields: dict[str, Any], now: int) -> Mapping[str, Any]:
    """CREATE_FLOW: a rule on a port for a queue pair, which cannot go before it."""
    resource = adapter.resources.find(Kind.QP, fields["qp_num"], host.number)
    queue_pair = resource.element
    if queue_pair.service != FRAMES:
        raise OSError(errno.EINVAL, "qp_num: only raw packet queue pairs of Ethernet ports have rules")
    port = adapter.port_of(fields["port_num"])
    rule = Rule(
        queue_pair, port.number, fields["type"], fields["priority"], fields["value"], fields["mask"]
    )
    number = adapter.resources.reserve(Kind.FLOW)
    port.segment.open()
    port.segment.steering.add(rule)
    adapter.resources.add(Kind.FLOW, number, host.number, rule, (resource,))
    return {"flow": number}


def destroy_flow(adapter: Adapter, host: Host, fields: dict[str, Any], now: int) -> Mapping[str, Any]:
    """DESTROY_FLOW: nothing comes by it any more."""
    destroy(adapter, adapter.resources.find(Kind.FLOW, fields["flow"], host.number))
    return {}


def destroy(adapter: Adapter, resource: Resource) -> None:
    """End a rule."""
    rule = resource.element
    adapter.resources.remove(resource)
    adapter.port_of(rule.port_number).segment.steering.remove(rule)
