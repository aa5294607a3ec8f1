"""Who is let in, the descriptor in reserve, and whether an application's own memory can be reached."""

import errno
import os
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from softhca.machine.primitives import address_of
from softhca.queues.layout import PROBE_BYTES
from softhca.runtime import adapter_process, application, listener, messages, same_host_process
from softhca.runtime.application import Application, probe
from softhca.runtime.listener import Listener
from softhca.runtime.process import ProcessChannel
from softhca.runtime.same_host_process import PeerProcess

SEEN = bytes(range(PROBE_BYTES))
NO_THREAD = 1 << 30


class Numbers:
    """``os``, but that the next free descriptor is 0, which a program without standard input has."""

    def __init__(self):
        self.taken = 0

    def __getattr__(self, name):
        return getattr(os, name)

    def open(self, path, flags):
        self.taken += 1
        return 0

    def close(self, descriptor):
        assert descriptor == 0
        self.taken -= 1


def test_a_reserve_that_is_descriptor_0_is_kept_once_and_given_back(monkeypatch):
    numbers = Numbers()
    monkeypatch.setattr(listener, "os", numbers)
    door = Listener(f"@softhca-door-{os.getpid()}")
    assert numbers.taken == 1
    control = adapter_process.connect_to(door.path, "first")
    door.accept().close()
    control.close()
    assert numbers.taken == 1
    door.close()
    assert numbers.taken == 0


