"""How identifiers of RDMA CM end: the time-wait behind a connection, and adapters that go away."""

import errno
import os
import select
import signal
import threading

import pytest
from cm_identifiers import PORT, TCP, code_of, connected, expect, init_attr, listening, routed

from machine_speed import limit_s
from softhca.driver import registry
from softhca.driver.rdmacm.identifier import DEVICES
from softhca.runtime import devices
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel
from softhca.verbs.pyverbs_error import PyverbsRDMAError

REMOVAL, TIMEWAIT_EXIT = ce.RDMA_CM_EVENT_DEVICE_REMOVAL, ce.RDMA_CM_EVENT_TIMEWAIT_EXIT


def added(names, mode, loopback_address, options=""):
    registry.names()
    found = {name: loopback_address() for name in names}
    for name, address in found.items():
        devices.add(f"{name}=udp:{address}{options}", mode)
    return found


@pytest.fixture(params=["embedded", "process"])
def here(request, loopback_address, monkeypatch):
    """The address of the one device of this process."""
    monkeypatch.setenv("SOFTHCA_FAULTS", "")
    yield added(["cmid0"], request.param, loopback_address)["cmid0"]
    devices.remove("cmid0")


@pytest.fixture
def places(loopback_address, monkeypatch):
    """Addresses of the two devices of this process, whose adapters are processes of their own, by name."""
    found = added(["cmid0", "cmid1"], "process", loopback_address, "?same_host=0")
    monkeypatch.setattr(DEVICES, "_names", lambda: list(found))
    yield found
    for name in found:
        devices.remove(name)


def kill(name):
    os.kill(devices.find(name).process.pid, signal.SIGKILL)


def bound(channel, address, closing, port="0"):
    cmid = closing(CMID(creator=channel))
    cmid.bind_addr(AddrInfo(src=address, src_service=port, flags=ce.RAI_PASSIVE))
    return cmid


def removals(channel, count):
    """The identifiers that are told next that their device has gone."""
    return {expect(channel, REMOVAL).event.identifier for _ in range(count)}


# the time-wait


