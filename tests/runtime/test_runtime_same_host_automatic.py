"""Automatic same-host paths: they are there by themselves, and never in the program's way."""

import errno
import logging
import os
import resource
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
import runtime_pair
from runtime_pair import RemoteOperation, take
from same_host_pair import got, has_path, packets_of, post, put, queue_pair_of, until
from same_host_program import make_end

from machine_speed import limit_s
from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.driver.services import Reliability, connect, path_to
from softhca.machine import primitives
from softhca.memory.shared_arena import DEFAULT_ARENA_BYTES
from softhca.memory.shared_path import MAX_ARENAS
from softhca.runtime import devices, messages, same_host, same_host_address, same_host_limits
from softhca.runtime.same_host import SameHost
from softhca.runtime.same_host_address import RETRY_NS, SameHostAddress
from softhca.runtime.same_host_peers import VERSION
from softhca.transport.states import RTS
from softhca.wire.route import ROCE_V4, V4_MAPPED_PREFIX, Route

pytestmark = pytest.mark.skipif(bool(same_host_limits.unsupported()), reason="no same-host paths here")

NAMES = ("left", "right")


@pytest.fixture
def opened(loopback_address):
    """A function that opens a device as it is asked for by its options, of which ``""`` are none."""
    names = []

    def open_device(name, options=""):
        names.append(name)
        devices.add(f"{name}=udp:{loopback_address()}{options}")
        return registry.open_device(name)

    yield open_device
    for name in names:
        devices.remove(name)


@pytest.fixture
def pair(opened):
    """A function that opens two devices and connects an end on each."""

    def connected(kinds=("arena", "arena"), options=("", "")):
        drivers = [opened(name, words) for name, words in zip(NAMES, options, strict=True)]
        ends = [make_end(driver, kind, 1 << 16) for driver, kind in zip(drivers, kinds, strict=True)]
        runtime_pair.join(*ends)
        return ends

    return connected


def engine_of(end):
    return devices.find(end.driver.name).engine


def shared_by(end):
    return engine_of(end).same_host


def settle(*ends):
    """Let both sides take what the other one has said, in this thread."""
    for _ in range(3):
        for end in ends:
            with engine_of(end).loop.lock:
                while shared_by(end) is not None and shared_by(end).poll():
                    pass


def write_both_ways(ends):
    """An RDMA WRITE in each direction; the packets that these have taken."""
    before = [packets_of(end) for end in ends]
    for here, there in (ends, ends[::-1]):
        put(here, b"12345678")
        post(here, RemoteOperation.WRITE, there, 8, offset=64)
        assert take(here.cq, 1)[0].status == 0
        assert got(there, 8, 64) == b"12345678"
    return [packets_of(end) - early for end, early in zip(ends, before, strict=True)]


@pytest.mark.parametrize("options", [("", ""), ("", "?same_host=1"), ("?same_host=1", "")])
def test_who_says_nothing_allows_it(pair, options):
    ends = pair(options=options)
    until(lambda: all(map(has_path, ends)), [end.driver for end in ends])
    assert write_both_ways(ends) == [0, 0]


@pytest.mark.parametrize("options", [("", "?same_host=0"), ("?same_host=0", ""), ("?same_host=0",) * 2])
def test_one_that_forbids_it_is_enough(pair, options):
    ends = pair(options=options)
    settle(*ends)
    assert all(write_both_ways(ends))
    assert [shared_by(end) is None for end in ends] == ["0" in words for words in options]


