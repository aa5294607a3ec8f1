"""One device in many processes: who starts its adapter process, who finds it, and who goes on."""

import errno
import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from runtime_programs import Program
from runtime_served import until

from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.runtime import adapter_process, devices, listening_name, messages
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.specification import parse_one

DEVICE_FATAL = 8


class Member(Program):
    """A process that shares a device."""

    def __init__(self, device, mode="process", errors=None):
        super().__init__("sharing_program.py", f"app={device}", mode, errors=errors)

    def ask(self, call, **words):
        self.say(call=call, **words)
        return self.hear()


@pytest.fixture
def device(loopback_address):
    return f"udp:{loopback_address()}?buffer=212992"


@pytest.fixture
def members(device):
    made = []

    def member(mode="process"):
        made.append(Member(device, mode))
        return made[-1]

    yield member
    for program in made:
        if program.child.poll() is None:
            program.end()
        else:
            program.child.stdin.close()
            program.child.stdout.close()


def talk(sender, receiver, text):
    assert receiver.ask("receive")
    assert sender.ask("send", text=text) == 0
    assert receiver.ask("received") == [0, text]


def free(device):
    """Whether nobody has the name of the device."""
    return not listening_name.is_taken(listening_name.name_of(parse_one(f"app={device}")))


def ended(pid):
    """Whether a process has ended; whoever inherited it may not have asked for its status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("leaves", ["in order", "killed"])
def test_processes_that_open_a_device_share_its_adapter_and_go_on_without_the_first(members, device, leaves):
    first, second, third = members(), members(), members()
    one, two = first.ask("open"), second.ask("open")
    assert one["started"] == one["adapter"] != 0
    assert (two["adapter"], two["guid"], two["started"]) == (one["adapter"], one["guid"], 0)
    assert first.ask("connect", qp=two["qp"])
    assert second.ask("connect", qp=one["qp"])
    talk(first, second, "hello")
    talk(second, first, "hello yourself")
    assert first.end() == 0 if leaves == "in order" else first.kill() is None
    three = third.ask("open")
    assert three["adapter"] == one["adapter"]
    four = second.ask("open")
    assert third.ask("connect", qp=four["qp"])
    assert second.ask("connect", qp=three["qp"])
    talk(third, second, "the first has left")
    assert (second.end(), third.end()) == (0, 0)
    until(lambda: free(device))
    until(lambda: ended(one["adapter"]))


def test_those_that_open_a_device_together_start_one_adapter(members):
    programs = [members() for _ in range(4)]
    for program in programs:
        program.say(call="open")
    answers = [program.hear() for program in programs]
    assert len({answer["adapter"] for answer in answers}) == 1
    assert sorted(answer["started"] != 0 for answer in answers) == [False, False, False, True]


def test_all_are_told_when_the_adapter_they_share_has_ended(members):
    first, second = members(), members()
    adapter = first.ask("open")["adapter"]
    second.ask("open")
    for program in (first, second):
        program.say(call="event")
    os.kill(adapter, signal.SIGKILL)
    for program in (first, second):
        assert program.hear() == [DEVICE_FATAL, 0]
    third = members().ask("open")
    assert third["adapter"] not in (0, adapter)


def test_who_would_embed_an_adapter_uses_the_one_that_has_its_address(members, device):
    first = members()
    adapter = first.ask("open")["adapter"]
    devices.add(f"mine={device}")
    driver = registry.open_device("mine")
    assert driver.session.channel.resources()["pid"] == adapter
    assert devices.find("mine").resources()["QP"] == 1
    assert first.end() == 0
    driver.alloc_pd()
    driver.close()
    until(lambda: free(device))
    driver = registry.open_device("mine")
    assert devices.find("mine").engine.alive, "embedded now"
    driver.close()
    devices.remove("mine")


def test_an_adapter_that_is_said_to_be_its_processes_own_is_not_shared(device):
    devices.add(f"mine={device}&share=0")
    driver = registry.open_device("mine")
    assert free(device)
    for mode in ("embedded", "process"):
        devices.add(f"other={device}", mode)
        with pytest.raises(DriverError, match="4791: Address already in use") as caught:
            registry.open_device("other")
        assert caught.value.errno == errno.EADDRINUSE
        assert ("no softhca program of this user that shares" in str(caught.value)) == (mode == "embedded")
        devices.remove("other")
        until(lambda: free(device))
    driver.close()
    devices.remove("mine")


def test_whoever_reads_the_first_ones_errors_does_not_wait_for_the_adapter(device):
    first, second = Member(device, errors=subprocess.PIPE), Member(device)
    adapter = first.ask("open")["adapter"]
    assert second.ask("open")["adapter"] == adapter
    assert first.end() == 0
    with first.child.stderr as errors:
        assert errors.read() == "", "its end, though the adapter goes on"
    assert os.readlink(f"/proc/{adapter}/cwd") == "/"
    assert second.end() == 0


# the parts


def test_a_device_without_addresses_has_no_name():
    assert listening_name.name_of(parse_one("a=udp:*")) == ""
    assert listening_name.name_of(parse_one("a=udp:127.0.0.2+udp:*")) == ""
    assert listening_name.name_of(parse_one("a=unix:@somewhere")) == ""


def test_a_name_is_the_users_and_of_the_addresses_however_many():
    assert listening_name.name_of(parse_one("a=udp:127.0.0.2")) == f"@softhca-{os.getuid()}-127.0.0.2"
    assert listening_name.name_of(parse_one("b=udp:lo?mtu=512")) == f"@softhca-{os.getuid()}-127.0.0.1"
    names = set()
    for last in (9, 10):
        ports = "+".join(f"udp:[2001:db8:1:2:3:4:5:{port}]" for port in (*range(1, 8), last))
        name = listening_name.name_of(parse_one(f"a={ports}"))
        assert len(name) <= listening_name.LONGEST
        names.add(name)
    assert len(names) == 2


def test_a_name_of_another_user_is_refused(device, monkeypatch):
    name = listening_name.name_of(parse_one(f"app={device}"))
    with listening_name.take(name) as door:
        door.listen(1)
        monkeypatch.setattr(messages, "peer_of", lambda channel: (os.getpid(), os.getuid() + 1))
        devices.add(f"app={device}", "process")
        with pytest.raises(DriverError, match=f"of user {os.getuid() + 1}") as caught:
            registry.open_device("app")
    assert caught.value.errno == errno.EPERM
    devices.remove("app")


def test_who_finds_one_that_begins_or_ends_looks_again_and_not_for_ever(device, monkeypatch):
    process = AdapterProcess(parse_one(f"app={device}"), starts=False)
    name = listening_name.name_of(process.specification)
    bound = listening_name.take(name)
    looks = []

    def look(_):
        looks.append(True)
        if len(looks) == 3:
            bound.listen(1)

    monkeypatch.setattr(adapter_process.time, "sleep", look)
    control = process.connect()
    assert (len(looks), process.joined, process.path) == (3, True, name)
    process.release(control)
    bound.close()
    with listening_name.take(name):
        monkeypatch.setattr(adapter_process, "START_LIMIT_S", 0.02)
        with pytest.raises(TimeoutError, match="takes nobody"):
            process.connect()
    with pytest.raises(ConnectionRefusedError):
        process.connect()


def test_who_is_not_taken_by_one_that_ends_starts_another(device):
    name = listening_name.name_of(parse_one(f"app={device}"))
    door = listening_name.take(name)
    door.setblocking(True)
    door.listen(1)

    def end():
        control = door.accept()[0]
        door.shutdown(socket.SHUT_RDWR)
        door.close()
        control.close()

    thread = threading.Thread(target=end)
    thread.start()
    devices.add(f"app={device}", "process")
    driver = registry.open_device("app")
    thread.join()
    assert devices.find("app").process.pid
    driver.close()
    devices.remove("app")


def test_one_that_ends_over_and_over_is_given_up(device, monkeypatch):
    devices.add(f"app={device}", "process")
    tried = []

    def channel(process):
        tried.append(process)
        process.joined = True
        raise ConnectionResetError(errno.ECONNRESET, "the adapter process has ended")

    monkeypatch.setattr(devices, "ProcessChannel", channel)
    with pytest.raises(DriverError, match="has ended"):
        registry.open_device("app")
    assert len(tried) == devices.JOIN_ATTEMPTS
    devices.remove("app")


def test_the_last_of_one_process_does_not_end_what_another_one_has_just_found(device, monkeypatch):
    monkeypatch.setattr(adapter_process, "END_STEP_S", 0.1)
    process = AdapterProcess(parse_one(f"app={device}"))
    control = process.connect()
    pid, other = process.pid, adapter_process.connect_to(process.path, "other")
    assert listening_name.connections(process.path) == 1
    process.release(control, others=0)
    assert process.pid == pid
    assert os.getpgid(pid) == pid, "signals for the program's group do not end it"
    assert os.getsid(pid) == os.getsid(0), "it shares the session's part of the processors"
    ignored = int(re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[1], 16)
    assert ignored >> (signal.SIGTTOU - 1) & 1, "what it says to the terminal does not stop it"
    other.close()
    control = process.connect()
    process.release(control)
    assert process.pid == 0
    assert listening_name.connections(process.path) == 0


@pytest.mark.parametrize("descriptors", ["", "none left"])
def test_the_name_of_an_adapter_is_free_when_its_addresses_are(device, monkeypatch, descriptors):
    """Else who finds it free finds the addresses taken, which is no error that passes."""
    made = devices.Device(parse_one(f"app={device}"))
    driver = made.open()
    assert not free(device)
    links, seen = made.engine.links, []
    links.insert(0, SimpleNamespace(close=lambda: seen.append(free(device))))
    if descriptors:
        def dup(self):
            raise OSError(errno.EMFILE, "too many open files")

        monkeypatch.setattr(socket.socket, "dup", dup)
    driver.close()
    assert seen == [bool(descriptors)]
    assert free(device)
