"""Rules of block storage that only show at their edges: what counts against a limit, what an end leaves,
whose an event is.
"""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
from storage_fakes import LIMIT, FakeHost, command, managing, scene, writing
from storage_scene import Scene, granted

from softhca.adapter.resources import Kind
from softhca.driver import services
from softhca.driver.adapters import AdapterEvent
from softhca.driver.connections import CM_REJECTED, CM_REPLIED, CmPath, CmQueuePair
from softhca.driver.errors import DriverError
from softhca.management import ip_service
from softhca.queues.control_fields import EVENT_PORT_ERR, EVENT_QP_FATAL
from softhca.storage import IoUnit, MemoryDisk, StorageError, UnitConfig, scsi, srp
from softhca.storage.block_device import MOST_ATTEMPTS, MOST_WAITING
from softhca.storage.controller import ManagedDisks
from softhca.storage.discovery import UnitAddress
from softhca.storage.errors import MessageError
from softhca.storage.initiator import Finished, InitiatorSession
from softhca.storage.initiator_channel import (
    SPARE_MESSAGES,
    ChannelFailed,
    HostConfig,
    InitiatorChannel,
    Operation,
)
from softhca.storage.logical_unit import TO_DISK
from softhca.storage.registered import LOCAL_WRITE, RegisteredMemory
from softhca.storage.session import SEND, WRITE, TargetSession, Work
from softhca.storage.target_channel import TargetChannel
from softhca.testing import Network


@pytest.fixture
def network():
    with Network() as found:
        yield found


def tags(host: FakeHost) -> list[int]:
    return [each.tag for each in host.run()]


def channel_of(found: Scene, host: int = 0, name: bytes = b"i" * 16, **config) -> InitiatorChannel:
    target = found.unit.config.target_port, found.unit.config.service
    settings = HostConfig(connect_retries=1, **config)
    device = found.hosts[host].open()
    return granted(found, InitiatorChannel(device, 1, found.address(), target, name, 0, settings, 9))


# a target's session


def test_task_management_counts_against_the_limit() -> None:
    _, (host,) = scene()
    host.session.receive(writing(0, 1, 1))
    host.collect()
    host.session.receive(managing(srp.ABORT_TASK, 2, 1))  # waits for the write
    for tag in range(3, LIMIT + 1):
        host.session.receive(writing(0, 1, tag))
    assert not host.session.ending
    host.session.receive(writing(0, 1, LIMIT + 1))
    assert host.session.ending


def test_nothing_is_said_behind_the_end() -> None:
    _, (host,) = scene()
    host.session.receive(writing(0, 1, 1))
    host.collect()
    host.session.receive(managing(srp.ABORT_TASK, 2, 1))
    host.session.end()
    assert not host.session.has_work


def test_a_logout_drops_what_was_not_posted() -> None:
    _, (host,) = scene()
    host.session.receive(writing(0, 1, 1))
    assert host.session.has_work
    host.session.receive(srp.Short(tag=2).encode())
    assert not host.session.has_work


def test_an_aborted_response_has_no_sense_data() -> None:
    _, (one, other) = scene(hosts=2)
    one.session.receive(writing(0, 1, 1))
    one.collect()
    one.session.receive(command(scsi.read_10(64, 1), 2, task_attribute=srp.ORDERED))  # beyond the disk
    other.session.receive(managing(srp.LUN_RESET, 3))
    while one.step():
        pass
    found = [srp.Response.decode(each) for each in one.said]
    assert [(each.status, each.sense_valid, each.sense_bytes) for each in found] == [
        (scsi.TASK_ABORTED, 0, 0)
    ] * 2
    assert {len(each) for each in one.said} == {srp.Response.LENGTH_BYTES}


def test_the_place_of_every_command_is_used_again() -> None:
    _, (host,) = scene()
    for first in (1, 1 + LIMIT):
        for tag in range(first, first + LIMIT):
            host.session.receive(writing(tag, 1, tag))
        host.collect()
        assert sorted(each.slot for each in host.under_way) == list(range(LIMIT))
        assert sorted(tags(host)) == list(range(first, first + LIMIT))


