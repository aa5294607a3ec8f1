"""A device's port as identifiers share it: whose an event is, and what is kept of those that nobody has."""

import errno
import threading
from types import SimpleNamespace

import pytest
from scripted_channel import ScriptedCmChannel

from softhca.driver.connections import CM_DISCONNECTED, CmEvent, CmPath, CmQueuePair
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import ports, queue_pairs, states
from softhca.driver.rdmacm.addresses import SocketAddress
from softhca.driver.rdmacm.events import ADDR_RESOLVED, EventChannel
from softhca.driver.rdmacm.groups import Groups
from softhca.driver.rdmacm.identifier import OPTION_ACK_TIMEOUT, Identifier
from softhca.driver.rdmacm.ports import CmPort
from softhca.queues.states import RTR, RTS

NOBODY = bytes(16)


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(ports, "CmChannel", ScriptedCmChannel)
    return CmPort(SimpleNamespace(alive=True), 1)


def event(number, status=0):
    end = CmQueuePair(3, 4)
    return CmEvent(CM_DISCONNECTED, number, 0, status, 1, 2, NOBODY, CmPath(NOBODY), end, 0, 0, b"")


def test_what_came_early_is_given_once_and_is_bounded(port):
    port.channel.queue_event(*(event(number) for number in range(1, 1030)))
    assert len(port._unclaimed) == 1024
    got = []
    for _ in range(2):
        port.register(5, got.append)
    assert [each.id for each in got] == [5]
    port.forget(6)
    port.register(6, got.append)
    assert len(got) == 1


def test_what_is_kept_is_of_who_registers_next(port):
    former, latter = [], []
    port.register(7, former.append)
    port.keep(7, event(7, 1))
    port.channel.queue_event(event(7, 2))
    port.register(7, latter.append)
    assert former == []
    assert [each.status for each in latter] == [1, 2]


def test_who_stops_again_ends_no_later_listener(port):
    taker = SimpleNamespace(is_apart=lambda other: False)
    for _ in range(2):
        port.listen(9, 1, taker)
        for _ in range(2):
            port.stop(9, taker)
    assert [name for name, *_ in port.channel.sent] == ["listen", "destroy"] * 2


@pytest.mark.parametrize(("active", "retries"), [(True, 5), (False, 2)])
def test_who_was_asked_tries_again_as_often_as_the_request_says(active, retries):
    connection = SimpleNamespace(
        active=active, own=CmQueuePair(1, 10, retry_cnt=5), peer=CmQueuePair(2, 20, retry_cnt=2),
        path=CmPath(NOBODY, ack_timeout=18),
    )  # fmt: skip
    owner = SimpleNamespace(connected=True, connection=connection, ack_timeout=None, psn=10)
    found = queue_pairs.attributes(owner, RTS)
    assert (found["retry_cnt"], found["timeout"], found["sq_psn"]) == (retries, 18, 20)
    owner.ack_timeout = 0
    assert queue_pairs.attributes(owner, RTS)["timeout"] == 0


@pytest.mark.parametrize(("asked", "own", "taken"), [(5, 3, 3), (2, 3, 2), (3, 3, 3)])
def test_a_path_s_mtu_is_no_more_than_the_own_port_s(asked, own, taken):
    connection = SimpleNamespace(
        active=False, own=CmQueuePair(1, 10), peer=CmQueuePair(2, 20), path=CmPath(NOBODY, path_mtu=asked),
    )  # fmt: skip
    place = SimpleNamespace(mtu=own, is_native=False, gid_index=0, port=1)
    owner = SimpleNamespace(connected=True, connection=connection, place=place, traffic_class=0, psn=10,
                            route=SimpleNamespace(pkey_index=0))  # fmt: skip
    assert queue_pairs.attributes(owner, RTR)["path_mtu"] == taken


def test_a_time_out_of_acknowledgements_has_5_bits():
    owner = Identifier(SimpleNamespace(withdraw=lambda identifier: []))
    owner.set_option(OPTION_ACK_TIMEOUT, 31)
    with pytest.raises(DriverError, match="expected 0 … 31"):
        owner.set_option(OPTION_ACK_TIMEOUT, 32)
    assert owner.ack_timeout == 31
    owner.close()


def test_who_listens_everywhere_has_lost_its_device_with_the_last_one():
    posted = []
    owner = Identifier(SimpleNamespace(
        attach=lambda device, identifier: None, detach=lambda device, identifier: None,
        post=lambda *what: posted.append(what), withdraw=lambda identifier: [],
    ))  # fmt: skip
    devices = [SimpleNamespace(lost=False) for _ in range(2)]
    for device in devices:
        owner.attach(device)
    for device, told in zip(devices, (0, 1), strict=True):
        device.lost = True
        owner.lost()
        assert len(posted) == told


class Device:
    """A device whose queue pairs join groups, unless ``refusal``; ``attached`` is what they are in."""

    def __init__(self):
        self.attached, self.refusal, self.alive = [], 0, True

    def attach_mcast(self, number, *membership):
        if self.refusal:
            raise DriverError(self.refusal, "refused")
        self.attached.append(membership)

    def detach_mcast(self, number, *membership):
        self.attached.remove(membership)


def test_a_group_that_could_not_be_joined_can_be_joined_and_left_again():
    device, posted = Device(), []
    place = SimpleNamespace(is_native=False, gid_index=0, port=1, address=SocketAddress(bytes(4)))
    owner = SimpleNamespace(
        lock=threading.RLock(), state=states.BOUND, place=place, traffic_class=0, post=posted.append,
        queue_pair=SimpleNamespace(device=device, number=7),
    )  # fmt: skip
    groups, group = Groups(owner), SocketAddress(bytes((239, 0, 0, 1)))
    device.refusal = errno.ENOMEM
    with pytest.raises(DriverError):
        groups.join(group)
    device.refusal = 0
    groups.join(group)
    assert (len(device.attached), len(posted)) == (1, 1)
    device.alive = False
    groups.leave(group)
    assert len(device.attached) == 1, "there is nobody to ask"
    with pytest.raises(DriverError, match="has not been joined"):
        groups.leave(group)


def test_a_closed_identifier_has_no_events():
    channel = EventChannel()
    owner, other = Identifier(channel), Identifier(channel)
    for identifier in (owner, other):
        identifier.queue_event(ADDR_RESOLVED)
    owner.close()
    assert [channel.next_event(0).identifier, channel.next_event(0)] == [other, None]
    other.close()
    channel.close()
