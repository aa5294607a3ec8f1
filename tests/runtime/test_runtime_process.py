"""The adapter in a process of its own: attaching, deaths on both sides, foreign memory, hostility."""

import errno
import gc
import os
import select
import signal
import subprocess
import threading
from types import SimpleNamespace

import pytest
from runtime_pair import End, take
from runtime_programs import Program
from runtime_served import BOUND_S, serving, until

from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.driver.poll_back_off import CONTENTION_MEMORY_NS, PEER_NS, SLEEP_FRACTION
from softhca.machine.primitives import address_of
from softhca.memory.host import HostMemory
from softhca.queues.handshake import (
    ATTACH,
    DESCRIPTOR,
    DETACH,
    READY,
    RESOURCES,
    HostFrames,
    encode_answer,
    encode_request,
)
from softhca.queues.layout import ABI_VERSION, MESSAGE_HEADER, MESSAGE_MAGIC
from softhca.runtime import adapter_process, devices, messages, process
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.assembly import assemble
from softhca.runtime.clock import NS_PER_S
from softhca.runtime.process import ProcessChannel
from softhca.runtime.server import AdapterServer
from softhca.runtime.specification import parse_one

DEVICE_FATAL = 8
ERR = 6
HELD = ("QP", "AH", "SRQ", "CQ", "MW", "FAST_MR", "MR", "ARENA", "PD")
"""What ``application_program.py`` makes one of at least."""

NOTHING = dict.fromkeys(
    (*HELD, "DM", "AGENT", "XRCD", "CM", "EEC", "RDD", "FLOW", "RWQ_IND_TABLE", "WQ"), 0
)


@pytest.fixture
def device(loopback_address):
    """A device whose adapter lives in a process of its own, added to the registry as ``own``."""
    before = set(os.listdir("/proc/self/fd")), threading.active_count()
    devices.add(f"own=udp:{loopback_address()}?buffer=212992", "process")
    found = devices.find("own")
    yield found
    devices.remove("own")
    assert found.process is None or found.process.pid == 0
    assert (set(os.listdir("/proc/self/fd")), threading.active_count()) == before


def open_own():
    return registry.open_device("own")


def test_contexts_of_one_device_share_its_adapter_process(device):
    one, other = open_own(), open_own()
    assert one.guid == other.guid
    one.alloc_pd()
    other.alloc_pd()
    assert device.resources()["PD"] == 2
    one.close()
    assert device.resources()["PD"] == 1
    other.close()
    assert device.resources() == {}


def test_the_process_ends_with_its_last_application_and_starts_anew(device):
    driver = open_own()
    first = device.process.pid
    driver.close()
    assert device.process.pid == 0
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    driver = open_own()
    assert device.process.pid not in (0, first)
    driver.close()


def test_an_address_that_is_taken_is_named(loopback_address):
    address = loopback_address()
    devices.add(f"owner=udp:{address}?share=0")
    driver = registry.open_device("owner")
    devices.add(f"thief=udp:{address}", "process")
    with pytest.raises(DriverError, match=f"thief: {address} port 4791") as caught:
        registry.open_device("thief")
    assert caught.value.errno == errno.EADDRINUSE
    devices.remove("thief")
    driver.close()
    devices.remove("owner")


def test_an_application_that_is_killed_leaves_nothing_behind(device):
    driver = open_own()
    program = Program("application_program.py", f"app=unix:{device.process.path}", "process")
    program.hear()
    held = device.resources()
    assert all(held[kind] for kind in HELD)
    program.kill()
    until(lambda: device.resources() == NOTHING)
    assert device.process.pid
    program.end()
    driver.close()


def test_an_application_that_leaves_leaves_nothing_behind(device):
    driver = open_own()
    program = Program("application_program.py", f"app=unix:{device.process.path}", "process")
    program.hear()
    assert program.end() == 0
    assert device.resources() == NOTHING
    driver.close()


def test_calls_fail_clearly_when_the_adapter_process_has_died(device):
    driver = open_own()
    end = End(driver, 4096)
    os.kill(device.process.pid, signal.SIGKILL)
    with pytest.raises(DriverError, match="adapter") as caught:
        driver.alloc_pd()
    assert caught.value.errno == errno.EIO
    for call in (driver.query_device, end.qp.query, lambda: end.cq.poll(1), driver.progress):
        with pytest.raises(DriverError, match="adapter"):
            call()
    assert driver.next_event(0) == (DEVICE_FATAL, 0)
    with pytest.raises(DriverError, match="adapter"):
        driver.next_event(0)
    driver.close()


def test_polling_does_not_go_on_for_ever_when_the_adapter_process_has_died(device):
    driver = open_own()
    end = End(driver, 4096)
    os.kill(device.process.pid, signal.SIGKILL)
    with pytest.raises(DriverError, match="adapter"):
        take(end.cq, 1)
    driver.close()