def test_what_an_initiator_aborts_is_not_answered_because_another_has_aborted_it_too() -> None:
    _, (one, other) = scene(hosts=2)
    one.session.receive(writing(0, 1, 1))
    one.collect()
    other.session.receive(managing(srp.LUN_RESET, 3))
    one.session.receive(managing(srp.ABORT_TASK, 2, 1))
    assert tags(one) == [2]
    assert tags(other) == [3]


# a unit


def test_a_quota_is_told_as_a_full_disk(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Scene(network)

    def full(offset: int, buffer: memoryview) -> None:
        raise OSError(errno.EDQUOT, "no more")

    monkeypatch.setattr(found.disk, "write_from", full)
    with found.device() as device, pytest.raises(StorageError) as caught:
        device.write(0, bytes(512))
    assert caught.value.errno == errno.ENOSPC


def login(found: Scene, tag: int, name: bytes, action: int = srp.MULTI_CHANNEL) -> bytes:
    return srp.LoginRequest(
        tag=tag, max_it_bytes=64, initiator_port=name, target_port=found.unit.config.target_port,
        multi_channel_action=action,
    ).encode()  # fmt: skip


def test_a_login_that_finds_no_room_is_rejected_by_its_tag(network: Network) -> None:
    found = Scene(network, max_channels=1)
    cm = found.hosts[0].open().open_connections(1)
    for tag in (76, 77):
        end = CmQueuePair(tag, 1)
        cm.connect(
            found.unit.config.service, CmPath(found.units[0].gid), end, login(found, tag, bytes([tag]) * 16)
        )
        event = cm.receive(10)
    assert event.kind == CM_REJECTED
    reject = srp.LoginReject.decode(event.private_data)
    assert (reject.reason, reject.tag) == (srp.REJ_CHANNEL_LIMIT, 77)
    assert reject.supported_formats == srp.DIRECT_BUFFERS | srp.INDIRECT_BUFFERS


def test_a_channel_that_has_failed_is_none_that_stands_beside(network: Network) -> None:
    found = Scene(network)
    cm = found.hosts[0].open().open_connections(1)
    results = []
    for tag in (1, 2):
        end = CmQueuePair(70 + tag, 1)
        cm.connect(found.unit.config.service, CmPath(found.units[0].gid), end, login(found, tag, b"i" * 16))
        while (event := cm.receive(10)).kind != CM_REPLIED:
            pass
        results.append(srp.LoginResponse.decode(event.private_data).multi_channel_result)
        for channel in found.unit.channels:
            channel.failed = True
    assert results == [srp.NO_CHANNEL, srp.NO_CHANNEL]


def test_a_busy_channel_is_not_asked_whether_it_lives(network: Network) -> None:
    found = Scene(network)
    channel_of(found)
    network.run()
    (channel,) = found.unit.channels
    channel._posted.append(Work(WRITE))
    channel.probe()
    assert len(channel._posted) == 1


@pytest.mark.parametrize("dies", ["channel", "device"])
def test_a_reset_is_answered_when_the_last_that_it_waits_for_is_gone(network: Network, dies: str) -> None:
    """Whoever asked stands before the other one, and nothing else comes."""
    found = Scene(network, hosts=2, unit_adapters=2)
    asks = channel_of(found)
    channel_of(found, 1, b"j" * 16)
    network.run()
    first, second = found.unit.channels
    second.session.receive(writing(0, 1, 1))
    while second.session.work() is not None:
        pass  # as if it had been posted
    asks.session._under_way.add(77)
    asks.under_way[77] = operation = Operation(bytes(6), table=asks._free_tables.pop())
    first.session.receive(managing(srp.LUN_RESET, 77))
    assert not first.session.has_work
    if dies == "channel":
        second.failed = True
        found.unit._settle()
    else:
        place = found.unit._attachments[0]
        place.by_connection, gone = {}, place.by_connection
        numbers = list(gone)
        found.unit._attachments[1].by_connection[numbers[0]] = first
        place.by_connection[numbers[1]] = second
        alive = type("Dead", (), {"alive": False, "events": None})()
        place.device, kept = alive, place.device
        found.unit._serve(place)
        place.device = kept
    network.run(lambda: asks.turn() or asks.failed)
    assert operation.finished is not None


def test_a_unit_gives_back_all_that_it_had_of_its_adapters(network: Network) -> None:
    found = Scene(network)
    with found.device() as device:
        device.write(0, bytes(512))
        engine = found.units[0].adapter
        kinds = (Kind.MR, Kind.PD, Kind.CQ, Kind.QP)
        assert all(engine.resources.count(kind) for kind in kinds)
        found.unit.close()
        assert [engine.resources.count(kind) for kind in kinds] == [0, 0, 0, 0]


def test_a_channel_that_has_ended_is_known_by_nothing(network: Network) -> None:
    found = Scene(network)
    channel = channel_of(found)
    (place,), (other_end,) = found.unit._attachments, found.unit.channels
    assert (other_end.end.responder_resources, other_end.end.initiator_depth) == (0, 16)  # nobody reads it
    assert len(place.by_queue_pair) == len(place.by_connection) == 1
    channel.close()
    network.run(lambda: not found.unit.channels)
    assert not place.by_queue_pair


def test_memory_that_is_not_registered_is_none() -> None:
    given_back: list[int] = []
    memory = SimpleNamespace(address=4096, free=lambda: given_back.append(4096))

    def refuse(*_: object) -> None:
        raise DriverError(errno.ENOMEM, "there is no room")

    device = SimpleNamespace(alloc_host_memory=lambda length, access: memory, reg_mr=refuse)
    with pytest.raises(DriverError):
        RegisteredMemory(device, 1, 4096, LOCAL_WRITE)
    assert given_back == [4096]


def test_more_bytes_less_than_there_were_are_none_of_them(network: Network) -> None:
    channel = channel_of(Scene(network))
    channel.under_way[7] = Operation(scsi.read_10(0, 1), length=512, segments=[channel._free.pop()], table=0)
    assert channel._finish(Finished(7, scsi.GOOD, None, 600, False)).data == b""


def test_a_unit_is_asked_by_its_lid_or_by_its_gid() -> None:
    gid = bytes(range(16))
    assert (UnitAddress(gid, 5).management.gid, UnitAddress(gid, 5).management.dlid) == (None, 5)
    assert (UnitAddress(gid).management.gid, UnitAddress(gid).management.dlid) == (gid, 0)


def test_what_a_unit_says_of_itself_at_the_ends_of_what_it_may_be() -> None:
    config = UnitConfig(5, port=1, name="n" * 70)
    assert config.service_ids == [5, ip_service.service_id(ip_service.TCP, 1)]
    assert ManagedDisks(config).profile().id_string == b"n" * 64
    assert UnitConfig(5).service_ids == [5]


@pytest.mark.parametrize("missing", ["queue pair", "connection"])
def test_a_channel_that_there_is_no_room_for_takes_none(
    network: Network, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    found = Scene(network)

    def refuse(*_: object) -> None:
        raise DriverError(errno.ENOMEM, "there is no room")

    if missing == "queue pair":
        monkeypatch.setattr(found.unit._attachments[0].device, "create_qp", refuse)
    else:
        monkeypatch.setattr(services, "accept", refuse)
    with pytest.raises(ChannelFailed, match="no resources"):
        channel_of(found)
    resources = found.units[0].adapter.resources
    assert [resources.count(kind) for kind in (Kind.QP, Kind.MR)] == [0, 0]
    assert found.unit.channels == []


def test_the_place_of_a_message_is_free_when_the_message_has_been_taken(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next message may come at once, into its place."""
    post_receive = TargetChannel._post_receive

    def overwritten(channel: TargetChannel, index: int) -> None:
        place = channel._first_message + index * channel._message_bytes
        channel._memory.view[place : place + channel._message_bytes] = bytes(channel._message_bytes)
        post_receive(channel, index)

    monkeypatch.setattr(TargetChannel, "_post_receive", overwritten)
    found = Scene(network)
    with found.device() as device:
        device.write(3, b"x" * 512)
        assert device.read(3, 1) == b"x" * 512


# a host's channel


def test_the_last_send_of_a_channel_is_for_an_answer(network: Network) -> None:
    channel = channel_of(Scene(network))
    channel._sends = channel._room - 1
    assert not channel.start(Operation(bytes(6)))
    channel._sends -= 1
    assert channel.start(Operation(bytes(6)))


@pytest.mark.parametrize("asked", [SPARE_MESSAGES, SPARE_MESSAGES + 1])
def test_questions_wait_for_an_answer_up_to_a_bound(network: Network, asked: int) -> None:
    found = Scene(network)
    channel = channel_of(found)
    network.run()
    channel._sends = channel._room  # nothing can be answered
    question = srp.TargetRequest(type=srp.CRED_REQ, request_limit_delta=0, tag=1).encode()
    (unit_end,) = found.unit.channels
    for _ in range(asked):
        unit_end.session._put(Work(SEND, message=question))
    unit_end.turn()
    for _ in range(asked):
        network.run(lambda: not channel.idle or channel.failed)
        channel.turn()
    assert ("asks more" in channel.failed) is (asked > SPARE_MESSAGES)


def test_a_command_gives_back_its_places(network: Network) -> None:
    found = Scene(network)
    with found.device(config={"segments": 16, "segment_bytes": 4096, "depth": 16}) as device:
        channel = device._channel
        assert channel is not None
        device.write(0, bytes(8192))
        assert sorted(channel._free) == sorted(channel._free_tables) == list(range(16))


def test_a_message_is_as_long_as_it_has_come(network: Network) -> None:
    """Behind it stands what came to its place before."""
    channel = channel_of(Scene(network))
    whole = srp.TargetRequest(type=srp.CRED_REQ, request_limit_delta=1, tag=1).encode()
    channel._messages.view[: len(whole)] = whole
    channel._post_receive = lambda index: None  # type: ignore[method-assign]
    came = SimpleNamespace(status=0, opcode=1 << 7, wr_id=0, byte_len=len(whole) - 1)
    with pytest.raises(MessageError):
        channel._completed(came, [])  # type: ignore[arg-type]
    assert not channel._replies


def test_who_waits_sees_an_event_of_the_adapter(network: Network) -> None:
    found = Scene(network)
    channel = channel_of(found)
    network.run()
    channel.turn()
    assert channel.idle
    found.hosts[0].adapter.set_link(1, False)
    channel.device.events.dispatch()
    assert not channel.idle


def test_who_waits_sees_the_end(network: Network) -> None:
    channel = channel_of(Scene(network))
    network.run()
    channel.turn()
    assert channel.idle
    channel.fail("by another thread")
    assert not channel.idle


def test_a_residual_that_is_not_said_to_be_one_is_none() -> None:
    session = InitiatorSession(srp.LoginResponse(request_limit_delta=3, max_it_bytes=64, max_ti_bytes=64))
    tag, _ = session.command(bytes(8), bytes(6))
    message = srp.Response(tag=tag, request_limit_delta=1, in_over=1, in_residual=5).encode()
    finished, _ = session.receive(message)
    assert finished.residual == 0


# a block device


@pytest.mark.parametrize("attempts", [MOST_ATTEMPTS - 1, MOST_ATTEMPTS])
def test_a_busy_unit_is_asked_so_often_and_no_more(network: Network, attempts: int) -> None:
    with Scene(network).device() as device:
        operation = Operation(bytes(6), attempts=attempts)
        operation.finished = Finished(1, scsi.BUSY, None, 0, False)
        device._ended(operation)
        assert operation.done is (attempts == MOST_ATTEMPTS)
        assert isinstance(operation.error, StorageError) is operation.done
        device._waiting.clear()


def test_a_disk_whose_unit_was_reset_before_is_looked_at_again(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = TargetSession.__init__

    def after_a_reset(session: TargetSession, *arguments: object) -> None:
        made(session, *arguments)  # type: ignore[arg-type]
        session.attentions[0] = scsi.UNIT_RESET

    monkeypatch.setattr(TargetSession, "__init__", after_a_reset)
    with Scene(network).device() as device:
        assert device.read(0, 1) == bytes(512)


def test_a_device_that_is_closed_hears_of_no_adapter(network: Network) -> None:
    found = Scene(network)
    before = len(found.adapters._listeners)
    device = found.device()
    assert len(found.adapters._listeners) == before + 1
    device.close()
    assert len(found.adapters._listeners) == before


def test_a_range_of_less_than_nothing_is_none(network: Network) -> None:
    with Scene(network).device() as device:
        with pytest.raises(StorageError) as caught:
            device.read(5, -1)
        assert caught.value.errno == errno.EINVAL


def test_a_command_that_must_go_again_goes_before_those_behind_it(network: Network) -> None:
    found = Scene(network)
    with found.device(config={"depth": 1}) as device:
        network.run()
        found.unit.channels[0].session.attentions[0] = scsi.UNIT_RESET
        waits = [device.start_write(0, data * 512) for data in (b"a", b"b")]
        for each in waits:
            each()
        assert found.disk.data[:512] == b"b" * 512


def test_a_command_is_tried_on_so_many_channels(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    with Scene(network).device() as device:
        honest = TargetSession._perform

        def perform(self: TargetSession, task) -> None:
            if task.plan is not None and task.plan.direction == TO_DISK:
                self._log_out(srp.LOGOUT_NO_REASON)
            else:
                honest(self, task)

        monkeypatch.setattr(TargetSession, "_perform", perform)
        with pytest.raises(StorageError):
            device.write(0, bytes(512))
        assert device.failovers == MOST_ATTEMPTS


def test_a_queue_pair_fails_for_its_own_channel_alone_and_wakes_who_waits(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Scene(network)
    with found.device() as device:
        channel, name = device._channel, found.hosts[0].name
        woken: list[int] = []
        monkeypatch.setattr(channel.device, "wake_waiters", lambda: woken.append(1))
        device._on_adapter_event(AdapterEvent(name, EVENT_QP_FATAL, channel.qp.number + 1))
        assert (channel.failed, woken) == ("", [])
        device._on_adapter_event(AdapterEvent(name, EVENT_QP_FATAL, channel.qp.number))
        assert (channel.failed, woken) == ("the queue pair has failed", [1])


def test_a_channel_outlives_the_other_ports_of_its_adapter(network: Network) -> None:
    found = Scene(network, ports=2)
    with found.device() as device:
        channel, name = device._channel, found.hosts[0].name
        assert channel is not None
        for port, failed in ((2, ""), (1, f"port 1 of {name} is down")):
            device._on_adapter_event(AdapterEvent(name, EVENT_PORT_ERR, port))
            assert channel.failed == failed


def test_a_unit_that_moves_less_at_a_time_is_not_what_it_was(network: Network) -> None:
    found = Scene(network, hosts=2, unit_adapters=2)
    found.unit.close()
    disk = MemoryDisk(64)
    for node, most in zip(found.units, (8192, 4096), strict=True):
        unit = IoUnit([(node.open(), 1)], [disk], UnitConfig(guid=7, max_transfer_bytes=most))
        network.tasks.append(unit.serve)
    with found.device(found.route(0, 1, 0), found.route(1, 1, 1)) as device:
        found.hosts[0].adapter.set_link(1, False)
        with pytest.raises(StorageError, match="not what it was"):
            device.write(0, bytes(512))


def test_who_waits_for_a_place_hears_of_the_end(network: Network) -> None:
    found = Scene(network)
    with found.device(config={"connect_retries": 0, "connect_exponent": 8, "depth": 1}) as device:
        for _ in range(MOST_WAITING + 1):
            device.start_write(0, bytes(512))
        found.unit.close()
        with pytest.raises(StorageError) as caught:
            device.start_write(0, bytes(512))
        assert caught.value.errno == errno.EHOSTUNREACH
