"""Hostile hosts at a unit, and hostile units at a host, over whole adapters: who breaks the rules loses its
channel, and nobody else anything.
"""

from __future__ import annotations

import errno

import pytest
from storage_scene import Scene, granted

from softhca.management.constants import CLASS_DEV_MGT, METHOD_GET
from softhca.management.device_attributes import IoControllerProfile, IoUnitInfo
from softhca.management.mad import Mad, MadHeader
from softhca.storage import StorageError, descriptors, find_controllers, scsi, srp
from softhca.storage.descriptors import Range
from softhca.storage.initiator_channel import ChannelFailed, HostConfig, InitiatorChannel, Operation
from softhca.storage.logical_unit import TO_DISK
from softhca.storage.session import TargetSession, Task
from softhca.storage.target_channel import TargetChannel
from softhca.storage.task_states import CANCELLED, FETCHING
from softhca.testing import Network


@pytest.fixture
def network():
    with Network() as found:
        yield found


def attacker(scene: Scene, **config) -> InitiatorChannel:
    """A channel whose messages are the test's."""
    found = InitiatorChannel(
        scene.hosts[1].open(), 1, scene.address(), (scene.unit.config.target_port, scene.unit.config.service),
        b"attacker" * 2, 0, HostConfig(connect_retries=1, **config), 9,
    )  # fmt: skip
    return granted(scene, found)


def command(described: bytes, cdb: bytes, **fields) -> bytes:
    return srp.Command(cdb=cdb, tag=5, **fields).encode() + described


STRANGE = Range(0xDEAD_0000, 0xBAD, 512)
ATTACKS = {
    "nothing": [b""],
    "no type": [b"\xff" * 64],
    "cut short": [srp.Command().encode()[:20]],
    "a login": [srp.LoginRequest().encode()],
    "a key that there is not": [command(STRANGE.encode(), scsi.read_10(0, 1), in_format=1)],
    "to read by a key that there is not": [
        command(STRANGE.encode(), scsi.read_10(0, 1, scsi.WRITE_10), out_format=1)
    ],
    "a table that there is not": [
        command(
            descriptors.encode_indirect(STRANGE._replace(length=32), 512, []), scsi.read_10(0, 1), in_format=2
        )
    ],
    "one tag twice": [command(Range(1 << 32, 0, 0).encode() * 2, bytes(16))] * 2,
    "an answer to no question": [srp.Short(type=srp.CRED_RSP).encode()],
}


def test_more_than_was_granted_is_not_taken(network: Network) -> None:
    scene = Scene(network, hosts=2, request_limit=4)
    with scene.device() as device:
        hostile = attacker(scene, depth=32)
        network.run()
        memory = hostile._memory
        for tag in range(5):
            described = Range(memory.va(0), memory.rkey, 512).encode()
            cdb = scsi.read_10(9, 1, scsi.WRITE_10)
            hostile._send(srp.Command(tag=tag, cdb=cdb, out_format=1).encode() + described)
        network.run(lambda: hostile.turn() is None or bool(hostile.failed))
        assert "ended the channel" in hostile.failed
        device.write(1, b"b" * 512)
        network.run()
        assert len(scene.unit.channels) == 1
        assert not any(scene.disk.data[9 * 512 : 10 * 512])


@pytest.mark.parametrize("attack", ATTACKS)
def test_who_attacks_loses_its_channel_alone(network: Network, attack: str) -> None:
    scene = Scene(network, hosts=2, request_limit=4)
    with scene.device() as device:
        device.write(0, b"a" * 512)
        hostile = attacker(scene, depth=32)
        before = bytes(scene.disk.data)
        for message in ATTACKS[attack]:
            hostile._send(message)
        wait = device.start_write(1, b"b" * 512)
        network.run(lambda: hostile.turn() is None or bool(hostile.failed))
        wait()
        network.run()
        if attack == "one tag twice":  # both may have been answered, one after the other
            hostile.close()
            network.run()
        assert len(scene.unit.channels) == 1
        assert device.read(0, 2) == b"a" * 512 + b"b" * 512
        assert device.failovers == 0
        assert scene.disk.data[1024:] == before[1024:]


