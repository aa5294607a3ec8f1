"""Identifiers of RDMA CM that tests make, listening, with a route, connected, and devices for them."""

import contextlib

import pytest

from softhca.driver import registry
from softhca.runtime import devices
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QPCap, QPInitAttr

TCP, UDP = ce.RDMA_PS_TCP, ce.RDMA_PS_UDP
PORT = "7471"
SIZE = 256
GRH = 40


@contextlib.contextmanager
def devices_at(addresses, mode, options=""):
    """Devices of this process at these addresses, whose adapters live as ``mode`` says."""
    registry.names()
    for number, address in enumerate(addresses):
        devices.add(f"cmid{number}=udp:{address}{options}", mode)
    yield addresses
    for number in range(len(addresses)):
        devices.remove(f"cmid{number}")


def code_of(call, *arguments, **options):
    with pytest.raises(PyverbsRDMAError) as refused:
        call(*arguments, **options)
    return refused.value.error_code


def expect(channel, kind):
    """The next event, which must be of this kind."""
    event = CMEvent(channel)
    assert event.event_type == kind, event.event_str()
    return event


def init_attr(space=TCP, **options):
    return QPInitAttr(e.IBV_QPT_RC if space == TCP else e.IBV_QPT_UD, cap=QPCap(max_recv_wr=4), **options)


def listening(channel, address, closing, space=TCP, port=PORT):
    listener = closing(CMID(creator=channel, port_space=space))
    listener.bind_addr(AddrInfo(src=address, src_service=port, port_space=space, flags=ce.RAI_PASSIVE))
    listener.listen()
    return listener


def routed(channel, source, destination, closing, space=TCP, port=PORT):
    active = closing(CMID(creator=channel, port_space=space))
    active.resolve_addr(AddrInfo(src=source, dst=destination, dst_service=port, port_space=space))
    expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
    active.resolve_route()
    expect(channel, ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
    return active


def connected(left, right, closing, space=TCP):
    """Two identifiers on channels of their own, with queue pairs, and the events of their establishment."""
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, right, closing, space)
    active = routed(active_channel, left, right, closing, space)
    active.create_qp(init_attr(space))
    active.connect(ConnParam())
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=asked, listen_id=listener))
    passive.create_qp(init_attr(space))
    passive.accept(ConnParam())
    established = expect(active_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    if space == TCP:
        expect(passive_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    return active, passive, established