def test_both_sides_are_told_when_the_time_wait_is_over(here, closing, monkeypatch):
    monkeypatch.setattr("softhca.driver.rdmacm.connecting.ACK_TIMEOUT", 8)  # 1 ms
    active, passive, _ = connected(here, here, closing)
    passive.disconnect()
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    active.disconnect()
    assert expect(active.event_channel, TIMEWAIT_EXIT).event.identifier is active._id
    expect(passive.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    event = expect(passive.event_channel, TIMEWAIT_EXIT)
    assert (event.status, event.private_data) == (0, b"")
    for each in (active, passive):
        each.disconnect()  # nothing happens
        assert each.event_channel.channel.next_event(0) is None


def test_a_connection_that_was_rejected_has_no_time_wait(here, closing, monkeypatch):
    monkeypatch.setattr("softhca.driver.rdmacm.connecting.ACK_TIMEOUT", 0)
    channel = closing(CMEventChannel())
    active = routed(channel, here, here, closing)
    active.create_qp(init_attr())
    active.connect()
    expect(channel, ce.RDMA_CM_EVENT_REJECTED)
    assert channel.channel.next_event(0) is None


def test_the_queue_pair_may_be_used_again_when_the_time_wait_is_over(here, closing, monkeypatch):
    monkeypatch.setattr("softhca.driver.rdmacm.connecting.ACK_TIMEOUT", 0)
    active, passive, _ = connected(here, here, closing)
    passive.disconnect()
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    active.disconnect()
    qp = active._qp
    qp.modify(*_to(e.IBV_QPS_RESET))
    expect(active.event_channel, TIMEWAIT_EXIT)
    assert active.query_qp(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_RESET, "it is the program's"


def _to(state):
    from softhca.verbs.qp import QPAttr

    return QPAttr(qp_state=state), e.IBV_QP_STATE


# the device goes


@pytest.mark.parametrize("watched", [False, True], ids=["waiting", "descriptor"])
def test_each_identifier_of_an_adapter_that_dies_is_told(places, closing, watched):
    channel = closing(CMEventChannel())
    here = places["cmid0"]
    active, passive, _ = connected(here, here, closing)
    ended = routed(channel, here, here, closing, port="9")
    other = bound(channel, here, closing)
    unbound = closing(CMID(creator=channel))
    if watched:
        for each in (channel, active.event_channel):
            assert select.select([each.fd], [], [], 0)[0] == []
    kill("cmid0")
    if watched:
        for each in (channel, active.event_channel):
            assert select.select([each.fd], [], [], limit_s(60))[0] == [each.fd]
    assert removals(channel, 2) == {ended._id, other._id}
    assert removals(active.event_channel, 1) == {active._id}
    passive_channel = passive.event_channel
    assert len(removals(passive_channel, 2)) == 2  # and the listener
    for each in (channel, passive_channel):
        assert code_of(CMEvent, each) == errno.EIO, "nothing more can happen"
    active.disconnect()
    assert code_of(ended.connect) == errno.EINVAL
    assert code_of(active.resolve_route) == errno.EINVAL
    unbound.bind_addr(AddrInfo(src=here, flags=ce.RAI_PASSIVE))  # which opens the device anew
    assert unbound.dev_name == "cmid0"


def test_who_waits_is_told_of_the_device_that_dies_and_hears_of_the_other(places, closing):
    channel = closing(CMEventChannel())
    first, second = (bound(channel, address, closing) for address in places.values())
    everywhere = closing(CMID(creator=channel))
    everywhere.bind_addr(AddrInfo(src=None, src_service=PORT, port_space=TCP, flags=ce.RAI_PASSIVE))
    everywhere.listen()
    told = []
    waiter = threading.Thread(target=lambda: told.append(CMEvent(channel)))
    waiter.start()
    kill("cmid0")
    waiter.join(limit_s(60))
    assert [(each.event_type, each.event.identifier) for each in told] == [(REMOVAL, first._id)]
    active = routed(closing(CMEventChannel()), places["cmid1"], places["cmid1"], closing)
    active.create_qp(init_attr())
    active.connect()
    asked = expect(channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    assert asked.event.listener is everywhere._id
    kill("cmid1")
    assert removals(channel, 3) == {second._id, everywhere._id, asked.event.identifier}
    asked.event.identifier.close()


def test_a_request_that_was_not_taken_before_is_told_too(places, closing):
    channel = closing(CMEventChannel())
    listening(channel, places["cmid1"], closing)
    active = routed(closing(CMEventChannel()), places["cmid0"], places["cmid1"], closing)
    active.create_qp(init_attr())
    active.connect()
    select.select([channel.fd], [], [], limit_s(60))
    kill("cmid1")
    wanted = {ce.RDMA_CM_EVENT_CONNECT_REQUEST: 1, REMOVAL: 2}
    asked = None
    while wanted:
        event = CMEvent(channel)
        wanted[event.event_type] -= 1
        wanted = {kind: left for kind, left in wanted.items() if left}
        asked = asked or (event.event.connection and event)
    asked.ack_cm_event()


def test_synchronous_calls_end_when_the_device_goes(places, closing):
    here = places["cmid0"]
    info = {"port_space": TCP, "src_service": PORT, "flags": ce.RAI_PASSIVE}
    listener = closing(CMID(creator=AddrInfo(src=here, **info), qp_init_attr=init_attr()))
    listener.listen()
    asking = AddrInfo(src=here, dst=here, dst_service=PORT, port_space=TCP)
    active = closing(CMID(creator=asking, qp_init_attr=init_attr()))
    codes = []

    def refused(call):
        try:
            call()
        except PyverbsRDMAError as error:
            codes.append(error.error_code)

    connecting = threading.Thread(target=refused, args=(active.connect,))
    connecting.start()
    passive = closing(listener.get_request())
    waiting = threading.Thread(target=refused, args=(listener.get_request,))
    waiting.start()
    kill("cmid0")
    for each in (connecting, waiting):
        each.join(limit_s(60))
    assert codes == [errno.ENODEV] * 2
    assert code_of(listener.get_request) == errno.EIO
    assert code_of(passive.accept) == errno.EIO


def test_an_identifier_that_moves_takes_its_listening_along(places, closing):
    first, second = closing(CMEventChannel()), closing(CMEventChannel())
    everywhere = closing(CMID(creator=first))
    everywhere.bind_addr(AddrInfo(src=None, src_service=PORT, port_space=TCP, flags=ce.RAI_PASSIVE))
    everywhere.listen()
    everywhere.migrate(second)
    for name in places:
        kill(name)
    assert removals(second, 1) == {everywhere._id}