def test_one_that_waits_for_a_completion_is_told_that_the_adapter_process_died(device):
    driver = open_own()
    end = End(driver, 4096)
    end.cq.arm()
    threading.Timer(0.02, os.kill, (device.process.pid, signal.SIGKILL)).start()
    with pytest.raises(DriverError, match="adapter"):
        driver.wait_completion("channel", BOUND_S)
    driver.close()


def test_descriptors_are_readable_when_the_adapter_process_has_died(device):
    driver = open_own()
    descriptors = driver.completion_descriptor("channel"), driver.event_descriptor()
    assert select.select(descriptors, [], [], 0)[0] == []
    os.kill(device.process.pid, signal.SIGKILL)
    for each in descriptors:
        assert select.select([each], [], [], BOUND_S)[0] == [each]
    with pytest.raises(DriverError, match="adapter"):
        driver.wait_completion("channel", BOUND_S)
    assert driver.next_event(BOUND_S) == (DEVICE_FATAL, 0)
    assert select.select(descriptors, [], [], 0)[0] == list(descriptors), "it stays so"
    driver.close()


def test_the_death_of_the_adapter_process_is_a_fatal_event_of_the_device(device):
    driver = open_own()
    threading.Timer(0.02, os.kill, (device.process.pid, signal.SIGKILL)).start()
    assert driver.next_event(BOUND_S) == (DEVICE_FATAL, 0)
    driver.close()


def test_after_a_death_the_device_can_be_opened_again(device):
    dead = open_own()
    os.kill(device.process.pid, signal.SIGKILL)
    with pytest.raises(DriverError, match="adapter"):
        dead.alloc_pd()
    driver = open_own()
    assert driver.alloc_pd() > 0
    dead.close()
    driver.close()


def test_foreign_memory_that_cannot_be_reached_is_refused_and_host_memory_works(device, monkeypatch):
    monkeypatch.setattr("softhca.runtime.process.address_of", lambda probe: 4096)
    driver = open_own()
    pd = driver.alloc_pd()
    memory = bytearray(4096)
    with pytest.raises(DriverError, match="host memory") as caught:
        driver.reg_mr(pd, address_of(memory), 4096, 7, None, memory)
    assert caught.value.errno in (errno.EFAULT, errno.EPERM)
    buffer = driver.alloc_host_memory(4096)
    assert driver.reg_mr(pd, buffer.address, 4096, 7).rkey
    assert device.resources()["MR"] == 1
    driver.close()


def test_an_idle_adapter_process_sleeps(device):
    driver = open_own()
    channel = device._channels[0]
    before = channel.resources()["sleeps"]
    threading.Event().wait(0.3)
    # the look itself wakes it: once for each request
    assert channel.resources()["sleeps"] - before <= 3
    driver.close()


def packed(message, body=b"", error=0):
    """A message as it should not be."""
    return MESSAGE_HEADER.packing().pack(MESSAGE_MAGIC, ABI_VERSION, message, error, len(body)) + body


CONTROL, DOORBELLS = HostFrames.CONTROL_PAGES, HostFrames.DOORBELL_PAGES
FRAMES = {"control": [(1, CONTROL)], "doorbells": [(400, DOORBELLS)], "flag": 500}
HOSTILE = [
    encode_request(DESCRIPTOR, {}),
    encode_answer(READY, {"place": b"127.0.0.1"}),
    packed(4711),
    packed(ATTACH),
    packed(ATTACH, b"\xff" * 60_000),
    packed(DETACH, b"more"),
    packed(DETACH, error=errno.EIO),
    encode_request(ATTACH, {}),
    encode_request(ATTACH, {**FRAMES, "flag": 0}),
    encode_request(ATTACH, {**FRAMES, "flag": 0xFFFFFFFF}),
    encode_request(ATTACH, {**FRAMES, "control": [(1, 1)]}),
    encode_request(ATTACH, {**FRAMES, "control": [(1, CONTROL - 1)]}),
    encode_request(ATTACH, {**FRAMES, "control": [(0, CONTROL)]}),
    encode_request(ATTACH, {**FRAMES, "control": [(0xFFFFFFFF, CONTROL)]}),
    encode_request(ATTACH, {**FRAMES, "control": [(1 << 30, CONTROL)]}),
    encode_request(ATTACH, {**FRAMES, "control": [(1, 0xFFFFFFFF)] * 8_000}),
    encode_request(ATTACH, {**FRAMES, "doorbells": [(400, 0), (400, DOORBELLS)]}),
    encode_request(ATTACH, {**FRAMES, "doorbells": [(1 << 30, DOORBELLS)]}),
]


