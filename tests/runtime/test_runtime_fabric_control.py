"""Commands to a fabric that is served: what they do, and what they refuse."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from fabric_server_pair import Served, burst_of, packet, take

from softhca.fabric.generators import fat_tree
from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.picture import ERROR_COLOUR, GONE_COLOUR
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.fabric.topology_file import write_ibnetdiscover
from softhca.links.fabric import FabricLink
from softhca.runtime import fabric_commands, fabric_control
from softhca.runtime.fabric_control import (
    Connection,
    ControlError,
    ControlSocket,
    ask,
    control_name,
    perform,
)
from softhca.runtime.fabric_loop import FabricLoop
from softhca.wire.capture_file import LINKTYPE_INFINIBAND
from softhca.wire.pcapng import read_pcapng

NAME = f"softhca-test-control-{os.getpid()}"


def test_a_link_fails_and_comes_back_by_either_of_its_ends() -> None:
    plane = MadPlane(fat_tree(4))
    link = plane.topology.link_at(plane.topology.index("s1-0"), 3)
    assert link is not None
    one, other = plane.topology.links[link].end_a, plane.topology.links[link].end_b
    names = [plane.topology.end_text(end) for end in (one, other)]
    down = {"link": names, "changed": True}
    assert perform(plane, {"do": "fail", "link": names[0]}, 0) == down
    assert plane.is_failed(link)
    assert perform(plane, {"do": "fail", "link": names[1]}, 0) == {"link": names, "changed": False}
    assert perform(plane, {"do": "restore", "link": names[1]}, 0) == down
    assert not plane.is_failed(link)


def test_errors_are_counted_at_the_end_that_is_named() -> None:
    plane = MadPlane(fat_tree(4))
    perform(plane, {"do": "count", "link": "s1-0[3]", "errors": {"symbol_error": 7, "looping_errors": 2}}, 0)
    index = plane.topology.index("s1-0")
    port = plane.nodes[index].ports[3]
    assert port is not None
    assert port.counts == {"symbol_error": 7, "looping_errors": 2}
    peer = plane.topology.peer(index, 3)
    assert peer is not None
    other = plane.nodes[peer.node].ports[peer.port]
    assert other is not None
    assert other.counts == {}
    assert perform(plane, {"do": "counters"}, 0)["counters"] == plane.counters


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ([], "an object"),
        ({}, "no request"),
        ({"do": "explode"}, "no request"),
        ({"do": ["fail"]}, "no request"),
        ({"do": "state", "first": -1}, "no such node or link"),
        ({"do": "state", "first": 85}, "no such node or link"),
        ({"do": "state", "first": "0"}, "no such node or link"),
        ({"do": "fail"}, "no end of a link"),
        ({"do": "fail", "link": 7}, "no end of a link"),
        ({"do": "fail", "link": "s1-0"}, "no end of a link"),
        ({"do": "fail", "link": "s9-9[1]"}, "no end of a link"),
        ({"do": "fail", "link": "s1-0[9]"}, "no link at"),
        ({"do": "count", "link": "s1-0[3]"}, "no counters"),
        ({"do": "count", "link": "s1-0[3]", "errors": {"xmit_data": 1}}, "no counter"),
        ({"do": "count", "link": "s1-0[3]", "errors": {"symbol_error": -1}}, "cannot grow"),
        ({"do": "count", "link": "s1-0[3]", "errors": {"symbol_error": "many"}}, "cannot grow"),
        ({"do": "count", "link": "s1-0[3]", "errors": {"symbol_error": 1, "no": 1}}, "no counter"),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(request_: Any, why: str) -> None:
    plane = MadPlane(fat_tree(4))
    with pytest.raises(ControlError, match=why):
        perform(plane, request_, 0)
    assert not any(plane.is_failed(link) for link in range(len(plane.topology.links)))
    assert not any(port.counts for node in plane.nodes for port in node.ports if port is not None)


def test_the_state_of_nodes_and_links_is_told_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric_commands, "MOST_TOLD", 20)
    plane = MadPlane(fat_tree(4))
    plane.fail(7, 0)
    perform(plane, {"do": "count", "link": "s1-0[3]", "errors": {"symbol_error": 7, "xmit_wait": 9}}, 0)
    found = plane.topology.link_at(plane.topology.index("s1-0"), 3)
    assert found is not None
    leaf = plane.nodes[plane.topology.index("s1-0")].ports
    assert leaf[0] is not None
    assert leaf[3] is not None
    leaf[0].change(lid=40)
    leaf[3].words_sent = 1000
    answers = [perform(plane, {"do": "state", "first": first}, 0) for first in (0, 20, 40)]
    assert {(each["nodes"], each["links"]) for each in answers} == {(36, 48)}
    lids = [lid for each in answers for lid in each["lids"]]
    states = [state for each in answers for state in each["states"]]
    assert [len(lids), len(states)] == [36, 48]
    assert {index: lid for index, lid in enumerate(lids) if lid} == {plane.topology.index("s1-0"): 40}
    assert {index: state for index, state in enumerate(states) if state != (0, 0, False)} == {
        7: (0, 2, True),  # LinkDowned, at both ends
        found: (4000, 7, False),
    }


def test_a_description_that_two_nodes_have_names_none() -> None:
    nodes = tuple(
        make_node(f"n{number}", NodeKind.CHANNEL_ADAPTER, 1, 16 * (number + 1), description="same")
        for number in range(2)
    )
    plane = MadPlane(Topology(nodes, (Link(End(0, 1), End(1, 1)),)))
    with pytest.raises(ControlError, match="2 nodes are called"):
        perform(plane, {"do": "fail", "link": "same[1]"}, 0)


@pytest.fixture
def served() -> Iterator[tuple[FabricLoop, ControlSocket]]:
    loop = FabricLoop(MadPlane(fat_tree(4)), lambda: 0)
    control = ControlSocket(loop, NAME)
    yield loop, control
    control.close()
    loop.close()


def while_serving(server: FabricLoop, call: Callable[[], Any]) -> Any:
    """What a call in another thread gives while the server has its turns."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except ControlError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        server.turn(0.05)
    return found[0]


