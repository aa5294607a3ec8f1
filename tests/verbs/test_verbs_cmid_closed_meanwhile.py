"""RDMA CM: an identifier that another thread closes in the middle of a step."""

import errno

import pytest
from cm_identifiers import connected, expect, init_attr, listening, routed

from softhca.driver import registry
from softhca.driver.rdmacm import queue_pairs
from softhca.queues.states import RTR, RTS
from softhca.runtime import devices
from softhca.verbs import cm_enums as ce
from softhca.verbs.cmid import CMID, CMEvent, CMEventChannel, ConnParam
from softhca.verbs.mr import MR
from softhca.verbs.pyverbs_error import PyverbsRDMAError


@pytest.fixture
def here(loopback_address):
    """The address of the one device of this process."""
    registry.names()
    address = loopback_address()
    devices.add(f"cmmeanwhile0=udp:{address}?same_host=0", "embedded")
    yield address
    devices.remove("cmmeanwhile0")


@pytest.fixture
def asked(here, closing):
    """An identifier that has asked for a connection, and the one that may accept it, each with a QP."""
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    active.create_qp(init_attr())
    active.connect(ConnParam())
    request = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=request, listen_id=listener))
    passive.create_qp(init_attr())
    return active, active_channel, passive


def closes(identifier, before, monkeypatch):
    """What another thread's `close` does to the queue pair, right before it is taken to a state."""
    ask = queue_pairs.attributes

    def attributes(owner, state):
        found = ask(owner, state)
        if state == before and owner is identifier._id:
            identifier._drop_queues()
        return found

    monkeypatch.setattr(queue_pairs, "attributes", attributes)


@pytest.mark.parametrize("before", [RTR, RTS])
def test_who_accepts_is_told(asked, before, monkeypatch):
    _, _, passive = asked
    closes(passive, before, monkeypatch)
    with pytest.raises(PyverbsRDMAError) as refused:
        passive.accept(ConnParam())
    assert refused.value.error_code == errno.EINVAL


@pytest.mark.parametrize("before", [RTR, RTS])
def test_who_has_asked_gets_an_event(asked, before, monkeypatch):
    active, channel, passive = asked
    closes(active, before, monkeypatch)
    passive.accept(ConnParam())
    event = expect(channel, ce.RDMA_CM_EVENT_CONNECT_ERROR)
    assert event.status == -errno.EINVAL


def test_an_end_that_comes_then_is_an_end(here, closing, monkeypatch):
    """Its queue pair goes between the look for it and its way to ERR."""
    active, _passive, _ = connected(here, here, closing)

    found = iter([active._id.queue_pair])

    class Owner(type(active._id)):
        @property
        def queue_pair(self):
            return next(found, None)

    with monkeypatch.context() as patch:
        patch.setattr(active._id, "__class__", Owner)
        queue_pairs.to_error(active._id)


def test_regions_may_come_while_they_are_closed(asked, monkeypatch):
    """As another thread's that registers them does."""
    active, _, _ = asked
    regions = [active.reg_msgs(64) for _ in range(2)]
    close = MR.close

    def closed(region):
        if len(regions) == 2:
            regions.append(active.reg_msgs(64))
        close(region)

    monkeypatch.setattr(MR, "close", closed)
    active.close()
    monkeypatch.undo()  # while the regions are there: collecting them closes them
    assert len(regions) == 3


def test_the_queue_pair_is_looked_for_once(asked, monkeypatch):
    """Another thread's `close` takes it away right behind the first look."""
    active, _, _ = asked
    there = active._qp

    class Once(CMID):
        __slots__ = ()
        found = ()

        @property
        def _qp(self):
            Once.found, (first, *_) = (None,), Once.found
            return first

    for look in (lambda: active.qpn, lambda: active._queue_pair("").qp_num):
        Once.found = (there,)
        with monkeypatch.context() as patch:
            patch.setattr(active, "__class__", Once)
            assert look() == there.qp_num


def test_an_event_that_is_acknowledged_meanwhile_has_its_name(here, closing, monkeypatch):
    _, _, event = connected(here, here, closing)
    there = event._event

    class Once(CMEvent):
        __slots__ = ()
        found = ()

        @property
        def _event(self):
            Once.found, (first, *_) = (None,), Once.found
            return first

    looks = ((lambda: event.event_str(), "RDMA_CM_EVENT_ESTABLISHED"), (lambda: event.event, there))
    for look, wanted in looks:
        Once.found = (there,)
        with monkeypatch.context() as patch:
            patch.setattr(event, "__class__", Once)
            assert look() == wanted