@pytest.mark.parametrize(
    "reason", ["processor", "atomics", "name", "user", "address space", "descriptors", "capture", "faults"]
)
def test_where_it_cannot_be_nobody_is_told(loopback_address, monkeypatch, caplog, tmp_path, reason):
    address = loopback_address()
    name = same_host_address.socket_name(V4_MAPPED_PREFIX + socket.inet_aton(address))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taken:
        if reason == "processor":
            monkeypatch.setattr(same_host_limits, "PROCESSOR", "aarch64")
        elif reason == "atomics":
            monkeypatch.setattr(primitives, "ATOMIC_BETWEEN_PROCESSES", False)
        elif reason == "name":
            taken.bind(name)
        elif reason == "user":
            monkeypatch.setattr(same_host_limits.os, "getuid", lambda: os.geteuid() + 1)
        elif reason == "address space":
            limit(monkeypatch, resource.RLIMIT_AS, 64 << 30)
        elif reason == "descriptors":
            limit(monkeypatch, resource.RLIMIT_NOFILE, 255)
        elif reason == "capture":
            monkeypatch.setenv("SOFTHCA_CAPTURE", str(tmp_path))
        else:
            monkeypatch.setenv("SOFTHCA_FAULTS", "loss=0.1,seed=1")
        with caplog.at_level(logging.INFO):
            devices.add(f"left=udp:{address}")
            driver = registry.open_device("left")
            assert devices.find("left").engine.same_host is None
        assert not caplog.records
        driver.close()
        devices.remove("left")
    # and nothing of it is left
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as free:
        free.bind(name)


def limit(monkeypatch, which, value):
    """Have this process think that a limit of its is ``value``."""
    real = resource.getrlimit
    limits = {which: (value, value)}
    monkeypatch.setattr(resource, "getrlimit", lambda asked: limits.get(asked) or real(asked))


def failing(monkeypatch, owner, name, fails, code=errno.EMFILE):
    """Have a function raise OSError where ``fails(*arguments)``."""
    real = getattr(owner, name)

    def called(*arguments, **named):
        if fails(*arguments):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, called)


def with_a_port(gid, automatic=False):
    """What an adapter with one port shares; nothing is left of it where that cannot be."""
    made = SameHost(automatic=automatic)
    try:
        made.add_address(1, gid)
    except BaseException:
        made.close()
        raise
    return made


def open_descriptors():
    return sorted(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("owner", "name", "fails"),
    [
        (os, "memfd_create", lambda name, *_: name == "softhca-directory"),
        (socket, "socket", lambda *words: words[:1] == (socket.AF_UNIX,)),
        (same_host.select, "epoll", lambda: True),
        (same_host, "Readable", lambda *_: True),
        (same_host, "Directory", lambda *_: True),
    ],
    ids=["memfd", "socket", "epoll", "readable", "directory"],
)
def test_a_call_that_the_kernel_refuses_leaves_nothing_open(monkeypatch, owner, name, fails):
    before = open_descriptors()
    gid = V4_MAPPED_PREFIX + bytes([127, 9, 9, 9])
    with monkeypatch.context() as patched:
        failing(patched, owner, name, fails)
        with pytest.raises(OSError, match="Too many open files"):
            with_a_port(gid, automatic=True)
    assert open_descriptors() == before
    with_a_port(gid).close()
    assert open_descriptors() == before


@pytest.mark.parametrize("options", ["", "?same_host=1"])
def test_without_memory_for_an_arena_who_asked_is_told_and_nobody_else(opened, monkeypatch, options):
    failing(monkeypatch, os, "memfd_create", lambda name, *_: name == "softhca-shared", errno.ENOMEM)
    if options:
        with pytest.raises(DriverError, match="Cannot allocate memory"):
            opened("left", options)
    else:
        opened("left", options)
        assert devices.find("left").engine.same_host is not None


PROGRAM = """
import resource, sys
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)
import runtime_pair
from softhca.driver import registry
from softhca.runtime import devices
registry.names()
devices.add(f"left=udp:{sys.argv[3]},right=udp:{sys.argv[4]}")
ends = [runtime_pair.End(registry.open_device(name), 4096) for name in ("left", "right")]
runtime_pair.join(*ends)
link = runtime_pair.Link(*ends)
for operation in runtime_pair.RemoteOperation:
    link.prepare(operation)
    link.one_sided(operation, 1)
    assert runtime_pair.take(link.client_cq, 1)[0].status == 0
    link.check(operation)
print([devices.find(end.driver.name).engine.same_host is not None for end in ends])
"""


