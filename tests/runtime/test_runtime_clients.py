"""Other processes that use an adapter which is embedded in one: they come, talk, sleep, go, and lose it."""

import contextlib
import errno
import os
import threading
from types import SimpleNamespace

import pytest
from runtime_pair import REMOTE_EVERYTHING, End, join, take
from runtime_programs import Program
from runtime_served import BOUND_S, embedding, until

from softhca.driver import registry
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.driver.services import Reliability, connect, path_to
from softhca.queues import control_fields
from softhca.runtime import adapter_process, devices, embedded, listening_name, messages
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.clients import Clients
from softhca.runtime.process import ProcessChannel
from softhca.runtime.specification import parse_one

DEVICE_FATAL = 8


class Member(Program):
    def __init__(self, device, name="app"):
        super().__init__("sharing_program.py", f"{name}={device}", "embedded")

    def ask(self, call, **words):
        self.say(call=call, **words)
        return self.hear()


@pytest.fixture
def device(loopback_address):
    return f"udp:{loopback_address()}?buffer=212992"


@pytest.fixture
def members(device):
    made = []

    def member():
        made.append(Member(device))
        return made[-1]

    yield member
    for program in made:
        program.kill()
        program.child.stdin.close()
        program.child.stdout.close()


@pytest.fixture
def own(device):
    """The device, open here, and its engine."""
    devices.add(f"own={device}")
    driver = registry.open_device("own")
    yield SimpleNamespace(driver=driver, engine=devices.find("own").engine)
    driver.close()
    devices.remove("own")


def name_of(device):
    return listening_name.name_of(parse_one(f"app={device}"))


def talk(sender, receiver, text):
    assert receiver.ask("receive")
    assert sender.ask("send", text=text) == 0
    assert receiver.ask("received") == [0, text]


def connected(one, other):
    first, second = one.ask("open"), other.ask("open")
    assert one.ask("connect", qp=second["qp"])
    assert other.ask("connect", qp=first["qp"])
    return first, second


def test_the_second_process_uses_the_adapter_in_the_first(members):
    first, second, third = members(), members(), members()
    one, two = connected(first, second)
    assert (one["adapter"], two["adapter"], two["started"]) == (0, first.pid, 0)
    assert one["guid"] == two["guid"]
    for _ in range(5):
        talk(first, second, "hello")
        talk(second, first, "hello yourself")
    # two clients between themselves, while the first one's program does nothing but read its input
    four, three = third.ask("open"), second.ask("open")
    assert third.ask("connect", qp=three["qp"])
    assert second.ask("connect", qp=four["qp"])
    for _ in range(5):
        talk(third, second, "among clients")
        talk(second, third, "yes")


def test_clients_are_told_when_the_first_process_has_ended_and_the_next_one_embeds(members):
    first, second = members(), members()
    connected(first, second)
    second.say(call="event")
    first.kill()
    assert second.hear() == [DEVICE_FATAL, 0]
    third, fourth = members(), members()
    assert third.ask("open")["adapter"] == 0
    assert fourth.ask("open")["adapter"] == third.pid
    talked = third.ask("open"), fourth.ask("open")
    assert third.ask("connect", qp=talked[1]["qp"])
    assert fourth.ask("connect", qp=talked[0]["qp"])
    talk(third, fourth, "a new adapter")


def test_an_adapter_goes_on_for_clients_when_its_program_has_closed_it_and_ends_with_them(members, device):
    first, second, third = members(), members(), members()
    first.ask("open")
    second.ask("open")
    assert first.ask("close")
    two, three = connected(second, third)
    assert two["adapter"] == three["adapter"] == first.pid
    talk(second, third, "still here")
    for member in (second, third):
        member.kill()
    until(lambda: not listening_name.is_taken(name_of(device)))
    assert first.child.poll() is None


def test_what_a_guest_owned_is_freed_when_it_is_killed(members, own, device):
    client = members()
    client.ask("open")
    assert own.engine.clients.present
    before = devices.find("own").resources()["QP"]
    assert before == 1
    client.kill()
    until(lambda: not own.engine.clients.present)
    assert devices.find("own").resources()["QP"] == 0
    assert not own.engine.loop.attached
    assert own.driver.alloc_pd() > 0


