"""A block device outlives its adapters, ports, paths and the unit's end: what was not acknowledged is
repeated along another route, and has its effect once, in its place.
"""

from __future__ import annotations

import errno
import itertools
import random

import pytest
from storage_scene import Scene, cut

from softhca.storage import IoUnit, MemoryDisk, StorageError, UnitConfig
from softhca.storage.task_states import FETCHING
from softhca.testing import Network

LINKS = pytest.mark.parametrize("link", ["ipv4", "native"])


def paired(network: Network, **options) -> Scene:
    """Two adapters in the host, two in the unit."""
    return Scene(network, hosts=2, unit_adapters=2, **options)


def two_routes(scene: Scene):
    return scene.route(0, 1, 0), scene.route(1, 1, 1)


@LINKS
def test_a_port_that_goes_down_is_left_at_once(link: str) -> None:
    with Network(link=link) as network:
        scene = paired(network)
        with scene.device(*two_routes(scene)) as device:
            device.write(0, b"a" * 512)
            before = network.now
            scene.hosts[0].adapter.set_link(1, False)
            device.write(1, b"b" * 512)
            assert (device.failovers, device.route) == (1, device.routes[1])
            assert network.now - before < 1_000_000  # no retry was needed
            assert not scene.hosts[0].adapter.queue_pairs
            assert device.read(0, 2) == b"a" * 512 + b"b" * 512


@LINKS
def test_another_port_of_the_same_adapter_will_do(link: str) -> None:
    with Network(link=link) as network:
        scene = Scene(network, ports=2, unit_ports=2)
        with scene.device(scene.route(0, 1, 0, 1), scene.route(0, 2, 0, 2)) as device:
            for number, port in enumerate((1, 2, 1)):
                device.write(number, bytes([number + 1]) * 512)
                assert device.route.port == port
                scene.hosts[0].adapter.set_link(port, False)
                scene.hosts[0].adapter.set_link(3 - port, True)
            assert device.read(0, 3) == b"\1" * 512 + b"\2" * 512 + b"\3" * 512
            assert device.failovers == 3


def test_another_port_that_goes_down_is_nobodys_matter() -> None:
    with Network() as network:
        scene = Scene(network, ports=2, unit_ports=2)
        with scene.device(scene.route(0, 1, 0, 1), scene.route(0, 2, 0, 2)) as device:
            scene.hosts[0].adapter.set_link(2, False)
            device.write(0, b"a" * 512)
            assert device.failovers == 0


def test_a_path_that_is_cut_is_found_out_by_retries() -> None:
    with Network() as network:
        scene = paired(network)
        with scene.device(*two_routes(scene)) as device:
            cut(network, (scene.hosts[0], 1))
            device.write(0, b"a" * 512)
            assert device.failovers == 1
            assert scene.disk.data[:512] == b"a" * 512
            network.run()
            # the unit finds out by itself, or has been told by the login that followed
            assert len(scene.unit.channels) == 1


def test_the_units_end_may_fail() -> None:
    with Network() as network:
        scene = paired(network)
        with scene.device(*two_routes(scene)) as device:
            device.write(0, b"a" * 512)
            for found in scene.units[0].devices:
                found.close()
            assert device.read(0, 1) == b"a" * 512
            assert device.failovers == 1


def test_a_dead_adapter_of_the_host_is_left() -> None:
    with Network() as network:
        scene = paired(network)
        with scene.device(*two_routes(scene)) as device:
            device.write(0, b"a" * 512)
            wait = device.start_write(1, b"b" * 512)
            scene.adapters.open_adapters()[scene.hosts[0].name].close()
            wait()
            assert device.read(0, 2) == b"a" * 512 + b"b" * 512
            assert device.route == device.routes[1]


def test_when_no_route_is_left_all_operations_end() -> None:
    with Network() as network:
        scene = paired(network)
        device = scene.device(*two_routes(scene), config={"connect_retries": 1, "connect_exponent": 10})
        cut(network, (scene.hosts[0], 1), (scene.hosts[1], 1))
        waits = [device.start_write(number, bytes(512)) for number in range(30)]
        for each in waits:
            with pytest.raises(StorageError) as caught:
                each()
            assert caught.value.errno == errno.EHOSTUNREACH
        with pytest.raises(StorageError):
            device.read(0, 1)
        device.close()


def test_a_route_that_comes_back_is_taken_again() -> None:
    with Network() as network:
        scene = Scene(network)
        with scene.device(config={"connect_exponent": 16}) as device:
            heal = cut(network, (scene.hosts[0], 1))
            network.after(3_000_000_000, heal)
            device.write(0, b"a" * 512)
            assert scene.disk.data[:512] == b"a" * 512
            assert device.failovers == 1


def test_a_disk_is_known_by_its_identification(monkeypatch: pytest.MonkeyPatch) -> None:
    with Network() as network:
        scene = paired(network)
        with scene.device(*two_routes(scene)) as device:
            monkeypatch.setattr(scene.unit.disk_controller.units[0], "serial", b"another")
            scene.hosts[0].adapter.set_link(1, False)
            with pytest.raises(StorageError, match="another disk"):
                device.write(0, b"x" * 512)
        assert not any(scene.disk.data)


def test_another_disk_at_the_end_of_a_route_is_not_written_to() -> None:
    with Network() as network:
        scene = paired(network)
        scene.unit.close()
        units = [
            IoUnit([(node.open(), 1)], [MemoryDisk(64 + number)], UnitConfig(guid=7))
            for number, node in enumerate(scene.units)
        ]
        for each in units:
            network.tasks.append(each.serve)
        with scene.device(*two_routes(scene)) as device:
            scene.hosts[0].adapter.set_link(1, False)
            with pytest.raises(StorageError) as caught:
                device.write(0, b"x" * 512)
            assert caught.value.errno == errno.EHOSTUNREACH
            assert "not what it was" in str(caught.value)
        assert not any(units[1].disk_controller.units[0].disk.data)