def test_a_message_that_is_too_long_for_its_buffer_ends_the_channel(network: Network) -> None:
    scene = Scene(network, hosts=2)
    hostile = attacker(scene, message_bytes=200)
    assert len(scene.unit.channels) == 1
    hostile._send(srp.Command(tag=1).encode().ljust(200, b"\0"))
    network.run()
    assert len(scene.unit.channels) == 1
    hostile.close()
    network.run()
    small = attacker(scene, message_bytes=100)
    small.qp.post_send(
        2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, [small._messages.element(0, 101)], None
    )  # fmt: skip
    small.qp.ring()
    network.run(lambda: small.turn() is None or bool(small.failed))
    assert small.failed
    network.run()
    assert not scene.unit.channels


def reaches(scene: Scene, state: str) -> bool:
    """Whether a task of the unit gets into a state."""
    return scene.network.run(
        lambda: any(task.state == state for each in scene.unit.channels for task in each.session.tasks)
    )


def test_a_reset_does_not_wait_for_a_channel_that_has_ended(network: Network) -> None:
    scene = Scene(network, hosts=2)
    with scene.device() as device:
        resetter = attacker(scene)
        network.run()
        network.impair("delay=50ms", scene.units[0], scene.hosts[0])
        wait = device.start_write(0, b"a" * 512)
        assert reaches(scene, FETCHING)
        resetter.session._under_way.add(77)
        resetter.under_way[77] = operation = Operation(bytes(6), table=resetter._free_tables.pop())
        resetter._send(srp.TaskManagement(tag=77, function=srp.LUN_RESET).encode())
        assert reaches(scene, CANCELLED)
        (broken,) = [each for each in scene.unit.channels if each.session.initiator != b"attacker" * 2]
        scene.unit.end_channel(broken)
        network.run(lambda: resetter.turn() or resetter.failed)
        assert operation.finished is not None
        network.impair("")
        wait()
        assert scene.disk.data[:512] == b"a" * 512


def test_a_reset_answers_others_before_anything_else_of_theirs_has_ended(network: Network) -> None:
    scene = Scene(network, hosts=2)
    resetter = attacker(scene)
    own_port = b"victim00" * 2
    victim = granted(scene, InitiatorChannel(
        scene.hosts[0].open(), 1, scene.address(), (scene.unit.config.target_port, scene.unit.config.service),
        own_port, 0, HostConfig(), 9,
    ))  # fmt: skip
    network.run()
    network.impair("delay=50ms", scene.units[0], scene.hosts[0])
    victim.start(Operation(scsi.read_10(0, 1, scsi.WRITE_10), 512, True, b"x" * 512))
    tag, message = victim.session.command(srp.lun_of(0), bytes(6), attribute=srp.ORDERED)
    victim.under_way[tag] = ordered = Operation(bytes(6), table=victim._free_tables.pop())
    victim._send(message)
    network.run(lambda: any(len(each.session.tasks) == 2 for each in scene.unit.channels))
    resetter._send(srp.TaskManagement(tag=77, function=srp.LUN_RESET).encode())
    before = network.now
    network.run(lambda: victim.turn() is None or ordered.finished)
    assert ordered.finished.status == scsi.TASK_ABORTED
    assert network.now - before < 80_000_000


# hostile units

