"""fork() with open devices: the parent goes on, the child's inheritance is dead, closed, and says so."""

import contextlib
import ctypes
import errno
import json
import os
import stat

import pytest
from runtime_pair import End, join, take

from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.runtime import devices

MODES = ["embedded", "process"]


@pytest.fixture
def others():
    """What a child of this process has open before there are the devices."""
    return json.loads(in_child(descriptors))


@pytest.fixture(params=MODES)
def drivers(request, others, loopback_address):
    words = (f"{name}=udp:{loopback_address()}?buffer=212992" for name in ("fork0", "fork1"))
    devices.add(",".join(words), request.param)
    opened = [registry.open_device("fork0"), registry.open_device("fork1")]
    yield opened
    for driver in opened:
        driver.close()
    devices.remove("fork0")
    devices.remove("fork1")


def in_child(work):
    """What ``work()`` gives in a forked child, as text; an exception as its type and message."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = str(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        text = answers.read()
    os.waitpid(pid, 0)
    return text


def refusal(call):
    try:
        return call()
    except DriverError as error:
        return error.errno, "fork" in str(error)


def test_the_parent_goes_on(drivers):
    here, there = End(drivers[0], 4096), End(drivers[1], 4096)
    join(here, there)
    for number in range(5):
        assert in_child(lambda: "born") == "born"
        there.qp.post_recv(number, there.element(4096))
        here.qp.post_send(2, 2, 0, number, 0, 0, 0, 0, 0, 0, 0, here.element(4096), None)
        here.qp.ring()
        assert [wc.status for end in (there, here) for wc in take(end.cq, 1)] == [0, 0]


def test_inherited_objects_are_dead_in_the_child_and_say_so(drivers):
    end = End(drivers[0], 4096)
    calls = [drivers[0].alloc_pd, end.qp.query, lambda: end.cq.poll(1), drivers[0].progress,
             lambda: drivers[0].next_event(0),
             lambda: end.qp.post_send(2, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, end.element(8), None)]
    expected = str([(errno.EIO, True)] * len(calls))
    assert in_child(lambda: [refusal(call) for call in calls]) == expected
    assert drivers[0].alloc_pd() > 0


def test_closing_in_the_child_does_not_touch_the_parents_device(drivers):
    end = End(drivers[0], 4096)
    assert in_child(lambda: [driver.close() for driver in drivers]) == "[None, None]"
    assert end.qp.query()
    assert devices.find("fork0").resources()["QP"] == 1


def descriptors():
    """How many sockets, epolls and eventfds, memfds this process has open."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return [sum(link.startswith(kind) for link in links) for kind in ("socket:", "anon_inode:", "/memfd:")]


def test_the_childs_copies_of_the_descriptors_are_closed(others, drivers):
    before = descriptors()
    assert before[0] > others[0]
    assert before[2] > others[2]
    # The mapping of a directory for peers keeps a descriptor; host memory's own one is closed.
    directories = sum(devices.find(f"fork{number}").mode == "embedded" for number in range(len(drivers)))
    assert json.loads(in_child(descriptors)) == [others[0], others[1], others[2] + directories]
    assert descriptors() == before


def test_memory_of_the_memfd_stays_shared(drivers):
    buffer = drivers[0].alloc_host_memory(4096)
    word = ctypes.c_uint64.from_address(buffer.address)
    word.value = 1

    def add():
        word.value += 41
        return word.value

    assert in_child(add) == "42"
    assert word.value == 42


def test_the_child_opens_adapters_anew(drivers, loopback_address):
    address = loopback_address()

    def talk():
        devices.add(f"child=udp:{address}", devices.find("fork0").mode)
        driver = registry.open_device("child")
        one, other = End(driver, 4096), End(driver, 4096)
        join(one, other)
        other.qp.post_recv(1, other.element(4096))
        one.qp.post_send(2, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, one.element(4096), None)
        one.qp.ring()
        statuses = [wc.status for end in (other, one) for wc in take(end.cq, 1)]
        driver.close()
        return statuses

    assert in_child(talk) == "[0, 0]"


def test_the_child_shares_the_parents_adapter(drivers):
    drivers[0].alloc_pd()

    def attach():
        driver = registry.open_device("fork0")
        driver.alloc_pd()
        held = driver.session.channel.resources()["counts"]["PD"]
        driver.close()
        return held

    assert in_child(attach) == "2"
    assert devices.find("fork0").resources()["PD"] == 1


def test_the_child_finds_an_adapter_whose_address_was_chosen(loopback_address):
    devices.add("chosen=udp:*?buffer=212992")
    driver = registry.open_device("chosen")
    gid = driver.query_gid(1, 0)

    def look():
        again = registry.open_device("chosen")
        return devices.find("chosen").engine is None and again.query_gid(1, 0) == gid

    assert in_child(look) == "True"
    driver.close()
    devices.remove("chosen")


def socket_inodes(of):
    """Of the sockets among these descriptors: all epolls and eventfds of a system have one inode."""
    found = set()
    for fd in of:
        with contextlib.suppress(OSError):  # that of a listing
            status = os.fstat(fd)
            if stat.S_ISSOCK(status.st_mode):
                found.add(status.st_ino)
    return found


def own_sockets():
    return socket_inodes(map(int, os.listdir("/proc/self/fd")))


def test_a_child_that_is_made_while_a_device_closes_does_not_keep_its_address(loopback_address, monkeypatch):
    """It kept the sockets as long as it lived, and the parent could not open the device again."""
    devices.add(f"fork0=udp:{loopback_address()}", "embedded")
    driver = registry.open_device("fork0")
    engine = devices.find("fork0").engine
    sockets = socket_inodes(engine.progress._descriptors)
    assert sockets
    stop, kept = engine.progress.close, []

    def fork_first():
        kept.append(in_child(lambda: len(sockets & own_sockets())))
        stop()

    monkeypatch.setattr(engine.progress, "close", fork_first)
    driver.close()
    devices.remove("fork0")
    assert kept == ["0"]