def is_fetching(scene: Scene) -> bool:
    """Whether the unit reads the data of a write."""
    return any(task.state == FETCHING for each in scene.unit.channels for task in each.session.tasks)


class Ledger(MemoryDisk):
    """Writes down each write that has had an effect: block and its first byte."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self.effects: list[tuple[int, int]] = []

    def write_from(self, offset: int, buffer: memoryview) -> None:
        super().write_from(offset, buffer)
        self.effects.append((offset // 512, buffer[0]))


def test_a_write_whose_response_is_lost_has_its_effect_before_what_follows() -> None:
    """The unit has written, and the host does not know: it writes again, and only then goes on."""
    with Network() as network:
        scene = paired(network, disks=[Ledger(64)])
        with scene.device(*two_routes(scene)) as device:
            network.impair("loss=100%", scene.units[0], scene.hosts[0])
            # the host's commands arrive, but for data the unit would have to read
            wait = device.start_read(0, 1)
            assert wait() == bytes(512)
            assert device.failovers == 1
            wait = device.start_write(5, b"\1" * 512)
            network.run(lambda: scene.disk.effects)
            scene.hosts[1].adapter.set_link(1, False)  # the response is on its way
            network.impair("")
            wait()
            device.write(5, b"\2" * 512)
            network.run()
            assert scene.disk.effects == [(5, 1), (5, 1), (5, 2)]


def test_what_is_repeated_is_so_in_order() -> None:
    with Network() as network:
        scene = paired(network, disks=[Ledger(64)])
        with scene.device(*two_routes(scene)) as device:
            scene.stopped = True
            waits = [device.start_write(5, bytes([number]) * 512) for number in (1, 2, 3)]
            network.run()
            scene.hosts[0].adapter.set_link(1, False)
            scene.stopped = False
            for each in waits:
                each()
            assert [effect for effect, _ in itertools.groupby(scene.disk.effects)][-3:] == [
                (5, 1), (5, 2), (5, 3),
            ]  # fmt: skip


def test_an_old_write_has_no_effect_after_a_login() -> None:
    """The unit has an old write whose data have not come when the host logs in anew: it is dropped then."""
    with Network() as network:
        scene = paired(network, disks=[Ledger(64)])
        with scene.device(*two_routes(scene)) as device:
            # what the unit asks of the host arrives late: the command is there, its data are not
            network.impair("delay=50ms", scene.units[0], scene.hosts[0])
            wait = device.start_write(5, b"\1" * 512)
            network.run(lambda: is_fetching(scene))
            scene.hosts[0].adapter.set_link(1, False)
            wait()
            device.write(5, b"\2" * 512)
            scene.hosts[0].adapter.set_link(1, True)
            network.impair("")
            network.elapse(1_000_000_000)
            assert scene.disk.effects == [(5, 1), (5, 2)]


@pytest.mark.parametrize("seed", range(6))
def test_blocks_are_right_whatever_fails_when(seed: int) -> None:
    """Writes of few blocks in a row, each begun when those before have ended, while ports and paths fail by
    the dice: the disk takes each write's effect in order, and in the end reads what was written last.
    """
    dice = random.Random(seed)
    with Network("loss=2%,reorder=3%,duplicate=3%", seed=seed) as network:
        scene = paired(network, disks=[Ledger(16)])
        last: dict[int, int] = {}
        begun: list[tuple[int, int]] = []

        def disturb() -> None:
            side = dice.randrange(2)
            what = dice.randrange(3)
            if what == 0:
                scene.hosts[side].adapter.set_link(1, False)
                network.after(dice.randrange(50_000_000), lambda: scene.hosts[side].adapter.set_link(1, True))
            elif what == 1:
                heal = cut(network, (scene.units[side], 1))
                network.after(dice.randrange(400_000_000), heal)
            else:
                for channel in scene.unit.channels[:1]:
                    channel.failed = True
            network.after(dice.randrange(400_000_000), disturb)

        config = {"connect_exponent": 14, "ack_timeout": 10, "retry_cnt": 4}
        with scene.device(*two_routes(scene), config=config) as device:
            network.after(dice.randrange(10_000_000), disturb)
            for number in range(120):
                block, value = dice.randrange(4), number + 1
                device.write(block, bytes([value]) * 512)
                begun.append((block, value))
                last[block] = value
                network.elapse(dice.randrange(20_000_000))
            for block, value in last.items():
                assert device.read(block, 1) == bytes([value]) * 512
            assert device.failovers
        assert [effect for effect, _ in itertools.groupby(scene.disk.effects)] == begun


def test_a_login_at_one_adapter_ends_what_another_has_not_looked_at() -> None:
    """The data of an old write are in the unit's memory, but nobody has looked at that adapter since."""
    with Network() as network:
        scene = paired(network, disks=[Ledger(64)])
        with scene.device(scene.route(1, 1, 1), scene.route(0, 1, 0)) as device:
            wait = device.start_write(5, b"\1" * 512)
            network.run(lambda: is_fetching(scene))
            scene.stopped = True
            first, second = (node.devices[0] for node in scene.units)
            network.run()
            scene.hosts[1].adapter.set_link(1, False)
            network.tasks.append(lambda: scene.unit.serve(first))
            wait()
            device.write(5, b"\2" * 512)
            network.tasks.append(lambda: scene.unit.serve(second))
            network.run()
            assert scene.disk.effects == [(5, 1), (5, 2)]
            assert len(scene.unit.channels) == 1
