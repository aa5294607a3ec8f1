"""A block device and an I/O unit over real sockets, with threads; adapters in the program, in processes."""

from __future__ import annotations

import errno
import random
import threading

import pytest

from softhca.driver.adapters import HostAdapters
from softhca.machine import deferred_signals
from softhca.machine.condition import Condition
from softhca.runtime import devices
from softhca.storage import BlockDevice, FileDisk, IoUnit, Route, StorageError, UnitAddress, UnitConfig
from softhca.storage.initiator_channel import HostConfig

GUID = 0x1234
BLOCKS = 2048
PATIENT = HostConfig(connect_exponent=19, connect_retries=10, ack_timeout=16, retry_cnt=7)


@pytest.fixture(params=["embedded", "process"])
def names(request, loopback_address):
    """Names of three devices, each with an adapter of its own."""
    found = [f"disk{number}" for number in range(3)]
    for name in found:
        devices.add(f"{name}=udp:{loopback_address()}", request.param)
    yield found
    for name in found:
        devices.remove(name)


@pytest.fixture
def adapters():
    return HostAdapters()


@pytest.fixture
def unit(names, adapters, tmp_path):
    """A unit on the last two devices, which serves by threads."""
    disk = FileDisk.create(tmp_path / "disk", BLOCKS * 512)
    opened = [adapters.acquire(name) for name in names[1:]]
    with IoUnit([(device, 1) for device in opened], [disk], UnitConfig(GUID)) as found:
        found.start()
        yield found
    for device in opened:
        adapters.release(device)
    disk.close()


def address(adapters: HostAdapters, name: str) -> UnitAddress:
    return UnitAddress(adapters.ports(name)[0].gid)


def test_a_file_is_written_and_read_by_several_threads(names, adapters, unit, tmp_path) -> None:
    data = random.Random(1).randbytes(BLOCKS * 512)
    route = Route(names[0], 1, address(adapters, names[1]))
    failures = []

    with BlockDevice(adapters, [route], config=PATIENT) as device:

        def work(number: int) -> None:
            try:
                dice = random.Random(number)
                first = number * BLOCKS // 4
                for lba in range(first, first + BLOCKS // 4, 64):
                    count = dice.choice((1, 7, 64))
                    device.write(lba, data[lba * 512 : (lba + 64) * 512])
                    at = lba * 512
                    assert device.read(lba, count) == data[at : at + count * 512]
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not failures
        device.flush()
        assert device.read(0, BLOCKS) == data
        assert device.failovers == 0
    assert (tmp_path / "disk").read_bytes() == data


def test_when_an_end_of_the_unit_goes_the_host_goes_on_by_the_other(names, adapters, unit) -> None:
    routes = [Route(names[0], 1, address(adapters, name)) for name in names[1:]]
    with BlockDevice(adapters, routes, config=PATIENT) as device:
        device.write(0, b"a" * 512)
        adapters.open_adapters()[names[1]].close()
        device.write(1, b"b" * 512)
        assert device.read(0, 2) == b"a" * 512 + b"b" * 512
        assert (device.failovers, device.route) == (1, routes[1])
        assert len(unit.channels) == 1


def test_a_device_that_is_closed_lets_everybody_go(names, adapters, unit) -> None:
    device = BlockDevice(adapters, [Route(names[0], 1, address(adapters, names[1]))], config=PATIENT)
    unit._lock.acquire()  # it serves nothing meanwhile
    try:
        wait = device.start_write(0, bytes(512))
        caught = []

        def work() -> None:
            with pytest.raises(StorageError) as found:
                wait()
            caught.append(found.value)

        thread = threading.Thread(target=work)
        thread.start()
        while not device._driving:
            pass
        device.close()
        thread.join()
    finally:
        unit._lock.release()
    assert caught[0].errno == errno.ESHUTDOWN


@pytest.mark.skipif(deferred_signals.__file__.endswith(".py"), reason="interpreted no signal is deferred")
def test_no_signal_handler_keeps_those_who_wait_from_being_woken(names, adapters, unit, monkeypatch) -> None:
    """It would raise between the last two steps of who drives, and the others wait without a limit."""
    tell, within = Condition.notify_all, []

    def tells(condition):
        if condition is device._changed:
            within.append(deferred_signals.within())
        tell(condition)

    with BlockDevice(adapters, [Route(names[0], 1, address(adapters, names[1]))], config=PATIENT) as device:
        monkeypatch.setattr(Condition, "notify_all", tells)
        device.read(0, 1)
    monkeypatch.undo()
    assert within
    assert all(within)