@pytest.mark.parametrize(
    ("which", "value", "expected"),
    [
        ("RLIMIT_NOFILE", 1024, [True, True]),
        ("RLIMIT_NOFILE", 255, [False, False]),
        ("RLIMIT_NOFILE", 28, [False, False]),
        ("RLIMIT_AS", 8 << 30, [False, False]),
    ],
)
def test_a_program_with_narrow_limits_runs_as_it_would_without(loopback_address, which, value, expected):
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, which, str(value), loopback_address(), loopback_address()],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=limit_s(60),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{expected}\n", "")


def test_while_half_of_the_descriptors_are_taken_nobody_new_is_met(pair, monkeypatch):
    monkeypatch.setattr(same_host, "may_keep", lambda descriptor: False)
    with pytest.raises(OSError, match="few descriptors"):
        with_a_port(V4_MAPPED_PREFIX + bytes([127, 9, 9, 9]), automatic=True)
    ends = pair(options=("?same_host=1", ""))
    settle(*ends)
    assert [shared_by(end) is not None for end in ends] == [True, False]
    assert all(write_both_ways(ends))


@pytest.mark.parametrize("which", [0, 1])
def test_one_that_has_few_descriptors_left_meets_nobody(pair, monkeypatch, which):
    """The first device opened still has plenty."""
    full = []
    monkeypatch.setattr(SameHost, "may_keep", lambda shared, descriptor: shared not in full)
    connect = runtime_pair.connect

    def fill(*arguments):
        full[:] = [devices.find(NAMES[which]).engine.same_host]
        connect(*arguments)

    monkeypatch.setattr(runtime_pair, "connect", fill)
    ends = pair()
    settle(*ends)
    assert not any(map(has_path, ends))
    assert all(write_both_ways(ends))


@pytest.mark.parametrize(("options", "expected"), [("", False), ("?same_host=1", True)])
def test_automatic_peers_are_of_one_pid_namespace(pair, monkeypatch, options, expected):
    """From another one the kernel gives 0 for a process's number."""
    monkeypatch.setattr(messages, "peer_of", lambda channel: (0, os.geteuid()))
    ends = pair(options=(options, options))
    settle(*ends)
    assert list(map(has_path, ends)) == [expected] * 2
    assert [bool(packets) for packets in write_both_ways(ends)] == [not expected] * 2


def test_a_queue_pair_whose_peer_cannot_be_asked_goes_on_with_packets(pair, monkeypatch):
    """No call that the kernel refuses is an error of the engine's."""
    connect, real = runtime_pair.connect, socket.socket

    def narrow(*arguments):
        failing(monkeypatch, socket, "socket", lambda *words: words[:1] == (socket.AF_UNIX,))
        connect(*arguments)  # and refused it stays: who is not answered asks again

    monkeypatch.setattr(runtime_pair, "connect", narrow)
    ends = pair()
    assert all(write_both_ways(ends))
    assert not any(engine_of(end).loop.dead for end in ends)
    assert not any(shared_by(end).ports[1].first._outbound for end in ends)
    monkeypatch.setattr(socket, "socket", real)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_who_cannot_let_anybody_in_does_not_poll_the_listener_for_ever(pair, code):
    ends = pair(options=("", "?same_host=0"))
    engine = engine_of(ends[0])
    shared = engine.same_host
    port = shared.ports[1].first
    with engine.loop.lock, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        listener = port._listener

        def accept():
            raise OSError(code, os.strerror(code))

        port._listener = SimpleNamespace(fileno=listener.fileno, close=listener.close, accept=accept)
        caller.connect(same_host_address.socket_name(port.gid))
        assert shared.poll()
        assert not shared.poll()
        assert not shared._anything()
    assert all(write_both_ways(ends))


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ECONNABORTED, errno.EINTR])
def test_one_that_has_gone_before_it_is_let_in_keeps_nobody_else_out(pair, code):
    ends = pair(options=("", "?same_host=0"))
    shared = shared_by(ends[0])
    port = shared.ports[1].first
    with engine_of(ends[0]).loop.lock, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        listener = port._listener

        def accept():
            port._listener = listener
            raise OSError(code, os.strerror(code))

        port._listener = SimpleNamespace(fileno=listener.fileno, accept=accept)
        caller.connect(same_host_address.socket_name(port.gid))
        assert shared.poll()
        assert len(shared._by_descriptor) == 0
        assert shared.poll()
        assert len(shared._by_descriptor) == 1


