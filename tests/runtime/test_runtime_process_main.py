"""The entry of an adapter process, in this process: what it hands on, says, and answers who started it."""

import errno
import io
import os
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from softhca.queues.handshake import READY, decode_answer
from softhca.runtime import messages, process_main
from softhca.runtime.specification import DeviceSpecificationError

DEVICE = "app=udp:127.0.0.2"


class Server:
    """An adapter's server that only notes what it was given and how it was ended; a test says what happens
    while it serves."""

    serving = None

    def __init__(self, adapter, links, first, path, stay, same_host, door, leave_starter):
        self.given = SimpleNamespace(adapter=adapter, links=links, first=first, path=path, stay=stay,
                                     same_host=same_host, door=door, leave_starter=leave_starter)
        self.loop = SimpleNamespace(dead=False)
        self.stopped = threading.Event()
        self.served = 0
        made.append(self)

    def serve(self):
        self.served += 1
        if Server.serving is not None:
            type(self).serving(self)

    def stop(self):
        self.stopped.set()


made = []


@pytest.fixture
def process(monkeypatch):
    """The entry with all that is below it replaced; ``handlers`` are those of signals."""
    made.clear()
    monkeypatch.setattr(Server, "serving", None)
    asked = SimpleNamespace(handlers={}, same_host=[])
    links = [SimpleNamespace(address="127.0.0.2:4791"), SimpleNamespace(address="127.0.0.3:4791")]

    def same_host_of(*words, **options):
        asked.same_host.append((words, options))
        return "same host"

    monkeypatch.setattr(process_main, "AdapterServer", Server)
    monkeypatch.setattr(process_main, "assemble_ports", lambda specification: ("adapter", links))
    monkeypatch.setattr(process_main, "same_host_of", same_host_of)
    monkeypatch.setattr(signal, "signal", asked.handlers.__setitem__)
    asked.links = links
    return asked


@pytest.fixture
def ends():
    """A socket of the application, and the number of the one that it hands over."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.set_inheritable(True)
    yield here, there.detach()
    here.close()
    for server in made:
        if server.given.first is not None:
            server.given.first.close()


def failing(monkeypatch, error):
    def fail(specification):
        raise error

    monkeypatch.setattr(process_main, "assemble_ports", fail)


def said_to(application):
    data, descriptors = messages.receive_packet(application)
    assert not descriptors
    return data


def test_who_started_it_is_told_where_it_is_before_it_serves(process, ends):
    application, number = ends
    answers = []
    Server.serving = lambda server: answers.append(decode_answer(READY, said_to(application)))
    assert process_main.main([DEVICE, "--attach", str(number), "--listen", "@name"]) == 0
    assert answers == [{"place": b"127.0.0.2:4791+127.0.0.3:4791"}]
    given = made[0].given
    assert (given.adapter, given.links, given.path, given.stay) == ("adapter", process.links, "@name", False)
    assert given.first.fileno() == number
    assert not given.first.get_inheritable(), "what this process starts must not keep the application's end"
    assert given.same_host == "same host"
    assert process.same_host[0][1] == {"packets_alone": True}
    assert given.leave_starter is process_main._leave_starter
    assert given.door is None


def test_only_who_has_started_it_ends_it(process):
    assert process_main.main([DEVICE]) == 0
    assert process.handlers[signal.SIGINT] == signal.SIG_IGN
    assert made[0].given.first is None
    assert not made[0].stopped.is_set()
    process.handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert made[0].stopped.is_set()


def test_an_engine_that_has_failed_is_an_exit_status(process):
    Server.serving = lambda server: setattr(server.loop, "dead", True)
    assert process_main.main([DEVICE]) == 1


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (OSError(errno.EADDRINUSE, "the address is in use"), errno.EADDRINUSE, "the address is in use"),
        (OSError("something"), errno.EINVAL, "something"),
        (DeviceSpecificationError("no such device"), errno.EINVAL, "no such device"),
    ],
)
def test_who_started_it_is_told_why_it_does_not_serve(
    process, ends, monkeypatch, capsys, error, code, reason
):
    application, number = ends
    failing(monkeypatch, error)
    assert process_main.main([DEVICE, "--attach", str(number)]) == 1
    with pytest.raises(OSError, match=reason) as caught:
        decode_answer(READY, said_to(application))
    assert (caught.value.errno, caught.value.strerror) == (code, reason)
    assert not made
    assert capsys.readouterr() == ("", ""), "a program's standard error is its own"


def test_whom_nobody_attends_says_on_its_standard_error_why_not(process, monkeypatch, capsys):
    failing(monkeypatch, OSError(errno.EADDRINUSE, "the address is in use"))
    assert process_main.main([DEVICE]) == 1
    assert capsys.readouterr().err == f"softhca: [Errno {errno.EADDRINUSE}] the address is in use\n"


def test_a_word_that_names_no_device_is_said(process, capsys):
    assert process_main.main(["app=nothing:here"]) == 1
    assert capsys.readouterr().err.startswith("softhca: ")
    assert not made


def test_the_door_is_taken_over_and_never_waits(process):
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    bound.bind(b"\0softhca-test-%d" % os.getpid())
    bound.set_inheritable(True)
    number = bound.detach()
    assert process_main.main([DEVICE, "--bound", str(number)]) == 0
    with made[0].given.door as door:
        assert door.fileno() == number
        assert not door.getblocking()
        assert not door.get_inheritable()


def test_one_that_stays_says_that_it_is_ready_and_ends_with_its_input(process, monkeypatch, capsys):
    reader, writer = os.pipe()
    kept = os.dup(0)
    os.dup2(reader, 0)
    ready = []

    def serve(server):
        ready.append(capsys.readouterr().out)
        os.write(writer, b"x" * 5000)  # is no end
        os.close(writer)
        assert server.stopped.wait(60)

    Server.serving = serve
    try:
        assert process_main.main([DEVICE, "--stay"]) == 0
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reader)
    assert ready == ["ready\n"]
    assert made[0].given.stay


def test_whatever_comes_before_the_end_of_the_input_ends_nothing(monkeypatch):
    words, stopped = [b"x" * 4096, b"y", b""], []
    monkeypatch.setattr(os, "read", lambda descriptor, most: words.pop(0))
    process_main._stop_at_end_of_input(SimpleNamespace(stop=lambda: stopped.append(len(words))))
    assert stopped == [0]


def test_one_that_does_not_stay_reads_no_input(process, monkeypatch, capsys):
    monkeypatch.setattr(process_main, "_stop_at_end_of_input", lambda server: pytest.fail("it reads"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert process_main.main([DEVICE]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_a_starter_that_has_gone_is_kept(monkeypatch, fails):
    done = []

    def opened(path, flags):
        if fails:
            raise OSError(errno.EMFILE, "no descriptor")
        done.append((path, flags))
        return 77

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", opened)
        patched.setattr(os, "dup2", lambda old, new: done.append((old, new)))
        patched.setattr(os, "close", done.append)
        patched.setattr(os, "chdir", done.append)
        process_main._leave_starter()
    assert done == ([] if fails else [(os.devnull, os.O_RDWR), (77, 2), 77, "/"])


def test_the_collector_of_garbage_does_not_look_at_what_a_process_has_imported(loopback_address):
    program = (
        "import atexit, gc, runpy, sys\n"
        "tell = lambda: print(gc.get_threshold()[0], gc.get_freeze_count() > 0, file=sys.stderr)\n"
        f"atexit.register(tell)\nsys.argv[1:] = ['x=udp:{loopback_address()}', '--stay']\n"
        "runpy.run_module('softhca.runtime.process_main', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "50000 True\n")