def test_who_polls_serves_clients(members, own):
    client, end = members(), End(own.driver, 4096)
    answer = client.ask("open")
    path = path_to(own.driver, own.driver.query_gid(1, 0))
    connect(end.qp, path, answer["qp"], 1, 1, REMOTE_EVERYTHING, Reliability())
    assert client.ask("connect", qp=end.qp.number)
    for number in range(3):
        end.qp.post_recv(number, end.element(4096))
        client.say(call="send", text="polled")
        assert take(end.cq, 1)[0].status == 0
        assert client.hear() == 0


def test_a_guest_that_rings_wakes_a_thread_that_has_slept_since_before_it_came(own, device):
    """The thread sleeps when the client attaches, and another one serves that."""
    clients, loop = own.engine.clients, own.engine.loop
    until(lambda: clients._sleepers == 1)
    channel = ProcessChannel(AdapterProcess(parse_one(f"app={device}"), starts=False))
    driver = DeviceDriver("app", channel)
    with loop.lock:  # nobody serves meanwhile
        application = next(iter(clients._applications.values()))
        clients._sleepers += 1  # a thread that another one does not wake
        application.lower_flag()
        loop.progress(loop.clock())
        assert not application.raise_flag(), "the round has raised it again"
        clients._sleepers -= 1
    assert driver.alloc_pd() > 0
    driver.close()


def test_who_rang_while_the_flag_was_down_is_served_before_the_last_thread_sleeps(own, device):
    clients, loop = own.engine.clients, own.engine.loop
    channel = ProcessChannel(AdapterProcess(parse_one(f"app={device}"), starts=False))
    until(lambda: clients._sleepers == 1)
    with loop.lock:
        (application,) = clients._applications.values()
        application.lower_flag()
        channel.commands.send(control_fields.ALLOC_PD, 1, {})
        assert clients.turn(loop.clock()), "it has been served"
        assert channel.replies.count() == 1
        assert not clients.turn(loop.clock()), "the flag is up"
    channel.close()


def test_only_the_last_thread_that_wakes_says_that_the_adapter_is_awake(own, device):
    clients, loop = own.engine.clients, own.engine.loop
    channel = ProcessChannel(AdapterProcess(parse_one(f"app={device}"), starts=False))
    until(lambda: clients._sleepers == 1)
    with loop.lock:
        (application,) = clients._applications.values()
        now = loop.clock()
        assert clients.arm_wakeup(now, True)
        clients.disarm_wakeup()
        assert not application.raise_flag(), "one still sleeps"
        clients.disarm_wakeup()
        assert application.raise_flag()
        assert clients.arm_wakeup(now, True)
    channel.close()


def test_a_failed_engine_lets_its_clients_go(own, members):
    client = members()
    client.ask("open")
    client.say(call="event")
    with own.engine.loop.lock:
        own.engine.loop.fail(RuntimeError("a bug"))
    assert client.hear() == [DEVICE_FATAL, 0]
    with pytest.raises(DriverError, match="gone"):
        own.driver.alloc_pd()


def test_a_process_that_ends_waits_for_clients_a_while(own, device, monkeypatch, caplog):
    driver = DeviceDriver("app", ProcessChannel(AdapterProcess(parse_one(f"app={device}"), starts=False)))
    waited = []
    plain = Clients.wait_left

    def wait_left(clients, limit_s):
        if limit_s:
            waited.append(limit_s)
            driver.close()
        return plain(clients, limit_s)

    monkeypatch.setattr(Clients, "wait_left", wait_left)
    devices.linger(BOUND_S)
    assert len(waited) == 1
    assert 0 < waited[0] <= BOUND_S
    assert "other processes use it" not in caplog.text
    until(lambda: not own.engine.alive)  # nobody is left
    devices.linger(BOUND_S)
    assert len(waited) == 1


def test_a_guest_that_stays_is_not_waited_for_without_end(own, device, caplog):
    driver = DeviceDriver("app", ProcessChannel(AdapterProcess(parse_one(f"app={device}"), starts=False)))
    devices.linger(0.01)
    assert "other processes use it" in caplog.text
    devices.remove("own")
    until(lambda: driver.next_event(0) == (DEVICE_FATAL, 0))
    driver.close()


# who may come


def test_a_name_of_another_user_keeps_nobody_from_an_address(device, monkeypatch):
    with listening_name.take(name_of(device)) as door:
        door.listen(1)
        monkeypatch.setattr(messages, "peer_of", lambda channel: (os.getpid(), os.getuid() + 1))
        devices.add(f"app={device}")
        driver = registry.open_device("app")
        assert devices.find("app").engine.clients is None
        driver.close()
    devices.remove("app")


