"""A host's block device and an I/O unit on a network in virtual time: every kind of link, loss, refusals."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest
from storage_scene import GUID, Scene, granted

from softhca.driver.connections import CM_REJECTED, CM_REPLIED, CmPath, CmQueuePair
from softhca.management.cm import messages as cm
from softhca.storage import (
    BlockDevice,
    MemoryDisk,
    Route,
    StorageError,
    UnitAddress,
    find_controllers,
    scsi,
    srp,
)
from softhca.storage.initiator_channel import ChannelFailed, HostConfig, InitiatorChannel, Operation
from softhca.testing import SENT, Network

LINKS = pytest.mark.parametrize("link", ["ipv4", "ipv6", "native"])


@LINKS
def test_blocks_go_both_ways_on_every_kind_of_link(link: str) -> None:
    data = random.Random(1).randbytes(300 * 512)
    with Network(link=link) as network:
        scene = Scene(network)
        with scene.device() as device:
            assert device.capacity == scsi.Capacity(4096, 512)
            assert device._identity[4:] == b"\2\1\0\x1cSOFTHCA 0002c903000012340000"
            device.write(7, data)
            assert scene.disk.data[7 * 512 : 307 * 512] == data
            assert not any(scene.disk.data[: 7 * 512])
            assert not any(scene.disk.data[307 * 512 :])
            assert device.read(7, 300) == data
            assert device.read(306, 2) == data[-512:] + bytes(512)
            device.flush()
            assert device.read(0, 0) == b""
        network.run()
        assert not scene.unit.channels  # the unit was told


@LINKS
def test_a_unit_is_found_by_device_management(link: str) -> None:
    with Network(link=link) as network:
        scene = Scene(network, extension=0xE, service_id=0x5E41, name="two disks", request_limit=9)
        host = scene.hosts[0].open()
        (found,) = find_controllers(host, 1, scene.address())
        assert (found.slot, found.profile.name, found.profile.guid) == (1, "two disks", GUID)
        assert (found.profile.send_queue_depth, found.profile.operations) == (9, 0x2B)
        target = (0xE).to_bytes(8, "big") + GUID.to_bytes(8, "big")
        assert found.target == (target, 0x5E41)


def test_what_a_unit_is_not_asked_for_it_does_not_say() -> None:
    with Network() as network:
        scene = Scene(network)
        nowhere = UnitAddress(network.addressing.gid(99))
        with pytest.raises(StorageError) as caught:
            find_controllers(scene.hosts[0].open(), 1, nowhere)
        assert caught.value.errno == errno.ETIMEDOUT
        with pytest.raises(StorageError) as caught:  # no unit is there
            find_controllers(scene.hosts[0].open(), 1, UnitAddress(scene.hosts[0].gid))
        assert caught.value.errno == errno.EPROTO
        with pytest.raises(StorageError) as caught:
            scene.device(guid=GUID + 1)
        assert caught.value.errno == errno.EHOSTUNREACH
        assert "no such controller" in str(caught.value)


@pytest.mark.parametrize("seed", range(3))
def test_every_block_arrives_whatever_the_network_does(seed: int) -> None:
    dice = random.Random(seed)
    with Network("loss=5%,duplicate=5%,reorder=5%,corrupt=2%", seed=seed) as network:
        scene = Scene(network, disks=[MemoryDisk(512)])
        expected = bytearray(512 * 512)
        with scene.device(config={"retry_cnt": 7}) as device:
            for _ in range(12):
                lba, blocks = dice.randrange(500), dice.randint(1, 12)
                data = dice.randbytes(512 * blocks)
                expected[lba * 512 : (lba + blocks) * 512] = data
                device.write(lba, data)
                lba = dice.randrange(400)
                assert device.read(lba, 100) == expected[lba * 512 : (lba + 100) * 512]
        assert scene.disk.data == expected


@pytest.mark.parametrize(
    ("limit", "depth", "segments", "at_once"), [(6, 4, 8, 4), (3, 8, 8, 2), (6, 4, 3, 3)]
)
def test_many_commands_are_under_way_at_once(limit: int, depth: int, segments: int, at_once: int) -> None:
    """As many as the unit has granted but one, the host has room for, and its memory."""
    with Network() as network:
        scene = Scene(network, request_limit=limit)
        with scene.device(config={"depth": depth, "segments": segments, "segment_bytes": 4096}) as device:
            most = 0
            waits = []
            for number in range(40):
                waits.append(device.start_write(number * 8, bytes([number + 1]) * 4096))
                channel = device._channel
                most = max(most, len(channel.under_way))
                assert 1 <= channel.session.credit <= limit
            for wait in waits:
                wait()
            assert most == at_once
            reads = [device.start_read(number * 8, 8) for number in range(40)]
            assert [each() for each in reads] == [bytes([number + 1]) * 4096 for number in range(40)]


@pytest.mark.parametrize("message_bytes", [68, 84, 324])
def test_long_data_are_described_by_tables(message_bytes: int) -> None:
    """As much of the table as a message has room for is in it; the unit reads the rest from the host."""
    data = random.Random(3).randbytes(24 * 512)
    with Network() as network:
        scene = Scene(network)
        config = {"segments": 8, "segment_bytes": 4096, "message_bytes": message_bytes}
        with scene.device(config=config) as device:
            sent = network.record(SENT)
            device.write(100, data)
            reads = [each for each in sent if each.opcode == "RC_RDMA_READ_REQUEST"]
            tables = 1 if message_bytes < 68 + 3 * 16 else 0
            assert len(reads) == 3 + tables
            assert device.read(100, 24) == data


def test_more_ranges_than_the_send_queue_has_room_for() -> None:
    data = random.Random(4).randbytes(80 * 4096)
    with Network() as network:
        scene = Scene(network, max_transfer_bytes=1 << 20)
        with scene.device(config={"segments": 80, "segment_bytes": 4096}) as device:
            device.start_write(8, data)()
            assert device.start_read(8, 640)() == data
            assert device.failovers == 0


def test_a_unit_bounds_what_waits_for_acknowledgements() -> None:
    """The host's acknowledgements are lost, but its commands arrive: the unit takes no more than twice as
    many as it has granted, and goes on when they come.
    """
    with Network() as network:
        scene = Scene(network, request_limit=3)
        with scene.device(config={"retry_cnt": 7, "depth": 2}) as device:
            network.run()
            most = 0
            (channel,) = scene.unit.channels
            lost = [True]

            def fate(sent):
                nonlocal most
                most = max(most, len(channel.session.tasks))
                is_lost = lost[0] and sent.source is scene.hosts[0] and sent.opcode == "RC_ACKNOWLEDGE"
                return None if is_lost else sent.data

            network.tamper = fate
            waits = [device.start_read(number, 1) for number in range(40)]
            network.after(2_000_000, lambda: lost.__setitem__(0, False))
            assert [each() for each in waits] == [bytes(512)] * 40
            assert 3 < most <= 6
            assert device.failovers == 0


def test_large_ranges_are_several_commands() -> None:
    data = random.Random(3).randbytes(200 * 512)
    with Network() as network:
        scene = Scene(network, max_transfer_bytes=10_000)
        with scene.device() as device:
            device.write(0, data)
            assert device.read(0, 200) == data
            (channel,) = scene.unit.channels
            assert channel.session.commands == 4 + 2 * -(-200 // 19)
            with pytest.raises(StorageError, match="one command moves"):
                device.start_read(0, 20)


def test_what_the_disk_refuses_is_an_error_with_sense_data() -> None:
    with Network() as network:
        scene = Scene(network, disks=[MemoryDisk(8, read_only=True), MemoryDisk(64, 4096)])
        with scene.device() as device, scene.device(lun=1, seed=2) as second:
            with pytest.raises(StorageError) as caught:
                device.write(0, bytes(512))
            assert (caught.value.errno, caught.value.sense) == (errno.EROFS, scsi.WRITE_PROTECTED)
            assert device.read(0, 8) == bytes(4096)
            for call, given in ((device.read, (7, 2)), (device.read, (-1, 1)), (device.write, (0, b"x"))):
                with pytest.raises(StorageError) as caught:
                    call(*given)
                assert caught.value.errno == errno.EINVAL
            second.write(63, b"z" * 4096)
            assert scene.disks[1].data[63 * 4096 :] == b"z" * 4096
        with pytest.raises(StorageError) as caught:
            scene.device(lun=2, seed=3)
        assert caught.value.errno == errno.EHOSTUNREACH
        assert "logical unit not supported" in str(caught.value)


def test_several_hosts_share_a_disk() -> None:
    with Network() as network:
        scene = Scene(network, hosts=2)
        with scene.device(scene.route(0)) as one, scene.device(scene.route(1), seed=2) as other:
            one.write(5, b"1" * 512)
            assert other.read(5, 1) == b"1" * 512
            other.write(5, b"2" * 512)
            assert one.read(5, 1) == b"2" * 512
            assert len(scene.unit.channels) == 2


def test_a_reset_by_another_host_is_lived_with() -> None:
    with Network() as network:
        scene = Scene(network, hosts=2)
        with scene.device(scene.route(0)) as one, scene.device(scene.route(1), seed=2) as other:
            network.run()
            wait = one.start_write(3, b"a" * 512)
            channel = other._channel
            message = srp.TaskManagement(tag=1 << 60, function=srp.LUN_RESET).encode()
            channel.session._under_way.add(1 << 60)
            channel.under_way[1 << 60] = operation = Operation(bytes(6))
            channel._send(message)
            wait()
            network.run(lambda: channel.turn() or operation.done)
            assert one.read(3, 1) == b"a" * 512


# logins


def channel_of(scene: Scene, own_port: bytes = b"p" * 16, **changes) -> InitiatorChannel:
    device = scene.hosts[0].open()
    target = changes.pop("target", scene.unit.config.target_port)
    config = HostConfig(connect_retries=1, **changes)
    found = InitiatorChannel(
        device, 1, scene.address(), (target, scene.unit.config.service), own_port, 0, config, 5
    )
    return granted(scene, found)


def test_logins_that_cannot_be_are_rejected_with_a_reason() -> None:
    with Network() as network:
        scene = Scene(network, max_message_bytes=200, max_channels=2)
        with pytest.raises(ChannelFailed, match="no such target port"):
            channel_of(scene, target=b"x" * 16)
        with pytest.raises(ChannelFailed, match="too long"):
            channel_of(scene, message_bytes=201)
        channels = [channel_of(scene, bytes([number]) * 16, message_bytes=200) for number in range(2)]
        with pytest.raises(ChannelFailed, match="too many channels"):
            channel_of(scene, b"z" * 16, message_bytes=200)
        channels[0].close()
        network.run()
        channel_of(scene, b"z" * 16, message_bytes=200)
        assert len(scene.unit.channels) == 2


def test_a_dead_host_gives_way_to_a_new_one() -> None:
    """A unit that has too many channels finds out which of them still have a host."""
    with Network() as network:
        scene = Scene(network, hosts=2, max_channels=1)
        first = scene.device(scene.route(0))
        network.run()
        network.impair("loss=100%", scene.hosts[0], scene.units[0])
        network.impair("loss=100%", scene.units[0], scene.hosts[0])
        with pytest.raises(StorageError, match="too many channels"):
            scene.device(scene.route(1), seed=2)
        network.run(lambda: not scene.unit.channels)
        with scene.device(scene.route(1), seed=2) as second:
            assert second.read(0, 1) == bytes(512)
        first.close()


def test_a_login_ends_the_former_channel_of_its_port() -> None:
    with Network() as network:
        scene = Scene(network)
        first = channel_of(scene)
        network.run()
        channel_of(scene)
        network.run(lambda: first.turn() or first.failed)
        assert "ended the connection" in first.failed or "status" in first.failed
        assert len(scene.unit.channels) == 1


def test_requests_that_are_no_logins_are_rejected() -> None:
    with Network() as network:
        scene = Scene(network)
        device = scene.hosts[0].open()
        channel = device.open_connections(1)
        path = CmPath(scene.units[0].gid)
        login = srp.LoginRequest(
            max_it_bytes=64, initiator_port=b"i" * 16, target_port=scene.unit.config.target_port
        )

        def answered(private_data: bytes, **queue_pair) -> tuple[int, bytes]:
            end = CmQueuePair(7, 1, **queue_pair)
            channel.connect(scene.unit.config.service, path, end, private_data)
            event = channel.receive(10)
            assert event.kind == CM_REJECTED
            return event.status, event.private_data

        def reason(changed: srp.LoginRequest, **queue_pair) -> int:
            status, data = answered(changed.encode(), **queue_pair)
            assert status == cm.REJ_CONSUMER_DEFINED
            found = srp.LoginReject.decode(data)
            assert (found.type, found.tag) == (srp.LOGIN_REJ, changed.tag)
            return found.reason

        assert answered(login.encode(), qp_type=3)[0] == cm.REJ_INVALID_TRANSPORT
        assert answered(b"hello")[0] == cm.REJ_CONSUMER_DEFINED
        assert reason(replace(login, type=2, tag=5)) == srp.REJ_UNABLE
        assert reason(replace(login, max_it_bytes=63)) == srp.REJ_UNABLE
        assert reason(replace(login, max_it_bytes=0xFFFFFFFF)) == srp.REJ_IU_TOO_LONG
        assert reason(replace(login, required_formats=8)) == srp.REJ_FORMAT
        assert reason(replace(login, multi_channel_action=3)) == srp.REJ_MULTI_CHANNEL
        assert reason(login, responder_resources=0) == srp.REJ_UNABLE
        assert not scene.unit.channels


@pytest.mark.parametrize("link", ["ipv4", "ipv6"])
def test_rdma_cm_connects_by_a_port_number(link: str) -> None:
    with Network(link=link) as network:
        scene = Scene(network, port=3260, extension=9)
        with scene.device(guid=GUID, extension=9) as device:
            device.write(7, b"z" * 512)
            assert scene.disk.data[7 * 512 : 8 * 512] == b"z" * 512
        with pytest.raises(StorageError, match="no such target port"):
            scene.device(guid=GUID, extension=8)
        with pytest.raises(ValueError, match="GUID"):
            scene.device()
        by_service = Route(scene.hosts[0].name, 1, replace(scene.address(), port=0))
        with scene.device(scene.route(), by_service, guid=GUID, extension=9) as device:
            (channel,) = scene.unit.channels
            channel.failed = True
            scene.hosts[0].adapter.set_link(1, False)
            scene.hosts[0].adapter.set_link(1, True)
            assert device.read(7, 1) == b"z" * 512
            assert device.route == by_service


def test_a_login_of_rdma_cm_that_is_cut_short_is_rejected() -> None:
    with Network() as network:
        scene = Scene(network, port=3260)
        channel = scene.hosts[0].open().open_connections(1)
        service = scene.unit.config.service_ids[1]
        for data in (b"", bytes(36) + srp.ShortLoginRequest(type=5).encode()):
            channel.connect(service, CmPath(scene.units[0].gid), CmQueuePair(7, 1), data)
            event = channel.receive(10)
            assert (event.kind, event.status) == (CM_REJECTED, cm.REJ_CONSUMER_DEFINED)


def test_a_second_channel_may_stand_beside_the_first() -> None:
    with Network() as network:
        scene = Scene(network)
        channel = scene.hosts[0].open().open_connections(1)
        login = srp.LoginRequest(
            max_it_bytes=64, initiator_port=b"i" * 16, target_port=scene.unit.config.target_port,
            multi_channel_action=srp.MULTI_CHANNEL,
        )  # fmt: skip
        results = []
        for number, action in enumerate((srp.MULTI_CHANNEL, srp.MULTI_CHANNEL, srp.SINGLE_CHANNEL)):
            message = replace(login, multi_channel_action=action, tag=number).encode()
            end = CmQueuePair(70 + number, 1)
            channel.connect(scene.unit.config.service, CmPath(scene.units[0].gid), end, message)
            while (event := channel.receive(10)).kind != CM_REPLIED:
                pass
            found = srp.LoginResponse.decode(event.private_data)
            results.append((found.tag, found.multi_channel_result, found.request_limit_delta))
        assert results == [(0, srp.NO_CHANNEL, 32), (1, srp.MAINTAINED, 32), (2, srp.TERMINATED, 32)]
        assert len(scene.unit.channels) == 1


def test_the_unit_gives_everything_back() -> None:
    with Network() as network:
        scene = Scene(network, unit_ports=2)
        device = scene.device()
        engine = scene.units[0].adapter
        scene.unit.close()
        scene.unit.close()
        with pytest.raises(StorageError) as caught:
            device.read(0, 1)
        assert caught.value.errno == errno.EHOSTUNREACH
        with pytest.raises(StorageError):
            device.read(0, 1)
        device.close()
        assert not engine.queue_pairs
        assert not scene.unit.disk_controller._sessions
        host = scene.hosts[0].adapter
        network.run()
        assert not host.queue_pairs
        assert not scene.adapters.open_adapters()


def test_a_route_names_an_adapter_that_there_is() -> None:
    with Network() as network:
        scene = Scene(network)
        with pytest.raises(StorageError, match="nobody"):
            scene.device(Route("nobody", 1, scene.address()))
        with pytest.raises(StorageError, match="down"):
            scene.device(Route(scene.hosts[0].name, 9, scene.address()))
        with pytest.raises(ValueError, match="no route"):
            BlockDevice(scene.adapters, [])
        assert not scene.adapters.open_adapters()
