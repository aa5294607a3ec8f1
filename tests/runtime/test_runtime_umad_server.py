"""The sockets by which programs of libibumad meet a fabric."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.fabric import umad_sessions as u
from softhca.fabric.generators import fat_tree
from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.umad_requests import LIMIT_NS
from softhca.management import constants as c
from softhca.management.directed_route import DirectedRoute
from softhca.management.mad import Mad, MadHeader
from softhca.runtime import umad_server
from softhca.runtime.fabric_loop import FabricLoop
from softhca.runtime.umad_server import UmadServer

NAME = f"softhca-test-{os.getpid()}"


class Server(UmadServer):
    """A server with a loop of its own."""

    def __init__(self, address: tuple[str, int] | None = None, managed: Any = None) -> None:
        plane = managed.plane if managed is not None else MadPlane(fat_tree(4))
        self.now_ns = 0
        self.loop = FabricLoop(plane, lambda: self.now_ns, managed)
        super().__init__(self.loop, u.UmadSessions(plane), NAME, address)

    def turn(self, timeout_s: float) -> None:
        """One of the loop's."""
        self.loop.turn(timeout_s)

    def close(self) -> None:
        super().close()
        self.loop.close()


def server(address: tuple[str, int] | None = None) -> Server:
    return Server(address)


@pytest.fixture
def local() -> Iterator[Server]:
    made = server()
    yield made
    made.close()


class Program:
    """What libumad2sim does, over abstract Unix sockets."""

    def __init__(self, at: Server, number: int) -> None:
        self.at = at
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.data = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.control.bind(f"\0{NAME}:ctl{number}\0")
        self.control.connect(f"\0{NAME}:ctl\0")
        self.data.bind(f"\0{NAME}:in{number}\0")
        for each in (self.control, self.data):
            each.setblocking(False)
        reply = self.ask(u.CONNECT, u._CONNECT.pack(number, 0, 0, b""))
        self.number = u._CONNECT.unpack_from(u.CONTROL.unpack(reply)[4])[0]
        self.data.connect(f"\0{NAME}:out{self.number}\0")

    def ask(self, kind: int, data: bytes = b"") -> bytes:
        self.control.send(u.CONTROL.pack(u.MAGIC, getattr(self, "number", 0), kind, len(data), data))
        self.at.turn(0)
        return self.control.recv(4096)

    def close(self) -> None:
        self.control.close()
        self.data.close()


def request(attribute_id: int = c.ATTRIBUTE_NODE_INFO) -> bytes:
    header = MadHeader(management_class=c.CLASS_SUBN_DIRECTED, method=1, attribute_id=attribute_id)
    mad = Mad.make(header)
    mad = Mad(header, DirectedRoute().encode() + mad.body[12:])
    return u.PACKET.pack(0xFFFF, 0xFFFF, 0, 0, 0, 256, mad.encode())


def test_programs_ask_and_are_answered_each_by_its_own_socket(local: Server) -> None:
    programs = [Program(local, 1000 + number) for number in range(3)]
    assert [each.number for each in programs] == [0, 1, 2]
    for each in reversed(programs):
        each.data.send(request())
    local.turn(0)
    for each in programs:
        assert Mad.decode(u.PACKET.unpack(each.data.recv(4096))[6]).header.method == 0x81
    programs[1].ask(u.DISCONNECT)
    programs[1].close()
    again = Program(local, 1001)
    assert again.number == 1
    for each in (programs[0], again, programs[2]):
        each.close()


def test_a_request_to_a_program_that_was_killed_comes_back_in_the_turn_that_notices(local: Server) -> None:
    killed, program = Program(local, 2100), Program(local, 2101)
    killed.ask(u.SET_IS_SM, b"\1\0\0\0")
    killed.close()
    program.data.send(request(c.ATTRIBUTE_SM_INFO))
    local.turn(0)
    back = u.PACKET.unpack(program.data.recv(4096))
    assert (back[4], back[6]) == (u.TIMED_OUT, u.PACKET.unpack(request(c.ATTRIBUTE_SM_INFO))[6])
    assert list(local.sessions.sessions) == [program.number]
    program.close()