def test_peers_elsewhere_are_asked_for_once_in_a_while_and_cost_nothing_else(opened, monkeypatch):
    asked, now = [], [0]
    begin = SameHostAddress._connect

    def counted(port, gid):
        asked.append(gid)
        return begin(port, gid)

    monkeypatch.setattr(SameHostAddress, "_connect", counted)
    monkeypatch.setattr(same_host_address, "now_ns", lambda: now[0])
    driver, other = opened("left"), opened("right", "?same_host=0")
    far = runtime_pair.End(other, 4096)
    ends = [runtime_pair.End(driver, 4096) for _ in range(4)]


    def turn(end):
        path = path_to(end.driver, other.query_gid(1, 0))
        connect(end.qp, path, far.qp.number, 1, 1, runtime_pair.REMOTE_EVERYTHING, Reliability())

    for end in ends[:3]:
        turn(end)
    assert len(asked) == 1
    now[0] = RETRY_NS
    turn(ends[3])
    assert len(asked) == 2
    sharing = shared_by(ends[0]).sharing
    assert [queue_pair_of(end).executor for end in ends] == [None] * 4
    assert not sharing.directory._queue_pairs._places


def test_a_queue_pair_that_turns_to_a_peer_elsewhere_is_not_granted_any_more(pair):
    ends = pair()
    settle(*ends)
    table = shared_by(ends[0]).sharing.directory._queue_pairs
    assert table.words(ends[0].qp.number)
    queue_pair = queue_pair_of(ends[0])
    with engine_of(ends[0]).loop.lock:
        elsewhere = V4_MAPPED_PREFIX + bytes([127, 9, 9, 9])
        queue_pair.flow.route = Route(ROCE_V4, queue_pair.flow.route.source, elsewhere)
    ends[0].qp.modify({"qp_state": RTS})
    assert queue_pair.executor is None
    assert table.words(ends[0].qp.number) is None


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_peers_of_another_version_use_packets(pair, monkeypatch, version):
    """The first device says another version than the second expects."""
    begin, admit, gids = SameHostAddress._connect, SameHostAddress.admit, []

    def speak_for(port):
        gids.append(port.gid)
        monkeypatch.setattr(same_host_address, "VERSION", VERSION if port.gid == gids[0] else version)

    def connecting(port, gid):
        speak_for(port)
        return begin(port, gid)

    def admitting(port, *words):
        speak_for(port)
        return admit(port, *words)

    monkeypatch.setattr(SameHostAddress, "_connect", connecting)
    monkeypatch.setattr(SameHostAddress, "admit", admitting)
    ends = pair()
    settle(*ends)
    assert not any(map(has_path, ends))
    assert all(write_both_ways(ends))
    assert not any(shared_by(end).sharing.directory.readers for end in ends)


