"""Adapters join a fabric that is served: who may, what crosses, room, ends, and hostile bytes."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from fabric_server_pair import Served, burst_of, take
from fabric_server_pair import packet as packet_between

from softhca.adapter.config import native_gid
from softhca.fabric.packet_plane import LIFETIME_NS
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.links import fabric_messages as m
from softhca.links.fabric import FabricLink
from softhca.links.link import AGAIN, SENT
from softhca.runtime.fabric_adapters import MOST_A_TURN, MOST_INFOS, MOST_UNJOINED, Member
from softhca.runtime.fabric_loop import FabricLoop
from softhca.runtime.fabric_server import FabricServer


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


def packet(source: FabricLink, destination: FabricLink, payload: bytes = b"data", psn: int = 0) -> bytes:
    return packet_between(source.info["lid"], destination.info["lid"], payload, psn)


# joining


def test_an_adapter_is_told_what_its_port_is(served: Served) -> None:
    link = served.join("h1")
    state = served.plane.nodes[2].ports[1]
    assert state is not None
    assert (link.node, link.node_guid) == ("h1", 0x1010)
    assert link.gid == native_gid(served.plane.topology.nodes[2].port_guid(1))
    assert (link.info["lid"], link.info["sm_lid"]) == (state.info.lid, state.info.sm_lid)
    assert link.info["sm_lid"] > 0
    assert (link.info["state"], link.info["pkeys"]) == (4, (0xFFFF,))
    assert (link.active_mtu, link.active_width, link.active_speed) == (4096, 2, 64)
    assert link.fileno() >= 0
    assert served.counter("adapters_joined") == 1


def test_hosts_are_given_in_order_and_each_once(served: Served) -> None:
    assert [served.join().node, served.join("h2").node, served.join().node] == ["h0", "h2", "h1"]
    for node, code in (("", errno.EBUSY), ("h1", errno.EBUSY), ("nobody", errno.ENODEV), ("s", errno.ENODEV)):
        with pytest.raises(OSError, match=served.name) as caught:
            served.join(node)
        assert caught.value.errno == code
    assert served.counter("adapters_refused") == 4
    served.links[0].close()
    served.until(lambda: len(served.server.packets.ports) == 2)
    assert served.join().node == "h0"


def test_a_port_is_named_by_its_number() -> None:
    nodes = [make_node("s", NodeKind.SWITCH, 3, 0x100), make_node("h[1]", NodeKind.CHANNEL_ADAPTER, 2, 0x200),
             make_node("k", NodeKind.CHANNEL_ADAPTER, 1, 0x300)]  # fmt: skip
    links = (Link(End(0, 1), End(1, 1)), Link(End(0, 2), End(1, 2)), Link(End(0, 3), End(2, 1)))
    served = Served(topology=Topology(tuple(nodes), links), name="ports")
    try:
        found = [served.join(name) for name in ("h[1][2]", "h[1]", "k[1]")]
        ports = served.plane.nodes[1].ports
        lids = [port.info.lid for port in (ports[2], ports[1], served.plane.nodes[2].ports[1]) if port]
        assert [link.info["lid"] for link in found] == lids
        assert len(set(lids)) == 3
        assert [link.gid[8:].hex()[-3:] for link in found[:2]] == ["202", "201"]
        assert found[0].node_guid == found[1].node_guid
        for name in ("k[2]", "k[0]", "s[1]", "h[1][3]", "[1]", "k[]", "k[1", "h[1][1]"):
            with pytest.raises(OSError, match=served.name) as caught:
                served.join(name)
            assert caught.value.errno == (errno.EBUSY if name == "h[1][1]" else errno.ENODEV)
    finally:
        served.close()


def test_who_serves_nothing_is_told(served: Served) -> None:
    with pytest.raises(OSError, match="softhca fabric serve") as caught:
        FabricLink(served.name + "-other")
    assert caught.value.errno == errno.ECONNREFUSED


def test_a_name_is_one_fabric_s(served: Served) -> None:
    loop = FabricLoop(served.plane, lambda: 0)
    again = FabricServer(loop, served.name)
    with pytest.raises(OSError, match="in use"):
        again.open()
    again.close()


# packets


def test_bursts_cross_whole_and_in_order(served: Served) -> None:
    one, two = served.join(), served.join()
    first = burst_of(*(packet(one, two, bytes(4096), n) for n in range(15)))
    second = burst_of(packet(one, two, b"last", 15))
    assert one.send(first) == one.send(second) == SENT
    served.until(lambda: served.counter("packets_delivered") == 16)
    assert take(two) == (bytes(first.buffer[: first.length]), first.stride)
    assert take(two) == (bytes(second.buffer[: second.length]), second.stride)
    assert take(two) is None
    assert (one.bursts_sent, two.bursts_received) == (2, 2)
    assert two.bytes_received == first.length + second.length == one.bytes_sent


def test_nothing_is_lost_for_want_of_room(served: Served) -> None:
    one, two = served.join(), served.join()
    sent = 0
    for turn in range(2000):  # the receiver reads nothing: sockets fill, then the sender must wait
        if one.send(burst_of(*(packet(one, two, bytes(4000), sent) for _ in range(4)))) == SENT:
            sent += 1
        elif turn > sent + 20:
            break
        served.loop.turn(0)
    assert one.send_blocked > 0
    assert sent < 500
    assert one.send(burst_of(packet(one, two))) == AGAIN
    numbers = []
    while len(numbers) < sent:
        served.loop.turn(0)
        got = take(two)
        if got is not None:
            numbers.append(int.from_bytes(got[0][17:20], "big"))
    assert numbers == list(range(sent))
    assert served.counter("packets_delivered") == 4 * sent


def test_a_receiver_that_never_reads_keeps_others_only_for_a_while(served: Served) -> None:
    one, two, three = served.join(), served.join(), served.join()
    while not served.server.packets.ports[served.plane.topology.links[0].end_b].is_blocked:
        one.send(burst_of(*(packet(one, two, bytes(4000)) for _ in range(4))))
        served.loop.turn(0)
    while one.send(burst_of(packet(one, three))) != AGAIN:
        pass
    served.now_ns += LIFETIME_NS
    served.until(lambda: take(three) is not None)
    assert served.counter("drops_lifetime") > 0


def test_what_an_adapter_has_sent_arrives_after_its_end(served: Served) -> None:
    one, two = served.join(), served.join()
    sent = 0
    while not served.server.packets.ports[served.plane.topology.links[0].end_b].is_blocked:
        assert one.send(burst_of(*(packet(one, two, bytes(4000), sent) for _ in range(4)))) == SENT
        sent += 1
        served.loop.turn(0)
    for _ in range(2):  # these the fabric has not read yet
        assert one.send(burst_of(packet(one, two, bytes(4000), sent))) == SENT
        sent += 1
    one.close()
    served.loop.turn(0)
    served.loop.turn(0)
    numbers = []
    while len(numbers) < sent:
        got = take(two)
        if got is not None:
            numbers.append(int.from_bytes(got[0][17:20], "big"))
        served.loop.turn(0)
    assert numbers == list(range(sent))
    served.until(lambda: len(served.server.packets.ports) == 1)


def test_bursts_of_one_who_has_gone_may_wait_again_and_go_in_the_same_turn(served: Served) -> None:
    adapters = served.server.adapters
    assert adapters is not None
    link = served.join()
    member = adapters.members[served.server.packets.ports[served.plane.topology.links[0].end_b]]
    member.part()  # while a burst of it waits
    for _ in range(2):  # that goes; the next one is read, waits, and goes before the turn ends
        member._wake()
    link.close()
    served.until(lambda: len(served.server.packets.ports) == 0)


@pytest.fixture
def member(served: Served) -> Member:
    """The fabric's side of an adapter."""
    adapters = served.server.adapters
    assert adapters is not None
    served.join()
    return adapters.members[served.server.packets.ports[served.plane.topology.links[0].end_b]]


