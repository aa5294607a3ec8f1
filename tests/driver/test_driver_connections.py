"""Channels of connections: two adapters connect, in each form of an adapter; bounds; what ends with what."""

import errno
import gc
import os
import select

import pytest

from softhca.driver.connections import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_ESTABLISHED,
    CM_REJECTED,
    CM_REPLIED,
    CM_REQUEST,
    CM_SIDR_REPLY,
    CM_SIDR_REQUEST,
    CM_TIMEWAIT_OVER,
    CmPath,
    CmQueuePair,
)
from softhca.driver.errors import DriverError
from softhca.management.cm.messages import REJ_CONSUMER_DEFINED, REJ_INVALID_SERVICE_ID
from softhca.runtime import devices
from softhca.verbs.device import Context

SERVICE = 0x0106_1C46
LIMIT_S = 60
END = CmQueuePair(
    qp_num=0x12, starting_psn=100, responder_resources=4, initiator_depth=3, retry_cnt=5, rnr_retry=6
)
OTHER = CmQueuePair(qp_num=0x34, starting_psn=200, responder_resources=3, initiator_depth=4, rnr_retry=7)


@pytest.fixture(params=["embedded", "process"])
def pair(request, loopback_address):
    """Two open devices with an adapter each."""
    contexts = []
    for name in ("cm0", "cm1"):
        devices.add(f"{name}=udp:{loopback_address()}", request.param)
        contexts.append(Context(name=name))
    yield contexts
    for context in contexts:
        context.close()
    for name in ("cm0", "cm1"):
        devices.remove(name)


@pytest.fixture
def channels(pair):
    return [context.driver.open_connections(1) for context in pair]


def path_to(context, **changes):
    return CmPath(gid=bytes(context.query_gid(1, 0).raw), **changes)


def taken(channel, kind):
    event = channel.receive(LIMIT_S)
    while event.kind == CM_TIMEWAIT_OVER != kind:  # of an earlier connection
        event = channel.receive(LIMIT_S)
    assert event.kind == kind
    return event


def connected(pair, channels):
    """Ids of both ends of a connection; the second channel listens already."""
    active = channels[0].connect(SERVICE, path_to(pair[1]), END, b"hello")
    passive = taken(channels[1], CM_REQUEST).id
    channels[1].reply(passive, OTHER)
    taken(channels[0], CM_REPLIED)
    channels[0].ready(active)
    taken(channels[1], CM_ESTABLISHED)
    return active, passive


def test_a_connection_with_all_that_both_ends_say(pair, channels):
    one, other = channels
    listener = other.listen(SERVICE)
    active = one.connect(SERVICE, path_to(pair[1], ack_timeout=17, path_mtu=4), END, b"hello")
    request = taken(other, CM_REQUEST)
    assert (request.listener, request.service_id, request.queue_pair) == (listener, SERVICE, END)
    assert request.path.gid == path_to(pair[0]).gid
    assert request.own_gid == path_to(pair[1]).gid
    assert (request.path.ack_timeout, request.path.path_mtu) == (17, 4)
    assert request.private_data == b"hello".ljust(92, b"\0")
    assert request.remote_ca_guid == int.from_bytes(
        pair[0].query_device().node_guid.to_bytes(8, "little"), "big"
    )
    other.reply(request.id, OTHER, b"welcome")
    replied = taken(one, CM_REPLIED)
    assert replied.id == active
    assert replied.private_data == b"welcome".ljust(196, b"\0")
    found = replied.queue_pair
    assert (found.qp_num, found.starting_psn, found.rnr_retry) == (0x34, 200, 7)
    assert (found.responder_resources, found.initiator_depth) == (3, 4)
    one.ready(active, b"ready")
    assert taken(other, CM_ESTABLISHED).private_data.startswith(b"ready")
    other.disconnect(request.id, b"bye")
    assert taken(one, CM_DISCONNECT_REQUEST).private_data.startswith(b"bye")
    one.disconnect(active)
    taken(other, CM_DISCONNECTED)
    assert one.receive(0) is None


