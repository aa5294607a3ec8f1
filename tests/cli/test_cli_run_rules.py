"""`softhca run` without programs: what is refused, how copies end, signals, and what copies are told."""

import argparse
import os
import signal
import subprocess
from types import SimpleNamespace

import pytest

from softhca.cli import run as run_module
from softhca.cli.errors import UsageError
from softhca.cli.launch import devices_of_copies, environment, with_sockets
from softhca.cli.run import Copies, Terminated, check, remedy_of_program
from softhca.cli.shared_adapters import ADAPTER
from softhca.links.fault_counters import REPORTS_VARIABLE
from softhca.links.variables import CAPTURE, FAULTS

GIVEN = {"link": "", "capture": None, "faults": "", "fabric_name": "", "partitions": None}


@pytest.mark.parametrize("named", [{"fabric_name": "mine"}, {"partitions": "partitions.conf"}])
@pytest.mark.parametrize("link", ["", "udp", "shm"])
def test_words_for_a_fabric_go_with_a_fabric_alone(named, link):
    with pytest.raises(UsageError, match="goes with --link fabric:TOPOLOGY"):
        check(argparse.Namespace(**GIVEN | named | {"link": link}), ["true"])
    check(argparse.Namespace(**GIVEN | named | {"link": "fabric:fat-tree:radix=4"}), ["true"])


@pytest.fixture
def copies():
    return Copies(["true"], [{}, {}, {}])


class Unwaited:
    """A condition that nobody may wait for."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def wait(self):
        raise AssertionError("it waits")


@pytest.mark.parametrize(("ended", "status"), [([0, 3, 5], 3), ([7], 7), ([0, 9], 9), ([0, 0, 0], 0)])
def test_the_status_is_that_of_the_first_that_fails_whoever_runs_still(copies, ended, status):
    copies.processes = [SimpleNamespace()] * 3
    copies._statuses, copies._ended = ended, Unwaited()
    assert copies._wait() == status


class Stubborn:
    """A process that ends when it is killed, or has ended."""

    def __init__(self, has_ended):
        self.has_ended = has_ended
        self.calls = []

    def poll(self):
        return 0 if self.has_ended else None

    def wait(self, limit_s=None):
        if not self.has_ended:
            raise subprocess.TimeoutExpired("copy", limit_s)

    def terminate(self):
        self.calls.append("terminate")

    def kill(self):
        self.calls.append("kill")
        self.has_ended = True


def test_a_copy_that_does_not_end_when_it_is_asked_is_killed(copies):
    copies.processes = [Stubborn(False), Stubborn(True)]
    copies._end_all()
    assert [each.calls for each in copies.processes] == [["terminate", "kill"], []]


class Slow(Stubborn):
    """One that takes all the time that it is given."""

    def __init__(self, clock):
        super().__init__(False)
        self.clock = clock

    def wait(self, limit_s=None):
        if not self.has_ended:
            self.clock.append(self.clock[-1] + limit_s)
        super().wait(limit_s)


def test_all_copies_have_the_same_time_to_end(copies, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
    copies.processes = [Slow(clock) for _ in range(3)]
    copies._end_all()
    assert clock[-1] == 100.0 + run_module.GRACE_S
    assert [each.calls for each in copies.processes] == 3 * [["terminate", "kill"]]


def test_a_second_signal_does_not_disturb_the_end_and_handlers_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    with run_module._termination():
        with pytest.raises(Terminated) as ended:
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.status == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


def test_what_to_do_where_a_program_cannot_be_started(tmp_path):
    (tmp_path / "script").write_text("")
    assert remedy_of_program(str(tmp_path / "script")).startswith("make it executable")
    assert remedy_of_program(str(tmp_path / "absent")).startswith("name a program")


@pytest.mark.parametrize(
    ("variable", "said"), [("process", f"{ADAPTER}=process says so"), ("", "it is written in Python")]
)
def test_who_decided_between_adapters_is_told(monkeypatch, capsys, variable, said):
    monkeypatch.setenv(ADAPTER, variable)
    run_module._tell(True, "it is written in Python", False)
    assert capsys.readouterr().err == f"softhca run: adapters inside: {said}\n"
    run_module._tell(False, "it is written in Python", False)
    assert capsys.readouterr().err == ""


def test_each_port_of_a_device_has_another_address():
    (devices,), (peer,) = devices_of_copies("a=udp:*+udp:*", 1)
    first, second = devices.removeprefix("a=udp:").split("+udp:")
    assert (first, first != second, "*" in devices) == (peer, True, False)


def test_sockets_of_softhca_are_found_before_all_else(tmp_path):
    variables = with_sockets({"PYTHONPATH": "/mine"}, tmp_path)
    assert variables["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / "sockets"), "/mine"]


def test_nothing_of_an_outer_run_is_told_to_copies(tmp_path):
    outer = {CAPTURE: "/x", FAULTS: "loss=1%", REPORTS_VARIABLE: "/y", "HOME": "/h"}
    found = environment(outer, 0, "a=unix:@served", [], tmp_path, None)
    assert found.keys() & {*outer, "SOFTHCA_PEERS"} == {"HOME"}
    assert os.fspath(tmp_path) in found["PATH"]