@pytest.fixture(scope="module")
def served(loopback_address):
    """A device that is open for all hostile applications of this module."""
    devices.add(f"served=udp:{loopback_address()}", "process")
    driver = registry.open_device("served")
    yield driver
    driver.close()
    devices.remove("served")


@pytest.mark.parametrize("message", HOSTILE)
@pytest.mark.parametrize("passed", ["nothing", "pipes", "eventfds", "memory", "memory alone"])
def test_a_hostile_application_is_refused_and_the_others_are_served(served, message, passed):
    mine = devices.find("served")
    pipes = os.pipe()
    eventfds = [os.eventfd(0), os.eventfd(0)]
    memory = HostMemory(1 << 26)
    descriptors = {"nothing": (), "pipes": (memory.fd, *pipes), "eventfds": (pipes[0], *eventfds),
                   "memory": (memory.fd, *eventfds), "memory alone": (memory.fd,)}[passed]
    control = adapter_process.connect_to(mine.process.path, "hostile")
    messages.send_packet(control, message, descriptors)
    with pytest.raises(OSError, match=r".") as caught:
        adapter_process.ask(control, READY)
    assert caught.value.errno in (errno.EPROTO, errno.EINVAL, errno.EFAULT)
    control.close()
    messages.close_all((*pipes, *eventfds))
    memory.close()
    assert served.alloc_pd() > 0


def test_an_application_attaches_once(device):
    driver = open_own()
    channel = device._channels[0]
    with pytest.raises(OSError, match="attached already"):
        channel._attach()
    driver.close()


def test_what_is_no_message_ends_the_connection_alone(device):
    driver = open_own()
    control = adapter_process.connect_to(device.process.path, "hostile")
    control.send(b"\xff\xfe")
    assert control.recv(100) == b""
    control.close()
    assert driver.alloc_pd() > 0
    driver.close()


def test_a_socket_that_nobody_serves_is_named():
    devices.add("nobody=unix:@softhca-nobody", "process")
    with pytest.raises(DriverError, match="no adapter process at @softhca-nobody"):
        registry.open_device("nobody")
    devices.remove("nobody")


def test_a_served_adapter_stays_until_its_input_ends(loopback_address):
    path = f"@softhca-test-{os.getpid()}"
    program = Program("../../src/softhca/runtime/process_main.py", f"s=udp:{loopback_address()}",
                      "--listen", path, "--stay")
    assert program.child.stdout.readline() == "ready\n"
    process = AdapterProcess(parse_one(f"s=unix:{path}"))
    for _ in range(2):
        channel = ProcessChannel(process)
        assert channel.resources()["hosts"] == 1
        channel.close()
    assert program.end() == 0
    gc.collect()


class Replaced:
    """An object of which some methods are others."""

    def __init__(self, plain, **methods):
        self._plain = plain
        vars(self).update(methods)

    def __getattr__(self, name):
        return getattr(self._plain, name)


@pytest.fixture
def server(loopback_address):
    """A served adapter in a thread of this process."""
    with serving(loopback_address()) as made:
        yield made


def test_an_application_in_another_pid_namespace_is_refused(server, monkeypatch):
    monkeypatch.setattr("softhca.runtime.messages.peer_of", lambda control: (0, os.getuid()))
    with pytest.raises(OSError, match="another PID namespace") as caught:
        ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))
    assert caught.value.errno == errno.EPERM


def test_a_process_that_has_ended_is_refused(server, monkeypatch):
    child = subprocess.Popen(["true"])
    child.wait()
    monkeypatch.setattr("softhca.runtime.messages.peer_of", lambda control: (child.pid, os.getuid()))
    with pytest.raises(OSError, match=f"process {child.pid} of the application"):
        ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))


@pytest.mark.parametrize(("address", "granted"), [(None, True), (4096, False)])
def test_the_adapter_is_told_whether_it_may_reach_foreign_memory(server, monkeypatch, address, granted):
    sides = []
    plain = server.adapter.attach_host

    def attach_host(side):
        sides.append(side)
        return plain(side)

    monkeypatch.setattr(server, "adapter", Replaced(server.adapter, attach_host=attach_host))
    if address:
        monkeypatch.setattr("softhca.runtime.process.address_of", lambda probe: address)
    channel = ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))
    assert [(side.pid, side.foreign) for side in sides] == [(os.getpid(), granted)]
    assert channel.foreign is granted
    channel.close()


def test_who_asks_is_told_how_many_are_attached_not_how_many_have_come(server):
    process = AdapterProcess(parse_one(f"s=unix:{server.path}"))
    come = [adapter_process.connect_to(server.path, "come") for _ in range(2)]
    told = [adapter_process.ask(come[0], RESOURCES)[0]["hosts"]]
    for _ in range(3):
        come.append(ProcessChannel(process))
        told.append(adapter_process.ask(come[1], RESOURCES)[0]["hosts"])
    come.pop().close()
    told.append(adapter_process.ask(come[0], RESOURCES)[0]["hosts"])
    assert told == [0, 1, 2, 3, 2]
    for each in come:
        each.close()