def test_rejections_say_why(pair, channels):
    one, other = channels
    one.connect(SERVICE, path_to(pair[1]), END)
    assert taken(one, CM_REJECTED).status == REJ_INVALID_SERVICE_ID
    other.listen(SERVICE)
    one.connect(SERVICE, path_to(pair[1]), END)
    other.reject(taken(other, CM_REQUEST).id, REJ_CONSUMER_DEFINED, private_data=b"no")
    rejected = taken(one, CM_REJECTED)
    assert rejected.status == REJ_CONSUMER_DEFINED
    assert rejected.private_data.startswith(b"no")


def test_datagram_services_are_resolved(pair, channels):
    one, other = channels
    other.listen(SERVICE)
    number = one.resolve(SERVICE, path_to(pair[1]), b"who")
    asked = taken(other, CM_SIDR_REQUEST)
    assert asked.private_data.startswith(b"who")
    other.answer(asked.id, 0, 0x77, 0x1234, b"me")
    told = taken(one, CM_SIDR_REPLY)
    assert (told.id, told.status, told.queue_pair.qp_num, told.qkey) == (number, 0, 0x77, 0x1234)
    assert told.private_data.startswith(b"me")
    with pytest.raises(DriverError) as refused:
        one.destroy(number)
    assert refused.value.errno == errno.EINVAL


def test_a_channel_that_is_closed_ends_its_connections(pair, channels):
    one, other = channels
    other.listen(SERVICE)
    connected(pair, channels)
    one.close()
    taken(other, CM_DISCONNECT_REQUEST)
    for call in (lambda: one.receive(0), lambda: one.listen(1)):
        with pytest.raises(DriverError) as refused:
            call()
        assert refused.value.errno == errno.EINVAL


def test_the_descriptor_of_a_closed_channel_is_closed(channels):
    descriptor = channels[0].fileno()
    os.fstat(descriptor)
    channels[0].close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_program_that_goes_ends_its_connections(pair, channels):
    channels[1].listen(SERVICE)
    connected(pair, channels)
    pair[0].close()
    taken(channels[1], CM_DISCONNECT_REQUEST)


def test_the_descriptor_is_readable_while_there_are_events(pair, channels):
    one, other = channels
    other.listen(SERVICE)
    poll = select.poll()
    poll.register(other.fileno(), select.POLLIN)
    assert poll.poll(0) == []
    for number in range(2):
        one.connect(SERVICE, path_to(pair[1]), CmQueuePair(100 + number, 1))
    for _ in range(2):
        assert poll.poll(LIMIT_S * 1000)
        taken(other, CM_REQUEST)
    assert poll.poll(0) == []


def test_a_callback_is_told_of_events(pair):
    told = []
    channel = pair[0].driver.open_connections(1, on_event=lambda: told.append(1))
    channel.connect(SERVICE, path_to(pair[1]), END)
    taken(channel, CM_REJECTED)
    pair[0].driver.events.dispatch()
    assert told


@pytest.mark.parametrize("entries", [0, 1025])
def test_rings_are_bounded(pair, entries):
    with pytest.raises(DriverError) as refused:
        pair[0].driver.open_connections(1, entries)
    assert refused.value.errno == errno.EINVAL


def test_events_wait_for_room_in_a_short_ring(pair):
    channel = pair[0].driver.open_connections(1, entries=1)
    numbers = [channel.connect(SERVICE, path_to(pair[1]), END) for _ in range(5)]
    assert {taken(channel, CM_REJECTED).id for _ in numbers} == set(numbers)