def test_the_loop_wakes_when_a_program_has_taken_too_long(local: Server) -> None:
    silent, program = Program(local, 2200), Program(local, 2201)
    silent.ask(u.SET_IS_SM, b"\1\0\0\0")
    program.data.send(request(c.ATTRIBUTE_SM_INFO))
    local.turn(0)
    assert local.loop._wait_s() == LIMIT_NS / 1e9
    local.now_ns = LIMIT_NS
    assert local.loop._wait_s() == 0
    local.turn(60)
    assert u.PACKET.unpack(program.data.recv(4096))[4] == u.TIMED_OUT
    silent.close()
    program.close()


def test_a_program_that_ends_without_a_word_gives_its_place_up(local: Server) -> None:
    program = Program(local, 2000)
    program.data.send(request())
    program.close()
    local.turn(0)
    assert local.sessions.sessions == {}


def test_a_program_that_reads_nothing_keeps_nobody_waiting(local: Server) -> None:
    idle, busy = Program(local, 3000), Program(local, 3001)
    sent = 2000
    for _ in range(sent):
        idle.data.send(request())
        local.turn(0)
    busy.data.send(request())
    local.turn(0)
    assert len(busy.data.recv(4096)) == 288
    waiting = local.sessions.sessions[idle.number].outgoing
    assert 0 < len(waiting) <= u.MOST_WAITING
    got, rests = 0, True
    while waiting or rests:
        try:
            idle.data.recv(4096)
            got, rests = got + 1, True
        except BlockingIOError:
            rests = bool(waiting)
            local.turn(0)
    # of each request that came to nothing the answer, and that there is none
    assert local.sessions.counters["drops_full"] == 2 * (sent - got)
    idle.close()
    busy.close()


def test_a_name_is_one_server_s(local: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        server()


def test_garbage_on_the_control_socket_is_counted(local: Server) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nameless:
        nameless.sendto(b"x" * 80, f"\0{NAME}:ctl\0")
        nameless.sendto(u.CONTROL.pack(u.MAGIC, 0, u.CONNECT, 0, b""), f"\0{NAME}:ctl\0")
        local.turn(0)
    assert local.refused == 2
    assert local.sessions.sessions == {}


def test_a_program_without_a_socket_for_datagrams_is_let_go(local: Server) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as alone:
        alone.bind(f"\0{NAME}:ctl5000\0")
        alone.sendto(
            u.CONTROL.pack(u.MAGIC, 0, u.CONNECT, 44, u._CONNECT.pack(5000, 0, 0, b"")), f"\0{NAME}:ctl\0"
        )
        local.turn(0)
    assert local.sessions.sessions == {}


def test_programs_by_udp() -> None:
    pid = os.getpid()
    host, port = f"127.{64 + (pid >> 16 & 63)}.{pid >> 8 & 255}.{pid & 255}", 7070  # an address of our own
    at = server((host, port))
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as data,
    ):
        for each in (control, data):
            each.bind(("127.0.0.1", 0))
            each.settimeout(5)
        control.connect((host, port))
        own = data.getsockname()[1]
        control.send(u.CONTROL.pack(u.MAGIC, 0, u.CONNECT, 44, u._CONNECT.pack(own, 0, 0, b"h2")))
        at.turn(5)
        number, _, _, name = u._CONNECT.unpack_from(u.CONTROL.unpack(control.recv(4096))[4])
        assert name.rstrip(b"\0") == b"h2"
        data.connect((host, port + 1 + number))
        data.send(request())
        at.turn(5)
        assert Mad.decode(u.PACKET.unpack(data.recv(4096))[6]).header.method == 0x81
    at.close()


