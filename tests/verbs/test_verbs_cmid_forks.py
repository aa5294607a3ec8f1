"""A forked child of a program with identifiers of RDMA CM: it has devices of its own, whatever threads of its
parent were in the middle of, and takes nothing away from the parent.
"""

import contextlib
import os
import select
import signal
import threading

import pytest
from cm_identifiers import PORT, code_of, expect, listening, routed

from machine_speed import limit_s
from softhca.driver import registry
from softhca.driver.rdmacm import ports
from softhca.driver.rdmacm.identifier import DEVICES, PORT_NUMBERS
from softhca.runtime import devices
from softhca.verbs import cm_contexts
from softhca.verbs import cm_enums as ce
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel


@pytest.fixture
def here(loopback_address, monkeypatch):
    """The address of the one device of this process."""
    monkeypatch.setenv("SOFTHCA_FAULTS", "")
    registry.names()
    address = loopback_address()
    devices.add(f"cmid0=udp:{address}", "embedded")
    yield address
    devices.remove("cmid0")


@contextlib.contextmanager
def held(*locks):
    """Another thread has all of these locks."""
    taken, over = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            taken.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(limit_s(60))
    try:
        yield
    finally:
        over.set()
        thread.join()


def ends_well(call):
    """Whether a forked child comes back from ``call``."""
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(int(limit_s(30)))
            call()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def test_a_child_connects_and_closes_whatever_threads_of_its_parent_hold(here, closing):
    channel = closing(CMEventChannel())
    listener = listening(channel, here, closing)
    active = routed(channel, here, here, closing)

    def go_on():
        assert code_of(CMEvent, channel) > 0
        for inherited in (active, listener, channel):
            inherited.close()
        own = CMEventChannel()
        cmid = CMID(creator=own)
        cmid.resolve_addr(AddrInfo(src=here, dst=here, dst_service=PORT))
        expect(own, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        cmid.close()
        own.close()

    port = ports.port_of(active._id.local.device, 1)
    identifiers = [
        each for one in (active._id, listener._id) for each in (one.lock, one.changing, one._moving)
    ]
    events = [channel.channel._lock, channel.channel._telling]
    process = [
        DEVICES._lock, DEVICES.adapters._lock, PORT_NUMBERS._lock, ports._ports_lock, cm_contexts._lock,
    ]  # fmt: skip
    for locks in (identifiers, events, [port._lock, port._listening, port.channel._ring._lock], process):
        with held(*locks):
            assert ends_well(go_on)


def test_a_child_takes_no_event_of_its_parent(here, closing):
    channel = closing(CMEventChannel())
    readable = select.epoll()
    readable.register(channel.fd, select.EPOLLIN)
    cmid = closing(CMID(creator=channel))
    cmid.resolve_addr(AddrInfo(src=here, dst=here, dst_service=PORT))

    def close():
        cmid.close()
        channel.close()

    assert ends_well(close)
    assert readable.poll(0)
    expect(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