REFUSED = [
    (lambda c, gid: c.connect(SERVICE, CmPath(bytes(16)), END), errno.EINVAL),
    (lambda c, gid: c.connect(SERVICE, CmPath(gid, pkey_index=9999), END), errno.EINVAL),
    (lambda c, gid: c.connect(SERVICE, CmPath(gid, max_cm_retries=16), END), errno.EINVAL),
    (lambda c, gid: c.connect(SERVICE, CmPath(gid, cm_response_timeout=32), END), errno.EINVAL),
    (lambda c, gid: c.connect(SERVICE, CmPath(gid), CmQueuePair(1 << 24, 0)), errno.EINVAL),
    (lambda c, gid: c.connect(SERVICE, CmPath(gid), CmQueuePair(1, 0, qp_type=4)), errno.EINVAL),
    (lambda c, gid: c.connect(SERVICE, CmPath(gid), END, bytes(93)), errno.EINVAL),
    (lambda c, gid: c.resolve(SERVICE, CmPath(gid), bytes(217)), errno.EINVAL),
    (lambda c, gid: c.reply(5, END), errno.EINVAL),
    (lambda c, gid: c.ready(5), errno.EINVAL),
    (lambda c, gid: c.establish(5), errno.EINVAL),
    (lambda c, gid: c.reject(5, 28), errno.EINVAL),
    (lambda c, gid: c.disconnect(5), errno.EINVAL),
    (lambda c, gid: c.answer(5), errno.EINVAL),
    (lambda c, gid: c.listen(SERVICE, 0), errno.EINVAL),
    (lambda c, gid: [c.listen(SERVICE), c.listen(SERVICE)], errno.EADDRINUSE),
]


def test_what_cannot_be_is_refused_and_costs_nothing(pair):
    """On one pair of adapters: to start these takes longer than all calls."""
    gid, codes = path_to(pair[1]).gid, []
    for call, _ in REFUSED:
        channel = pair[0].driver.open_connections(1)
        try:
            call(channel, gid)
            codes.append(0)
        except DriverError as refused:
            codes.append(refused.errno)
        assert channel.receive(0) is None
        channel.close()
    assert codes == [code for _, code in REFUSED]


def test_another_channel_cannot_touch_a_connection(pair, channels):
    channels[1].listen(SERVICE)
    active, _ = connected(pair, channels)
    second = pair[0].driver.open_connections(1)
    for call in (second.disconnect, second.destroy):
        with pytest.raises(DriverError) as refused:
            call(active)
        assert refused.value.errno == errno.EINVAL


def test_many_connections_leave_nothing(pair, channels):
    one, other = channels
    other.listen(SERVICE)
    for number in range(30):
        active = one.connect(SERVICE, path_to(pair[1], ack_timeout=1), CmQueuePair(100 + number, 1))
        passive = taken(other, CM_REQUEST).id
        other.reply(passive, CmQueuePair(500 + number, 1))
        taken(one, CM_REPLIED)
        one.ready(active)
        taken(other, CM_ESTABLISHED)
        one.disconnect(active)
        taken(other, CM_DISCONNECT_REQUEST)
        other.disconnect(passive)
        taken(one, CM_DISCONNECTED)
        one.destroy(active)
        other.destroy(passive)
    gc.collect()
    for context in pair:
        assert context.driver.query_counters(1)["cm_established"] == 30


def test_who_waits_is_woken_after_an_event_of_a_connection_was_told(pair):
    """Another thread may have taken the event, and be about to tell it, when he looks in vain."""
    (context, _), steps = pair, []
    channel = context.driver.open_connections(1)
    channel.listen(SERVICE)
    channel.connect(SERVICE, path_to(context), END)
    channel.on_event = lambda: steps.append("told")
    host = context.driver.events._channel
    wake = host.wake_waiters
    host.wake_waiters = lambda: steps.append("woken")
    try:
        context.driver.wait_for(lambda: bool(steps), LIMIT_S)
    finally:
        host.wake_waiters = wake
    assert steps[:2] == ["told", "woken"]
    channel.close()
