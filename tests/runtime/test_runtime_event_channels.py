"""Event channels: an event makes the host's end readable, a full one blocks nobody and loses nothing."""

import errno
import resource
import select
import socket

import pytest
from runtime_served import readable

from softhca.queues.control import EVENT_BYTES, decode_event
from softhca.queues.control_fields import CQ_EVENTS, EVENT_COMPLETION, EVENT_CQ_ERR
from softhca.runtime.event_channels import FEW_CHANNELS, MAX_CHANNELS, EventChannels, most_channels
from softhca.runtime.wake_socket import WakeSocket


class Host:
    """The channels of one host, and the process that serves them."""

    def __init__(self):
        self.epoll = select.epoll()
        self.all = EventChannels(self.epoll)
        self.channels = {}

    def open(self):
        number, end = self.all.open(self.channels)
        return self.channels[number], end

    def serve(self):
        """One round of the process; whether a channel needed it."""
        happened = self.epoll.poll(0)
        for descriptor, what in happened:
            assert descriptor in self.all
            self.all.serve(descriptor, what)
        return bool(happened)

    def close(self):
        self.all.close(self.channels)
        assert not self.channels
        assert not self.all._owners
        self.epoll.close()


@pytest.fixture
def host():
    found = Host()
    yield found
    found.close()


def heard(end, most=100_000):
    """The events that wait in a host's end."""
    found = []
    while len(found) < most and readable(end.fileno()):
        data = end._end.recv(EVENT_BYTES)
        if not data:
            break
        event = decode_event(data)
        found.append((event.kind, event.element))
    return found


def test_a_host_reads_one_event_for_each_that_was_told(host):
    channel, end = host.open()
    other, silent = host.open()
    assert not readable(end.fileno())
    channel.post(EVENT_COMPLETION, 7)
    channel.post(EVENT_COMPLETION, 7)
    channel.post(EVENT_CQ_ERR, 8)
    assert heard(end) == [(EVENT_COMPLETION, 7), (EVENT_COMPLETION, 7), (EVENT_CQ_ERR, 8)]
    assert heard(silent) == []
    assert not host.serve()
    assert other.fileno() != channel.fileno()
    end.close()
    silent.close()


def test_what_finds_no_room_comes_when_the_host_has_read_each_once_and_in_order(host):
    channel, end = host.open()
    channel._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    end._end.setblocking(True)  # whatever the host makes of its end
    told = [(EVENT_COMPLETION, number) for number in range(1000)]
    for event in told:
        channel.post(*event)
    sent = 1000 - len(channel._pending)
    assert 0 < sent < 1000
    for event in told[sent:]:
        channel.post(*event)  # they wait already
    assert len(channel._pending) == 1000 - sent
    channel.forget(EVENT_COMPLETION, 998)  # destroyed, before it was told
    assert not host.serve()  # nothing to do while there is no room
    found = heard(end)
    while host.serve():
        found += heard(end)
    assert found == [event for event in told if event[1] != 998]
    assert {EVENT_COMPLETION} <= CQ_EVENTS
    end.close()


def test_a_channel_ends_with_the_hosts_end_and_its_number_is_free_again(host):
    channel, end = host.open()
    kept, other = host.open()
    assert sorted(host.channels) == [1, 2]
    end.close()
    channel.post(EVENT_COMPLETION, 1)  # nobody hears it
    assert host.serve()
    assert sorted(host.channels) == [2]
    channel.post(EVENT_COMPLETION, 1)
    assert not channel.open
    again, end = host.open()
    assert sorted(host.channels) == [1, 2]
    again.post(EVENT_COMPLETION, 3)
    kept.post(EVENT_COMPLETION, 4)
    assert (heard(end), heard(other)) == ([(EVENT_COMPLETION, 3)], [(EVENT_COMPLETION, 4)])
    end.close()
    other.close()


def test_the_adapters_end_is_seen_behind_the_last_event(host):
    channel, end = host.open()
    channel.post(EVENT_CQ_ERR, 1)
    host.all.close(host.channels)
    assert heard(end) == [(EVENT_CQ_ERR, 1)]
    assert readable(end.fileno())
    assert end._end.recv(EVENT_BYTES) == b""
    end.close()


@pytest.mark.parametrize(("descriptors", "most"), [
    (64, FEW_CHANNELS), (1024, 512), (20_000, MAX_CHANNELS), (resource.RLIM_INFINITY, MAX_CHANNELS),
])
def test_a_host_has_half_of_the_descriptors_within_bounds(monkeypatch, descriptors, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert most_channels() == most


def test_a_host_has_so_many_and_no_more(host, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (520, 520))
    ends = [host.open()[1] for _ in range(260)]  # more than 127 queue pairs of rdma_create_qp have
    with pytest.raises(OSError, match="at most") as refusal:
        host.open()
    assert refusal.value.errno == errno.EMFILE
    for end in ends:
        assert isinstance(end, WakeSocket)
        end.close()


def test_what_epoll_has_seen_of_a_former_descriptor_ends_no_channel(host):
    _, end = host.open()
    end.close()
    ((descriptor, happened),) = host.epoll.poll(0)
    host.all.close(host.channels)
    channel, end = host.open()
    assert channel.fileno() == descriptor  # the number that was free
    host.all.serve(descriptor, happened)
    assert descriptor in host.all
    channel.post(EVENT_COMPLETION, 1)
    assert heard(end) == [(EVENT_COMPLETION, 1)]
    end.close()
    assert host.serve()
    assert descriptor not in host.all


def test_what_happens_when_there_is_room_again_comes_behind_what_waits(host):
    channel, end = host.open()
    count = 0
    while not channel._pending:
        channel.post(EVENT_COMPLETION, count)
        count += 1
    channel.post(EVENT_COMPLETION, count)
    found = heard(end)
    channel.post(EVENT_COMPLETION, count + 1)
    while host.serve():
        found += heard(end)
    assert found == [(EVENT_COMPLETION, element) for element in range(count + 2)]
    end.close()