def test_a_manager_of_ours_works_between_the_programs() -> None:
    managed_fabric = pytest.importorskip(
        "softhca.fabric.manager.managed_fabric", reason="numpy and scipy: pip install 'softhca[fabric]'"
    )
    managed = managed_fabric.ManagedFabric(fat_tree(4))
    manager = managed.add((0, 1))
    at = Server(managed=managed)
    program = Program(at, 4000)
    turns = 0
    while not manager.is_settled:
        program.data.send(request())
        at.turn(0)
        assert len(program.data.recv(4096)) == 288  # whatever the manager has to do
        turns += 1
    assert turns > 2
    ports = [port for node in managed.plane.nodes for port in node.ports if port is not None and port.linked]
    assert {port.state for port in ports} == {4}
    program.close()
    at.close()


@pytest.mark.parametrize(("uid", "connected"), [(0, 1), (os.geteuid(), 1), (os.geteuid() + 1, 0)])
def test_only_programs_of_the_same_user_and_root_are_served(
    local: Server, monkeypatch: pytest.MonkeyPatch, uid: int, connected: int
) -> None:
    said = SimpleNamespace(size=umad_server._CREDENTIALS.size, unpack=lambda content: (1, uid, 1))
    monkeypatch.setattr(umad_server, "_CREDENTIALS", said)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as data,
    ):
        control.bind(f"\0{NAME}:ctl6000\0")
        data.bind(f"\0{NAME}:in6000\0")
        asked = u.CONTROL.pack(u.MAGIC, 0, u.CONNECT, 44, u._CONNECT.pack(6000, 0, 0, b""))
        control.sendto(asked, f"\0{NAME}:ctl\0")
        local.turn(0)
    assert (len(local.sessions.sessions), local.refused) == (connected, 1 - connected)


class Talking:
    """A program's socket that is told what to say by ``says``."""

    def __init__(self, real: socket.socket, says: Callable[[], bytes]) -> None:
        self.real, self.says, self.asked = real, says, 0

    def fileno(self) -> int:
        return self.real.fileno()

    def recv(self, _: int) -> bytes:
        self.asked += 1
        assert self.asked < 1000, "nobody else has a turn"
        return self.says()

    def close(self) -> None:
        self.real.close()


def talking(local: Server, number: int, says: Callable[[], bytes]) -> tuple[Program, Any, Any]:
    program = Program(local, number)
    session = local.sessions.sessions[program.number]
    local._sockets[session] = made = Talking(local._sockets[session], says)  # type: ignore[assignment]
    return program, session, made


def test_a_program_that_says_very_much_leaves_the_others_their_turn(local: Server) -> None:
    program, session, made = talking(local, 7000, request)
    local._take(session)
    assert (made.asked, len(session.outgoing)) == (umad_server.MOST_A_TURN,) * 2
    program.close()


@pytest.mark.parametrize(("code", "left"), [(errno.ECONNRESET, 0), (errno.ENOMEM, 1)])
def test_a_program_whose_socket_is_gone_is_let_go_and_no_other(local: Server, code: int, left: int) -> None:
    def says() -> bytes:
        raise OSError(code, os.strerror(code))

    program, session, _ = talking(local, 7001, says)
    local._take(session)
    assert (len(local.sessions.sessions), len(local._sockets)) == (left, left)
    program.close()


def test_a_program_that_reads_again_is_waited_for_no_more(local: Server) -> None:
    program = Program(local, 8000)
    session = local.sessions.sessions[program.number]
    wanted: list[tuple[bool, bool]] = []
    want = local.loop.want
    local.loop.want = lambda number, *what: (wanted.append(what), want(number, *what))[1]  # type: ignore[method-assign,assignment]
    while not local._blocked:
        program.data.send(request())
        local.turn(0)
    assert wanted == [(True, True)]
    while session.outgoing:
        program.data.recv(4096)
        local.turn(0)
    assert wanted[-1] == (True, False)
    assert local._blocked == set()
    while not local._blocked:
        program.data.send(request())
        local.turn(0)
    program.ask(u.DISCONNECT)
    assert local._blocked == set()
    program.close()
