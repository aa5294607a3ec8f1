"""The control commands of reliable datagram domains and end-to-end contexts (IBTA vol. 1, 10.2.6 and 10.2.7).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.queue_pair_commands import modify_connection
from softhca.adapter.resources import Kind, Resource
from softhca.queues import qp_attributes
from softhca.transport.ee_context import EndToEndContext, RdDomain
from softhca.transport.services import SERVICES
from softhca.transport.states import RD, RD_EEC

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

Fields = dict[str, Any]


def alloc_rdd(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """ALLOC_RDD: a reliable datagram domain."""
    if RD not in adapter.config.profile.services:
        raise OSError(
            errno.EOPNOTSUPP, f"max_rdd = 0: this {adapter.config.profile} has no reliable datagrams"
        )
    number = adapter.resources.reserve(Kind.RDD)
    adapter.resources.add(Kind.RDD, number, host.number, RdDomain(number))
    return {"rdd": number}


def dealloc_rdd(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """DEALLOC_RDD; EBUSY while queue pairs or end-to-end contexts are in it."""
    adapter.resources.remove(adapter.resources.find(Kind.RDD, fields["rdd"], host.number))
    return {}


def create_ee(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """CREATE_EE: an end-to-end context in RESET."""
    domain = adapter.resources.find(Kind.RDD, fields["rdd"], host.number)
    number = adapter.resources.reserve(Kind.EEC)
    ee = EndToEndContext(adapter, number, SERVICES[RD_EEC], domain.element)
    adapter.keyed.add(ee)
    adapter.ee_contexts[number] = ee
    adapter.resources.add(Kind.EEC, number, host.number, ee, (domain,))
    return {"ee_num": number}


def modify_ee(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """MODIFY_EE: the attributes of the mask, all or none."""
    ee = adapter.resources.find(Kind.EEC, fields["ee_num"], host.number).element
    attributes = qp_attributes.unpack(fields["attr_mask"], fields)
    port = adapter.port_of(attributes.get("port_num", ee.port_number))
    modify_connection(adapter, port, ee, attributes, now)
    return {}


def query_ee(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """QUERY_EE: all attributes."""
    ee = adapter.resources.find(Kind.EEC, fields["ee_num"], host.number).element
    found = ee.query()
    return qp_attributes.flatten({name: found[name] for name in found if name not in _SERVED})


_SERVED = ("qp_access_flags", "min_rnr_timer", "qkey")
"""Attributes that are not the context's own, but those of the queue pair that it served last."""


def destroy_ee(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    """DESTROY_EE: messages that queue pairs have given to it end with "invalid EE context state"."""
    destroy(adapter, adapter.resources.find(Kind.EEC, fields["ee_num"], host.number))
    return {}


def destroy(adapter: Adapter, resource: Resource) -> None:
    """Free an end-to-end context."""
    ee = resource.element
    adapter.resources.remove(resource)
    adapter.keyed.forget(ee)
    del adapter.ee_contexts[ee.ee_number]
    ee.close()
    adapter.timers.disarm(ee.flow)
    adapter.memory_waiters.remove(ee.flow)