def test_a_name_at_which_nobody_answers_keeps_nobody_from_an_address_for_ever(device, monkeypatch):
    monkeypatch.setattr(adapter_process, "START_LIMIT_S", 0.02)
    with listening_name.take(name_of(device)):
        devices.add(f"app={device}")
        driver = registry.open_device("app")
        assert devices.find("app").engine.clients is None
        driver.close()
    devices.remove("app")


def test_where_there_are_no_names_an_adapter_is_its_processes_own(device, monkeypatch):
    def take_none(name):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(listening_name, "take", take_none)
    devices.add(f"app={device}")
    driver = registry.open_device("app")
    assert devices.find("app").engine.clients is None
    assert driver.alloc_pd() > 0
    driver.close()
    devices.remove("app")


def test_an_adapter_without_a_descriptor_to_spare_is_its_processes_own(device, monkeypatch):
    def clients(*words):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(embedded, "Clients", clients)
    devices.add(f"app={device}")
    driver = registry.open_device("app")
    assert not listening_name.is_taken(name_of(device))
    assert driver.alloc_pd() > 0
    driver.close()
    devices.remove("app")


def test_who_finds_an_adapter_that_ends_embeds_one(device, monkeypatch):
    looks = []

    def channel(process):
        looks.append(process)
        raise ConnectionResetError(errno.ECONNRESET, "the adapter process has ended")

    with contextlib.ExitStack() as until_found:
        until_found.enter_context(listening_name.take(name_of(device)))
        monkeypatch.setattr(
            devices, "ProcessChannel", lambda process: (until_found.close(), channel(process))
        )
        devices.add(f"app={device}")
        driver = registry.open_device("app")
    assert len(looks) == 1
    assert devices.find("app").engine.clients is not None
    driver.close()
    devices.remove("app")


def test_a_process_that_always_finds_one_that_ends_gives_up(device, monkeypatch):
    def channel(process):
        raise ConnectionResetError(errno.ECONNRESET, "the adapter process has ended")

    monkeypatch.setattr(devices, "ProcessChannel", channel)
    with listening_name.take(name_of(device)):
        devices.add(f"app={device}")
        with pytest.raises(DriverError, match="one adapter after the other") as caught:
            registry.open_device("app")
    assert caught.value.errno == errno.ECONNRESET
    devices.remove("app")


def test_clients_of_other_users_are_refused(loopback_address, monkeypatch):
    with embedding(loopback_address()) as clients:
        monkeypatch.setattr(messages, "peer_of", lambda channel: (1, os.getuid() + 1))
        control = adapter_process.connect_to(clients.path, "other")
        with pytest.raises(OSError, match="another user") as caught:
            adapter_process.ask(control, adapter_process.READY)
        assert caught.value.errno == errno.EPERM
        assert not clients.present
        control.close()


@pytest.mark.parametrize("step", ["flush", "serve", "progress"])
def test_memory_of_a_process_that_has_ended_is_not_looked_for(loopback_address, step):
    """Its number may be another's: it is dismissed before the engine does anything."""
    with embedding(loopback_address()) as clients:
        channel = ProcessChannel(AdapterProcess(parse_one(f"s=unix:{clients.path}")))
        with clients.loop.lock:
            (known,) = clients._applications.values()
            reader, writer = os.pipe()
            os.close(writer)
            clients._pidfds.unregister(known.pidfd)
            os.dup2(reader, known.pidfd)  # readable: as that of a process that has ended
            os.close(reader)
            clients._pidfds.register(known.pidfd)
            hosts = set(clients.adapter.hosts)
            # as if nobody saw the end of its socket
            getattr(clients.loop, step)(clients.loop.clock())
            assert not clients.present
            assert hosts - set(clients.adapter.hosts) == {known.host}
        channel.close()


def test_a_guest_in_a_thread_of_the_same_process_shares_memory_and_packets(own, device):
    client = DeviceDriver("app", ProcessChannel(AdapterProcess(parse_one(f"app={device}"), starts=False)))
    here, there = End(own.driver, 4096), End(client, 4096)
    join(here, there)
    there.qp.post_recv(1, there.element(4096))
    done = threading.Thread(target=lambda: [take(there.cq, 1), there.memory], daemon=True)
    done.start()
    here.memory[:5] = b"hello"
    here.qp.post_send(2, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, here.element(5), None)
    here.qp.ring()
    assert take(here.cq, 1)[0].status == 0
    done.join(BOUND_S)
    assert bytes(there.memory[:5]) == b"hello"
    client.close()