def test_commands_over_the_socket(served: tuple[FabricLoop, ControlSocket]) -> None:
    server, _ = served
    told = while_serving(server, lambda: ask(NAME, {"do": "fail", "link": "s1-0[3]"}))
    assert told["changed"]
    refused = while_serving(server, lambda: ask(NAME, {"do": "fail", "link": "nobody[1]"}))
    assert isinstance(refused, ControlError)
    assert "nobody" in str(refused)
    with pytest.raises(ControlError, match="nobody serves"):
        ask(NAME + "-other", {"do": "counters"})
    with pytest.raises(OSError, match="in use"):
        ControlSocket(server, NAME)


def test_hostile_bytes_have_one_answer_and_connections_are_bounded(
    served: tuple[FabricLoop, ControlSocket],
) -> None:
    server, _ = served
    clients = []
    for data in (b"{", b"\xff" * 100, b"[" * 4000, b"null", json.dumps({"do": "fail"}).encode()):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(control_name(NAME))
        client.send(data)
        server.turn(0)
        server.turn(0)
        assert "error" in json.loads(client.recv(4096))
        clients.append(client)
    for _ in range(fabric_control.MOST_CONNECTIONS + 2):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(control_name(NAME))
        server.turn(0)
        clients.append(client)
    clients[-1].setblocking(False)
    assert clients[-1].recv(10) == b""  # one too many
    for client in clients:
        client.close()
    server.turn(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as again:
        again.connect(control_name(NAME))
        server.turn(0)
        again.send(b'{"do": "counters"}')
        server.turn(0)
        assert "counters" in json.loads(again.recv(1 << 16))


def test_answers_that_find_no_room_are_sent_when_there_is_some(
    served: tuple[FabricLoop, ControlSocket],
) -> None:
    server, control = served
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(control_name(NAME))
        client.setblocking(False)
        server.turn(0)
        asked, told = 0, []
        with contextlib.suppress(BlockingIOError):
            while True:  # until the server, whose answers are not taken, takes no more requests
                client.send(json.dumps({"do": "fail", "link": f"nobody-{asked}[1]"}).encode())
                asked += 1
                server.turn(0)
        assert [len(waiting) for waiting in control._waiting.values()] == [1]
        server.turn(0)
        while len(told) < asked:
            told.append(json.loads(client.recv(1 << 16)))
            server.turn(0)
        assert [f"nobody-{number}[1]" in each["error"] for number, each in enumerate(told)] == [True] * asked
        assert control._waiting == {}
        client.send(b'{"do": "counters"}')
        server.turn(0)
        assert "counters" in json.loads(client.recv(1 << 16))


def test_who_goes_while_an_answer_waits_leaves_nothing(served: tuple[FabricLoop, ControlSocket]) -> None:
    server, control = served
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(control_name(NAME))
        client.setblocking(False)
        server.turn(0)
        while not control._waiting:
            client.send(b"{")
            server.turn(0)
    server.turn(0)
    assert (control._waiting, control._connections) == ({}, set())


# adapters' packets


@pytest.fixture
def fabric() -> Iterator[Served]:
    made = Served(name="control")
    yield made
    made.close()


def crossing(fabric: Served) -> tuple[FabricLink, FabricLink, bytes]:
    """Two adapters, and a packet from one to the other."""
    one, two = fabric.join("h0"), fabric.join("h1")
    return one, two, packet(one.info["lid"], two.info["lid"])


def test_a_link_has_faults_in_both_directions_until_there_are_none(fabric: Served) -> None:
    one, two, sent = crossing(fabric)
    back = packet(two.info["lid"], one.info["lid"])
    told = fabric.call(lambda: ask(fabric.name, {"do": "faults", "link": "s[1]", "faults": "loss=100%"}))
    assert sorted(told["link"]) == ["h0[1]", "s[1]"]
    for link, data in ((one, sent), (two, back)):
        link.send(burst_of(data))
    fabric.until(lambda: fabric.counter("drops_faults") == 2)
    fabric.call(lambda: ask(fabric.name, {"do": "faults", "link": "s[1]", "faults": "delay=5us"}))
    one.send(burst_of(sent))
    fabric.until(lambda: len(fabric.server.packets._held) == 1)
    fabric.now_ns += 4_999
    fabric.loop.turn(0)
    assert take(two) is None
    fabric.now_ns += 1
    fabric.until(lambda: take(two) is not None)
    fabric.call(lambda: ask(fabric.name, {"do": "faults", "link": "s[1]", "faults": "none"}))
    assert fabric.server.packets._sides == {}


@pytest.mark.parametrize("faults", ["gone=1%", "loss=200%", "partition=1>2@0ns..", "crash=1@0ns..", 5, None])
def test_faults_that_cannot_be_are_refused(fabric: Served, faults: Any) -> None:
    with pytest.raises(ControlError):
        fabric.call(lambda: ask(fabric.name, {"do": "faults", "link": "s[1]", "faults": faults}))
    assert fabric.server.packets._sides == {}


def test_traffic_of_a_link_s_ports(fabric: Served) -> None:
    one, two, sent = crossing(fabric)
    one.send(burst_of(sent, sent))
    fabric.until(lambda: take(two) is not None)
    told = fabric.call(lambda: ask(fabric.name, {"do": "traffic", "link": "s[2]"}))["traffic"]
    ports = [fabric.plane.nodes[node].ports[port] for node, port in ((0, 2), (2, 1))]
    assert [told["s[2]"]["xmit_pkts"], told["h1[1]"]["rcv_pkts"]] == [
        port.sent + 2 if at == 0 else port.received + 2 for at, port in enumerate(ports) if port is not None
    ]


def read(file: Path) -> list[bytes]:
    with file.open("rb") as stream:
        found = list(read_pcapng(stream))
    assert all(each.link_type == LINKTYPE_INFINIBAND for each in found)
    return [each.data for each in found]


def test_a_link_is_captured_until_it_is_told_to_stop(fabric: Served, tmp_path: Path) -> None:
    one, two, sent = crossing(fabric)
    back = packet(two.info["lid"], one.info["lid"])
    file = tmp_path / "a.pcapng"
    connection = fabric.call(lambda: Connection(fabric.name))
    with file.open("wb") as stream:
        request = {"do": "capture", "links": ["s[1]"]}
        assert fabric.call(lambda: connection.ask(request, (stream.fileno(),))) == {"capturing": 1}
        with pytest.raises(ControlError, match="one for each"):
            fabric.call(lambda: connection.ask(request, (stream.fileno(),)))
    one.send(burst_of(sent))
    fabric.until(lambda: take(two) is not None)
    two.send(burst_of(back))
    fabric.until(lambda: take(one) is not None)
    assert fabric.call(lambda: connection.ask({"do": "stop"})) == {"captured": 2}
    assert read(file) == [sent, back]
    with pytest.raises(ControlError, match="no capture"):
        fabric.call(lambda: connection.ask({"do": "stop"}))
    connection.close()
    assert fabric.server.packets._sides == {}


def test_a_capture_ends_with_its_packets_or_with_who_asked_for_it(fabric: Served, tmp_path: Path) -> None:
    one, two, sent = crossing(fabric)
    for most in (3, 0):
        file = tmp_path / f"{most}.pcapng"
        connection = fabric.call(lambda: Connection(fabric.name))
        with file.open("wb") as stream:
            request = {"do": "capture", "links": ["h1[1]", "s[1]"], "packets": most}
            fabric.call(lambda: connection.ask(request, (stream.fileno(),)))  # noqa: B023
        one.send(burst_of(sent, sent))
        for _ in range(2):  # under a capture they cross one by one
            fabric.until(lambda: take(two) is not None)
        if most:
            assert fabric.call(connection.answer) == {"captured": 3}
        connection.close()
        fabric.until(lambda: fabric.server.packets._sides == {})
        assert read(file) == [sent] * (most or 4)


def test_a_capture_goes_to_a_file_and_over_links_that_there_are(fabric: Served, tmp_path: Path) -> None:
    connection = fabric.call(lambda: Connection(fabric.name))
    reads, writes = os.pipe()
    good = os.open(tmp_path / "a.pcapng", os.O_WRONLY | os.O_CREAT)
    unwritable = os.open(tmp_path / "a.pcapng", os.O_RDONLY)
    for request, descriptors, why in (
        ({"links": ["s[1]"]}, (writes,), "to a file"),
        ({"links": ["s[1]"]}, (unwritable,), "Bad file descriptor"),
        ({"links": ["s[1]"]}, (), "one file"),
        ({"links": ["s[1]"]}, (good, good), "one file"),
        ({"links": ["s[9]"]}, (good,), "no link"),
        ({"links": "s[1]"}, (good,), "which links"),
        ({"links": []}, (good,), "which links"),
        ({"links": ["s[1]"], "packets": -1}, (good,), "cannot be"),
        ({"links": ["s[1]"], "packets": "all"}, (good,), "cannot be"),
    ):
        with pytest.raises(ControlError, match=why):
            fabric.call(lambda: connection.ask({"do": "capture"} | request, descriptors))  # noqa: B023
    for each in (reads, writes, good, unwritable):
        os.close(each)
    connection.close()
    assert fabric.server.packets._sides == {}


def test_a_capture_that_cannot_be_written_ends_and_says_why(fabric: Served, tmp_path: Path) -> None:
    one, two, sent = crossing(fabric)
    connection = fabric.call(lambda: Connection(fabric.name))
    with open("/dev/full", "wb") as full, pytest.raises(ControlError, match="to a file"):
        fabric.call(lambda: connection.ask({"do": "capture", "links": ["s[1]"]}, (full.fileno(),)))
    with (tmp_path / "a.pcapng").open("wb") as stream:
        fabric.call(lambda: connection.ask({"do": "capture", "links": ["s[1]"]}, (stream.fileno(),)))
    capture = next(iter(fabric.server.control._captures.values()))  # type: ignore[union-attr]
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), capture._stream.fileno())
    for _ in range(400):
        one.send(burst_of(sent))
        fabric.loop.turn(0)
        take(two)
    fabric.until(lambda: not fabric.server.control._captures)  # type: ignore[union-attr]
    with pytest.raises(ControlError, match="No space left"):
        fabric.call(connection.answer)
    connection.close()


