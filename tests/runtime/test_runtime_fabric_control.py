"""Commands to a fabric that is served: what they do, and what they refuse."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from softhca.fabric.generators import fat_tree
from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.runtime import fabric_control
from softhca.runtime.fabric_control import ControlError, ControlSocket, ask, control_name, perform
from softhca.runtime.fabric_loop import FabricLoop

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