def test_an_application_whose_process_has_ended_is_let_go_although_its_socket_is_open(server, monkeypatch):
    """Before the next turn: `test_runtime_served_turns`."""
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    monkeypatch.setattr("softhca.runtime.messages.peer_of", lambda control: (child.pid, os.getuid()))
    channel = ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))
    until(lambda: len(server.adapter.hosts) == 1)
    child.kill()
    life = os.pidfd_open(child.pid)
    assert select.select([life], [], [], BOUND_S)[0]
    channel.kick()  # its socket is open as before
    until(lambda: not server.adapter.hosts)
    channel.close()
    child.wait()
    child.stdin.close()
    os.close(life)


def test_a_server_that_has_ended_may_be_stopped_again_and_touches_no_descriptor(loopback_address):
    adapter, link = assemble(parse_one(f"here=udp:{loopback_address()}"))
    served = AdapterServer(adapter, (link,))  # for nobody: it ends at once
    served.serve()
    taken = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(8)]  # its numbers among them
    served.stop()
    for descriptor in taken:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(descriptor)
        os.close(descriptor)


def test_when_an_adapter_process_fails_it_says_why_and_its_applications_are_told(server, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("an engine never raises")

    devices.add(f"failing=unix:{server.path}")
    driver = registry.open_device("failing")
    monkeypatch.setattr(server, "_turns", Replaced(server._turns, run=broken, turn=broken))
    os.eventfd_write(server._stop, 1)  # should it sleep
    until(lambda: server.loop.dead)
    with pytest.raises(DriverError, match="adapter") as caught:
        driver.alloc_pd()
    assert caught.value.errno == errno.EIO
    assert driver.next_event(0) == (DEVICE_FATAL, 0)
    until(lambda: "an engine never raises" in caplog.text)
    assert server.loop.dead
    driver.close()
    devices.remove("failing")


def test_who_polls_beside_programs_that_compute_naps_and_does_not_yield(server, monkeypatch):
    """A yield would cost a time slice of theirs each time."""
    devices.add(f"contended=unix:{server.path}")
    driver = registry.open_device("contended")
    moments, naps, yields = [10**9], [], []

    def give_way() -> None:
        yields.append(moments[0])
        moments[0] += PEER_NS + 1

    monkeypatch.setattr(process, "now_ns", lambda: moments[0])
    monkeypatch.setattr(process, "yield_processor", give_way)
    monkeypatch.setattr(process, "time", SimpleNamespace(sleep=naps.append))
    driver.progress()
    assert (len(yields), len(naps)) == (1, 0)
    for _ in range(3):
        moments[0] += CONTENTION_MEMORY_NS // 4
        driver.progress()
    assert (len(yields), len(naps)) == (1, 3)
    moments[0] += CONTENTION_MEMORY_NS // 4
    driver._channel.kick()
    driver.progress()
    assert (len(yields), len(naps)) == (2, 3), "it is tried again"
    driver.close()
    devices.remove("contended")


def test_who_polls_in_vain_long_after_it_has_posted_or_taken_anything_naps(server, monkeypatch):
    """The adapter may want the processor; and what comes is noticed late by a small part of the wait."""
    devices.add(f"napping=unix:{server.path}")
    driver = registry.open_device("napping")
    end = End(driver, 64)
    moments, naps, yields = [10**9], [], []
    monkeypatch.setattr(process, "now_ns", lambda: moments[0])
    monkeypatch.setattr(process, "yield_processor", lambda: yields.append(moments[0]))
    monkeypatch.setattr(process, "time", SimpleNamespace(sleep=naps.append))  # other threads sleep as well
    driver.progress()
    moments[0] += process.NAP_FROM_NS - 1
    driver.progress()
    assert (len(yields), naps) == (2, [])
    moments[0] += 1
    driver.progress()
    assert naps == [process.NAP_FROM_NS / SLEEP_FRACTION / NS_PER_S]
    end.qp.modify({"qp_state": ERR})
    moments[0] += process.NAP_FROM_NS  # a command kicks, and what follows is long after it
    end.qp.post_recv(7, [(end.address, 8, end.key.lkey)])  # kicks
    driver.progress()
    assert len(naps) == 1
    monkeypatch.setattr(process, "yield_processor", lambda: None)
    found = []
    until(lambda: found.extend(end.cq.poll(1)) or found)
    assert found[0].wr_id == 7
    moments[0] += process.NAP_FROM_NS
    del naps[:]
    driver.progress()
    assert naps == [], "a completion was taken"
    driver.close()
    devices.remove("napping")