def test_one_that_finds_no_descriptor_is_told_so_with_the_one_in_reserve(monkeypatch):
    numbers = Numbers()
    monkeypatch.setattr(listener, "os", numbers)
    door = Listener(f"@softhca-full-{os.getpid()}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.connect("\0" + door.path[1:])
        door._refuse_next(OSError(errno.EMFILE, "none left"))
        assert numbers.taken == 1, "the one in reserve was given back, and another one kept"
        answer, _ = messages.receive_packet(control)
        assert b"no descriptor left" in answer
        assert messages.receive_packet(control) is None
    door.close()
    assert numbers.taken == 0


def test_a_listener_that_is_closed_leaves_no_descriptor_and_no_path(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    door = Listener(str(tmp_path / "door"))
    assert (tmp_path / "door").stat().st_mode & 0o777 == 0o600
    door.close()
    assert set(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("moved", "found", "code"), [
    (PROBE_BYTES, SEEN, 0), (PROBE_BYTES, bytes(PROBE_BYTES), errno.EPERM),
    (PROBE_BYTES - 1, SEEN, errno.EFAULT), (0, SEEN, errno.EFAULT), (-errno.ESRCH, SEEN, errno.ESRCH),
])  # fmt: skip
def test_memory_is_reached_where_the_probe_is_found_whole(monkeypatch, moved, found, code):
    monkeypatch.setattr(application, "address_of", lambda buffer: buffer)

    def read_process(pid, seen, address, length):
        assert (pid, address, length) == (7, 4096, PROBE_BYTES)
        seen[:] = found
        return moved

    monkeypatch.setattr(application, "read_process", read_process)
    assert probe(7, 4096, SEEN) == code


@pytest.mark.parametrize("address", [0, -1, 1 << 63])
def test_a_probe_that_lies_nowhere_is_refused(address):
    assert probe(7, address, SEEN) == errno.EPROTO


def test_threads_of_this_process_may_be_in_a_call():
    here, there = socket.socketpair()
    with here, there:
        peer = PeerProcess(here)
        assert (peer.pid, peer.descriptor) == (os.getpid(), -1)
        assert peer.may_be_in_call(0) is True
        assert not peer.has_ended()
        there.close()
        assert peer.has_ended()


def test_a_thread_that_is_stopped_is_in_no_call_and_one_that_is_not_found_may_be():
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as other:
        here, there = socket.socketpair()
        with here, there:
            peer = PeerProcess(here)
            peer.pid = other.pid
            os.kill(other.pid, signal.SIGSTOP)
            os.waitpid(other.pid, os.WUNTRACED)
            assert not peer.may_be_in_call(other.pid)
            assert not peer.may_be_in_call(NO_THREAD)
            other.kill()
            other.wait()
            assert peer.may_be_in_call(other.pid)
            there.close()
            assert not peer.may_be_in_call(other.pid)


@pytest.mark.parametrize(("state", "may"), [("R", True), ("D", True), ("S", False), ("T", False)])
@pytest.mark.parametrize("name", ["python", "R", ") R (", "S) T"])
def test_the_state_of_a_thread_stands_behind_its_name_whatever_that_is(tmp_path, state, may, name):
    stat = tmp_path / "stat"
    stat.write_text(f"12 ({name}) {state} 1 2 3\n")
    assert same_host_process._may_run(str(stat)) is may


class Old:
    """A socket of a system that cannot tell a peer's process."""

    def __init__(self, channel):
        self.recv = channel.recv

    def getsockopt(self, level, option):
        raise OSError(errno.ENOPROTOOPT, "not known")


def test_an_older_system_finds_the_process_by_its_number_while_the_socket_is_held():
    here, there = socket.socketpair()
    with here, there:
        descriptor = same_host_process._open(Old(here), os.getpid())
        assert descriptor >= 0
        os.close(descriptor)
        assert same_host_process._open(Old(here), NO_THREAD) == -1
        there.close()
        assert same_host_process._open(Old(here), os.getpid()) == -1


def test_a_process_that_is_descriptor_0_is_let_go_once(monkeypatch):
    closed = []
    here, there = socket.socketpair()
    with here, there:
        peer = PeerProcess(here)
        monkeypatch.setattr(same_host_process, "os", SimpleNamespace(close=closed.append))
        peer.descriptor = 0
        peer.close()
        peer.close()
    assert (closed, peer.descriptor) == ([0], -1)


def test_the_flag_is_raised_before_a_sleep_and_lowered_behind_it():
    word = bytearray(8)
    one = Application.__new__(Application)
    one.flag_address = address_of(word)
    for _ in range(2):
        assert one.raise_flag()
        assert not one.raise_flag()  # it was said already
        assert word == b"\1" + bytes(7)
        one.lower_flag()
        assert word == bytes(8)


def test_where_a_thread_is_not_found_any_thread_of_the_process_counts(monkeypatch):
    states = {}

    def may_run(path):
        if path.endswith(f"/{NO_THREAD}/stat"):
            raise OSError(errno.ENOENT, "not of this namespace")
        return states.get(int(path.split("/")[-2]), False)

    monkeypatch.setattr(same_host_process, "_may_run", may_run)
    here, there = socket.socketpair()
    with here, there:
        peer = PeerProcess(here)
        peer.pid = os.getppid()
        assert peer.may_be_in_call(NO_THREAD) is False
        states[peer.pid] = True
        assert peer.may_be_in_call(NO_THREAD) is True


@pytest.mark.parametrize(("flag", "rings"), [(1, 1), (0, 0)])
def test_a_kick_wakes_an_adapter_that_has_raised_its_flag_and_no_other(flag, rings):
    word, rung = bytearray([flag]) + bytearray(7), []
    channel = ProcessChannel.__new__(ProcessChannel)
    channel._flag_address = address_of(word)
    channel._wake_socket = SimpleNamespace(wake=lambda: rung.append(1))
    channel.kick()
    channel.kick()
    assert (len(rung), word) == (rings, bytearray(8))


def test_what_is_ready_before_a_sleep_needs_none():
    channel = ProcessChannel.__new__(ProcessChannel)
    channel._spin = lambda ready: ready()
    assert channel.wait(lambda: True, 0) is True


def test_every_waiting_thread_is_woken_also_the_one_that_polls_descriptors():
    rung = []
    channel = ProcessChannel.__new__(ProcessChannel)
    channel._wake_event = SimpleNamespace(set=lambda: rung.append("event"))
    channel._notify_waiters = lambda: rung.append("news")
    channel.wake_waiters()
    assert sorted(rung) == ["event", "news"]


def test_any_of_several_threads_may_be_in_a_call(monkeypatch):
    seen = []

    def may_run(path):
        seen.append(path.split("/")[-2])
        if seen[-1] in (str(NO_THREAD), "2"):
            raise OSError(errno.ENOENT, "it has ended")
        return seen[-1] == "3"

    monkeypatch.setattr(same_host_process, "_may_run", may_run)
    monkeypatch.setattr(same_host_process, "os", SimpleNamespace(listdir=lambda _: ["1", "2", "3", "4"],
                                                                 getpid=os.getpid, close=os.close))
    here, there = socket.socketpair()
    with here, there:
        peer = PeerProcess(here)
        peer.pid = os.getppid()
        assert peer.may_be_in_call(NO_THREAD) is True
    assert seen == [str(NO_THREAD), "1", "2", "3"]


@pytest.mark.parametrize("may", [True, False])
def test_a_descriptor_that_the_program_had_better_have_is_not_kept(monkeypatch, may):
    reads, writes = os.pipe()
    asked = []
    monkeypatch.setattr(messages, "peer_of", lambda _: (os.getppid(), os.getuid()))
    monkeypatch.setattr(same_host_process, "_open", lambda *_: reads)
    here, there = socket.socketpair()
    with here, there:
        peer = PeerProcess(here, lambda descriptor: asked.append(descriptor) or may)
        assert asked == [reads]
        assert peer.descriptor == (reads if may else -1)
        if not may:
            with pytest.raises(OSError, match="Bad file"):
                os.fstat(reads)
            there.close()
            assert peer.has_ended()  # then the socket has to do
        peer.close()
    os.close(writes)


@pytest.mark.parametrize(("uid", "comes"), [(0, True), (1000, True), (1001, False)])
def test_this_user_and_root_are_let_in(monkeypatch, uid, comes):
    door = Listener(f"@softhca-users-{os.getpid()}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.connect("\0" + door.path[1:])
        monkeypatch.setattr(listener.os, "getuid", lambda: 1000)
        monkeypatch.setattr(listener.messages, "peer_of", lambda _: (1, uid))
        accepted = door.accept()
        assert (accepted is not None) == comes
        if accepted is not None:
            accepted.close()
        else:
            answer, _ = messages.receive_packet(control)
            assert b"another user" in answer
            assert messages.receive_packet(control) is None
    door.close()


def test_a_reserve_that_is_gone_is_made_anew_by_the_next_one(monkeypatch):
    door = Listener(f"@softhca-again-{os.getpid()}")
    os.close(door._spare)
    door._spare = -1
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.connect("\0" + door.path[1:])
        door.accept().close()
    assert door._spare >= 0
    door.close()


def test_who_cannot_even_refuse_is_told_and_keeps_the_reserve(monkeypatch):
    door = Listener(f"@softhca-none-{os.getpid()}")

    def none_left():
        raise OSError(errno.ENFILE, "none left in the system")

    monkeypatch.setattr(door, "_accept", none_left)
    with pytest.raises(OSError, match="none left") as told:
        door.accept()
    assert told.value.errno == errno.ENFILE
    assert door._spare >= 0

    def nobody():
        raise BlockingIOError(errno.EAGAIN, "nobody")

    monkeypatch.setattr(door, "_accept", nobody)
    assert door.accept() is None
    door.close()


def test_a_listener_leaves_the_mask_of_new_files_as_it_is(tmp_path):
    before = os.umask(0o022)
    try:
        Listener(str(tmp_path / "door")).close()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