LIES = {
    "no type": b"\xff" * 36,
    "cut short": srp.Response().encode()[:35],
    "a command that there is not": srp.Response(tag=1 << 40).encode(),
    "sense data beyond the message": srp.Response(tag=0, sense_valid=1, sense_bytes=1 << 31).encode(),
    "credit without end": srp.TargetRequest(request_limit_delta=0x7FFFFFFF).encode(),
    "the end": srp.TargetLogout(reason=1).encode(),
    "nothing": b"",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_host_leaves_a_unit_that_lies(
    network: Network, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(network, unit_ports=2)
    with scene.device(scene.route(unit_port=1), scene.route(unit_port=2)) as device:
        device.write(0, b"a" * 512)
        (channel,) = scene.unit.channels
        honest = TargetChannel._post_one

        def post(self: TargetChannel, work) -> None:
            if self is channel and work.message:
                work.message = LIES[lie]
            honest(self, work)

        monkeypatch.setattr(TargetChannel, "_post_one", post)
        assert device.read(0, 1) == b"a" * 512
        assert (device.failovers, device.route) == (1, device.routes[1])


def test_a_command_that_ends_every_channel_is_given_up(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(network)
    with scene.device() as device:
        honest = TargetSession._perform

        def perform(self: TargetSession, task: Task) -> None:
            if task.plan is not None and task.plan.direction == TO_DISK:
                self._log_out(srp.LOGOUT_NO_REASON)
            else:
                honest(self, task)

        monkeypatch.setattr(TargetSession, "_perform", perform)
        with pytest.raises(StorageError) as caught:
            device.write(0, b"x" * 512)
        assert caught.value.errno == errno.EIO
        assert "8 channels" in str(caught.value)
        assert device.read(0, 1) == bytes(512)


def test_short_data_are_an_error(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(network)
    with scene.device() as device:
        honest = TargetChannel._post_one

        def post(self: TargetChannel, work) -> None:
            if work.message[:1] == bytes([srp.RSP]):
                response = srp.Response.decode(work.message)
                work.message = srp.Response(
                    tag=response.tag, request_limit_delta=1, in_under=1, in_residual=512
                ).encode()
            honest(self, work)

        monkeypatch.setattr(TargetChannel, "_post_one", post)
        with pytest.raises(StorageError) as caught:
            device.read(0, 2)
        assert caught.value.errno == errno.EIO
        assert "512 bytes were not moved" in str(caught.value)


@pytest.mark.parametrize(
    "private_data",
    [
        b"",
        srp.LoginResponse(type=0xC1, request_limit_delta=1, max_it_bytes=64, max_ti_bytes=64).encode(),
        srp.LoginResponse(request_limit_delta=0, max_it_bytes=64, max_ti_bytes=64).encode(),
        srp.LoginResponse(request_limit_delta=1 << 31, max_it_bytes=64, max_ti_bytes=64).encode(),
        srp.LoginResponse(request_limit_delta=1, max_it_bytes=63, max_ti_bytes=64).encode(),
        srp.LoginResponse(request_limit_delta=1, max_it_bytes=64, max_ti_bytes=1 << 20).encode(),
    ],
)
def test_a_login_response_that_cannot_be_is_no_channel(
    network: Network, private_data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(network, hosts=2)
    monkeypatch.setattr(srp.LoginResponse, "encode", lambda self: private_data)
    with pytest.raises(ChannelFailed):
        attacker(scene)
    monkeypatch.undo()
    network.run()
    assert not scene.unit.channels


def test_answers_of_device_management_that_cannot_be(network: Network) -> None:
    """A unit whose agent tells of more than there is, or something else than it was asked."""
    scene = Scene(network)
    node = network.add()
    liar = node.open().register_agent(1, CLASS_DEV_MGT, 1, (METHOD_GET,), 16)
    answers: dict[int, bytes] = {}
    changes: dict[str, int] = {}

    def serve() -> bool:
        if liar.idle:
            return False
        arrival = liar.receive(0)
        asked = Mad.decode(arrival.mad).header
        header = MadHeader(**{
            "management_class": CLASS_DEV_MGT, "method": 0x81, "transaction_id": asked.transaction_id,
            "attribute_id": asked.attribute_id, "attribute_modifier": asked.attribute_modifier, **changes,
        })  # fmt: skip
        liar.send(Mad.make(header, answers.get(asked.attribute_id, b"")).encode(), arrival.source)
        return True

    network.tasks.append(serve)
    where = type(scene.address())(node.gid)
    host = scene.hosts[0].open()
    answers[0x10] = IoUnitInfo.of(1, [True] * 3).encode()
    answers[0x11] = IoControllerProfile(guid=5, service_entries=255).encode()
    found = find_controllers(host, 1, where)
    assert [(len(each.services), each.target) for each in found] == [(255, None)] * 3
    for changed in ({"status": 0x1C}, {"attribute_id": 0x12}, {"attribute_modifier": 7}):
        changes.clear()
        changes.update(changed)
        with pytest.raises(StorageError) as caught:
            find_controllers(host, 1, where)
        assert caught.value.errno == errno.EPROTO