def test_more_address_space_than_arenas_may_take_is_not_taken(pair, monkeypatch):
    arena = DEFAULT_ARENA_BYTES
    before = same_host_limits.MAPPED.size_bytes
    monkeypatch.setattr(same_host_limits, "MAX_MAPPED_BYTES", before + 3 * arena // 2)
    ends = pair()
    until(lambda: all(queue_pair_of(end).executor.path.alive for end in ends), [end.driver for end in ends])
    settle(*ends)
    assert sorted(map(has_path, ends)) == [False, True]
    assert same_host_limits.MAPPED.size_bytes == before + arena
    write_both_ways(ends)
    assert sorted(queue_pair_of(end).executor.operations for end in ends) == [0, 1]
    for end in ends:
        end.driver.close()
    assert same_host_limits.MAPPED.size_bytes == before


def test_a_device_that_is_open_very_often_shares_what_there_is_room_for(opened, monkeypatch):
    first = opened("left")
    shared = devices.find("left").engine.same_host
    arenas = shared.sharing.directory.arenas
    arenas |= dict.fromkeys(range(1000, 999 + MAX_ARENAS))
    last = registry.open_device("left")
    assert last.alloc_host_memory(4096, runtime_pair.REMOTE_EVERYTHING).address
    last.close()
    assert len(arenas) == MAX_ARENAS
    for number in [number for number in arenas if number >= 1000]:
        del arenas[number]
    first.close()


def test_a_forked_child_keeps_nothing_of_peers(pair):
    ends = pair()
    until(lambda: all(map(has_path, ends)), [end.driver for end in ends])

    def mapped():
        with open("/proc/self/maps") as maps:
            return sum("/memfd:softhca-shared" in line for line in maps)

    before = mapped()
    found = [each for end in ends for each in shared_by(end).ports[1].first._outbound.values()]
    child = os.fork()
    if child == 0:
        os._exit(mapped() if all(not each._mappings and not each.path.alive for each in found) else 255)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == before - 2
    assert write_both_ways(ends) == [0, 0]


def test_idle_peers_wake_nobody(pair):
    ends = pair()
    until(lambda: all(map(has_path, ends)), [end.driver for end in ends])
    write_both_ways(ends)
    settle(*ends)
    until(lambda: not any(shared_by(end).ports[1].is_switching for end in ends), [end.driver for end in ends])
    for end in ends:
        with engine_of(end).loop.lock:
            assert shared_by(end).arm_wakeup()
            assert not shared_by(end)._anything()
            shared_by(end).disarm_wakeup()
            assert engine_of(end).loop.deadline() >= (1 << 63) - 1


GID = "00000000000000000000ffff7f090909"
NONSENSE = [
    b"", b"{", b"[]", b"1", b"{}", b'{"connect":3}', b'{"connect":3,"gid":7}', b'{"connect":3,"gid":"zz"}',
    b'{"connect":3,"gid":"00"}', b'{"connect":3,"gid":["00"]}', b'{"connect":9,"gid":"%s"}' % GID.encode(),
    b'{"reader":2}', b'{"arena":1,"bytes":4096}', b'{"gone":[]}',
]  # fmt: skip


def is_closed(channel):
    """Whether the other side closes a channel within the limit; what it says before is passed over."""
    channel.settimeout(20)
    try:
        while channel.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("words", NONSENSE)
def test_a_handshake_of_nonsense_is_refused(opened, words):
    opened("left")
    engine = devices.find("left").engine
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.connect(same_host_address.socket_name(engine.same_host.ports[1].first.gid))
        if words:
            caller.send(words)
        else:
            caller.shutdown(socket.SHUT_WR)
        assert is_closed(caller)
    with engine.loop.lock:
        assert not engine.loop.dead
        assert not engine.same_host._by_descriptor


READER = b'{"reader":3,"probe":0,"probe_bytes":""}'
WRONG = [
    b"[]", b"{}", READER, b'{"reader":9}', b'{"arena":1,"bytes":4096}', b'{"arena":[],"bytes":{}}',
    b'{"gone":1}', b'{"gone":[]}', b'{"gone":{}}', b'{"connect":3}',
]  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_one_that_answers_a_handshake_with_nonsense_is_left_alone(opened, words):
    driver = opened("left")
    engine = devices.find("left").engine
    gid = bytes.fromhex(GID)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(same_host_address.socket_name(gid))
        listener.listen(1)
        with engine.loop.lock:
            path = engine.same_host.path_to(1, engine.link.gid, gid)
        with listener.accept()[0] as caller:
            caller.send(words)
            assert is_closed(caller)
    with engine.loop.lock:
        assert not engine.loop.dead
        assert not path.alive
        assert not engine.same_host.ports[1].first._outbound
    driver.close()