def test_packets_do_not_overtake_what_a_manager_has_set(member: Member) -> None:
    member._info_changed()
    assert not member._deliver(bytes(30), 30)
    member.infos.clear()
    member._writable()
    assert member._deliver(bytes(30), 30)


def test_what_managers_set_is_kept_for_an_adapter_within_bounds(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(range(10 * MOST_INFOS))
    with monkeypatch.context() as patched:
        patched.setattr(member, "port", SimpleNamespace(info=lambda: {"state": 4 * (next(states) % 2)}))
        for _ in range(8 * MOST_INFOS):
            member._info_changed()
    assert len(member.infos) == MOST_INFOS
    assert member.infos[-1] == {"state": 4}, "the newest is among them"
    member.infos.clear()


def test_nobody_waits_for_room_at_one_who_has_gone(member: Member) -> None:
    member._fill()
    member.part()
    assert not member.is_full
    member._wake()


def test_room_is_still_waited_for_when_a_burst_has_gone(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[tuple[bool, bool]] = []
    member._fill()
    with monkeypatch.context() as patched:
        patched.setattr(member._loop, "want", lambda fd, reads, writes: wanted.append((reads, writes)))
        member._wake()
    assert wanted == [(True, True)]


def test_an_adapter_has_its_turn_and_no_more(served: Served) -> None:
    with joined(served) as made:
        for _ in range(MOST_A_TURN + 1):
            made.send(b"x")
        served.loop.turn(0)
        assert served.counter("messages_bad") == MOST_A_TURN
        served.loop.turn(0)
        assert served.counter("messages_bad") == MOST_A_TURN + 1


def test_a_port_whose_socket_cannot_be_watched_is_free_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = served.loop.watch

    def scarce(descriptor: int, readable: Any, writable: Any = None) -> None:
        if writable is not None:
            raise OSError(errno.ENOSPC, "no more descriptors are watched")
        watch(descriptor, readable)

    monkeypatch.setattr(served.loop, "watch", scarce)
    with pytest.raises(OSError, match="no more descriptors") as caught:
        served.join("h0")
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.setattr(served.loop, "watch", watch)
    assert served.join("h0").node == "h0"


# what a manager sets


def test_a_link_that_fails_and_comes_back_is_told_in_order(served: Served) -> None:
    one, two = served.join(), served.join()
    states: list[tuple[int, int]] = []
    one.on_info = lambda info: states.append((info["state"], info["lid"]))
    lid = one.info["lid"]
    served.plane.fail(0, 0)
    served.until(lambda: take(one) is None and len(states) > 0)
    assert states == [(1, lid)]
    assert one.send(burst_of(packet(one, two))) == SENT
    served.until(lambda: served.counter("drops_link_down") == 1)
    served.plane.restore(0, served.now_ns)

    def active() -> bool:
        served.now_ns += 1_000_000
        return take(one) is None and states[-1] == (4, lid)

    served.until(active)
    assert one.infos == len(states)
    one.send(burst_of(packet(one, two)))
    served.until(lambda: take(two) is not None)


def test_a_port_that_is_gone_for_a_moment_is_told_so(served: Served) -> None:
    one = served.join()
    states: list[int] = []
    one.on_info = lambda info: states.append(info["state"])
    port = served.plane.nodes[1].ports[1]
    assert port is not None
    for state in (2, 3, 4, 2, 4):  # all within one turn
        port.change(state=state)
    for lid in range(40, 140):
        port.change(lid=lid)
    served.until(lambda: take(one) is None and len(states) == 4)
    assert states == [3, 4, 2, 4]
    assert one.info["lid"] == 139


def test_p_keys_are_told(served: Served) -> None:
    one = served.join()
    port = served.plane.nodes[1].ports[1]
    assert port is not None
    port.set_pkeys(1, b"\0\0\x80\x05".ljust(64, b"\0"))
    served.until(lambda: take(one) is None and one.infos == 1)
    assert one.info["pkeys"] == (0xFFFF, *[0] * 31, 0, 0x8005)


def test_when_the_fabric_goes_the_port_is_down(served: Served) -> None:
    one = served.join()
    states: list[int] = []
    one.on_info = lambda info: states.append(info["state"])
    served.server.adapters.close()  # type: ignore[union-attr]
    assert take(one) is None
    assert states == [1]
    assert one.fileno() == -1
    assert one.send(burst_of(b"x" * 40)) == -errno.ENETDOWN
    assert take(one) is None
    assert states == [1]


# hostile bytes


def client(served: Served) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.connect(m.socket_name(served.name))
    made.setblocking(False)
    return made


def joined(served: Served) -> socket.socket:
    made = client(served)
    made.send(m.encode(m.HELLO, {"version": m.VERSION, "node": ""}))
    served.loop.turn(0)
    served.loop.turn(0)
    assert m.decode(made.recv(1 << 16))[0] == m.WELCOME
    return made


@pytest.mark.parametrize(
    "data",
    [
        b"x", b"\0" * 8, b"\3\0\0\0\0\0\0\0", m.encode(m.HELLO, {"version": 99}), m.encode(m.BURST, {}),
        m.HEADER.pack(m.HELLO, 0) + b"[]", m.HEADER.pack(m.HELLO, 0) + b"[" * 9000, b"y" * 20_000,
        m.HEADER.pack(m.HELLO, 0) + b"\xff" * 50,
    ],
)  # fmt: skip
def test_who_does_not_say_who_he_is_is_refused(served: Served, data: bytes) -> None:
    with client(served) as made:
        made.send(data)
        served.loop.turn(0)
        served.loop.turn(0)
        kind, content = m.decode(made.recv(1 << 16))
        assert (kind, content["errno"]) == (m.REFUSAL, errno.EPROTO)
        assert made.recv(10) == b""
    assert (served.counter("messages_bad"), served.counter("adapters_refused")) == (1, 1)
    assert served.join().node == "h0"


def test_who_has_said_nothing_yet_is_not_refused(served: Served) -> None:
    adapters = served.server.adapters
    assert adapters is not None
    with client(served) as made:
        served.loop.turn(0)
        (accepted,) = adapters._unjoined
        adapters._join(accepted)  # as where something has come for an earlier socket of that descriptor
        made.send(m.encode(m.HELLO, {"version": m.VERSION, "node": "h0"}))
        served.loop.turn(0)
        assert m.decode(made.recv(1 << 16))[0] == m.WELCOME
    assert served.counter("messages_bad") == 0


def test_strange_names_are_no_nodes(served: Served) -> None:
    for name in ("x" * 10_000, "\0", 5, None, {"a": 1}, ""):
        with client(served) as made:
            made.send(m.encode(m.HELLO, {"version": m.VERSION, "node": name}))
            served.loop.turn(0)
            served.loop.turn(0)
            assert m.decode(made.recv(1 << 16))[0] == (m.WELCOME if name == "" else m.REFUSAL)


def test_those_who_say_nothing_are_bounded(served: Served) -> None:
    silent = []
    for _ in range(MOST_UNJOINED + 3):
        silent.append(client(served))
        served.loop.turn(0)
    assert served.counter("adapters_refused") == 3
    for each in silent:
        each.close()
    served.loop.turn(0)
    assert served.join().node == "h0"


def test_messages_that_are_none_are_counted_and_dropped(served: Served) -> None:
    made = joined(served)
    bad = (b"x", m.HEADER.pack(m.BURST, 30), m.HEADER.pack(9, 30) + b"y" * 30,
           m.encode(m.HELLO, {"node": ""}),
           m.HEADER.pack(m.BURST, 4096) + bytes(m.LARGEST - m.HEADER.size + 1), b"z" * 100_000)  # fmt: skip
    for data in bad:
        made.send(data)
        served.loop.turn(0)
    assert served.counter("messages_bad") == len(bad)
    made.send(m.HEADER.pack(m.BURST, 30) + bytes(30))
    served.loop.turn(0)
    assert served.counter("drops_malformed") == 1
    made.close()


def test_hostile_adapters_disturb_nobody(served: Served) -> None:
    one, two = served.join(), served.join()
    made, dice = joined(served), Random(5)
    good = packet(one, two, bytes(64))
    for number in range(700):
        stride = dice.choice((len(good), 0, 26, 1 << 31))
        data = bytearray(m.HEADER.pack(dice.choice((1, 1, 1, 0, 3, 255)), stride))
        data += b"".join(good for _ in range(dice.randrange(5))) + dice.randbytes(dice.randrange(30))
        for _ in range(dice.randrange(4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        made.send(data)
        served.loop.turn(0)
        if number % 10 == 0:
            sent = packet(one, two, b"fine", number)
            one.send(burst_of(sent))
            served.loop.turn(0)
            assert take(two) == (sent, len(sent))
    assert two.bursts_received == 70  # none in another's name
    made.close()


# a hostile fabric


class Forger:
    """Whoever has taken a fabric's name, and says what a test wants."""

    def __init__(self, welcome: bytes) -> None:
        self.name = f"softhca-test-forger-{os.getpid()}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(m.socket_name(self.name))
        self.listener.listen(1)
        self.welcome = welcome

    def join(self) -> FabricLink:
        import threading

        def serve() -> None:
            self.peer = self.listener.accept()[0]
            self.peer.recv(1 << 16)
            self.peer.send(self.welcome)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return FabricLink(self.name)
        finally:
            thread.join()

    def close(self) -> None:
        self.peer.close()
        self.listener.close()


WELCOME: dict[str, Any] = {
    "version": 1, "node": "h", "port_guid": 5, "node_guid": 4, "mtu": 5, "width": 2, "speed": 32, "lid": 3,
    "lmc": 0, "sm_lid": 1, "sm_sl": 0, "subnet_timeout": 18, "gid_prefix": 0xFE80 << 48, "state": 4,
    "pkeys": [0xFFFF],
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"lid": 0xC000}, {"lid": -1}, {"lid": True}, {"lid": "3"}, {"lmc": 8}, {"state": 5}, {"pkeys": 3},
        {"pkeys": [0x10000]}, {"pkeys": [0] * 65}, {"pkeys": ["a"]}, {"mtu": 6}, {"port_guid": 1 << 64},
        {"sm_sl": 16}, {"speed": None},
    ],
)  # fmt: skip
def test_a_welcome_that_cannot_be_is_none(change: dict[str, Any]) -> None:
    forger = Forger(m.encode(m.WELCOME, WELCOME | change))
    with pytest.raises(OSError, match=next(iter(change)).replace("pkeys", "P_Keys")) as caught:
        forger.join()
    assert caught.value.errno == errno.EPROTO
    forger.close()


@pytest.mark.parametrize("data", [b"x", m.HEADER.pack(m.WELCOME, 0) + b"nothing", bytes(60)])
def test_an_answer_that_is_none(data: bytes) -> None:
    forger = Forger(data)
    with pytest.raises(OSError, match="gave no answer") as caught:
        forger.join()
    assert caught.value.errno == errno.EPROTO
    forger.close()


def test_messages_of_a_hostile_fabric_change_nothing() -> None:
    forger = Forger(m.encode(m.WELCOME, WELCOME))
    link = forger.join()
    heard: list[object] = []
    link.on_info = heard.append
    bad = (b"x", m.HEADER.pack(m.BURST, 0) + b"abc", m.HEADER.pack(m.BURST, 4) + b"abc",
           m.HEADER.pack(9, 0) + b"{}",
           m.encode(m.INFO, WELCOME | {"lid": 0xFFFF}), m.HEADER.pack(m.INFO, 0) + b"[" * 5000,
           m.HEADER.pack(m.BURST, 4) + bytes(66_000))  # fmt: skip
    for data in bad:
        forger.peer.send(data)
    forger.peer.send(m.HEADER.pack(m.BURST, 3) + b"abcdef")
    assert take(link) == (b"abcdef", 3)
    assert link.messages_bad == len(bad)
    assert heard == []
    forger.peer.send(m.HEADER.pack(m.INFO, 0) + json.dumps(WELCOME | {"lid": 9}).encode())
    assert take(link) is None
    assert link.info["lid"] == 9
    assert len(heard) == 1
    link.close()
    forger.close()