def test_what_adapters_send_is_captured_for_all_of_them(fabric: Served, tmp_path: Path) -> None:
    one, two, sent = crossing(fabric)
    fabric.server.capture(tmp_path / "a.pcapng")
    one.send(burst_of(sent))
    fabric.until(lambda: take(two) is not None)
    fabric.close()
    assert read(tmp_path / "a.pcapng") == [sent]


def command(fabric: Served, *words: str) -> list[str]:
    """A command of softhca on a fabric."""
    return [sys.executable, "-m", "softhca", "fabric", *words, "--name", fabric.name]


def test_the_commands_degrade_and_capture(fabric: Served, tmp_path: Path) -> None:
    one, two, sent = crossing(fabric)
    words = command(fabric, "degrade", "s[1]", "symbol_error=3", "--faults", "delay=1s")
    done = fabric.call(lambda: subprocess.run(words, capture_output=True, text=True, check=True))
    assert "is degraded" in done.stdout
    port = fabric.plane.nodes[0].ports[1]
    assert port is not None
    assert port.counts["symbol_error"] == 3
    file = tmp_path / "a.pcapng"
    words = command(fabric, "capture", "s[1]", str(file), "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as capture:
        fabric.until(lambda: len(fabric.server.control._captures) == 1)  # type: ignore[union-attr]
        one.send(burst_of(sent))
        fabric.until(lambda: len(fabric.server.packets._held) == 1)
        capture.send_signal(signal.SIGINT)
        fabric.until(lambda: capture.poll() is not None)
        assert capture.stdout is not None
        assert json.loads(capture.stdout.read()) == {"captured": 1}
    assert read(file) == [sent]
    assert take(two) is None
    words = command(fabric, "degrade", "s[1]")
    done = fabric.call(lambda: subprocess.run(words, capture_output=True, text=True, check=False))
    assert (done.returncode, "by what?" in done.stderr) == (2, True)


def test_a_served_fabric_is_shown_with_its_lids_loads_and_errors(fabric: Served, tmp_path: Path) -> None:
    topology = fabric.plane.topology
    (tmp_path / "a.topo").write_text(write_ibnetdiscover(topology))
    perform(fabric.plane, {"do": "count", "link": "s[1]", "errors": {"symbol_error": 7}}, 0)
    perform(fabric.plane, {"do": "fail", "link": "s[2]"}, 0)

    def shown(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "softhca", "fabric", "show", name, "--served", fabric.name, *words]
        return fabric.call(lambda: subprocess.run(command, capture_output=True, text=True, check=False))

    told = json.loads(shown(str(tmp_path / "a.topo"), "--svg", str(tmp_path / "a.svg"), "--json").stdout)
    lids = {each["description"]: each["lid"] for each in told["nodes"]}
    expected = {
        topology.nodes[node.index].description: node.own_port(0 if node.is_switch else 1).info.lid
        for node in fabric.plane.nodes
    }
    assert lids == expected
    assert all(lids.values())
    assert [(each["errors"], each["down"]) for each in told["links"]] == [(7, False), (2, True), (0, False)]
    assert all(each["load_bytes"] > 0 for each in told["links"])
    picture = (tmp_path / "a.svg").read_text()
    assert ERROR_COLOUR in picture
    assert GONE_COLOUR in picture
    assert f">{expected['s']}<" in picture
    text = shown(str(tmp_path / "a.topo")).stdout
    assert "down" in text
    assert text.count("[1]") == 3  # two links, the third has no line
    other = shown("fat-tree:radix=4")
    assert (other.returncode, "name the topology that serve was given" in other.stderr) == (1, True)


@pytest.mark.parametrize(("uid", "answered"), [(0, True), (os.geteuid(), True), (os.geteuid() + 1, False)])
def test_only_the_same_user_and_root_are_answered(
    served: tuple[FabricLoop, ControlSocket], monkeypatch: pytest.MonkeyPatch, uid: int, answered: bool
) -> None:
    server, control = served
    monkeypatch.setattr(fabric_control.messages, "peer_of", lambda made: (1, uid))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(control_name(NAME))
        server.turn(0)
        assert len(control._connections) == answered
        if not answered:
            assert client.recv(10) == b""


def test_a_request_has_a_bound_and_leaves_no_descriptor(served: tuple[FabricLoop, ControlSocket]) -> None:
    server, _ = served
    request = json.dumps({"do": "counters"}).encode()
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(control_name(NAME))
        server.turn(0)
        for length, answer in ((fabric_control.LARGEST, "counters"), (fabric_control.LARGEST + 1, "error")):
            socket.send_fds(client, [request.ljust(length)], [writes])
            server.turn(0)
            assert list(json.loads(client.recv(1 << 16))) == [answer]
    os.close(writes)
    assert os.read(reads, 1) == b""  # nobody has the other end any more
    os.close(reads)
